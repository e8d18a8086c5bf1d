//! What holds for every set of platforms.

use std::collections::BTreeSet;

use portolan_build::plan::Work;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::World;

/// Platforms that differ in their usual spelling.
fn platforms() -> impl Strategy<Value = Vec<Value>> {
    let one = ("[a-z]{1,64}", "[a-z0-9]{1,64}", proptest::option::of("v[0-9](\\.[0-9])?"));
    proptest::collection::vec(one, 1..12).prop_map(|all| {
        let mut seen = BTreeSet::new();
        all.into_iter()
            .map(|(os, arch, variant)| {
                let mut platform = json!({"os": os, "arch": arch});
                if let Some(variant) = variant {
                    platform["variant"] = json!(variant);
                }
                platform
            })
            .filter(|platform| {
                let typed: portolan_api::platform::Platform =
                    serde_json::from_value(platform.clone()).expect("a platform");
                seen.insert(typed.normalised())
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_platform_is_built_once_under_names_that_fit(wanted in platforms()) {
        let world = World::new().with(|world| {
            world.build["spec"]["output"]["multiArch"] =
                json!({"imagePlatformClass": "all", "platforms": wanted});
            world.platforms = wanted
                .iter()
                .enumerate()
                .map(|(at, platform)| json!({
                    "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
                    "metadata": {"name": format!("p{at}")},
                    "spec": {"platform": platform, "nodeSelector": {"own": format!("n{at}")}},
                }))
                .collect();
            let names: Vec<_> = (0..wanted.len()).map(|at| json!({"name": format!("p{at}")})).collect();
            world.class["spec"]["imagePlatforms"] = json!(names);
        });
        let plan = world.plan().expect("nothing speaks against it");
        prop_assert!(plan.name.len() <= 63);
        let Work::Multi(phases) = &plan.work else { panic!("many platforms") };
        let built: Vec<_> = phases.platforms.iter().map(|p| p.platform.clone()).collect();
        let asked: Vec<_> = wanted
            .iter()
            .map(|platform| {
                serde_json::from_value::<portolan_api::platform::Platform>(platform.clone())
                    .expect("a platform")
                    .normalised()
            })
            .collect();
        prop_assert_eq!(built, asked);
        let tasks: BTreeSet<_> = phases.platforms.iter().map(|p| &p.task.name).collect();
        let images: BTreeSet<_> = phases.platforms.iter().map(|p| p.image.to_string()).collect();
        prop_assert_eq!(tasks.len(), wanted.len());
        prop_assert_eq!(images.len(), wanted.len());
        for (at, platform) in phases.platforms.iter().enumerate() {
            prop_assert!(platform.task.name.len() <= 63);
            let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            prop_assert!(platform.task.name.bytes().all(is_word), "{}", platform.task.name);
            // Its own selector and the Build's, and nobody else's.
            prop_assert_eq!(&platform.pod.node_selector["own"], &format!("n{at}"));
            prop_assert_eq!(platform.pod.node_selector.len(), 2);
        }
    }

    #[test]
    fn a_key_of_both_is_always_a_collision(key in "[a-z]{1,8}", own in "[a-z]{1,8}") {
        let world = World::multi().with(|world| {
            world.build["spec"]["nodeSelector"] = json!({own.as_str(): "x"});
            world.platforms[1]["spec"]["nodeSelector"] = json!({key.as_str(): "x"});
        });
        prop_assert_eq!(world.plan().is_err(), key == own);
    }
}
