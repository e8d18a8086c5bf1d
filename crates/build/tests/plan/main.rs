//! Plans of whole Builds: the objects they become, and every reason to refuse one.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod literal;
mod properties;
mod refusals;
mod rendered;

use portolan_api::build::BuildRun;
use portolan_api::document::{self, Resource};
use portolan_build::plan::{self, Objects, Plan, Refusal, Settings};
use portolan_core::Reference;
use serde_json::{Value, json};

/// The fixtures as JSON, so that each test can change what it is about.
#[derive(Debug, Clone)]
struct World {
    run: Value,
    build: Value,
    strategy: Value,
    platforms: Vec<Value>,
    class: Value,
    sources: Option<&'static str>,
}

fn documents(name: &str) -> Vec<Value> {
    let path = format!("{}/../../fixtures/build/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| serde::Deserialize::deserialize(document).expect("YAML"))
        .collect()
}

impl World {
    fn new() -> Self {
        let mut builds = documents("build.yaml");
        let mut platforms = documents("platforms.yaml");
        Self {
            run: builds.pop().unwrap(),
            build: builds.pop().unwrap(),
            strategy: documents("strategy.yaml").remove(0),
            class: platforms.pop().unwrap(),
            platforms,
            sources: None,
        }
    }

    /// The same, for the platforms of the class.
    fn multi() -> Self {
        let mut world = Self::new();
        world.build["spec"]["output"]["multiArch"] = json!({
            "imagePlatformClass": "all",
            "platforms": [
                {"os": "linux", "arch": "amd64"},
                {"os": "linux", "arch": "s390x"},
                {"os": "linux", "arch": "ppc64le"},
            ],
        });
        world
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn plan(&self) -> Result<Plan, Vec<Refusal>> {
        let mut objects = Objects::default();
        let mut run: Option<BuildRun> = None;
        let all = [&self.run, &self.build, &self.strategy, &self.class];
        for value in all.into_iter().chain(&self.platforms).filter(|value| !value.is_null()) {
            let read = document::read(value.to_string().as_bytes());
            for resource in read.unwrap_or_else(|error| panic!("{error}\n{value:#}")) {
                match resource {
                    Resource::BuildRun(found) => run = Some(found),
                    Resource::Build(build) => objects.builds.push(build),
                    Resource::BuildStrategy(strategy) => objects.strategies.push(strategy),
                    Resource::ClusterBuildStrategy(s) => objects.cluster_strategies.push(s),
                    Resource::ImagePlatform(p) => objects.image_platforms.push(p),
                    Resource::ImagePlatformClass(class) => objects.classes.push(class),
                    other @ (Resource::Other { .. } | Resource::Shim(_) | Resource::Release(_)) => {
                        panic!("{other:?}")
                    }
                }
            }
        }
        for class in &mut objects.classes {
            class.status = Some(plan::class_status(class, &objects.image_platforms));
        }
        let settings = Settings {
            step_image: "portolan.example/portolan:test".to_owned(),
            service_account: None,
            source_repository: self.sources.map(|sources| match sources.parse() {
                Ok(Reference::Registry(found)) => found,
                other => panic!("{other:?}"),
            }),
            created: 1_700_000_000,
        };
        plan::plan(&run.expect("a run"), &objects, &settings)
    }

    #[track_caller]
    fn rendered(&self) -> Value {
        let plan = self.plan().unwrap_or_else(|refusals| panic!("{refusals:#?}"));
        portolan_build::tekton::render(&plan)
    }
}
