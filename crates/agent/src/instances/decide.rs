//! What is done next for an instance. Pure.

/// What somebody wants of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want<'a> {
    /// A machine for this spec.
    Running(&'a str),
    /// No machine.
    Stopped,
    /// No trace.
    Deleted,
    /// Nobody knows: the spec cannot be read.
    Unknown,
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Have<'a> {
    /// No machine. The spec that has run its course, well or not.
    Nothing { settled: Option<&'a str> },
    /// A machine, and the spec it was started for.
    Machine(&'a str),
    /// Perhaps one.
    Unsure,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until somebody wants something else.
    Rest,
    /// Fetch, build, start.
    Start,
    /// Wait for the machine's end.
    Watch,
    /// End the machine.
    Stop,
    /// Give back what a machine needed, and say that there is none.
    Settle,
    /// Remove every trace.
    Remove,
    /// Look again in a while.
    LookAgain,
}

/// A machine is only ever started where there is none, for sure; a workload that has run its course
/// is not started again until its spec changes or it was wanted stopped in between.
pub(super) fn decide(want: Want<'_>, have: Have<'_>) -> Step {
    match (want, have) {
        (_, Have::Unsure) => Step::LookAgain,
        (Want::Running(spec), Have::Machine(started)) if spec == started => Step::Watch,
        (Want::Unknown, Have::Machine(_)) => Step::Watch,
        (_, Have::Machine(_)) => Step::Stop,
        (Want::Running(spec), Have::Nothing { settled }) if settled == Some(spec) => Step::Rest,
        (Want::Running(_), Have::Nothing { .. }) => Step::Start,
        (Want::Stopped, Have::Nothing { .. }) => Step::Settle,
        (Want::Deleted, Have::Nothing { .. }) => Step::Remove,
        (Want::Unknown, Have::Nothing { .. }) => Step::Rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTS: [Want<'_>; 5] =
        [Want::Running("a"), Want::Running("b"), Want::Stopped, Want::Deleted, Want::Unknown];
    const HAVES: [Have<'_>; 5] = [
        Have::Nothing { settled: None },
        Have::Nothing { settled: Some("a") },
        Have::Machine("a"),
        Have::Machine("b"),
        Have::Unsure,
    ];

    #[test]
    fn nothing_is_started_beside_a_machine_or_a_doubt() {
        for want in WANTS {
            for have in HAVES {
                let step = decide(want, have);
                let free = matches!(have, Have::Nothing { .. });
                assert!(free || matches!(step, Step::Watch | Step::Stop | Step::LookAgain));
            }
        }
    }

    #[test]
    fn a_workload_runs_once_until_something_changes() {
        let settled = Have::Nothing { settled: Some("a") };
        assert_eq!(decide(Want::Running("a"), Have::Nothing { settled: None }), Step::Start);
        assert_eq!(decide(Want::Running("a"), Have::Machine("a")), Step::Watch);
        assert_eq!(decide(Want::Running("a"), settled), Step::Rest);
        assert_eq!(decide(Want::Running("b"), settled), Step::Start);
        assert_eq!(decide(Want::Running("b"), Have::Machine("a")), Step::Stop);
        assert_eq!(decide(Want::Stopped, settled), Step::Settle);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone_and_can_be_deleted() {
        assert_eq!(decide(Want::Unknown, Have::Machine("a")), Step::Watch);
        assert_eq!(decide(Want::Unknown, Have::Nothing { settled: None }), Step::Rest);
        assert_eq!(decide(Want::Deleted, Have::Machine("a")), Step::Stop);
        assert_eq!(decide(Want::Deleted, Have::Nothing { settled: None }), Step::Remove);
    }
}
