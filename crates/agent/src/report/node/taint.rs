//! The one taint that is ours, among those of others. Pure.

use serde_json::{Value, json};

/// The key of the taint: no new pods while the image cache has no room.
pub const TAINT: &str = "portolan.dev/image-cache-pressure";
const EFFECT: &str = "NoSchedule";

/// The taints that a node should have; none where it has them already. Those of others stay as they are, in their
/// order, with fields that are not known here.
pub(super) fn change(taints: &[Value], wanted: bool) -> Option<Vec<Value>> {
    let is_ours = |taint: &Value| taint["key"] == TAINT;
    let there: Vec<_> = taints.iter().filter(|taint| is_ours(taint)).collect();
    let right = match (wanted, &there[..]) {
        (true, [one]) => one["effect"] == EFFECT,
        (true, _) => false,
        (false, ours) => ours.is_empty(),
    };
    if right {
        return None;
    }
    let mut next: Vec<Value> = taints.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    next.extend(wanted.then(|| json!({ "key": TAINT, "effect": EFFECT })));
    Some(next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_taint_comes_and_goes_and_others_stay_as_they_are() {
        let other = json!({ "key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "x" });
        let ours = json!({ "key": TAINT, "effect": "NoSchedule" });
        let odd = json!({ "key": TAINT, "effect": "NoExecute" });
        for (taints, wanted, expected) in [
            (vec![], false, None),
            (vec![], true, Some(vec![ours.clone()])),
            (vec![other.clone()], true, Some(vec![other.clone(), ours.clone()])),
            (vec![ours.clone(), other.clone()], true, None),
            (vec![ours.clone(), other.clone()], false, Some(vec![other.clone()])),
            (vec![ours.clone()], false, Some(vec![])),
            // Somebody changed ours, or made two of it.
            (vec![odd.clone()], true, Some(vec![ours.clone()])),
            (vec![odd, ours.clone()], true, Some(vec![ours])),
        ] {
            assert_eq!(change(&taints, wanted), expected, "{taints:?} {wanted}");
        }
    }

    proptest! {
        #[test]
        fn whatever_taints_there_are_only_ours_changes(
            keys in prop::collection::vec(prop_oneof![Just(TAINT.to_owned()), "[a-z]{1,6}"], 0..8),
            wanted in any::<bool>(),
        ) {
            let taints: Vec<Value> =
                keys.iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
            let next = change(&taints, wanted).unwrap_or_else(|| taints.clone());
            let others = |all: &[Value]| {
                all.iter().filter(|one| one["key"] != TAINT).cloned().collect::<Vec<_>>()
            };
            prop_assert_eq!(others(&next), others(&taints));
            prop_assert_eq!(next.len() - others(&next).len(), usize::from(wanted));
            prop_assert_eq!(change(&next, wanted), None);
        }
    }
}
