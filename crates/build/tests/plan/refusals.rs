//! Every reason to refuse a run, each brought about by one change.

use std::collections::BTreeSet;

use portolan_api::reason::Reason;
use serde_json::{Value, json};

use crate::World;

type Change = fn(&mut World);

fn build(world: &mut World) -> &mut Value {
    &mut world.build["spec"]
}

fn output(world: &mut World) -> &mut Value {
    &mut world.build["spec"]["output"]
}

fn remove(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key);
}

/// Of one image.
const SINGLE: &[(Reason, Change, &str)] = &[
    (Reason::BuildNotFound, |w| w.build = Value::Null, r#""app" not found"#),
    (Reason::BuildRunNameInvalid, |w| w.run["metadata"]["name"] = json!("a".repeat(64)), "63"),
    (Reason::BuildRunNoRefOrSpec, |w| w.run["spec"]["build"] = json!({}), "neither"),
    (
        Reason::BuildRunAmbiguousBuild,
        |w| w.run["spec"]["build"]["spec"] = w.build["spec"].clone(),
        "leave one",
    ),
    (
        Reason::BuildRunBuildFieldOverrideForbidden,
        |w| w.run["spec"]["build"] = json!({"spec": w.build["spec"].clone()}),
        "cannot use 'paramValues' override",
    ),
    (
        Reason::ClusterBuildStrategyNotFound,
        |w| w.strategy["metadata"]["name"] = json!("other"),
        "everything does not exist",
    ),
    (
        Reason::BuildStrategyNotFound,
        |w| remove(&mut build(w)["strategy"], "kind"),
        "in namespace team",
    ),
    (
        Reason::UnknownBuildStrategyKind,
        |w| build(w)["strategy"]["kind"] = json!("Strategy"),
        "unknown strategy kind Strategy",
    ),
    (
        Reason::UnknownStrategyKind,
        |w| {
            build(w)["strategy"]["kind"] = json!("Strategy");
            w.run["spec"] = json!({"build": {"spec": w.build["spec"].clone()}});
        },
        "unknown strategy kind Strategy",
    ),
    (Reason::SourceNotValid, |w| remove(&mut build(w)["source"], "git"), "source.git is missing"),
    (
        Reason::SourceNotValid,
        |w| build(w)["source"]["ociArtifact"] = json!({"image": "a"}),
        "must not be there",
    ),
    (
        Reason::SourceNotValid,
        |w| build(w)["source"]["contextDir"] = json!("a/../../b"),
        "leads out",
    ),
    (
        Reason::RestrictedParametersInUse,
        |w| w.run["spec"]["paramValues"][0]["name"] = json!("shp-output-image"),
        "cannot be set: shp-output-image",
    ),
    (
        Reason::UndefinedParameter,
        |w| w.run["spec"]["paramValues"][0]["name"] = json!("unheard-of"),
        "not defined in the build strategy: unheard-of",
    ),
    (
        Reason::WrongParameterValueType,
        |w| build(w)["paramValues"][1] = json!({"name": "build-args", "value": "x"}),
        "takes values",
    ),
    (
        Reason::MissingParameterValues,
        |w| remove(&mut w.strategy["spec"]["parameters"][3], "default"),
        "SHP_BUILD_PLATFORM",
    ),
    (
        Reason::InconsistentParameterValues,
        |w| build(w)["paramValues"][2]["value"] = json!("x"),
        "more than one of",
    ),
    (
        Reason::EmptyArrayItemParameterValues,
        |w| build(w)["paramValues"][1]["values"][0] = json!({}),
        "without any value",
    ),
    (
        Reason::IncompleteConfigMapValueParameterValues,
        |w| build(w)["paramValues"][1]["values"][1]["configMapValue"]["key"] = json!(""),
        "config map",
    ),
    (
        Reason::IncompleteSecretValueParameterValues,
        |w| build(w)["paramValues"][2]["secretValue"]["name"] = json!(""),
        "secret",
    ),
    (
        Reason::UndefinedVolume,
        |w| build(w)["volumes"][0]["name"] = json!("unheard-of"),
        "is not defined",
    ),
    (
        Reason::VolumeNotOverridable,
        |w| remove(&mut w.strategy["spec"]["volumes"][0], "overridable"),
        r#""cache" is not overridable"#,
    ),
    (
        Reason::UndefinedStepResource,
        |w| w.run["spec"]["stepResources"][0]["name"] = json!("unheard-of"),
        "does not exist",
    ),
    (
        Reason::OutputTimestampNotSupported,
        |w| remove(build(w), "source"),
        "only sources of type Git and OCI",
    ),
    (Reason::OutputTimestampNotValid, |w| output(w)["timestamp"] = json!("soon"), "soon"),
    (
        Reason::VulnerabilityScanNotSupported,
        |w| output(w)["vulnerabilityScan"] = json!({"enabled": true}),
        "offline database",
    ),
    (
        Reason::SpecEnvNameCanNotBeBlank,
        |w| build(w)["env"][0]["name"] = json!(""),
        "must not be blank",
    ),
    (
        Reason::SpecEnvOnlyOneOfValueOrValueFromMustBeSpecified,
        |w| build(w)["env"][1]["value"] = json!("x"),
        "leave one",
    ),
    (
        Reason::SpecEnvNameForbidden,
        |w| w.run["spec"]["env"][0]["name"] = json!("LD_PRELOAD"),
        "forbidden for security reasons",
    ),
    (
        Reason::TriggerNameCanNotBeBlank,
        |w| build(w)["trigger"]["when"][0]["name"] = json!(""),
        "name is not set",
    ),
    (
        Reason::TriggerInvalidType,
        |w| build(w)["trigger"]["when"][0]["type"] = json!("Gitlab"),
        "Gitlab",
    ),
    (
        Reason::TriggerInvalidGitHubWebHook,
        |w| remove(&mut build(w)["trigger"]["when"][0], "github"),
        "github.events",
    ),
    (
        Reason::TriggerInvalidImage,
        |w| build(w)["trigger"]["when"][1]["image"]["names"] = json!([]),
        "image.names",
    ),
    (
        Reason::TriggerInvalidPipeline,
        |w| build(w)["trigger"]["when"][1]["type"] = json!("Pipeline"),
        "objectRef",
    ),
    (
        Reason::NodeSelectorNotValid,
        |w| build(w)["nodeSelector"]["a b"] = json!("c"),
        "Node selector key not valid",
    ),
    (
        Reason::TolerationNotValid,
        |w| build(w)["tolerations"][0]["effect"] = json!("NoExecute"),
        "must be NoSchedule",
    ),
    (
        Reason::TolerationNotValid,
        |w| remove(&mut build(w)["tolerations"][0], "operator"),
        "must be Exists or Equal",
    ),
    (Reason::SchedulerNameNotValid, |w| build(w)["schedulerName"] = json!(""), "scheduler name"),
    (
        Reason::RuntimeClassNameNotValid,
        |w| build(w)["runtimeClassName"] = json!("Kata"),
        "runtime class name",
    ),
    (
        Reason::TaskRunGenerationFailed,
        |w| w.run["spec"]["env"][0]["name"] = json!("TOKEN"),
        r#""TOKEN" already exists"#,
    ),
    (
        Reason::TaskRunGenerationFailed,
        |w| w.strategy["spec"]["steps"][0]["volumeMounts"][0]["name"] = json!("none"),
        "is not found",
    ),
    (
        Reason::TaskRunGenerationFailed,
        |w| remove(&mut w.strategy["spec"]["steps"][0]["volumeMounts"][1], "readOnly"),
        "must be read only",
    ),
    (
        Reason::TaskRunGenerationFailed,
        |w| w.strategy["spec"]["steps"][1]["name"] = json!("image-processing"),
        "name of one of ours",
    ),
    (Reason::TaskRunGenerationFailed, no_steps, "no steps"),
];

fn no_steps(world: &mut World) {
    world.strategy["spec"]["steps"] = json!([]);
    remove(&mut build(world)["strategy"], "stepResources");
    remove(&mut world.run["spec"], "stepResources");
}

/// Of many platforms.
const MULTI: &[(Reason, Change, &str)] = &[
    (
        Reason::ImagePlatformClassNotFound,
        |w| w.class = Value::Null,
        r#"imagePlatformClass "all" does not exist"#,
    ),
    (
        Reason::ImagePlatformClassNotAvailable,
        |w| w.platforms[1]["metadata"]["name"] = json!("gone"),
        "ImagePlatformNotFound: There is no ImagePlatform linux-s390x-kata-remote",
    ),
    (
        Reason::ImagePlatformClassNotAvailable,
        |w| w.platforms[1]["spec"]["platform"] = json!({"os": "linux", "arch": "amd64"}),
        "DuplicatePlatform: linux-amd64-native and linux-s390x-kata-remote are both for linux/amd64",
    ),
    (
        Reason::ImagePlatformClassNotAvailable,
        |w| remove(&mut w.platforms[1]["spec"], "runtimeClass"),
        "InvalidImagePlatform: These cannot be used: linux-s390x-kata-remote",
    ),
    (
        Reason::PlatformNotSupported,
        |w| output(w)["multiArch"]["platforms"][0]["arch"] = json!("riscv64"),
        "has nothing for linux/riscv64; it has linux/amd64, linux/s390x, linux/ppc64le",
    ),
    (
        Reason::InvalidPlatform,
        |w| output(w)["multiArch"]["platforms"][1] = json!({"os": "linux", "arch": "ppcle64"}),
        "platforms[2] is a duplicate of linux/ppc64le",
    ),
    (
        Reason::NodeSelectorCollision,
        |w| build(w)["nodeSelector"]["kubernetes.io/arch"] = json!("amd64"),
        r#"nodeSelector kubernetes.io/arch of ImagePlatform "linux-amd64-native" for linux/amd64"#,
    ),
    (
        Reason::TolerationCollision,
        |w| build(w)["tolerations"][0]["key"] = json!("pipeline-node"),
        "toleration pipeline-node",
    ),
    (
        Reason::RuntimeClassCollision,
        |w| w.run["spec"]["runtimeClassName"] = json!("gvisor"),
        "runtimeClass kata-remote of ImagePlatform",
    ),
    (
        Reason::ParamValueCollision,
        |w| {
            w.run["spec"]["paramValues"][0] =
                json!({"name": "SHP_BUILD_PLATFORM", "value": "linux/amd64"});
        },
        "paramValue SHP_BUILD_PLATFORM",
    ),
    (
        Reason::UndefinedParameter,
        |w| w.platforms[2]["spec"]["paramValues"][0]["name"] = json!("PLATFORM"),
        r#"ImagePlatform "linux-ppc64le-emulated": The following parameters are not defined"#,
    ),
    (
        Reason::WrongParameterValueType,
        |w| {
            w.platforms[2]["spec"]["paramValues"][0] =
                json!({"name": "SHP_BUILD_PLATFORM", "values": [{"value": "a"}]});
        },
        r#"ImagePlatform "linux-ppc64le-emulated""#,
    ),
    (
        Reason::OutputImageNotValid,
        |w| {
            let digest = format!("sha256:{}", "0".repeat(64));
            output(w)["image"] = json!(format!("registry.example/app@{digest}"));
        },
        "name a tag",
    ),
    (Reason::OutputImageNotValid, |w| output(w)["image"] = json!("r.example/App"), "repository"),
    (Reason::OutputImageNotValid, |w| output(w)["image"] = json!("oci:/tmp/x"), "directory"),
    (
        Reason::PipelineRunGenerationFailed,
        |w| w.run["spec"]["env"][0]["name"] = json!("TOKEN"),
        "already exists",
    ),
    (
        Reason::MissingParameterValues,
        |w| remove(&mut w.strategy["spec"]["parameters"][3], "default"),
        "SHP_BUILD_PLATFORM",
    ),
    (
        Reason::NodeSelectorPlatformConflict,
        |w| {
            remove(output(w), "multiArch");
            output(w)["platforms"] = json!([{"os": "linux", "arch": "amd64"}]);
            build(w)["nodeSelector"]["kubernetes.io/arch"] = json!("amd64");
        },
        "kubernetes.io/arch",
    ),
];

#[test]
fn every_reason_has_its_cause_and_its_message() {
    for (start, table) in [(World::new as fn() -> World, SINGLE), (World::multi, MULTI)] {
        assert!(start().plan().is_ok(), "{:#?}", start().plan());
        for (reason, change, message) in table {
            let world = start().with(change);
            let refusals = world.plan().expect_err(reason.as_str());
            let said = refusals.iter().any(|r| r.reason == *reason && r.message.contains(message));
            assert!(said, "{reason}, {message:?}: {refusals:#?}");
        }
    }
}

/// Reasons that need more than a change of these files.
#[test]
fn no_reason_is_forgotten() {
    let tried: BTreeSet<Reason> = SINGLE.iter().chain(MULTI).map(|(reason, ..)| *reason).collect();
    let elsewhere = BTreeSet::from([
        Reason::BuildNameInvalid,
        // A platform that changed between a class's status and now.
        Reason::ImagePlatformNotFound,
        Reason::InvalidImagePlatform,
    ]);
    let untried: Vec<_> =
        Reason::ALL.iter().filter(|r| !tried.contains(r) && !elsewhere.contains(r)).collect();
    assert!(untried.is_empty(), "{untried:?}");
}

/// Reasons of upstream's Builds and BuildRuns, as scripts compare them, for what is found before anything runs.
const UPSTREAM: &str = "
    BuildStrategyNotFound ClusterBuildStrategyNotFound UnknownBuildStrategyKind SetOwnerReferenceFailed
    SpecSourceSecretRefNotFound SpecOutputSecretRefNotFound MultipleSecretRefNotFound RemoteRepositoryUnreachable
    RestrictedParametersInUse UndefinedParameter WrongParameterValueType MissingParameterValues InconsistentParameterValues
    EmptyArrayItemParameterValues IncompleteConfigMapValueParameterValues IncompleteSecretValueParameterValues UndefinedVolume
    VolumeNotOverridable UndefinedStepResource OutputTimestampNotSupported OutputTimestampNotValid BuildNameInvalid
    SpecEnvNameCanNotBeBlank SpecEnvOnlyOneOfValueOrValueFromMustBeSpecified SpecEnvNameForbidden TriggerNameCanNotBeBlank
    TriggerInvalidType TriggerInvalidGitHubWebHook TriggerInvalidImage TriggerInvalidPipeline NodeSelectorNotValid
    TolerationNotValid SchedulerNameNotValid RuntimeClassNameNotValid InvalidPlatform NodeSelectorPlatformConflict
    SpecBuilderSecretRefNotFound RuntimePathsCanNotBeEmpty SpecEnvValueCanNotBeBlank
    BuildRunNameInvalid BuildRunNoRefOrSpec BuildRunAmbiguousBuild BuildRunBuildFieldOverrideForbidden
    BuildNotFound BuildRegistrationFailed ServiceAccountNotFound UnknownStrategyKind VolumeDoesNotExist
    ExecutorNotPipelineRun NodePlatformNotFound TaskRunGenerationFailed PipelineRunGenerationFailed BuildRunCanceled
    Succeeded Failed BuildRunTimeout TaskRunIsMissing PodEvicted StepOutOfMemory VulnerabilitiesFound PipelineRunFailed Pending";

/// Those of SHIP-0043, by the names that were chosen for them.
const PLATFORMS: &str = "
    ImagePlatformClassNotFound ImagePlatformClassNotAvailable PlatformNotSupported NodeSelectorCollision TolerationCollision
    RuntimeClassCollision ParamValueCollision ImagePlatformNotFound OutputImageNotValid";

/// What never comes from here. `docs/controller.md` says why.
const NOT_HERE: [&str; 8] = [
    "SetOwnerReferenceFailed",
    "RemoteRepositoryUnreachable",
    "ExecutorNotPipelineRun",
    "NodePlatformNotFound",
    "PipelineRunFailed",
    "SpecBuilderSecretRefNotFound",
    "RuntimePathsCanNotBeEmpty",
    "SpecEnvValueCanNotBeBlank",
];

#[test]
fn reasons_are_the_words_that_scripts_of_upstream_know() {
    use portolan_api::reason::outcome;

    let outcomes = [
        outcome::SUCCEEDED,
        outcome::PENDING,
        outcome::FAILED,
        outcome::TIMEOUT,
        outcome::CANCELED,
        outcome::EXECUTOR_MISSING,
        outcome::POD_EVICTED,
        outcome::OUT_OF_MEMORY,
        outcome::VULNERABILITIES,
        outcome::BUILD_REGISTRATION_FAILED,
        outcome::ACCOUNT_NOT_FOUND,
        outcome::VOLUME_NOT_FOUND,
        outcome::SOURCE_SECRET_NOT_FOUND,
        outcome::OUTPUT_SECRET_NOT_FOUND,
        outcome::SECRETS_NOT_FOUND,
    ];
    let ours: BTreeSet<&str> =
        Reason::ALL.iter().map(|reason| reason.as_str()).chain(outcomes).collect();
    let wanted: BTreeSet<&str> =
        UPSTREAM.split_whitespace().chain(PLATFORMS.split_whitespace()).collect();
    let missing: Vec<&&str> = wanted.difference(&ours).collect();
    let expected: BTreeSet<&&str> = NOT_HERE.iter().collect();
    assert_eq!(missing.into_iter().collect::<BTreeSet<_>>(), expected);
    // Words of our own: what upstream does not look at, or looks at without a word.
    let own: Vec<&&str> = ours.difference(&wanted).collect();
    assert_eq!(own, [&"InvalidImagePlatform", &"SourceNotValid", &"VulnerabilityScanNotSupported"]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/controller.md");
    let told = std::fs::read_to_string(path).unwrap();
    let untold: Vec<&&str> = NOT_HERE.iter().filter(|name| !told.contains(**name)).collect();
    assert!(untold.is_empty(), "{untold:?}");
}

#[test]
fn all_collisions_are_named_at_once_and_sorted() {
    let refusals = World::multi()
        .with(|world| {
            build(world)["nodeSelector"] =
                json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
            build(world)["tolerations"][0]["key"] = json!("pipeline-node");
        })
        .plan()
        .unwrap_err();
    let reasons: Vec<_> = refusals.iter().map(|refusal| refusal.reason).collect();
    assert_eq!(reasons, [Reason::NodeSelectorCollision, Reason::TolerationCollision]);
    let message = &refusals[0].message;
    let (arch, os) = (message.find("kubernetes.io/arch"), message.find("kubernetes.io/os"));
    assert!(arch.is_some() && arch < os, "{message}");
}

#[test]
fn a_runtime_class_that_both_name_is_no_collision() {
    let world =
        World::multi().with(|world| world.run["spec"]["runtimeClassName"] = json!("kata-remote"));
    assert!(world.plan().is_ok(), "{:#?}", world.plan());
}

#[test]
fn a_class_that_nobody_has_looked_at_is_not_available() {
    use portolan_api::document::{self, Resource};
    use portolan_build::plan::{self, Objects, Settings};

    let world = World::multi();
    let read = |value: &Value| document::read(value.to_string().as_bytes()).unwrap().remove(0);
    let mut objects = Objects::default();
    let Resource::Build(build) = read(&world.build) else { panic!() };
    let Resource::BuildRun(run) = read(&world.run) else { panic!() };
    let Resource::ClusterBuildStrategy(strategy) = read(&world.strategy) else { panic!() };
    let Resource::ImagePlatformClass(mut class) = read(&world.class) else { panic!() };
    let images: Vec<_> = world
        .platforms
        .iter()
        .map(|value| match read(value) {
            Resource::ImagePlatform(image) => image,
            other => panic!("{other:?}"),
        })
        .collect();
    (objects.builds, objects.cluster_strategies) = (vec![build], vec![strategy]);
    let settings = Settings {
        step_image: "portolan".into(),
        service_account: None,
        source_repository: None,
        created: 0,
    };
    let reasons = |objects: &Objects| -> Vec<Reason> {
        plan::plan(&run, objects, &settings).unwrap_err().iter().map(|r| r.reason).collect()
    };
    objects.classes = vec![class.clone()];
    objects.image_platforms.clone_from(&images);
    assert_eq!(reasons(&objects), [Reason::ImagePlatformClassNotAvailable]);
    // The class was fine when it was looked at; then a platform went, and another changed.
    class.status = Some(plan::class_status(&class, &images));
    objects.classes = vec![class];
    objects.image_platforms.remove(1);
    assert_eq!(reasons(&objects), [Reason::ImagePlatformNotFound]);
    objects.image_platforms.clone_from(&images);
    objects.image_platforms[1].spec.runtime_class = None;
    assert_eq!(reasons(&objects), [Reason::InvalidImagePlatform]);
}
