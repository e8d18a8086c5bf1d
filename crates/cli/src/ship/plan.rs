//! What is to be done, decided from what is there before anything is.

use std::fmt;

use serde::Serialize;

/// A part of the journey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// Source, an image for each platform and the index, in the registry.
    Build,
    /// A signature of the index and of each image.
    Sign,
    /// What the image needs, beside each image.
    Attach,
    /// Index and images are what was signed.
    Verify,
    /// Whether this host meets what the best image for it needs.
    Check,
    /// The one image that this host runs.
    Resolve,
    /// Its root disk in the agent's cache.
    Disk,
    /// The disk in a microVM.
    Boot,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Sign => "sign",
            Self::Attach => "attach",
            Self::Verify => "verify",
            Self::Check => "check",
            Self::Resolve => "resolve",
            Self::Disk => "disk",
            Self::Boot => "boot",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was seen before the first stage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// The command line names a registry.
    pub(super) registry_given: bool,
    /// The directory has a `compatibility.json`.
    pub(super) says_needs: bool,
    /// An agent answers.
    pub(super) agent_answers: bool,
    /// It is to be booted.
    pub(super) boot: bool,
}

/// Which registry holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harbour {
    /// The embedded one, as long as this takes.
    Embedded,
    /// Somebody's.
    Given,
}

/// Who keeps the root disk, and boots it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeper {
    /// The agent that runs here.
    Agent,
    /// This program, in the cache that an agent would use.
    Ourselves,
}

/// The journey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) harbour: Harbour,
    pub(super) keeper: Keeper,
    pub(super) stages: Vec<Stage>,
}

/// Which stages there are. Nothing is left out because it was done before: each finds out itself
/// whether there is something to do, and verification and the check of the host are always made.
pub(super) fn plan(seen: Seen) -> Plan {
    let mut stages = vec![Stage::Build, Stage::Sign];
    stages.extend(seen.says_needs.then_some(Stage::Attach));
    stages.extend([Stage::Verify, Stage::Check, Stage::Resolve, Stage::Disk]);
    stages.extend(seen.boot.then_some(Stage::Boot));
    Plan {
        harbour: if seen.registry_given { Harbour::Given } else { Harbour::Embedded },
        keeper: if seen.agent_answers { Keeper::Agent } else { Keeper::Ourselves },
        stages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(seen: Seen) -> String {
        let names: Vec<_> = plan(seen).stages.into_iter().map(Stage::name).collect();
        names.join(" ")
    }

    #[test]
    fn what_is_verified_comes_before_what_is_done_with_it() {
        let all = Seen { says_needs: true, boot: true, ..Seen::default() };
        assert_eq!(names(all), "build sign attach verify check resolve disk boot");
        assert_eq!(names(Seen::default()), "build sign verify check resolve disk");
    }

    #[test]
    fn what_is_given_or_runs_is_used() {
        let nothing = plan(Seen::default());
        assert_eq!((nothing.harbour, nothing.keeper), (Harbour::Embedded, Keeper::Ourselves));
        let both = plan(Seen { registry_given: true, agent_answers: true, ..Seen::default() });
        assert_eq!((both.harbour, both.keeper), (Harbour::Given, Keeper::Agent));
    }
}
