//! A plan and its object of Tekton, for `cargo xtask bench build`: one line `MICROSECONDS BOUND NAME`.
#![allow(clippy::print_stdout, reason = "its answer")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use portolan_api::build::{Build, BuildRun, ClusterBuildStrategy};
use portolan_api::platform::{ImagePlatform, ImagePlatformClass};
use portolan_build::plan::{Objects, Settings, class_status, plan};
use portolan_build::tekton::render;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const ARCHITECTURES: [&str; 8] =
    ["amd64", "arm64", "s390x", "ppc64le", "riscv64", "386", "loong64", "mips64le"];
const TIMES: usize = 1_001;

fn main() {
    let (run, objects) = world();
    let settings = Settings {
        step_image: "registry.example/portolan:1".to_owned(),
        service_account: None,
        source_repository: None,
        created: 0,
    };
    let once = || {
        let plan = plan(black_box(&run), &objects, &settings)
            .unwrap_or_else(|refusals| panic!("{refusals:?}"));
        render(&plan).to_string()
    };
    let text = once();
    for arch in ARCHITECTURES {
        assert!(text.contains(&format!("build-linux-{arch}")), "{arch} is missing");
    }
    let mut measured: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let began = Instant::now();
            black_box(once());
            began.elapsed()
        })
        .collect();
    measured.sort();
    let micros = measured[TIMES / 2].as_secs_f64() * 1e6;
    println!("{micros:.1} 5000 plan and render for 8 platforms");
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a resource")
}

fn world() -> (BuildRun, Objects) {
    let platforms: Vec<Value> =
        ARCHITECTURES.iter().map(|arch| json!({"os": "linux", "arch": arch})).collect();
    let build: Build = read(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "Build", "metadata": {"name": "app"},
        "spec": {
            "source": {"type": "Git", "git": {"url": "https://git.example/app.git"}},
            "strategy": {"name": "s", "kind": "ClusterBuildStrategy"},
            "paramValues": [{"name": "extra", "value": "a value"}],
            "output": {
                "image": "registry.example/app:1",
                "multiArch": {"imagePlatformClass": "all", "platforms": platforms},
            },
        },
    }));
    let strategy: ClusterBuildStrategy = read(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "ClusterBuildStrategy", "metadata": {"name": "s"},
        "spec": {
            "parameters": [
                {"name": "extra", "type": "string", "description": "d"},
                {"name": "SHP_IMAGE_PLATFORM", "type": "string", "default": "", "description": "d"},
            ],
            "steps": [{
                "name": "build", "image": "registry.example/builder:1", "command": ["build"],
                "args": ["$(params.shp-output-image)", "$(params.SHP_IMAGE_PLATFORM)", "$(params.extra)"],
            }],
        },
    }));
    let image_platforms: Vec<ImagePlatform> = ARCHITECTURES
        .iter()
        .map(|arch| {
            read(json!({
                "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
                "metadata": {"name": format!("linux-{arch}")},
                "spec": {
                    "platform": {"os": "linux", "arch": arch},
                    "paramValues": [{"name": "SHP_IMAGE_PLATFORM", "value": format!("linux/{arch}")}],
                },
            }))
        })
        .collect();
    let names: Vec<Value> =
        ARCHITECTURES.iter().map(|arch| json!({"name": format!("linux-{arch}")})).collect();
    let mut class: ImagePlatformClass = read(json!({
        "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
        "metadata": {"name": "all"}, "spec": {"imagePlatforms": names},
    }));
    class.status = Some(class_status(&class, &image_platforms));
    let run: BuildRun = read(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
        "metadata": {"name": "run", "namespace": "team", "uid": "1"},
        "spec": {"build": {"name": "app"}},
    }));
    let objects = Objects {
        builds: vec![build],
        cluster_strategies: vec![strategy],
        classes: vec![class],
        image_platforms,
        ..Objects::default()
    };
    (run, objects)
}
