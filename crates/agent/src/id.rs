//! Names of instances: safe as a file name, a database key and a part of a URL.

use std::fmt;
use std::str::FromStr;

/// 1 to 63 of `a-z 0-9 - _ .`, beginning and ending with a letter or digit.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(String);

/// Why a text is no instance id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no instance id; use 1 to 63 of a-z 0-9 - _ . and begin and end with a letter or digit"
)]
pub struct ParseInstanceIdError(String);

impl InstanceId {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InstanceId {
    type Err = ParseInstanceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends =
            bytes.first().is_some_and(|c| plain(*c)) && bytes.last().is_some_and(|c| plain(*c));
        let all = bytes.iter().all(|c| plain(*c) || matches!(c, b'-' | b'_' | b'.'));
        if ends && all && bytes.len() <= 63 {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseInstanceIdError(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for InstanceId {
    type Error = ParseInstanceIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> Self {
        id.0
    }
}

impl schemars::JsonSchema for InstanceId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "InstanceId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "1 to 63 of a-z 0-9 - _ . that begins and ends with a letter or digit.",
            "type": "string",
            "maxLength": 63,
            "pattern": "^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$",
        })
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_is_safe_in_a_path() {
        let long = "a".repeat(63);
        for good in ["a", "web-1", "a.b_c-9", &long] {
            assert_eq!(good.parse::<InstanceId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "-a", "a-", "A", "a b", "é", "a\0", &format!("{long}a")]
        {
            assert!(bad.parse::<InstanceId>().is_err(), "{bad:?}");
        }
    }
}
