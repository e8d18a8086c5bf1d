//! What each level of an architecture would run.

use std::collections::BTreeSet;

use serde::Serialize;

use super::candidates::{Candidates, State};
use super::select;
use crate::digest::Digest;
use crate::platform::{HostPlatform, Level, Platform};

/// A machine of one level, and what it runs of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelChoice {
    /// The machine.
    pub host: Platform,
    /// The entry it runs; none where the image has nothing for so low a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Digest>,
    /// What that entry is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// What machines of each level run, lowest first, for every architecture of which the image makes
/// a difference between levels.
pub fn by_level(candidates: &Candidates) -> Vec<LevelChoice> {
    let mut architectures = BTreeSet::new();
    for entry in &candidates.entries {
        if let State::For(platform) = &entry.state
            && let Some(level) = Level::of(platform)
            && Some(level) != Level::baseline(level.architecture())
        {
            let platform = platform.normalised();
            architectures.insert((platform.os, level.architecture()));
        }
    }
    let mut choices = Vec::new();
    for (os, architecture) in architectures {
        for level in known(architecture) {
            let host = Platform::new(&os, architecture).with_level(level);
            let chosen = select(candidates, &HostPlatform::named(&host)).ok();
            let (runs, platform) = match chosen {
                // What runs only as 32-bit code is not what this architecture gets by its level.
                Some(chosen)
                    if chosen
                        .platform
                        .as_ref()
                        .and_then(Level::of)
                        .is_some_and(|of| of.architecture() == architecture) =>
                {
                    (Some(chosen.chosen.digest), chosen.platform)
                }
                _ => (None, None),
            };
            choices.push(LevelChoice { host, runs, platform });
        }
    }
    choices
}

/// The levels that machines have, lowest first.
fn known(architecture: &str) -> Vec<Level> {
    match architecture {
        "amd64" => (1..=4).map(Level::Amd64).collect(),
        "arm64" => {
            let eight = (0..=9).map(|minor| Level::Arm64 { major: 8, minor });
            eight.chain((0..=7).map(|minor| Level::Arm64 { major: 9, minor })).collect()
        }
        "arm" => (5..=8).map(Level::Arm).collect(),
        "ppc64le" => (8..=11).map(Level::Ppc64le).collect(),
        "riscv64" => [20, 22, 23].map(Level::Riscv64).to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Descriptor, Index, media_type};

    fn candidates(platforms: &[&str]) -> Candidates {
        let entry = |text: &&str| Descriptor {
            platform: Some(text.parse().unwrap()),
            ..Descriptor::of(media_type::OCI_MANIFEST, text.as_bytes())
        };
        let index = Index::new(platforms.iter().map(entry).collect());
        Candidates::new(Digest::sha256(b"index"), &index)
    }

    fn shown(platforms: &[&str]) -> Vec<(String, Option<String>)> {
        let choices = by_level(&candidates(platforms)).into_iter();
        choices.map(|one| (one.host.to_string(), one.platform.map(|p| p.to_string()))).collect()
    }

    #[test]
    fn each_level_gets_the_best_it_can_run() {
        let text = |host: &str, runs: &str| (host.to_owned(), Some(runs.to_owned()));
        assert_eq!(
            shown(&["linux/amd64", "linux/amd64/v3", "linux/arm64"]),
            [
                text("linux/amd64", "linux/amd64"),
                text("linux/amd64/v2", "linux/amd64"),
                text("linux/amd64/v3", "linux/amd64/v3"),
                text("linux/amd64/v4", "linux/amd64/v3"),
            ]
        );
        let arm: Vec<_> = shown(&["linux/arm64", "linux/arm64/v9"]);
        let of = |host: &str| arm.iter().find(|(one, _)| one == host).unwrap().1.clone().unwrap();
        assert_eq!(
            (of("linux/arm64/v8.9"), of("linux/arm64/v9")),
            ("linux/arm64".into(), "linux/arm64/v9".into())
        );
        assert_eq!(of("linux/arm64/v9.3"), "linux/arm64/v9");
    }

    #[test]
    fn a_level_too_low_gets_nothing_and_images_without_levels_say_nothing() {
        let only_v3 = shown(&["linux/amd64/v3"]);
        assert_eq!(only_v3[1], ("linux/amd64/v2".to_owned(), None));
        assert_eq!(only_v3[2].1.as_deref(), Some("linux/amd64/v3"));
        assert_eq!(shown(&["linux/amd64", "linux/arm64", "linux/s390x"]), []);
        assert_eq!(shown(&["linux/386", "linux/amd64/v3"])[0].1, None);
    }
}
