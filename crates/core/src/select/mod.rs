//! Which one manifest of an index a host runs, and which ones some runtime there might run.
//!
//! Nothing here fetches. [`Candidates`] collects the entries of an index and asks its questions
//! (open this nested index, look up the platform of that manifest); the caller answers those it
//! can. Then [`select`] says what *we* run, with a reason for every entry, and [`may_run`] what
//! *any* runtime might run, which is what verification has to cover. [`by_level`] says what each
//! level of an architecture gets.
//!
//! ```
//! use portolan_core::select::{Candidates, select};
//! use portolan_core::platform::{HostPlatform, Platform};
//! use portolan_core::{Descriptor, Digest, Index, media_type};
//!
//! let entry = |platform: &str| Descriptor {
//!     platform: Some(platform.parse().unwrap()),
//!     ..Descriptor::of(media_type::OCI_MANIFEST, platform.as_bytes())
//! };
//! let index = Index::new(vec![entry("linux/amd64"), entry("linux/amd64/v3"), entry("linux/arm64")]);
//! let candidates = Candidates::new(Digest::sha256(&index.to_vec()), &index);
//! let host = HostPlatform::named(&"linux/amd64/v4".parse::<Platform>().unwrap());
//! let selection = select(&candidates, &host).unwrap();
//! assert_eq!(selection.chosen.digest, index.manifests[1].digest);
//! ```

mod candidates;
mod decide;
mod levels;
mod report;

pub use candidates::{Candidates, MAX_DEPTH, MAX_ENTRIES, MAX_QUESTIONS, Question};
pub use decide::{may_run, may_run_on, select};
pub use levels::{LevelChoice, by_level};
pub use report::{Considered, NoMatch, Outcome, Selection};
