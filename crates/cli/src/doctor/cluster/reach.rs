//! The API server: which one it is.

use super::super::finding::{Finding, ok, unknown, wrong};
use super::Facts;

/// The first minor version of Kubernetes 1 that has all that the manifests use (`lifecycle.preStop.sleep`).
const OLDEST: u32 = 30;

pub(super) fn check(facts: &Facts) -> Finding {
    const CHECK: &str = "kubernetes";
    let version = facts.version.as_str();
    let mut numbers = version.trim_start_matches('v').split(['.', '+', '-']);
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (number(), number()) {
        (Some(1), Some(minor)) if minor < OLDEST => wrong(
            CHECK,
            format!("{version} is older than 1.{OLDEST}"),
            "upgrade the cluster: the manifests use what it does not know",
        ),
        (Some(_), Some(_)) => ok(CHECK, version),
        _ => unknown(CHECK, format!("it calls itself {version:?}"), "1.30 or newer is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn old_clusters_are_told_and_odd_ones_are_not_guessed() {
        for (version, state) in [
            ("v1.36.3", State::Ok),
            ("v1.30.0+k3s1", State::Ok),
            ("v1.29.9", State::Wrong),
            ("v2.0.0", State::Ok),
            ("", State::Unknown),
            ("unknown", State::Unknown),
        ] {
            let facts = Facts { version: version.to_owned(), ..super::super::facts() };
            assert_eq!(check(&facts).state, state, "{version}");
        }
    }
}
