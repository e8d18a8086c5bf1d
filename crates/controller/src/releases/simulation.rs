//! A Release over days, in a world where tags move, registries are away, images are signed late, copies of the controller
//! end and begin, and writes are lost. What is simulated is the world; what decides is the code itself.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::release::{Release, ReleaseSpec, ReleaseStatus};
use portolan_core::{Digest, Platform};
use portolan_release::status::{self, Refusal, is_ready};
use portolan_release::{Findings, ImageFinding, Verification, reason};
use proptest::prelude::*;

use super::plan::{self, Looked, Next};

const POLL: Duration = Duration::from_secs(60);

/// Signed by whom it has to be, or not. Answers of policies are made elsewhere; what makes a Release without them Ready, or
/// not, stands for them.
fn answered(passes: bool) -> Verification {
    match passes {
        true => Verification::NoPolicy,
        false => Verification::Unknown { reason: reason::POLICY_INVALID, message: "no".to_owned() },
    }
}

/// What happens to the world.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// The tag is put on this image.
    Tag(u8),
    /// That image passes from now on.
    Pass(u8),
    /// The registry is away, or back.
    Away(bool),
    /// The controller ends, and another copy begins.
    Restart,
    /// The next write is lost.
    Lost,
    /// Time goes by, in seconds.
    Wait(u16),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0u8..4).prop_map(Happens::Tag),
        (0u8..4).prop_map(Happens::Pass),
        any::<bool>().prop_map(Happens::Away),
        Just(Happens::Restart),
        Just(Happens::Lost),
        (1u16..2000).prop_map(Happens::Wait),
    ]
}

struct World {
    release: Release,
    memory: Option<Looked>,
    now: i64,
    tag: u8,
    passes: [bool; 4],
    away: bool,
    lost: bool,
    looks: usize,
    writes: usize,
}

fn digest(image: u8) -> Digest {
    Digest::sha256(&[image])
}

impl World {
    fn new(track: bool) -> Self {
        // What is verified is told by `NoPolicy` here, so that is what makes one Ready.
        let spec = ReleaseSpec {
            track,
            require_verification: false,
            ..ReleaseSpec::new("r.example/app:1")
        };
        let mut release = Release::new("app", spec);
        release.metadata.generation = Some(1);
        Self {
            release,
            memory: None,
            now: 0,
            tag: 0,
            passes: [false; 4],
            away: false,
            lost: false,
            looks: 0,
            writes: 0,
        }
    }

    fn look(&self, pinned: Option<Digest>) -> Result<Findings, Refusal> {
        if self.away {
            return Err(Refusal::Late { seconds: 60 });
        }
        let image = (0..4).find(|one| pinned == Some(digest(*one))).unwrap_or(self.tag);
        let platform: Platform = "linux/amd64".parse().unwrap();
        Ok(Findings {
            repository: "r.example/app".to_owned(),
            top: digest(image),
            is_index: true,
            images: vec![ImageFinding {
                platform,
                digest: digest(image),
                size: 1,
                compatibility: None,
            }],
            verification: answered(self.passes[usize::from(image)]),
        })
    }

    /// What the controller does at one moment; the time until it wants to be asked again.
    fn turn(&mut self) -> Option<Duration> {
        let pinned = match plan::next(&self.release, self.memory, self.now) {
            Next::Settled => return None,
            Next::Wait(rest) => return Some(rest),
            Next::Look(pinned) => pinned,
            Next::Follow(_) => None,
        };
        self.looks += 1;
        let found = self.look(pinned);
        let trouble = found.as_ref().is_err_and(Refusal::will_pass);
        let now = Time(jiff::Timestamp::from_second(self.now / 1000).unwrap());
        let new = status::after(&self.release, &found, &now);
        if Some(&new) != self.release.status.as_ref() {
            if std::mem::take(&mut self.lost) {
                // A conflict, or a server that is away: nothing is remembered, and it is tried again.
                return Some(Duration::from_millis(250));
            }
            self.writes += 1;
            self.release.status = Some(new.clone());
        }
        self.memory =
            Some(plan::looked(&self.release, &new, trouble, self.memory, (self.now, POLL)));
        Some(Duration::ZERO)
    }

