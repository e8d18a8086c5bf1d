//! Things of which a machine may have many, each with a directory of its own: what could be read
//! of them, and which could not be read.

use std::collections::BTreeMap;

use super::{Feature, Instance};
use crate::root::{Dir, NotRead};

/// Longer than any attribute of a device, in bytes. A hostile tree may hold 20,000 devices whose
/// attributes are all as long as they may be.
const ATTRIBUTE: u64 = 256;

/// What was found in a directory of things.
#[derive(Debug, Default)]
pub(crate) struct Things {
    instances: Vec<Instance>,
    /// What could not be read, by the names of directories and files, and why. Each may be just
    /// the thing that is looked for.
    unknown: BTreeMap<String, String>,
}

impl Things {
    /// One of them.
    pub(crate) fn add(&mut self, instance: Instance) {
        self.instances.push(instance);
    }

    /// The directory `entry` of the thing called `name`: none where it is gone meanwhile, or
    /// cannot be looked into, which is kept in mind.
    pub(crate) fn dir<'r>(&mut self, name: &str, above: &Dir<'r>, entry: &str) -> Option<Dir<'r>> {
        self.kept(name, &above.inside(entry), above.dir(entry))
    }

    /// The attribute `file` of the thing called `name`: none where it has none.
    pub(crate) fn attribute(&mut self, name: &str, thing: &Dir<'_>, file: &str) -> Option<String> {
        let read = thing.text_within(file, ATTRIBUTE);
        self.kept(&format!("{name}/{file}"), &thing.inside(file), read)
    }

    /// The same through links, in another directory.
    pub(crate) fn behind(&mut self, name: &str, thing: &Dir<'_>, path: &str) -> Option<String> {
        let read = thing.text_behind(path, ATTRIBUTE);
        self.kept(&format!("{name}/{path}"), &thing.inside(path), read)
    }

    /// What was read; what could not be is kept in mind under `name`.
    fn kept<T>(&mut self, name: &str, path: &str, read: Result<T, NotRead>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(NotRead::Missing) => None,
            Err(why) => {
                self.unknown.insert(name.to_owned(), why.about(path));
                None
            }
        }
    }

    /// All of them, found in `source`.
    pub(crate) fn feature(self, source: &str) -> Feature {
        let mut feature = Feature::instances(source, self.instances);
        feature.unknown = self.unknown;
        feature
    }
}
