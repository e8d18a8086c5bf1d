//! Single wishes, as flags have them, put together to a Build or a BuildRun.

use std::collections::{BTreeMap, BTreeSet};

use portolan_api::build::{
    Build, BuildRun, BuildRunSpec, BuildSpec, KeyReference, Output, OutputOverride, OutputSettings,
    ParamValue, ReferencedBuild, Retention, RunRetention, SingleValue, Source, StrategyRef,
};
use portolan_api::k8s_openapi::api::core::v1::{EnvVar, Toleration};
use portolan_api::{Duration, ResourceExt as _};
use portolan_core::{Platform, Reference};

use super::multi_arch;
use crate::names::{OutputError, Outputs};

/// What may be said of a Build and of one run of it. What is empty is not said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wishes {
    /// Where the image goes.
    pub image: Option<String>,
    /// The rest of the output; platforms are below.
    pub output: OutputSettings,
    /// For which platforms.
    pub platforms: Vec<Platform>,
    /// The ImagePlatformClass that says how each is built.
    pub class: Option<String>,
    /// Values for parameters, in the order in which they were given.
    pub params: Vec<Param>,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Labels of nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes.
    pub tolerations: Vec<Toleration>,
    /// Who chooses the node.
    pub scheduler_name: Option<String>,
    /// What runs the pods.
    pub runtime_class_name: Option<String>,
    /// How long a failed run is kept.
    pub ttl_after_failed: Option<Duration>,
    /// How long a successful one.
    pub ttl_after_succeeded: Option<Duration>,
}

/// A value for a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// Its one value.
    Text(String, String),
    /// One more value of its list.
    Item(String, String),
    /// A key of a secret.
    Secret(String, KeyOf),
    /// A key of a config map.
    ConfigMap(String, KeyOf),
}

/// An object and a key in it.
type KeyOf = (String, String);

/// What may be said of a Build alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildWishes {
    /// What of a run may be said, too.
    pub common: Wishes,
    /// Where the source comes from.
    pub source: Option<Source>,
    /// The directory in the source that is built.
    pub context_dir: Option<String>,
    /// The strategy.
    pub strategy: Option<String>,
    /// `BuildStrategy` or `ClusterBuildStrategy`.
    pub strategy_kind: Option<String>,
    /// How many failed runs are kept.
    pub failed_limit: Option<i32>,
    /// How many successful ones.
    pub succeeded_limit: Option<i32>,
    /// Whether runs go with the Build.
    pub at_build_deletion: Option<bool>,
}

/// Why no object can be made of some wishes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No name.
    #[error("the Build has no name; give one")]
    NoName,
    /// The name in a file is another.
    #[error("the file has the Build {file:?}, and {said:?} was asked for; leave one of them out")]
    OtherName {
        /// In the file.
        file: String,
        /// On the command line.
        said: String,
    },
    /// No image.
    #[error("nothing says where the image goes; give --output registry/repository:tag")]
    NoImage,
    /// An image that nothing can be pushed to.
    #[error(transparent)]
    Image(#[from] OutputError),
    /// A directory as an image.
    #[error("{0} is a directory; pods push to registries")]
    Directory(String),
    /// No strategy.
    #[error("nothing says how it is built; give --strategy")]
    NoStrategy,
    /// A context directory of nothing.
    #[error("--source-context-dir names a directory in a source, and there is no source")]
    NoSource,
    /// A class without platforms.
    #[error(
        "--platform-class {0} says how platforms are built, and none is named; give --platform"
    )]
    NoPlatforms(String),
    /// A platform with more than a resource can say.
    #[error("{0} says more than os/arch[/variant], which is all that a Build can ask for")]
    TooMuch(String),
    /// Something that is there two times.
    #[error("{what} {name} is there twice")]
    Twice {
        /// The flag.
        what: &'static str,
        /// Which.
        name: String,
    },
}

/// A Build of wishes, on top of the one in a file where there is one, that pods can build.
pub fn build(
    base: Option<Build>,
    name: Option<&str>,
    wishes: &BuildWishes,
) -> Result<Build, RequestError> {
    let build = build_here(base, name, wishes)?;
    pushable(&build.spec.output.image)?;
    Ok(build)
}