    /// Lets time go by, with the controller awake whenever it wants to be.
    fn wait(&mut self, seconds: u64) {
        let end = self.now + i64::try_from(seconds * 1000).unwrap();
        while self.now < end {
            let rest = match self.turn() {
                None => end - self.now,
                Some(rest) => i64::try_from(rest.as_millis()).unwrap(),
            };
            self.now = (self.now + rest).min(end);
        }
        self.turn();
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Tag(image) => self.tag = image,
            Happens::Pass(image) => self.passes[usize::from(image)] = true,
            Happens::Away(away) => self.away = away,
            Happens::Restart => self.memory = None,
            Happens::Lost => self.lost = true,
            Happens::Wait(seconds) => self.wait(seconds.into()),
        }
    }

    fn status(&self) -> ReleaseStatus {
        self.release.status.clone().unwrap_or_default()
    }
}

proptest! {
    /// What was resolved once stays: the tag may move as it likes.
    #[test]
    fn a_release_that_does_not_follow_is_one_image_for_ever(events in prop::collection::vec(happens(), 0..60)) {
        let mut world = World::new(false);
        let mut first: Option<String> = None;
        for event in events {
            let before = world.status();
            world.happen(event);
            let now = world.status();
            if first.is_some() {
                prop_assert_eq!(now.digest.as_ref(), first.as_ref());
            }
            if is_ready(&before) {
                prop_assert_eq!(&now, &before, "a Release that is Ready does not change");
            }
            first = first.or(now.digest);
            prop_assert!(world.status().history.is_empty());
        }
        // When the world is well again, it comes to its end by itself, and nothing more is asked or written.
        world.happen(Happens::Away(false));
        (0..4).for_each(|image| world.happen(Happens::Pass(image)));
        world.lost = false;
        world.wait(1300);
        prop_assert!(is_ready(&world.status()), "{:?}", world.status());
        let (looks, writes) = (world.looks, world.writes);
        world.wait(100_000);
        prop_assert_eq!((world.looks, world.writes), (looks, writes));
    }

    /// What is Ready is replaced by what is Ready, and by nothing else; the tag is followed within its time.
    #[test]
    fn a_release_that_follows_is_always_an_image_that_passed(events in prop::collection::vec(happens(), 0..60)) {
        let mut world = World::new(true);
        for event in events {
            let before = world.status();
            world.happen(event);
            let now = world.status();
            prop_assert!(!is_ready(&before) || is_ready(&now), "what runs is not taken away");
            if is_ready(&now) {
                let passed = (0..4).find(|one| Some(digest(*one).to_string()) == now.digest);
                prop_assert!(world.passes[usize::from(passed.expect("one of them"))]);
            }
        }
        world.happen(Happens::Away(false));
        (0..4).for_each(|image| world.happen(Happens::Pass(image)));
        world.happen(Happens::Tag(3));
        world.lost = false;
        world.wait(200);
        let status = world.status();
        prop_assert!(is_ready(&status));
        prop_assert_eq!(status.digest, Some(digest(3).to_string()));
        prop_assert_eq!(status.candidate, None);
        // And while nothing happens nothing is written.
        let (looks, writes) = (world.looks, world.writes);
        world.wait(600);
        prop_assert_eq!(world.writes, writes);
        prop_assert!(world.looks - looks <= 12, "{} looks in ten minutes", world.looks - looks);
    }

    /// A registry that is away for a day, and an image that nobody signs, are asked for a bounded number of times.
    #[test]
    fn nobody_is_asked_all_the_time(away in any::<bool>()) {
        let mut world = World::new(false);
        world.away = away;
        world.wait(86_400);
        let most = if away { 86_400 / 60 + 10 } else { 86_400 / 600 + 10 };
        prop_assert!(world.looks <= most, "{}", world.looks);
        prop_assert_eq!(world.writes, 1, "and it is told once");
    }
}
