//! What the status of a class says. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::platform::{ImagePlatform, ImagePlatformClass, ImagePlatformClassStatus};
use portolan_build::plan;

/// The status over the platforms that there are. The time is that of the last change.
pub fn status(
    class: &ImagePlatformClass,
    platforms: &[ImagePlatform],
    now: &Time,
) -> ImagePlatformClassStatus {
    let mut status = plan::class_status(class, platforms);
    let before = class.status.as_ref().map(|status| status.conditions.as_slice());
    let before = before.unwrap_or_default();
    status.conditions = status.conditions.into_iter().map(|new| new.since(before, now)).collect();
    status
}

#[cfg(test)]
mod tests {
    use portolan_api::condition::Status;
    use serde_json::json;

    use super::*;

    fn platform(name: &str, arch: &str) -> ImagePlatform {
        serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
            "metadata": {"name": name},
            "spec": {"platform": {"os": "linux", "arch": arch}, "nodeSelector": {"a": "b"}},
        }))
        .unwrap()
    }

    fn time(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_condition_follows_the_platforms_and_keeps_its_time_while_it_holds() {
        let mut class: ImagePlatformClass = serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": "all", "generation": 3},
            "spec": {"imagePlatforms": [{"name": "a"}, {"name": "b"}]},
        }))
        .unwrap();
        let both = [platform("a", "amd64"), platform("b", "arm64")];
        for (platforms, at, holds, reason, since) in [
            (&both[..], 1, Status::True, "AllImagePlatformsAvailable", 1),
            (&both[..], 2, Status::True, "AllImagePlatformsAvailable", 1),
            (&both[..1], 3, Status::False, "ImagePlatformNotFound", 3),
            (
                &[platform("a", "amd64"), platform("b", "amd64")],
                4,
                Status::False,
                "DuplicatePlatform",
                3,
            ),
            (&both[..], 5, Status::True, "AllImagePlatformsAvailable", 5),
        ] {
            let status = status(&class, platforms, &time(at));
            let condition = &status.conditions[0];
            assert_eq!((condition.status, condition.reason.as_str()), (holds, reason));
            assert_eq!(condition.last_transition_time, Some(time(since)));
            assert_eq!(condition.observed_generation, Some(3));
            class.status = Some(status);
        }
    }
}
