//! From what is stored and what should be to what is written: nothing where they agree.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The merge patch (RFC 7396) that makes `new` of `old`; none where nothing differs.
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) => patch.extend(difference(before, value).map(|p| (key.clone(), p))),
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Some(Value::Object(patch))
}

/// The patch of one part of an object, such as its status. It is only taken for the very version
/// that was looked at, so what somebody else wrote meanwhile is never written over.
pub fn of_part<T: Serialize>(metadata: &ObjectMeta, part: &str, old: &T, new: &T) -> Option<Value> {
    let [old, new] =
        [old, new].map(|value| serde_json::to_value(value).expect("a resource is JSON"));
    let old = if old.is_null() { json!({}) } else { old };
    let patch = difference(&old, &new)?;
    Some(json!({ "metadata": { "resourceVersion": metadata.resource_version }, part: patch }))
}

/// RFC 7396, as a server does it.
#[cfg(test)]
pub(crate) fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = target.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => {
                let before = target.get(key).cloned().unwrap_or(Value::Null);
                target.insert(key.clone(), merge(&before, value));
            }
        }
    }
    Value::Object(target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn documents() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any::<bool>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
        let inner = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", inner, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_new_of_the_old_and_nothing_is_written_where_they_agree(
            old in documents(), new in documents()
        ) {
            match difference(&old, &new) {
                None => prop_assert_eq!(&old, &new),
                Some(patch) => {
                    prop_assert_ne!(&old, &new);
                    prop_assert_eq!(merge(&old, &patch), new);
                }
            }
            prop_assert_eq!(difference(&old, &old), None);
        }
    }

    #[test]
    fn a_patch_is_for_the_version_that_was_looked_at() {
        let metadata =
            ObjectMeta { resource_version: Some("7".to_owned()), ..ObjectMeta::default() };
        let patch =
            of_part(&metadata, "status", &json!({"a": 1, "b": 2}), &json!({"a": 1, "c": 3}));
        assert_eq!(
            patch,
            Some(json!({"metadata": {"resourceVersion": "7"}, "status": {"b": null, "c": 3}}))
        );
        assert_eq!(of_part(&metadata, "status", &json!({"a": 1}), &json!({"a": 1})), None);
    }
}
