//! What a Build says that means nothing on one machine. It is told, because nothing is left out in silence.
//!
//! Types are taken apart without `..`, so that whoever adds a field has to say here what becomes of it.

use portolan_api::build::{
    BuildSpec, Git, Local, MultiArch, OciArtifact, Output, OutputSettings, Prune, Source,
    SourceKind, StrategyRef,
};

use super::local::{EPOCH, PARAMETERS};

/// A field, and whether the Build says anything in it.
type Field = (&'static str, bool);

/// The fields of a Build, and the parameters and variables, that only pods have a use for.
///
/// `given`: somebody's own directory or artifact takes the place of its source.
pub fn unused(spec: &BuildSpec, given: bool) -> Vec<String> {
    let BuildSpec {
        source,
        trigger,
        strategy,
        param_values,
        output,
        timeout: _,
        env,
        retention,
        volumes,
        node_selector,
        tolerations,
        scheduler_name,
        runtime_class_name,
    } = spec;
    let StrategyRef { name: _, kind: _, step_resources } = strategy;
    let rest = [
        ("trigger", trigger.is_some()),
        ("strategy.stepResources", !step_resources.is_empty()),
        ("retention", retention.is_some()),
        ("volumes", !volumes.is_empty()),
        ("nodeSelector", !node_selector.is_empty()),
        ("tolerations", !tolerations.is_empty()),
        ("schedulerName", scheduler_name.is_some()),
        ("runtimeClassName", runtime_class_name.is_some()),
    ];
    let source = source.iter().flat_map(|source| of_source(source, given));
    let fields = of_output(output).into_iter().chain(source).chain(rest);
    let fields = fields.filter(|(_, said)| *said).map(|(field, _)| field.to_owned());
    let params = param_values.iter().map(|param| param.name.as_str());
    let params = params.filter(|name| !PARAMETERS.contains(name));
    let env = env.iter().map(|variable| variable.name.as_str());
    let env = env.filter(|name| *name != EPOCH);
    fields
        .chain(params.map(|name| format!("the parameter {name}")))
        .chain(env.map(|name| format!("the variable {name}")))
        .collect()
}

fn of_output(output: &Output) -> [Field; 1] {
    let Output { image: _, settings } = output;
    let OutputSettings {
        insecure: _,
        push_secret,
        annotations: _,
        labels: _,
        timestamp: _,
        // Refused where it is enabled.
        vulnerability_scan: _,
        multi_arch,
        platforms: _,
    } = settings;
    if let Some(MultiArch { image_platform_class: _, platforms: _ }) = multi_arch {}
    [("output.pushSecret", push_secret.is_some())]
}

fn of_source(source: &Source, given: bool) -> Vec<Field> {
    let Source { kind, context_dir: _, git, oci_artifact, local } = source;
    // A secret that it needs is refused.
    if let Some(Git { url: _, revision: _, clone_secret: _, depth: _ }) = git {}
    let mut fields = Vec::new();
    if let Some(OciArtifact { image: _, prune, pull_secret }) = oci_artifact
        && !given
    {
        fields.push(("source.ociArtifact.pullSecret", pull_secret.is_some()));
        fields.push(("source.ociArtifact.prune", *prune == Some(Prune::AfterPull)));
    }
    // A directory that is given is such a source, and does not take its place.
    if let Some(Local { name, timeout }) = local
        && (*kind == SourceKind::Local || !given)
    {
        fields.push(("source.local.name", name.is_some()));
        fields.push(("source.local.timeout", timeout.is_some()));
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    /// What counts on one machine, or is refused where it cannot.
    const USED: [&str; 28] = [
        "env",
        "output",
        "output.annotations",
        "output.image",
        "output.insecure",
        "output.labels",
        "output.multiArch",
        "output.multiArch.imagePlatformClass",
        "output.multiArch.platforms",
        "output.platforms",
        "output.timestamp",
        "output.vulnerabilityScan",
        "paramValues",
        "source",
        "source.contextDir",
        "source.git",
        "source.git.cloneSecret",
        "source.git.depth",
        "source.git.revision",
        "source.git.url",
        "source.local",
        "source.ociArtifact",
        "source.ociArtifact.image",
        "source.type",
        "strategy",
        "strategy.kind",
        "strategy.name",
        "timeout",
    ];

    /// Fields with fields of their own that are used or told one by one.
    const TAKEN_APART: [&str; 7] = [
        "output",
        "output.multiArch",
        "source",
        "source.git",
        "source.local",
        "source.ociArtifact",
        "strategy",
    ];

    fn full() -> Value {
        json!({
            "source": {"type": "OCI", "contextDir": "d",
                "git": {"url": "u", "revision": "r", "cloneSecret": "s", "depth": 1},
                "ociArtifact": {"image": "h.example/a:1-src", "prune": "AfterPull", "pullSecret": "s"},
                "local": {"name": "n", "timeout": "1m"}},
            "trigger": {"when": [{"name": "push", "type": "GitHub", "github": {"events": ["Push"]}}]},
            "strategy": {"name": "portolan", "kind": "ClusterBuildStrategy",
                "stepResources": [{"name": "assemble", "resources": {}}]},
            "paramValues": [{"name": "dockerfile", "value": "D"}, {"name": "target", "value": "t"},
                {"name": "build-args", "values": []}, {"name": "builder-image", "value": "b"}],
            "output": {"image": "h.example/a:1", "insecure": true, "pushSecret": "s", "timestamp": "Zero",
                "labels": {"a": "b"}, "annotations": {"a": "b"}, "vulnerabilityScan": {"enabled": true},
                "multiArch": {"imagePlatformClass": "c", "platforms": [{"os": "linux", "arch": "amd64"}]},
                "platforms": [{"os": "linux", "arch": "amd64"}]},
            "timeout": "5m",
            "env": [{"name": "SOURCE_DATE_EPOCH", "value": "1"}, {"name": "CGO", "value": "0"}],
            "retention": {"ttlAfterFailed": "1h"},
            "volumes": [{"name": "v", "emptyDir": {}}],
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "schedulerName": "s",
            "runtimeClassName": "r",
        })
    }

    /// All that the definition of a Build has, down to where nobody looks closer.
    fn defined() -> BTreeSet<String> {
        let build = portolan_api::definitions::of("Build").unwrap();
        let spec = &build.schema()["properties"]["spec"];
        let mut found = BTreeSet::new();
        let mut open = vec![(String::new(), spec)];
        while let Some((place, schema)) = open.pop() {
            for (name, below) in schema["properties"].as_object().unwrap() {
                let field = format!("{place}{name}");
                if TAKEN_APART.contains(&field.as_str()) {
                    open.push((format!("{field}."), below));
                }
                found.insert(field);
            }
        }
        found
    }

    #[test]
    fn every_field_of_a_build_is_used_or_told() {
        let spec: BuildSpec = serde_json::from_value(full()).unwrap();
        let told: BTreeSet<String> = unused(&spec, false).into_iter().collect();
        let named = ["the parameter builder-image", "the variable CGO"].map(str::to_owned);
        assert!(named.iter().all(|name| told.contains(name)), "{told:?}");
        assert!(told.contains("trigger"), "{told:?}");
        let defined = defined();
        assert!(defined.len() > 30, "{defined:?}");
        let used = USED.map(str::to_owned).into_iter();
        let known: BTreeSet<String> = used.chain(told.clone()).collect();
        let silent: Vec<&String> = defined.difference(&known).collect();
        assert_eq!(silent, [""; 0], "neither used nor told");
        let both: Vec<&String> = told.iter().filter(|told| USED.contains(&told.as_str())).collect();
        assert_eq!(both, [""; 0], "used and told not to be");
    }

    #[test]
    fn what_takes_the_place_of_a_source_has_no_secret() {
        let spec: BuildSpec = serde_json::from_value(full()).unwrap();
        assert!(!unused(&spec, true).iter().any(|told| told.starts_with("source")));
    }

    #[test]
    fn a_directory_that_is_given_is_not_waited_for() {
        let mut spec = full();
        spec["source"] = json!({"type": "Local", "local": {"name": "n", "timeout": "1m"}});
        let spec: BuildSpec = serde_json::from_value(spec).unwrap();
        let told = unused(&spec, true);
        let told: Vec<&String> = told.iter().filter(|told| told.starts_with("source")).collect();
        assert_eq!(told, ["source.local.name", "source.local.timeout"]);
    }
}
