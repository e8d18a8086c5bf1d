//! What whoever runs this may do in the cluster.

use super::super::finding::{Finding, missing, ok, unknown};
use super::Facts;

/// One thing to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Right {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespaced: bool,
    /// What it is for.
    pub(super) to: &'static str,
}

pub(super) const RIGHTS: &[Right] = &[
    Right {
        verb: "create",
        group: "shipwright.io",
        resource: "buildruns",
        namespaced: true,
        to: "run builds",
    },
    Right {
        verb: "list",
        group: "shipwright.io",
        resource: "imageplatforms",
        namespaced: false,
        to: "see platforms",
    },
    Right {
        verb: "patch",
        group: "runtime.spinkube.dev",
        resource: "shims",
        namespaced: false,
        to: "change Shims",
    },
    Right {
        verb: "patch",
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        namespaced: false,
        to: "install and upgrade",
    },
];

pub(super) fn check(facts: &Facts) -> Finding {
    const CHECK: &str = "rights";
    let of = |allowed: bool| {
        let those = facts.rights.iter().filter(move |(_, answer)| *answer == Some(allowed));
        those.map(|(right, _)| right.to).collect::<Vec<_>>().join(", ")
    };
    let (may, may_not) = (of(true), of(false));
    if facts.rights.iter().any(|(_, answer)| answer.is_none()) {
        return unknown(
            CHECK,
            "the cluster does not say what you may do",
            "ask again, or ask its administrator",
        );
    }
    match may_not.is_empty() {
        true => ok(CHECK, format!("you may {may}")),
        false => missing(
            CHECK,
            format!("you may not {may_not}"),
            "for builds: the role edit of a namespace (portolan crds --roles); for the rest: a cluster administrator",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn what_one_may_not_do_is_told_with_what_it_is_for() {
        let of = |answers: [Option<bool>; 4]| {
            let rights = RIGHTS.iter().copied().zip(answers).collect();
            check(&Facts { rights, ..super::super::facts() })
        };
        assert_eq!(of([Some(true); 4]).state, State::Ok);
        let editor = of([Some(true), Some(true), Some(false), Some(false)]);
        assert!(
            editor.state == State::Missing && editor.found.contains("install and upgrade"),
            "{editor:?}"
        );
        assert_eq!(of([Some(true), None, Some(true), Some(true)]).state, State::Unknown);
    }
}
