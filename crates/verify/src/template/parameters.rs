//! What a constraint of the shipped template can say.

use std::collections::BTreeMap;

use portolan_core::Platform;
use portolan_core::platform::PartialPlatform;
use serde::Serialize;

use crate::pod::{self, Settings};
use crate::policy::PartialMeaning;

/// The `parameters` of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    provider: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    send_namespace: bool,
    default: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    platforms: Vec<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Written>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    os_labels: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arch_labels: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, BTreeMap<String, Written>>,
}

/// A platform as the schema of the parameters has it; what is not there may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(skip_serializing_if = "String::is_empty")]
    os: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    arch: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    os_version: Option<String>,
}

impl Parameters {
    /// With which the template asks `provider` what [`pod::platforms`] says with `settings`.
    ///
    /// Rego sees no nodes. For [`pod::Default::Nodes`] it asks without a platform where the pod says
    /// nothing, and the policy, whose `platforms: nodes` must then be, knows which those are.
    pub fn new(provider: &str, settings: &Settings) -> Self {
        let (default, platforms) = match &settings.default {
            pod::Default::Nodes => ("policy", Vec::new()),
            pod::Default::Host => ("host", Vec::new()),
            pod::Default::All => ("all", Vec::new()),
            pod::Default::List(list) => ("list", list.platforms().map(Written::from).collect()),
        };
        let filled = settings.partial == PartialMeaning::Host;
        let host = PartialPlatform::new(Some(&settings.host.os), Some(&settings.host.architecture));
        let usual = Settings::new(pod::Default::All, settings.host.clone());
        let more = |all: &[String], usual: &[String]| -> Vec<String> {
            all.iter().filter(|label| !usual.contains(label)).cloned().collect()
        };
        let told = |values: &BTreeMap<String, PartialPlatform>| {
            values.iter().map(|(value, platform)| (value.clone(), platform.into())).collect()
        };
        Self {
            provider: provider.to_owned(),
            send_namespace: false,
            default,
            platforms,
            partial: filled.then_some("host"),
            host: (filled || default == "host").then(|| Written::from(&host)),
            os_labels: more(&settings.os_labels, &usual.os_labels),
            arch_labels: more(&settings.arch_labels, &usual.arch_labels),
            values: settings.values.clone(),
            labels: settings.labels.iter().map(|(key, all)| (key.clone(), told(all))).collect(),
        }
    }

    /// The same, and the provider is told the namespace of each request or not.
    #[must_use]
    pub fn sending_namespace(self, send_namespace: bool) -> Self {
        Self { send_namespace, ..self }
    }

    /// The provider that is asked.
    pub fn provider(&self) -> &str {
        &self.provider
    }
}

impl From<&PartialPlatform> for Written {
    fn from(platform: &PartialPlatform) -> Self {
        let Platform { os, architecture, variant, os_version, .. } =
            platform.filled_from(&Platform::new("", ""));
        Self { os, arch: architecture, variant, os_version }
    }
}
