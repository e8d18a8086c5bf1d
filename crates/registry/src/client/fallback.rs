//! The list of referrers that is kept under a tag, for registries without the referrers API: writing.
//! How safe that is, is told at [`Remote::referrers`].

use std::time::Duration;

use ::http::Method;
use ::http::header::{ACCEPT, IF_MATCH, IF_NONE_MATCH};
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Document, Index, Tag, Target, media_type};

use super::Remote;
use super::error::{ClientError, Failure};
use super::http::{Access, Call};
use super::retry::jitter;
use super::step::Step;

/// How often a change is repeated when another writer undid it.
const ATTEMPTS: u32 = 8;
/// A second look after writing comes this much later: longer than another writer usually needs
/// between its read and its write.
const SECOND_LOOK: Duration = Duration::from_millis(120);

/// A change to a list.
#[derive(Debug, Clone, Copy)]
enum Change<'a> {
    Add(&'a Descriptor),
    Remove(&'a Digest),
}

/// A list as it was read.
struct List {
    index: Index,
    /// What the registry says it can be recognised by; none when there is no list yet.
    etag: Option<String>,
    exists: bool,
}

impl Change<'_> {
    /// The list after the change, or none when it already is that way.
    fn apply(self, index: &Index) -> Option<Index> {
        let mut changed = index.clone();
        match self {
            Self::Add(entry) => {
                if index.manifests.iter().any(|known| known.digest == entry.digest) {
                    return None;
                }
                changed.manifests.push(entry.clone());
            }
            Self::Remove(digest) => {
                changed.manifests.retain(|known| known.digest != *digest);
                if changed.manifests.len() == index.manifests.len() {
                    return None;
                }
            }
        }
        Some(changed)
    }
}

/// The tag under which the list is kept.
pub(super) fn list_target(subject: &Digest) -> Target {
    Target::Tag(list_tag(subject))
}

fn list_tag(subject: &Digest) -> Tag {
    subject.referrers_tag().parse().expect("algorithm, dash and 64 hex digits are a tag")
}

impl Remote {
    pub(super) async fn add_to_list(
        &self,
        subject: &Digest,
        entry: &Descriptor,
    ) -> Result<(), ClientError> {
        self.change_list(subject, Change::Add(entry)).await
    }

    pub(super) async fn remove_from_list(
        &self,
        subject: &Digest,
        digest: &Digest,
    ) -> Result<(), ClientError> {
        self.change_list(subject, Change::Remove(digest)).await
    }

    async fn change_list(&self, subject: &Digest, change: Change<'_>) -> Result<(), ClientError> {
        let step = Step::ChangeReferrers(*subject);
        let lock = self.turn("referrers", subject);
        let _turn = lock.lock().await;
        self.change_list_failing(subject, change)
            .await
            .map_err(|failure| self.upstream.error(&step, failure))
    }

    async fn change_list_failing(
        &self,
        subject: &Digest,
        change: Change<'_>,
    ) -> Result<(), Failure> {
        let tag = list_tag(subject);
        for attempt in 1..=ATTEMPTS {
            let list = self.read_list(&tag).await?;
            let Some(changed) = change.apply(&list.index) else { return Ok(()) };
            if self.write_list(&tag, &list, &changed).await? && self.stays(&tag, change).await? {
                return Ok(());
            }
            // Another writer was faster. Waits of different length let one of us go first.
            tokio::time::sleep(SECOND_LOOK.mul_f64(f64::from(attempt) * jitter())).await;
        }
        Err(Failure::LostRace { tag: tag.as_str().to_owned(), attempts: ATTEMPTS })
    }

    /// Whether the change is there now and a moment later.
    async fn stays(&self, tag: &Tag, change: Change<'_>) -> Result<bool, Failure> {
        for wait in [Duration::ZERO, SECOND_LOOK.mul_f64(0.5 + jitter())] {
            tokio::time::sleep(wait).await;
            let list = self.read_list(tag).await?;
            if change.apply(&list.index).is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn read_list(&self, tag: &Tag) -> Result<List, Failure> {
        let url = self.upstream.url(&format!("manifests/{}", tag.as_str()));
        let call = Call::new(Method::GET, url, Access::Push)
            .header(ACCEPT, &media_type::ACCEPTED.join(", "));
        let answer = self.shared.exchange(&self.upstream, &call, MAX_MANIFEST_BYTES).await?;
        if answer.status == 404 {
            return Ok(List { index: Index::new(Vec::new()), etag: None, exists: false });
        }
        let answer = answer.success()?;
        let declared = answer.header("content-type").map(crate::headers::media_type);
        match Document::parse(&answer.body, declared.as_deref()).map_err(Failure::Document)? {
            Document::Index(index) => {
                Ok(List { index, etag: answer.header("etag").map(str::to_owned), exists: true })
            }
            other @ Document::Manifest(_) => Err(Failure::NotAReferrersList {
                tag: tag.as_str().to_owned(),
                media_type: other.media_type().to_owned(),
            }),
        }
    }

    /// Writes the list if nobody changed it, as far as the registry checks that; false when it says
    /// that someone did.
    async fn write_list(&self, tag: &Tag, read: &List, changed: &Index) -> Result<bool, Failure> {
        let condition = match (&read.etag, read.exists) {
            (Some(etag), _) => Some((IF_MATCH, etag.as_str())),
            (None, false) => Some((IF_NONE_MATCH, "*")),
            (None, true) => None,
        };
        let bytes = changed.to_vec();
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(Failure::TooLarge { limit: MAX_MANIFEST_BYTES });
        }
        let media_type = changed.media_type.as_deref().unwrap_or(media_type::OCI_INDEX);
        let answer =
            self.put_manifest(&Target::Tag(tag.clone()), media_type, &bytes, condition).await?;
        if answer.status == 412 {
            return Ok(false);
        }
        answer.success().map(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes() {
        let one = Descriptor::of(media_type::OCI_MANIFEST, b"1");
        let two = Descriptor::of(media_type::OCI_MANIFEST, b"2");
        let empty = Index::new(vec![]);
        let with_one = Change::Add(&one).apply(&empty).unwrap();
        assert_eq!(with_one.manifests, std::slice::from_ref(&one));
        assert!(Change::Add(&one).apply(&with_one).is_none(), "no duplicates");
        let both = Change::Add(&two).apply(&with_one).unwrap();
        assert_eq!(both.manifests, [one.clone(), two.clone()], "appended, order kept");
        assert_eq!(
            Change::Remove(&one.digest).apply(&both).unwrap().manifests,
            std::slice::from_ref(&two)
        );
        assert!(Change::Remove(&one.digest).apply(&empty).is_none());
    }

    #[test]
    fn tags_of_lists() {
        use portolan_core::Algorithm;
        let long = Digest::of(Algorithm::Sha512, b"");
        assert_eq!(list_tag(&long).as_str().len(), "sha512-".len() + 64);
        assert!(list_tag(&Digest::sha256(b"")).as_str().starts_with("sha256-e3b0c442"));
    }
}
