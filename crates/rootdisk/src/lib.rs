//! Layers to a deterministic ext4 root disk: nothing mounted, nothing executed, no root needed.
//!
//! Bytes flow once. Each layer is inflated, hashed and cut into tar entries while it arrives, and
//! file data goes straight to its place in the disk, which depends on the manifest alone; when all
//! layers are in, their indexes are merged in order and the metadata is written last.
//!
//! | module | what it holds |
//! |---|---|
//! | `limits` | how much a stranger's image may ask for |
//! | `codec` | gzip, zstd or plain, by content, bounded |
//! | `tar` | bytes pushed in, entries out |
//! | `layer` | what one layer says |
//! | `merge` | layers in order to one tree: whiteouts, links, type changes |
//! | `tree` | the merged file system |
//! | `region` | where a layer's data goes |
//! | `disk` | the output file |
//! | `checksum` | a checksum that skips holes |
//! | `meta` | what is kept beside a disk |
//! | `ext4` | tree to ext4, and our own reader of it |
//! | `verity` | a dm-verity hash tree behind the file system |
//! | `fetch` | an image's documents and layers from a registry or layout |
//! | `build` | all of it together |
//! | `extract` | a disk's tree back to a directory |
#![warn(missing_docs)]

pub mod build;
pub mod checksum;
pub mod codec;
mod disk;
pub mod ext4;
pub mod extract;
pub mod fetch;
pub mod layer;
pub mod limits;
pub mod merge;
pub mod meta;
mod place;
pub mod region;
pub mod tar;
pub mod tree;
pub mod verity;
