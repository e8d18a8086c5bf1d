//! As much of an object as anybody here looks at.
//!
//! Whoever reaches the webhook chooses what is in an object, and a value in memory is many times its
//! text. So what nobody looks at is passed over while it is read, and of the rest there is so much.

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

/// Values that are kept of one object. A pod of a hundred containers that tolerates everything has
/// less than a thousand.
pub(super) const MAX_VALUES: usize = 8192;

/// An object of a request, without what nobody looks at.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) value: Value,
    /// Whether there was more to look at than is kept.
    pub(super) too_much: bool,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut left = MAX_VALUES;
        let value = Keep { at: At::Object, left: &mut left }.deserialize(deserializer)?;
        Ok(match value {
            Some(value) => Self { value, too_much: false },
            None => Self { value: Value::Null, too_much: true },
        })
    }
}

/// Where in an object a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Object,
    Spec,
    Template,
    JobTemplate,
    JobSpec,
    Pod,
    /// A container or a volume.
    Part,
    /// A container's name of it, or a volume's object.
    Image,
    PullSecret,
    Affinity,
    NodeAffinity,
    /// Where all is looked at.
    Inside,
}

/// Where a member is; none where nobody looks.
fn member(at: At, name: &str) -> Option<At> {
    let in_pod = || {
        Some(match name {
            "containers" | "initContainers" | "ephemeralContainers" | "volumes" => At::Part,
            "imagePullSecrets" => At::PullSecret,
            "affinity" => At::Affinity,
            "serviceAccountName" | "nodeSelector" | "tolerations" | "os" | "nodeName" => At::Inside,
            _ => return None,
        })
    };
    match (at, name) {
        (At::Inside, _)
        | (At::Part | At::PullSecret, "name")
        | (At::Image, "reference")
        | (At::NodeAffinity, "requiredDuringSchedulingIgnoredDuringExecution") => Some(At::Inside),
        (At::Object, "spec") => Some(At::Spec),
        (At::Object | At::Spec | At::JobSpec, "template") => Some(At::Template),
        (At::Spec, "jobTemplate") => Some(At::JobTemplate),
        (At::JobTemplate, "spec") => Some(At::JobSpec),
        (At::Template, "spec") => Some(At::Pod),
        (At::Part, "image") => Some(At::Image),
        (At::Affinity, "nodeAffinity") => Some(At::NodeAffinity),
        // A bare pod is an object too.
        (At::Object | At::Spec | At::Pod, _) => in_pod(),
        _ => None,
    }
}

/// Keeps a value; none once there were too many.
struct Keep<'a> {
    at: At,
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Keep<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.left.checked_sub(1) {
            Some(left) => {
                *self.left = left;
                deserializer.deserialize_any(self)
            }
            None => IgnoredAny::deserialize(deserializer).map(|_| None),
        }
    }
}

impl<'de> Visitor<'de> for Keep<'_> {
    type Value = Option<Value>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut kept = Some(Vec::new());
        while let Some(value) =
            all.next_element_seed(Keep { at: self.at, left: &mut *self.left })?
        {
            kept = kept.zip(value).map(|(mut kept, value)| {
                kept.push(value);
                kept
            });
        }
        Ok(kept.map(Value::Array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut kept = Some(Map::new());
        while let Some(name) = all.next_key::<String>()? {
            let Some(at) = member(self.at, &name) else {
                all.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = all.next_value_seed(Keep { at, left: &mut *self.left })?;
            // Who reads the first and who reads the last would not look at the same pod.
            if kept.as_ref().is_some_and(|kept| kept.contains_key(&name)) {
                return Err(A::Error::custom(format_args!("the member {name:?} is there twice")));
            }
            kept = kept.zip(value).map(|(mut kept, value)| {
                kept.insert(name, value);
                kept
            });
        }
        Ok(kept.map(Value::Object))
    }
}
