//! The flags that say what a Build or a run is to be like.

use portolan_api::Duration;
use portolan_api::build::{BuildRun, OutputSettings};
use portolan_api::k8s_openapi::api::core::v1::Toleration;
use portolan_api::names::is_dns_label;
use portolan_api::release::{RELEASE, RELEASE_POLICY};
use portolan_build::request::{Param, Wishes};
use portolan_core::Platform;

use crate::cluster::duration;
use crate::format;
use crate::image::{key_value, wanted};

// What may be said of a Build and of one run of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Wished {
    /// Where the image goes: registry/repository[:tag]
    #[arg(long, visible_alias = "output", value_name = "REF")]
    pub(crate) output_image: Option<String>,
    /// Whether the registry may speak plain HTTP, or have a certificate that nobody knows
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    output_insecure: Option<bool>,
    /// The Secret that opens the registry
    #[arg(long, value_name = "SECRET", alias = "output-credentials-secret")]
    output_image_push_secret: Option<String>,
    /// A label of every image, KEY=VALUE (repeatable)
    #[arg(long, value_name = "KEY=VALUE", visible_alias = "label", value_parser = key_value)]
    pub(crate) output_image_label: Vec<(String, String)>,
    /// An annotation of every image and of the index, KEY=VALUE (repeatable)
    #[arg(long, value_name = "KEY=VALUE", visible_alias = "annotation", value_parser = key_value)]
    pub(crate) output_image_annotation: Vec<(String, String)>,
    /// When the image says it was made: Zero, SourceTimestamp, BuildTimestamp or seconds since 1970
    #[arg(long, value_name = "TIME")]
    output_timestamp: Option<String>,
    /// A platform, as os/arch[/variant] (repeatable, or with commas)
    #[arg(long = "platform", value_name = "PLATFORM", value_delimiter = ',')]
    pub(crate) platforms: Vec<Platform>,
    /// The ImagePlatformClass that says how each platform is built; `default` where none is known
    #[arg(long, value_name = "NAME")]
    pub(crate) platform_class: Option<String>,
    /// A value for a parameter of the strategy, NAME=VALUE (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    param_value: Vec<(String, String)>,
    /// One more value for a parameter that takes a list, NAME=VALUE (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    param_item: Vec<(String, String)>,
    /// A value that a Secret keeps, NAME=SECRET/KEY (repeatable)
    #[arg(long, value_name = "NAME=SECRET/KEY", value_parser = kept)]
    param_secret: Vec<(String, (String, String))>,
    /// A value that a ConfigMap keeps, NAME=MAP/KEY (repeatable)
    #[arg(long, value_name = "NAME=MAP/KEY", value_parser = kept)]
    param_config_map: Vec<(String, (String, String))>,
    /// The Containerfile, below the context directory: the parameter `dockerfile`
    #[arg(long, visible_alias = "containerfile", value_name = "FILE")]
    pub(crate) dockerfile: Option<String>,
    /// The image that builds: the parameter `builder-image`
    #[arg(long, value_name = "IMAGE", hide = true)]
    builder_image: Option<String>,
    /// A value for an ARG of the Containerfile, NAME=VALUE: the parameter `build-args` (repeatable)
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) build_args: Vec<(String, String)>,
    /// A variable for the steps of the strategy, NAME=VALUE (repeatable)
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// How long it may take as a whole
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// A label of the nodes that may build it, KEY=VALUE (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    node_selector: Vec<(String, String)>,
    /// A taint of nodes that does not matter, KEY[=VALUE][:NoSchedule] (repeatable)
    #[arg(long = "toleration", value_name = "TAINT", value_parser = toleration)]
    tolerations: Vec<Toleration>,
    /// Who chooses the node
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// What runs the pods
    #[arg(long, value_name = "NAME")]
    runtime_class: Option<String>,
    /// How long a failed run is kept
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retention_ttl_after_failed: Option<Duration>,
    /// How long a successful run is kept
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retention_ttl_after_succeeded: Option<Duration>,
}

impl Wished {
    /// The same for those who make objects. Misspelt platforms are told.
    pub(crate) fn wishes(&self) -> Wishes {
        self.platforms.iter().for_each(wanted::warn);
        Wishes {
            image: self.output_image.clone(),
            output: OutputSettings {
                insecure: self.output_insecure,
                push_secret: self.output_image_push_secret.clone(),
                annotations: self.output_image_annotation.iter().cloned().collect(),
                labels: self.output_image_label.iter().cloned().collect(),
                timestamp: self.output_timestamp.clone(),
                ..OutputSettings::default()
            },
            platforms: self.platforms.clone(),
            class: self.platform_class.clone(),
            params: self.params(),
            env: self.env.clone(),
            timeout: self.timeout,
            node_selector: self.node_selector.iter().cloned().collect(),
            tolerations: self.tolerations.clone(),
            scheduler_name: self.scheduler_name.clone(),
            runtime_class_name: self.runtime_class.clone(),
            ttl_after_failed: self.retention_ttl_after_failed,
            ttl_after_succeeded: self.retention_ttl_after_succeeded,
        }
    }

