//! What somebody asks of a cluster, as the objects that it is sent, and what its answers mean. Pure:
//! who talks to the cluster is elsewhere.

mod local;
mod multi_arch;
pub mod pods;
pub mod progress;
mod unused;
mod ways;
mod wishes;

pub use local::{LocalBuild, LocalError, LocalSource, Said, local, said};
pub use unused::unused;
pub use ways::LocalWay;
pub use wishes::{BuildWishes, Param, RequestError, Wishes, build, build_here, run};

use portolan_api::build::{Build, BuildRun, BuildSpec, ReferencedBuild, RunSource, RunSourceKind};
use portolan_api::{ResourceExt as _, keys};

use crate::names::MAX_LABEL;

/// The class that is meant where platforms are named and none.
pub const DEFAULT_CLASS: &str = "default";

/// What an uploaded source is called in a BuildRun.
const UPLOAD: &str = "local-copy";

/// Makes a run one that waits for a source from somebody's machine.
pub fn upload(run: &mut BuildRun, timeout: Option<portolan_api::Duration>) {
    let local = portolan_api::build::Local { name: Some(UPLOAD.to_owned()), timeout };
    run.spec.source = Some(RunSource { kind: RunSourceKind::Local, local: Some(local) });
}

/// Where a Build would have the source go into the image's repository, for all who may pull the
/// image: that place. An artifact that is there already goes nowhere. A controller that was given a repository for sources
/// (`plan::Settings::source_repository`) puts them there instead, which nobody can know who asks for a run.
pub fn published_source(spec: &BuildSpec) -> Option<String> {
    use portolan_api::build::SourceKind;
    let settings = &spec.output.settings;
    let multi = settings.multi_arch.is_some() || !settings.platforms.is_empty();
    let packed = spec.source.as_ref().is_some_and(|source| source.kind != SourceKind::Oci);
    let outputs = crate::names::Outputs::parse(&spec.output.image).ok()?;
    (multi && packed).then(|| outputs.source().to_string())
}

/// A run that says nothing of its own.
pub fn plain_run(build: &Build) -> BuildRun {
    let name = build.name_any();
    let mut run = wishes::named_run(&name, None);
    run.metadata.generate_name = None;
    run.metadata.name = Some(format!("{name}-run"));
    run.metadata.namespace.clone_from(&build.metadata.namespace);
    run
}

/// A run of a Build that exists only in it: a changed form of one that is in the cluster. It has the label by which that
/// one's runs are found, followed, canceled and counted. Its trigger stays behind: it starts runs and says nothing of
/// how they are made, and a run that brings one is refused.
pub fn embedded_run(build: &Build) -> BuildRun {
    let name = build.name_any();
    let mut run = wishes::named_run(&name, None);
    let spec = BuildSpec { trigger: None, ..build.spec.clone() };
    run.spec.build = ReferencedBuild { name: None, spec: Some(Box::new(spec)) };
    if name.len() <= MAX_LABEL {
        run.metadata.labels = Some([(keys::BUILD_NAME.to_owned(), name)].into());
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(image: &str, platforms: &[&str], git: bool) -> Build {
        let common = Wishes {
            image: Some(image.to_owned()),
            platforms: platforms.iter().map(|p| p.parse().unwrap()).collect(),
            ..Wishes::default()
        };
        let source = git.then(|| wishes::tests::git("https://git.example/app.git"));
        let strategy = Some("buildah".to_owned());
        let wishes = BuildWishes { common, source, strategy, ..BuildWishes::default() };
        build(None, Some("app"), &wishes).unwrap()
    }

    #[test]
    fn where_source_is_published_is_known_before() {
        let many = &["linux/amd64", "linux/arm64"][..];
        for (build, place) in [
            (wished("h.example/app:1", many, true), Some("h.example/app:1-src")),
            (wished("h.example/app", many, true), Some("h.example/app:latest-src")),
            (wished("h.example/app:1", &[], true), None),
            (wished("h.example/app:1", many, false), None),
        ] {
            assert_eq!(published_source(&build.spec).as_deref(), place, "{build:?}");
        }
    }

    /// As `build upload --source-bundle-image` makes it, of a Build as people have them: with a trigger.
    #[test]
    fn a_run_that_brings_its_build_is_taken_and_is_known_as_a_run_of_it() {
        let mut build = wished("h.example/app:1", &[], true);
        let when = serde_json::json!({"when": [{"name": "push", "type": "GitHub", "github": {"events": ["Push"]}}]});
        build.spec.trigger = Some(serde_json::from_value(when).unwrap());
        let strategy = "apiVersion: shipwright.io/v1beta1\nkind: BuildStrategy\nmetadata: {name: buildah}\n\
                        spec: {steps: [{name: b, image: b}]}\n";
        let mut objects = crate::plan::Objects::default();
        let read = portolan_api::document::read(strategy.as_bytes()).unwrap().remove(0);
        let portolan_api::document::Resource::BuildStrategy(strategy) = read else { panic!() };
        objects.strategies.push(strategy);
        let settings = crate::plan::Settings {
            step_image: "portolan".to_owned(),
            service_account: None,
            source_repository: None,
            created: 0,
        };
        let mut run = embedded_run(&build);
        assert_eq!(run.labels()[keys::BUILD_NAME], "app");
        run.metadata.name = Some("app-1".to_owned());
        crate::plan::plan(&run, &objects, &settings).unwrap();
    }

    #[test]
    fn an_upload_is_a_run_with_a_local_source() {
        let mut run = plain_run(&wished("h.example/app:1", &[], true));
        upload(&mut run, Some("90s".parse().unwrap()));
        let source = serde_json::to_value(&run.spec.source).unwrap();
        let local = serde_json::json!({ "name": "local-copy", "timeout": "1m30s" });
        assert_eq!(source["type"], "Local");
        assert_eq!(source["local"]["name"], local["name"]);
        assert!(source["local"]["timeout"].is_string(), "{source}");
    }
}
