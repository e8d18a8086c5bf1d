//! Pushes that break off: whatever was not written, nothing is published in part.

use std::num::NonZeroUsize;

use portolan_build::engine::Origin;
use portolan_build::names::Outputs;
use portolan_build::steps::image::{Made, Push, Timestamp, push};
use portolan_build::steps::recipe;
use portolan_core::{Platform, Reference};

use crate::Bench;
use crate::support::fault::{Fault, FaultServer, REPOSITORY};

const PLATFORMS: [&str; 2] = ["linux/amd64", "linux/arm64"];

fn app() -> Bench {
    Bench::new("FROM scratch\nARG TARGETARCH\nCOPY app-$TARGETARCH /app\n")
        .write("app-amd64", "for amd64")
        .write("app-arm64", "for arm64")
}

/// A registry that refuses one write: the one after so many.
fn refusing(after: usize) -> FaultServer {
    let server = FaultServer::start("127.0.0.1", None);
    let mut faults = vec![Fault::None; after];
    faults.push(Fault::status(403));
    server.script("PUT", "", faults);
    server
}

fn reference(server: &FaultServer, tag: &str) -> Reference {
    server.reference(&format!(":{tag}"))
}

fn tags(server: &FaultServer) -> Vec<String> {
    let registry = server.registry();
    let there = registry.repositories.get(REPOSITORY);
    there.map(|there| there.tags.keys().cloned().collect()).unwrap_or_default()
}

/// Blobs, manifests of platforms, the source, the index: each write is the one that fails once.
#[test]
fn a_push_that_breaks_off_publishes_nothing_in_part_and_can_be_done_again() {
    let bench = app();
    let mut whole = None;
    for after in 0..100 {
        let server = refusing(after);
        let mut request = bench.request(&PLATFORMS);
        request.outputs = Outputs::new(reference(&server, "1")).unwrap();
        request.origin = Origin::StoredDirectory(bench.source());
        request.jobs = NonZeroUsize::MIN;
        request.labels.insert("team".to_owned(), "blue".to_owned());
        let went = bench.run(&request);
        match went {
            // Every write was refused once.
            Ok(outcome) if outcome.succeeded => {
                assert!(after >= 9, "only {after} writes");
                return;
            }
            Ok(outcome) => {
                let failed = outcome.status.output.unwrap().platforms;
                let failed: Vec<_> = failed.iter().filter_map(|row| row.failure.as_ref()).collect();
                assert_eq!(failed.len(), 1, "write {after}");
                assert_eq!(failed[0].reason.as_deref(), Some("PushFailed"), "write {after}");
            }
            // The source or the index.
            Err(error) => assert!(error.class().is_some(), "write {after}: {error}"),
        }
        let again = bench.run(&request).unwrap();
        assert!(again.succeeded, "write {after}: {:#?}", again.status);
        let digest = again.status.output.unwrap().digest.unwrap();
        assert_eq!(whole.get_or_insert_with(|| digest.clone()), &digest, "write {after}");
    }
    panic!("there is no end of writes");
}

/// The tag moves last, and only to what is whole.
#[test]
fn no_tag_is_there_before_everything_that_it_names() {
    let bench = app();
    for after in 0..100 {
        let server = refusing(after);
        let mut request = bench.request(&PLATFORMS);
        request.outputs = Outputs::new(reference(&server, "1")).unwrap();
        request.jobs = NonZeroUsize::MIN;
        let went = bench.run(&request);
        let done = went.is_ok_and(|outcome| outcome.succeeded);
        assert_eq!(tags(&server).contains(&"1".to_owned()), done, "write {after}");
        if done {
            return;
        }
    }
    panic!("there is no end of writes");
}

/// The same of the step that a pod runs.
#[test]
fn a_step_that_cannot_push_everything_moves_no_tag() {
    let bench = app();
    let platform: Platform = "linux/amd64".parse().unwrap();
    let out = bench.dir.path().join("strategy");
    let made = bench.step(async |client| {
        let recipe = bench.request(&PLATFORMS).recipe;
        recipe::assemble(recipe, &platform, &out, bench.dir.path(), &client).await
    });
    made.unwrap();
    for after in 0..100 {
        let server = refusing(after);
        let request = Push {
            image: reference(&server, "1-linux-amd64"),
            made: Made::InDirectory(out.clone()),
            platform: Some(platform.clone()),
            annotations: Default::default(),
            labels: [("team".to_owned(), "blue".to_owned())].into(),
            timestamp: Timestamp::At(7),
        };
        let pushed = bench.step(async |client| push(&request, &client, bench.dir.path()).await);
        match pushed {
            Err(error) => {
                assert_eq!(error.reason, "ImagePushFailed", "write {after}");
                assert_eq!(tags(&server), Vec::<String>::new(), "write {after}");
            }
            Ok(_) => {
                assert_eq!((tags(&server), after), (vec!["1-linux-amd64".to_owned()], 3));
                return;
            }
        }
    }
    panic!("there is no end of writes");
}