    fn params(&self) -> Vec<Param> {
        let text = |(name, value): &(String, String)| Param::Text(name.clone(), value.clone());
        let item = |(name, value): &(String, String)| Param::Item(name.clone(), value.clone());
        let argument = |(name, value): &(String, String)| {
            Param::Item("build-args".to_owned(), format!("{name}={value}"))
        };
        let named = |name: &str, value: &String| Param::Text(name.to_owned(), value.clone());
        let secret =
            |(name, of): &(String, (String, String))| Param::Secret(name.clone(), of.clone());
        let map =
            |(name, of): &(String, (String, String))| Param::ConfigMap(name.clone(), of.clone());
        let mut all: Vec<Param> = self.param_value.iter().map(text).collect();
        all.extend(self.dockerfile.iter().map(|file| named("dockerfile", file)));
        all.extend(self.builder_image.iter().map(|image| named("builder-image", image)));
        all.extend(self.param_item.iter().map(item));
        all.extend(self.build_args.iter().map(argument));
        all.extend(self.param_secret.iter().map(secret));
        all.extend(self.param_config_map.iter().map(map));
        all
    }
}

// What becomes of a run that succeeds.
#[derive(Debug, clap::Args)]
pub(crate) struct Becomes {
    /// The Release that it becomes when it succeeds
    #[arg(long, value_name = "NAME", value_parser = label)]
    release: Option<String>,
    /// The ConfigMap with the policy of that Release
    #[arg(long, value_name = "CONFIGMAP", requires = "release")]
    release_policy: Option<String>,
}

impl Becomes {
    /// The first of its flags that is said.
    pub(crate) fn said(&self) -> Option<&'static str> {
        self.release.as_ref().map(|_| "--release")
    }

    /// Says it of a run, as a controller of Releases reads it.
    pub(crate) fn say(&self, run: &mut BuildRun) {
        if let Some(name) = &self.release {
            run.metadata.labels.get_or_insert_default().insert(RELEASE.to_owned(), name.clone());
        }
        if let Some(map) = &self.release_policy {
            let annotations = run.metadata.annotations.get_or_insert_default();
            annotations.insert(RELEASE_POLICY.to_owned(), map.clone());
        }
    }
}

/// A name that is said in a label: those of Releases may be longer, and no run can name them.
fn label(text: &str) -> Result<String, String> {
    match is_dns_label(text) {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("{text:?} is no name of at most 63 small letters, digits and hyphens"))
        }
    }
}

/// Says that all who may pull the image may read its source, as far as a client can know: the controller may have been
/// given a repository for sources.
pub(crate) fn warn_of_source(place: Option<String>) {
    if let Some(place) = place {
        format::tell(&format!(
            "warning: the source is stored as {place}, unless the controller has a repository for sources; who may pull the image may read it, .git included"
        ));
    }
}

fn kept(text: &str) -> Result<(String, (String, String)), String> {
    let wrong = || format!("{text:?} is not NAME=OBJECT/KEY");
    let (name, place) = key_value(text).map_err(|_| wrong())?;
    match place.split_once('/') {
        Some((object, key)) if !object.is_empty() && !key.is_empty() => {
            Ok((name, (object.to_owned(), key.to_owned())))
        }
        _ => Err(wrong()),
    }
}

/// A taint as `kubectl taint` writes it.
fn toleration(text: &str) -> Result<Toleration, String> {
    let (taint, effect) = match text.rsplit_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let (key, value) = match taint.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (taint, None),
    };
    if key.is_empty() {
        return Err(format!("{text:?} is not KEY[=VALUE][:EFFECT]"));
    }
    if let Some(effect) = effect.filter(|effect| *effect != "NoSchedule") {
        return Err(format!("{effect:?} cannot be tolerated by a build; only NoSchedule can"));
    }
    Ok(Toleration {
        key: Some(key.to_owned()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
        toleration_seconds: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_as_kubectl_writes_them() {
        let read = |text: &str| {
            let read = toleration(text).unwrap();
            (read.key.unwrap(), read.operator.unwrap(), read.value, read.effect)
        };
        let word = |text: &str| text.to_owned();
        assert_eq!(read("a.b/c"), (word("a.b/c"), word("Exists"), None, None));
        let effect = Some(word("NoSchedule"));
        assert_eq!(
            read("a=:NoSchedule"),
            (word("a"), word("Equal"), Some(word("")), effect.clone())
        );
        assert_eq!(read("a:NoSchedule"), (word("a"), word("Exists"), None, effect));
        for wrong in ["", "=x", "a:NoExecute"] {
            toleration(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_run_says_what_it_becomes_as_a_controller_reads_it() {
        let mut run: BuildRun = serde_json::from_value(serde_json::json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": "a"},
            "spec": {"build": {"name": "b"}},
        }))
        .unwrap();
        Becomes { release: None, release_policy: None }.say(&mut run);
        assert_eq!((&run.metadata.labels, &run.metadata.annotations), (&None, &None));
        Becomes { release: Some("app-7".to_owned()), release_policy: Some("makers".to_owned()) }
            .say(&mut run);
        assert_eq!(run.metadata.labels.unwrap()[RELEASE], "app-7");
        assert_eq!(run.metadata.annotations.unwrap()[RELEASE_POLICY], "makers");
        for wrong in ["", "App", "a.b", &"a".repeat(64)] {
            label(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn kept_values_name_an_object_and_a_key() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(kept("p=s/k").unwrap(), ("p".to_owned(), pair("s", "k")));
        for wrong in ["p", "p=s", "p=/k", "p=s/", "=s/k"] {
            kept(wrong).expect_err(wrong);
        }
    }
}
