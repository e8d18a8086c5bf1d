//! The links of a tree, judged together: one that stays inside by its own words may lead out through
//! another.

use std::collections::{BTreeMap, VecDeque};

/// As many links as Linux follows in one path; what needs more leads nowhere.
const MAX_FOLLOWED: usize = 40;
/// So many parts of names are looked at for one tree, links of links included.
const MAX_STEPS: usize = 20_000_000;

/// What is wrong with the links of a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Astray {
    /// One leads out.
    Escapes {
        /// The link, from the root.
        path: Vec<u8>,
        /// What it says.
        target: Vec<u8>,
    },
    /// To follow them all would take for ever.
    Tangled,
}

/// Where one link leads.
enum Led {
    Inside,
    Out,
}

/// The links of a tree, by their paths from its root.
#[derive(Debug, Default)]
pub(super) struct Links {
    all: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Links {
    pub(super) fn add(&mut self, path: Vec<u8>, target: Vec<u8>) {
        self.all.insert(path, target);
    }

    /// Follows every link to its end, through all that are on the way.
    pub(super) fn check(&self) -> Result<(), Astray> {
        self.check_within(MAX_STEPS)
    }

    fn check_within(&self, mut steps: usize) -> Result<(), Astray> {
        for (path, target) in &self.all {
            match self.follow(path, &mut steps) {
                Some(Led::Inside) => {}
                Some(Led::Out) => {
                    return Err(Astray::Escapes { path: path.clone(), target: target.clone() });
                }
                None => return Err(Astray::Tangled),
            }
        }
        Ok(())
    }

    /// None where `steps` are used up.
    fn follow(&self, path: &[u8], steps: &mut usize) -> Option<Led> {
        let mut left: VecDeque<&[u8]> = parts(path).collect();
        // Where we are: a directory of the tree, or a name that is not there.
        let mut here: Vec<u8> = Vec::with_capacity(path.len());
        let mut followed = 0;
        while let Some(part) = left.pop_front() {
            *steps = steps.checked_sub(1)?;
            if part == b".." {
                if here.is_empty() {
                    return Some(Led::Out);
                }
                here.truncate(here.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            let parent = here.len();
            if parent > 0 {
                here.push(b'/');
            }
            here.extend_from_slice(part);
            let Some(target) = self.all.get(&here) else { continue };
            if target.starts_with(b"/") {
                return Some(Led::Out);
            }
            followed += 1;
            if followed > MAX_FOLLOWED {
                return Some(Led::Inside);
            }
            here.truncate(parent);
            for part in parts(target).rev() {
                left.push_front(part);
            }
        }
        Some(Led::Inside)
    }
}

/// The names of a path that mean something.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(all: &[(&str, &str)]) -> Links {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Links { all: all.iter().map(|(path, target)| (bytes(path), bytes(target))).collect() }
    }

    fn check(all: &[(&str, &str)]) -> Result<(), String> {
        links(all).check().map_err(|error| match error {
            Astray::Escapes { path, .. } => String::from_utf8(path).unwrap(),
            Astray::Tangled => "tangled".to_owned(),
        })
    }

    #[test]
    fn links_are_followed_through_each_other() {
        for (links, out) in [
            (&[("a/b/up", "../.."), ("x", "a/b/up/../../etc/passwd")][..], "x"),
            (&[("a", "b"), ("b", "c"), ("c", "../x")][..], "a"),
            (&[("d/e", "."), ("x", "d/e/../../y")][..], "x"),
            (&[("d/up", ".."), ("x", "d/up/up2"), ("up2", "..")][..], "up2"),
            (&[("x", "/etc")][..], "x"),
            (&[("x", "a/../../y")][..], "x"),
        ] {
            assert_eq!(check(links), Err(out.to_owned()), "{links:?}");
        }
        for links in [
            &[("a/b/up", "../.."), ("x", "a/b/up/a")][..],
            &[("a/b/up", "../run"), ("dir", "a/b"), ("again", "dir/up")][..],
            &[("root", "."), ("a/root", "..")][..],
            // Nobody can follow these.
            &[("a", "b"), ("b", "a"), ("self", "self")][..],
            &[("gone", "nothing/there")][..],
        ] {
            assert_eq!(check(links), Ok(()), "{links:?}");
        }
    }

    #[test]
    fn tangles_are_given_up() {
        let chain = links(&[("a", "b"), ("b", "c"), ("c", "d/../e")]);
        assert_eq!(chain.check_within(17), Ok(()));
        assert_eq!(chain.check_within(11), Err(Astray::Tangled));
    }
}
