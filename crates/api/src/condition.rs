//! Conditions, as statuses have them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Not known yet.
    Unknown,
}

/// One thing that holds, or not, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What: `Succeeded`, `Available`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
    /// One word that programs can rely on.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The generation of the resource that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// The same with its time: that of the one before it, unless the status is another now.
    #[must_use]
    pub fn since(self, before: &[Self], now: &Time) -> Self {
        let same = find(before, &self.kind).filter(|old| old.status == self.status);
        let since = same.and_then(|old| old.last_transition_time.clone());
        Self { last_transition_time: since.or_else(|| Some(now.clone())), ..self }
    }
}

/// The condition of this kind, if it was reported.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition of this kind was reported, and holds.
pub fn holds(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == Status::True)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_changes_with_the_status_alone() {
        let time = |second| Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap());
        let condition = |status, reason: &str| Condition {
            kind: "Ready".to_owned(),
            status,
            reason: reason.to_owned(),
            message: String::new(),
            last_transition_time: None,
            observed_generation: None,
        };
        let first = condition(Status::False, "Waits").since(&[], &time(1));
        assert_eq!(first.last_transition_time, Some(time(1)));
        assert!(!holds(std::slice::from_ref(&first), "Ready"));
        let before = [first];
        let other = condition(Status::False, "StillWaits").since(&before, &time(2));
        assert_eq!(other.last_transition_time, Some(time(1)));
        let ready = condition(Status::True, "Ready").since(&before, &time(3));
        assert_eq!(ready.last_transition_time, Some(time(3)));
        assert!(holds(&[ready], "Ready") && !holds(&[], "Ready"));
    }
}