/// The same for this machine, which writes to directories, too.
pub fn build_here(
    base: Option<Build>,
    name: Option<&str>,
    wishes: &BuildWishes,
) -> Result<Build, RequestError> {
    let file = base.as_ref().and_then(|base| base.metadata.name.clone());
    let name = match (file, name) {
        (Some(file), Some(said)) if file != said => {
            return Err(RequestError::OtherName { file, said: said.to_owned() });
        }
        (Some(file), _) => file,
        (None, said) => said.ok_or(RequestError::NoName)?.to_owned(),
    };
    let mut build = match base {
        Some(base) => base,
        None => Build::new(&name, empty_spec(wishes)?),
    };
    build.metadata.name = Some(name);
    apply(&mut build.spec, wishes)?;
    Ok(build)
}

fn empty_spec(wishes: &BuildWishes) -> Result<BuildSpec, RequestError> {
    let name = wishes.strategy.clone().ok_or(RequestError::NoStrategy)?;
    let image = wishes.common.image.clone().ok_or(RequestError::NoImage)?;
    Ok(BuildSpec {
        source: None,
        trigger: None,
        strategy: StrategyRef { name, kind: None, step_resources: Vec::new() },
        param_values: Vec::new(),
        output: Output { image, settings: OutputSettings::default() },
        timeout: None,
        env: Vec::new(),
        retention: None,
        volumes: Vec::new(),
        node_selector: BTreeMap::new(),
        tolerations: Vec::new(),
        scheduler_name: None,
        runtime_class_name: None,
    })
}

fn apply(spec: &mut BuildSpec, wishes: &BuildWishes) -> Result<(), RequestError> {
    let common = &wishes.common;
    set(&mut spec.strategy.name, &wishes.strategy);
    or(&mut spec.strategy.kind, &wishes.strategy_kind);
    if wishes.source.is_some() {
        spec.source.clone_from(&wishes.source);
    }
    if wishes.context_dir.is_some() {
        let source = spec.source.as_mut().ok_or(RequestError::NoSource)?;
        source.context_dir.clone_from(&wishes.context_dir);
    }
    set(&mut spec.output.image, &common.image);
    Outputs::parse(&spec.output.image)?;
    let before = spec.output.settings.clone();
    output(&mut spec.output.settings, common, &before)?;
    put(&mut spec.param_values, params(&common.params)?, |param| &param.name);
    put(&mut spec.env, env(&common.env)?, |variable| &variable.name);
    or(&mut spec.timeout, &common.timeout);
    spec.node_selector.extend(common.node_selector.clone());
    spec.tolerations.extend(common.tolerations.iter().cloned());
    or(&mut spec.scheduler_name, &common.scheduler_name);
    or(&mut spec.runtime_class_name, &common.runtime_class_name);
    retention(&mut spec.retention, wishes);
    Ok(())
}

fn retention(retention: &mut Option<Retention>, wishes: &BuildWishes) {
    let nothing = Retention {
        failed_limit: None,
        succeeded_limit: None,
        ttl_after_failed: None,
        ttl_after_succeeded: None,
        at_build_deletion: None,
    };
    let mut all = retention.clone().unwrap_or_else(|| nothing.clone());
    or(&mut all.failed_limit, &wishes.failed_limit);
    or(&mut all.succeeded_limit, &wishes.succeeded_limit);
    or(&mut all.ttl_after_failed, &wishes.common.ttl_after_failed);
    or(&mut all.ttl_after_succeeded, &wishes.common.ttl_after_succeeded);
    or(&mut all.at_build_deletion, &wishes.at_build_deletion);
    *retention = (all != nothing).then_some(all);
}

/// A run of a Build. `build` is what the missing half of platforms and class is taken from.
pub fn run(
    build: &Build,
    name: Option<&str>,
    wishes: &Wishes,
    service_account: Option<&str>,
) -> Result<BuildRun, RequestError> {
    let mut run = named_run(&build.name_any(), name);
    run.metadata.namespace.clone_from(&build.metadata.namespace);
    let spec = &mut run.spec;
    spec.service_account = service_account.map(str::to_owned);
    spec.param_values = params(&wishes.params)?;
    spec.env = env(&wishes.env)?;
    spec.timeout = wishes.timeout;
    spec.node_selector.clone_from(&wishes.node_selector);
    spec.tolerations.clone_from(&wishes.tolerations);
    spec.scheduler_name.clone_from(&wishes.scheduler_name);
    spec.runtime_class_name.clone_from(&wishes.runtime_class_name);
    if let Some(image) = &wishes.image {
        pushable(image)?;
    }
    let mut over = OutputOverride { image: wishes.image.clone(), ..OutputOverride::default() };
    output(&mut over.settings, wishes, &build.spec.output.settings)?;
    spec.output = (over != OutputOverride::default()).then_some(over);
    let kept = [wishes.ttl_after_failed, wishes.ttl_after_succeeded];
    spec.retention = kept
        .iter()
        .any(Option::is_some)
        .then_some(RunRetention { ttl_after_failed: kept[0], ttl_after_succeeded: kept[1] });
    Ok(run)
}

