//! Values for parameters of a strategy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value for one parameter: one of `value`, `configMapValue` and `secretValue`, or `values`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ParamValue {
    /// The parameter.
    pub name: String,
    /// Of a parameter with one value.
    #[serde(flatten)]
    pub single: SingleValue,
    /// Of a parameter with a list of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub values: Option<Vec<SingleValue>>,
}

/// One value, said here or kept elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SingleValue {
    /// The value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// In a config map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_value: Option<KeyReference>,
    /// In a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_value: Option<KeyReference>,
}

/// A key of a config map or secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyReference {
    /// The config map or secret.
    pub name: String,
    /// The key in it.
    pub key: String,
    /// What to make of it, with `${CONFIGMAP_VALUE}` or `${SECRET_VALUE}` in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}