/// A run that names its Build; the cluster completes its name where none is given.
pub(super) fn named_run(build: &str, name: Option<&str>) -> BuildRun {
    let spec: BuildRunSpec = serde_json::from_value(serde_json::json!({ "build": {} }))
        .expect("a BuildRun needs nothing but its Build");
    let reference = ReferencedBuild { name: Some(build.to_owned()), spec: None };
    let mut run = BuildRun::new("", BuildRunSpec { build: reference, ..spec });
    run.metadata.name = name.map(str::to_owned);
    run.metadata.generate_name = name.is_none().then(|| format!("{build}-"));
    run
}

fn output(
    settings: &mut OutputSettings,
    wishes: &Wishes,
    before: &OutputSettings,
) -> Result<(), RequestError> {
    let said = &wishes.output;
    or(&mut settings.insecure, &said.insecure);
    or(&mut settings.push_secret, &said.push_secret);
    or(&mut settings.timestamp, &said.timestamp);
    settings.annotations.extend(said.annotations.clone());
    settings.labels.extend(said.labels.clone());
    multi_arch::set(settings, &wishes.platforms, wishes.class.as_deref(), before)
}

/// Whether pods can push there.
fn pushable(image: &str) -> Result<(), RequestError> {
    match Outputs::parse(image)?.index() {
        Reference::Registry(_) => Ok(()),
        Reference::Layout(_) => Err(RequestError::Directory(image.to_owned())),
    }
}

fn params(wishes: &[Param]) -> Result<Vec<ParamValue>, RequestError> {
    let mut all: Vec<ParamValue> = Vec::new();
    for wish in wishes {
        let key = |(name, key): &KeyOf| {
            Some(KeyReference { name: name.clone(), key: key.clone(), format: None })
        };
        let (name, single) = match wish {
            Param::Text(name, value) => {
                (name, SingleValue { value: Some(value.clone()), ..SingleValue::default() })
            }
            Param::Secret(name, of) => {
                (name, SingleValue { secret_value: key(of), ..SingleValue::default() })
            }
            Param::ConfigMap(name, of) => {
                (name, SingleValue { config_map_value: key(of), ..SingleValue::default() })
            }
            Param::Item(name, value) => {
                let item = SingleValue { value: Some(value.clone()), ..SingleValue::default() };
                let known = all.iter_mut().find(|param| param.name == *name);
                match known.map(|param| &mut param.values) {
                    Some(Some(values)) => values.push(item),
                    Some(None) => return Err(twice("the parameter", name)),
                    None => all.push(ParamValue {
                        name: name.clone(),
                        single: SingleValue::default(),
                        values: Some(vec![item]),
                    }),
                }
                continue;
            }
        };
        if all.iter().any(|param| param.name == *name) {
            return Err(twice("the parameter", name));
        }
        all.push(ParamValue { name: name.clone(), single, values: None });
    }
    Ok(all)
}

fn env(wishes: &[(String, String)]) -> Result<Vec<EnvVar>, RequestError> {
    let mut seen = BTreeSet::new();
    let variable = |(name, value): &(String, String)| {
        let known = !seen.insert(name.clone());
        let value = Some(value.clone());
        match known {
            true => Err(twice("--env", name)),
            false => Ok(EnvVar { name: name.clone(), value, value_from: None }),
        }
    };
    wishes.iter().map(variable).collect()
}

fn twice(what: &'static str, name: &str) -> RequestError {
    RequestError::Twice { what, name: name.to_owned() }
}

fn set<T: Clone>(place: &mut T, wish: &Option<T>) {
    if let Some(wish) = wish {
        place.clone_from(wish);
    }
}

fn or<T: Clone>(place: &mut Option<T>, wish: &Option<T>) {
    if wish.is_some() {
        place.clone_from(wish);
    }
}

/// Each in place of the one of the same name, or behind all others.
fn put<T>(all: &mut Vec<T>, more: Vec<T>, name: impl Fn(&T) -> &String) {
    for item in more {
        match all.iter().position(|known| name(known) == name(&item)) {
            Some(at) => all[at] = item,
            None => all.push(item),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use portolan_api::build::{Git, SourceKind};
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn git(url: &str) -> Source {
        let git = Git { url: url.to_owned(), revision: None, clone_secret: None, depth: None };
        Source {
            kind: SourceKind::Git,
            context_dir: None,
            git: Some(git),
            oci_artifact: None,
            local: None,
        }
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn full() -> Wishes {
        Wishes {
            image: Some("h.example/app:1".to_owned()),
            output: OutputSettings {
                insecure: Some(true),
                push_secret: Some("push".to_owned()),
                annotations: pairs(&[("a", "1")]).into_iter().collect(),
                labels: pairs(&[("l", "2")]).into_iter().collect(),
                timestamp: Some("Zero".to_owned()),
                ..OutputSettings::default()
            },
            platforms: vec!["linux/amd64".parse().unwrap()],
            class: None,
            params: vec![
                Param::Text("p".to_owned(), "v".to_owned()),
                Param::Item("list".to_owned(), "one".to_owned()),
                Param::Item("list".to_owned(), "two".to_owned()),
                Param::Secret("s".to_owned(), ("secret".to_owned(), "key".to_owned())),
            ],
            env: pairs(&[("E", "x=y")]),
            timeout: Some("10m".parse().unwrap()),
            node_selector: pairs(&[("n", "1")]).into_iter().collect(),
            tolerations: vec![Toleration { key: Some("t".to_owned()), ..Toleration::default() }],
            scheduler_name: Some("other".to_owned()),
            runtime_class_name: Some("kata".to_owned()),
            ttl_after_failed: Some("1h".parse().unwrap()),
            ttl_after_succeeded: None,
        }
    }

    fn common() -> Value {
        json!({
            "paramValues": [
                { "name": "p", "value": "v" },
                { "name": "list", "values": [{ "value": "one" }, { "value": "two" }] },
                { "name": "s", "secretValue": { "name": "secret", "key": "key" } },
            ],
            "output": {
                "image": "h.example/app:1", "insecure": true, "pushSecret": "push",
                "annotations": { "a": "1" }, "labels": { "l": "2" }, "timestamp": "Zero",
                "multiArch": {
                    "imagePlatformClass": "default", "platforms": [{ "os": "linux", "arch": "amd64" }],
                },
            },
            "env": [{ "name": "E", "value": "x=y" }],
            "timeout": Value::Null,
            "nodeSelector": { "n": "1" }, "tolerations": [{ "key": "t" }],
            "schedulerName": "other", "runtimeClassName": "kata",
        })
    }

    /// Durations have their own spelling, which is not looked at here.
    fn without_durations(mut value: Value) -> Value {
        assert!(value["timeout"].is_string(), "{value}");
        value["timeout"] = Value::Null;
        assert!(value["retention"]["ttlAfterFailed"].is_string(), "{value}");
        value["retention"]["ttlAfterFailed"] = Value::Null;
        value
    }

    #[test]
    fn every_wish_is_in_the_build() {
        let wishes = BuildWishes {
            common: full(),
            source: Some(git("https://git.example/app.git")),
            context_dir: Some("sub".to_owned()),
            strategy: Some("buildah".to_owned()),
            strategy_kind: Some("ClusterBuildStrategy".to_owned()),
            failed_limit: Some(3),
            succeeded_limit: None,
            at_build_deletion: Some(true),
        };
        let build = build(None, Some("app"), &wishes).unwrap();
        assert_eq!(build.name_any(), "app");
        let mut expected = common();
        expected["source"] = json!({
            "type": "Git", "contextDir": "sub", "git": { "url": "https://git.example/app.git" },
        });
        expected["strategy"] = json!({ "name": "buildah", "kind": "ClusterBuildStrategy" });
        expected["retention"] =
            json!({ "failedLimit": 3, "ttlAfterFailed": Value::Null, "atBuildDeletion": true });
        assert_eq!(without_durations(serde_json::to_value(&build.spec).unwrap()), expected);
    }

    #[test]
    fn every_wish_is_in_the_run_and_nothing_else() {
        let wishes = BuildWishes {
            common: Wishes { image: Some("h.example/b:1".to_owned()), ..Wishes::default() },
            strategy: Some("buildah".to_owned()),
            ..BuildWishes::default()
        };
        let build = build(None, Some("app"), &wishes).unwrap();
        let made = run(&build, Some("app-1"), &full(), Some("builder")).unwrap();
        let mut expected = common();
        expected["build"] = json!({ "name": "app" });
        expected["serviceAccount"] = json!("builder");
        expected["retention"] = json!({ "ttlAfterFailed": Value::Null });
        assert_eq!(without_durations(serde_json::to_value(&made.spec).unwrap()), expected);
        let plain = run(&build, None, &Wishes::default(), None).unwrap();
        assert_eq!(plain.metadata.generate_name.as_deref(), Some("app-"));
        assert_eq!(plain.metadata.name, None);
        let spec = serde_json::to_value(&plain.spec).unwrap();
        assert_eq!(spec, json!({ "build": { "name": "app" } }));
    }

    #[test]
    fn a_run_for_platforms_needs_no_image_of_its_own() {
        let wishes = BuildWishes {
            common: Wishes { image: Some("h.example/b:1".to_owned()), ..Wishes::default() },
            strategy: Some("buildah".to_owned()),
            ..BuildWishes::default()
        };
        let build = build(None, Some("app"), &wishes).unwrap();
        let platforms = vec!["linux/arm64".parse().unwrap()];
        let made = run(&build, None, &Wishes { platforms, ..Wishes::default() }, None).unwrap();
        let output = serde_json::to_value(&made.spec.output).unwrap();
        let multi_arch = json!({
            "imagePlatformClass": "default", "platforms": [{ "os": "linux", "arch": "arm64" }],
        });
        assert_eq!(output, json!({ "multiArch": multi_arch }));
    }

    #[test]
    fn wishes_go_on_top_of_a_file() {
        let wishes = |image: &str, params: Vec<Param>| BuildWishes {
            common: Wishes { image: Some(image.to_owned()), params, ..Wishes::default() },
            strategy: Some("buildah".to_owned()),
            ..BuildWishes::default()
        };
        let text = |name: &str, value: &str| Param::Text(name.to_owned(), value.to_owned());
        let file = wishes("h.example/a:1", vec![text("a", "1"), text("b", "1")]);
        let file = build(None, Some("app"), &file).unwrap();
        let over = wishes("h.example/a:2", vec![text("b", "2"), text("c", "2")]);
        let both = build(Some(file.clone()), None, &over).unwrap();
        assert_eq!(both.spec.output.image, "h.example/a:2");
        let params: Vec<(&str, Option<&str>)> = both
            .spec
            .param_values
            .iter()
            .map(|p| (p.name.as_str(), p.single.value.as_deref()))
            .collect();
        assert_eq!(params, [("a", Some("1")), ("b", Some("2")), ("c", Some("2"))]);
        let error = build(Some(file), Some("other"), &over).unwrap_err();
        assert!(matches!(error, RequestError::OtherName { .. }), "{error}");
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        let digest = portolan_core::Digest::sha256(b"");
        let good = || Wishes { image: Some("h.example/a:1".to_owned()), ..Wishes::default() };
        let of = |common: Wishes| BuildWishes {
            common,
            strategy: Some("s".to_owned()),
            ..BuildWishes::default()
        };
        let text = |name: &str| Param::Text(name.to_owned(), String::new());
        let item = |name: &str| Param::Item(name.to_owned(), String::new());
        for (wishes, told) in [
            (of(Wishes::default()), "--output"),
            (BuildWishes { strategy: None, ..of(good()) }, "--strategy"),
            (of(Wishes { image: Some(format!("h.example/a@{digest}")), ..good() }), "digest"),
            (of(Wishes { image: Some("oci:dir:1".to_owned()), ..good() }), "directory"),
            (of(Wishes { image: Some("H@example".to_owned()), ..good() }), "not a reference"),
            (of(Wishes { env: pairs(&[("A", "1"), ("A", "2")]), ..good() }), "A is there twice"),
            (of(Wishes { params: vec![text("a"), text("a")], ..good() }), "a is there twice"),
            (of(Wishes { params: vec![text("a"), item("a")], ..good() }), "a is there twice"),
            (of(Wishes { class: Some("all".to_owned()), ..good() }), "give --platform"),
            (BuildWishes { context_dir: Some("x".to_owned()), ..of(good()) }, "no source"),
        ] {
            let error = build(None, Some("app"), &wishes).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
        assert_eq!(build(None, None, &of(good())).unwrap_err(), RequestError::NoName);
    }
}
