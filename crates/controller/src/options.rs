//! What the operator says, by flags, by variables and by a file, under the same names. A flag is heard before its variable, and
//! both before the file.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroI64, NonZeroU16};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use portolan_core::{Reference, RegistryReference};
use portolan_registry::serving::program::{Configuration, Span};
use portolan_shim::node::preset;
use portolan_shim::node::request::host_path;
use portolan_shim::resolve::{Policy, Requirement};
use serde::Deserialize;

use crate::Settings;
use crate::releases::Settings as ReleaseSettings;
use crate::shims::{Amount, Settings as ShimSettings};

const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8383);
const WORKERS: u16 = 32;
const SHIM_ACCOUNT: &str = "portolan-node-installer";
/// How long a Job may take, and how long it stays.
const JOB: Span = Span::seconds(600);
/// Less, and little is left for downloads beside what the provisioner may need to undo what it did.
const SHORTEST_JOB: Duration = Duration::from_secs(300);
/// Less, and a Job would be gone before its end is heard of.
const SHORTEST_STAY: Duration = Duration::from_secs(30);
/// How often nodes are looked at.
const LOOK: Span = Span::seconds(86_400);
/// More often, and a cluster is busy with that: a look is a Job.
const SHORTEST_REST: Duration = Duration::from_secs(3600);
const RELEASE: Span = Span::seconds(60);
const SHORTEST_LOOK: Duration = Duration::from_secs(1);

/// Everything that can be said; what is not is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The image with `portolan` that our own steps run, for every platform of the nodes; needed
    #[arg(long, value_name = "IMAGE", env = "PORTOLAN_STEP_IMAGE")]
    pub step_image: Option<String>,
    /// The cluster and who talks to it; the pod's own where this is not set
    #[arg(long, value_name = "FILE", env = "PORTOLAN_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the controller runs and keeps its lease [default: that of its account]
    #[arg(long, env = "PORTOLAN_NAMESPACE")]
    pub namespace: Option<String>,
    /// Who runs pods where a BuildRun names nobody [default: pipeline if it is there, else default]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SERVICE_ACCOUNT")]
    pub service_account: Option<String>,
    /// Where sources of builds are stored, a repository without a tag [default: beside each image]
    #[arg(long, value_name = "REPOSITORY", env = "PORTOLAN_SOURCE_REPOSITORY")]
    pub source_repository: Option<String>,
    /// Health, readiness and metrics [default: 0.0.0.0:8383]
    #[arg(long, value_name = "ADDRESS", env = "PORTOLAN_HEALTH")]
    pub health: Option<SocketAddr>,
    /// Begin although another Shipwright controller serves these resources
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), env = "PORTOLAN_TAKEOVER")]
    pub takeover: Option<bool>,
    /// Objects of one kind that are worked on at once [default: 32]
    #[arg(long, value_name = "NUMBER", env = "PORTOLAN_WORKERS")]
    pub workers: Option<NonZeroU16>,
    /// What is served, and must be possible [default: all, each where the cluster has what it needs]
    #[arg(long, value_enum, value_delimiter = ',', env = "PORTOLAN_SERVE")]
    pub serve: Option<Vec<Serve>>,
    /// How registries are spoken to: mirrors, certificates, plain HTTP, deadlines
    #[arg(long, value_name = "FILE", env = "PORTOLAN_REGISTRIES")]
    pub registries: Option<PathBuf>,
    /// Of Shims.
    #[command(flatten)]
    pub shims: ShimOptions,
    /// Of Releases.
    #[command(flatten)]
    pub releases: ReleaseOptions,
}

/// What a controller does in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Serve {
    /// Builds on Tekton
    Builds,
    /// Shims on nodes
    Shims,
    /// Releases of images
    Releases,
}

/// What can be said of Shims: `[shims]` of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Shims")]
pub struct ShimOptions {
    /// Where the Jobs of shims run; pods there may be privileged [default: --namespace]
    #[arg(
        long = "shim-namespace",
        id = "shim-namespace",
        value_name = "NAME",
        env = "PORTOLAN_SHIM_NAMESPACE"
    )]
    pub namespace: Option<String>,
    /// The image with `portolan` that Jobs on nodes run [default: --step-image]
    #[arg(long = "shim-image", value_name = "IMAGE", env = "PORTOLAN_SHIM_IMAGE")]
    pub image: Option<String>,
    /// Who runs them; it needs no rights and gets no token [default: portolan-node-installer]
    #[arg(
        long = "shim-service-account",
        id = "shim-service-account",
        value_name = "NAME",
        env = "PORTOLAN_SHIM_SERVICE_ACCOUNT"
    )]
    pub service_account: Option<String>,
    /// A ConfigMap of variables for downloads, such as proxies and retries
    #[arg(long = "shim-config-map", value_name = "NAME", env = "PORTOLAN_SHIM_CONFIG_MAP")]
    pub config_map: Option<String>,
    /// Where shims are kept on nodes [default: /opt/rcm]. To be changed while no Shim is there
    #[arg(long = "shim-install-dir", value_name = "PATH", value_parser = host_path, env = "PORTOLAN_SHIM_INSTALL_DIR")]
    pub install_dir: Option<String>,
    /// Where containerd's configuration is on nodes, where the installer cannot find out
    #[arg(long = "shim-config", id = "shim-config", value_name = "PATH", value_parser = host_path, env = "PORTOLAN_SHIM_CONFIG")]
    pub config: Option<String>,
    /// What kind of nodes they are, where the installer cannot find out: default, kubeadm, k3s, rke2, k0s, microk8s, minikube, kind, custom
    #[arg(long = "shim-distro", value_name = "PRESET", env = "PORTOLAN_SHIM_DISTRO")]
    pub distro: Option<String>,
    /// How containerd is started again on nodes, as a line for their shell, where the installer cannot find out
    #[arg(
        long = "shim-restart-command",
        value_name = "COMMAND",
        env = "PORTOLAN_SHIM_RESTART_COMMAND"
    )]
    pub restart_command: Option<String>,
    /// How long a Job may take: seconds, or a time such as 10m [default: 600]
    #[arg(long = "shim-deadline", id = "shim-deadline", value_name = "TIME", value_parser = span, env = "PORTOLAN_SHIM_DEADLINE")]
    pub deadline: Option<Span>,
    /// How often each node is looked at of which nothing is heard: seconds, or a time such as 12h; 0 is not at all [default: 24h]
    #[arg(long = "shim-look-every", value_name = "TIME", value_parser = span, env = "PORTOLAN_SHIM_LOOK_EVERY")]
    pub look_every: Option<Span>,
    /// How long a Job stays when it is over: seconds, or a time such as 10m [default: 600]
    #[arg(long = "shim-job-ttl", value_name = "TIME", value_parser = span, env = "PORTOLAN_SHIM_JOB_TTL")]
    pub job_ttl: Option<Span>,
    /// Nodes that are worked on at once, over all Shims: a number or a share such as 10% [default: 50]
    #[arg(long = "shim-max-in-flight", value_name = "AMOUNT", env = "PORTOLAN_SHIM_MAX_IN_FLIGHT")]
    pub max_in_flight: Option<Amount>,
    /// So many failed nodes hold up the rest of a rolling Shim [default: 10%]
    #[arg(long = "shim-max-failed", value_name = "AMOUNT", env = "PORTOLAN_SHIM_MAX_FAILED")]
    pub max_failed: Option<Amount>,
    /// Whether every artifact needs a digest: off, warn or enforce [default: warn]
    #[arg(long, value_name = "HOW", env = "PORTOLAN_REQUIRE_DIGEST")]
    pub require_digest: Option<Requirement>,
    /// Whether every artifact needs https: off, warn or enforce [default: warn]
    #[arg(long, value_name = "HOW", env = "PORTOLAN_REQUIRE_HTTPS")]
    pub require_https: Option<Requirement>,
    /// Label nodes only under runtime.spinkube.dev/, and not also as upstream does
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), env = "PORTOLAN_NO_BARE_LABELS")]
    pub no_bare_labels: Option<bool>,
    /// Begin although runtime-class-manager serves Shims
    #[arg(long = "shim-takeover", id = "shim-takeover", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), env = "PORTOLAN_SHIM_TAKEOVER")]
    pub takeover: Option<bool>,
}

/// What can be said of Releases: `[releases]` of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Releases")]
pub struct ReleaseOptions {
    /// How often tags are asked for that a Release follows: seconds, or a time such as 5m [default: 60]
    #[arg(long = "release-poll", value_name = "TIME", value_parser = span, env = "PORTOLAN_RELEASE_POLL")]
    pub poll: Option<Span>,
    /// How long one look at an image may take: seconds, or a time such as 2m [default: 60]
    #[arg(long = "release-deadline", id = "release-deadline", value_name = "TIME", value_parser = span, env = "PORTOLAN_RELEASE_DEADLINE")]
    pub deadline: Option<Span>,
}

/// On a command line seconds are said without quotes, like everything.
fn span(text: &str) -> Result<Span, &'static str> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{text}s").parse(),
        false => text.parse(),
    }
}

/// Every named field of the first, or else of the second.
macro_rules! or {
    ($first:ident, $second:ident, $($field:ident),+ $(; $($name:ident: $value:expr),+)?) => {
        Self { $($field: $first.$field.or($second.$field)),+ $(, $($name: $value),+)? }
    };
}

/// A repository of a registry, and nothing in it.
fn repository(text: &str) -> Result<RegistryReference, &'static str> {
    match text.parse() {
        Ok(Reference::Registry(found)) if found.tag.is_none() && found.digest.is_none() => {
            Ok(found)
        }
        _ => {
            Err("source_repository is no repository; write registry.example/sources, without a tag")
        }
    }
}

impl Options {
    /// This, and what it does not say from another.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        or!(self, other, step_image, kubeconfig, namespace, service_account, source_repository, health, takeover, workers, serve, registries;
            shims: self.shims.or(other.shims), releases: self.releases.or(other.releases))
    }

    /// What the controller works by.
    ///
    /// # Errors
    /// What is missing, or does not go together.
    pub fn settings(self) -> Result<Settings, &'static str> {
        if let Some(problem) = self.contradiction() {
            return Err(problem);
        }
        let step_image = self.step_image.ok_or(
            "no image for the steps of builds is named; give --step-image, PORTOLAN_STEP_IMAGE or step_image in the configuration",
        )?;
        let serves = |what| self.serve.as_ref().is_none_or(|serve| serve.contains(&what));
        let workers = self.workers.map_or(WORKERS, NonZeroU16::get);
        let releases = serves(Serve::Releases).then(|| ReleaseSettings {
            registries: self.registries.clone(),
            poll: self.releases.poll.unwrap_or(RELEASE).0,
            deadline: self.releases.deadline.unwrap_or(RELEASE).0,
            workers,
        });
        let shims = self.shims;
        let shims = serves(Serve::Shims).then(|| ShimSettings {
            namespace: shims.namespace.or_else(|| self.namespace.clone()),
            image: shims.image.unwrap_or_else(|| step_image.clone()),
            service_account: shims.service_account.unwrap_or_else(|| SHIM_ACCOUNT.to_owned()),
            config_map: shims.config_map,
            install_dir: shims.install_dir,
            config: shims.config,
            distro: shims.distro,
            restart_command: shims.restart_command,
            // A span is a week at most.
            deadline_seconds: i64::try_from(shims.deadline.unwrap_or(JOB).0.as_secs())
                .unwrap_or(i64::MAX),
            look_every: NonZeroI64::new(
                i64::try_from(shims.look_every.unwrap_or(LOOK).0.as_secs()).unwrap_or(i64::MAX),
            ),
            ttl_seconds: i32::try_from(shims.job_ttl.unwrap_or(JOB).0.as_secs())
                .unwrap_or(i32::MAX),
            max_in_flight: shims.max_in_flight.unwrap_or(Amount::Count(50)),
            max_failed: shims.max_failed.unwrap_or(Amount::Percent(10)),
            policy: Policy {
                require_digest: shims.require_digest.unwrap_or_default(),
                require_https: shims.require_https.unwrap_or_default(),
            },
            bare_labels: !shims.no_bare_labels.unwrap_or_default(),
            takeover: shims.takeover.unwrap_or_default(),
            workers,
        });
        Ok(Settings {
            builds: serves(Serve::Builds),
            optional: self.serve.is_none(),
            shims,
            releases,
            kubeconfig: self.kubeconfig,
            step_image,
            namespace: self.namespace,
            service_account: self.service_account,
            source_repository: self.source_repository.as_deref().map(repository).transpose()?,
            health: self.health.unwrap_or(HEALTH),
            takeover: self.takeover.unwrap_or_default(),
            workers,
        })
    }
}

impl ShimOptions {
    fn or(self, other: Self) -> Self {
        or!(
            self,
            other,
            namespace,
            image,
            service_account,
            config_map,
            install_dir,
            config,
            distro,
            restart_command,
            deadline,
            look_every,
            job_ttl,
            max_in_flight,
            max_failed,
            require_digest,
            require_https,
            no_bare_labels,
            takeover
        )
    }
}

impl ReleaseOptions {
    fn or(self, other: Self) -> Self {
        or!(self, other, poll, deadline)
    }
}

impl Configuration for Options {
    const ADVICE: &'static str = "docs/controller.md has an example; without --config everything is said by flags or variables";

    fn contradiction(&self) -> Option<&'static str> {
        let shorter = |span: Option<Span>, than| span.is_some_and(|span| span.0 < than);
        let no_path = |path: Option<&String>| path.is_some_and(|path| host_path(path).is_err());
        let Self { shims, releases, .. } = self;
        [
            (
                self.serve.as_ref().is_some_and(Vec::is_empty),
                "serve must name something; leave it out for everything that is possible",
            ),
            (
                shorter(shims.deadline, SHORTEST_JOB),
                "a Job of shims must have 300 s at least, or it may be ended while it undoes what containerd does not take (deadline)",
            ),
            (
                shims.look_every.is_some_and(|every| {
                    every.0 < SHORTEST_REST && every.0 != Duration::ZERO
                }),
                "nodes of shims are looked at once an hour at most (look_every); 0 is not at all",
            ),
            (
                shorter(shims.job_ttl, SHORTEST_STAY),
                "a Job of shims must stay at least 30 s when it is over (job_ttl)",
            ),
            (
                no_path(shims.install_dir.as_ref()),
                "the install_dir of shims must be an absolute path without ..",
            ),
            (
                no_path(shims.config.as_ref()),
                "the config of shims must be an absolute path without ..",
            ),
            (
                shims.distro.as_ref().is_some_and(|name| preset::named(name).is_none()),
                "the distro of shims must be one of default, kubeadm, k3s, rke2, k0s, microk8s, minikube, kind, custom",
            ),
            (
                shorter(releases.poll, SHORTEST_LOOK),
                "tags of Releases can be asked for once a second at most (poll)",
            ),
            (
                shorter(releases.deadline, SHORTEST_LOOK),
                "a look at a Release must have a second at least (deadline)",
            ),
        ]
        .into_iter()
        .find_map(|(wrong, problem)| wrong.then_some(problem))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use portolan_registry::serving::program::parse;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn flags(words: &str) -> Options {
        Line::try_parse_from(["x"].into_iter().chain(words.split_whitespace())).unwrap().options
    }

    fn file(text: &str) -> Result<Options, String> {
        parse(text, Path::new("controller.toml"))
            .map_err(|error| portolan_core::causes::chain(&error).to_string())
    }

    #[test]
    fn sources_have_a_repository_of_their_own_where_one_is_named() {
        let settings = |named: &str| {
            flags(&format!("--step-image r/p:1 --source-repository {named}")).settings()
        };
        let found = settings("registry.example:5000/team/sources").unwrap().source_repository;
        assert_eq!(found.unwrap().to_string(), "registry.example:5000/team/sources");
        for bad in ["registry.example/sources:1", "oci:dir", "Not/One"] {
            assert!(settings(bad).unwrap_err().contains("source_repository"), "{bad}");
        }
    }

    #[test]
    fn a_flag_is_heard_before_the_file_and_what_nobody_says_is_as_ever() {
        let said = file(
            "step_image = \"r/file:1\"\nworkers = 4\nserve = [\"shims\", \"releases\"]\nregistries = \"/r.toml\"\n\
             [shims]\nmax_in_flight = 7\nmax_failed = \"20%\"\ndeadline = \"6m\"\nrequire_https = \"enforce\"\ntakeover = true\n\
             [releases]\npoll = 5\n",
        );
        let flags = flags("--step-image r/flag:1 --shim-deadline 330 --shim-takeover=false");
        let settings = flags.or(said.unwrap()).settings().unwrap();
        assert_eq!((settings.step_image.as_str(), settings.workers), ("r/flag:1", 4));
        assert_eq!((settings.builds, settings.optional, settings.health), (false, false, HEALTH));
        let shims = settings.shims.unwrap();
        assert_eq!((shims.image.as_str(), shims.deadline_seconds), ("r/flag:1", 330));
        assert_eq!(shims.max_in_flight, Amount::Count(7));
        assert_eq!(shims.max_failed, Amount::Percent(20));
        assert_eq!(shims.policy.require_https, Requirement::Enforce);
        assert_eq!(shims.policy.require_digest, Requirement::Warn);
        assert_eq!((shims.takeover, shims.bare_labels, shims.ttl_seconds), (false, true, 600));
        assert_eq!(shims.look_every.map(NonZeroI64::get), Some(86_400));
        let releases = settings.releases.unwrap();
        assert_eq!(releases.poll, Duration::from_secs(5));
        assert_eq!(releases.deadline, Duration::from_secs(60));
        assert_eq!(releases.registries.unwrap(), Path::new("/r.toml"));
    }

    #[test]
    fn without_a_file_all_is_served_where_it_is_possible() {
        let settings = flags("--step-image r/flag:1 --takeover").settings().unwrap();
        assert!(settings.builds && settings.optional && settings.takeover);
        assert!(settings.shims.is_some() && settings.releases.is_some());
        let never = flags("--step-image i --shim-look-every 0").settings().unwrap();
        assert_eq!(never.shims.unwrap().look_every, None);
        assert!(flags("").settings().unwrap_err().contains("--step-image"));
    }

    #[test]
    fn what_cannot_work_is_refused_wherever_it_is_said() {
        for (text, word) in [
            ("workers = 0", "line 1"),
            ("step_imag = \"x\"", "step_imag"),
            ("[shims]\nmax_failed = \"101%\"", "no share"),
            ("[shims]\nmax_in_flight = -1", "no number"),
            ("[shims]\ndeadline = 299", "300 s"),
            ("[shims]\njob_ttl = 0", "30 s"),
            ("[shims]\nlook_every = \"59m\"", "once an hour"),
            ("[shims]\ninstall_dir = \"opt\"", "absolute"),
            ("[shims]\nconfig = \"/etc/../x\"", "the config of shims"),
            ("[shims]\ndistro = \"k4s\"", "k3s"),
            ("[shims]\nrequire_https = \"maybe\"", "enforce"),
            ("[releases]\npoll = \"10ms\"", "once a second"),
            ("[releases]\ndeadline = 0", "a second at least"),
            ("serve = []", "must name"),
            ("serve = [\"agents\"]", "builds"),
        ] {
            let error = file(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let short = flags("--step-image i --shim-deadline 299s").settings();
        assert!(short.unwrap_err().contains("300 s"));
        let unknown = flags("--step-image i --shim-distro k4s").settings();
        assert!(unknown.unwrap_err().contains("k3s"));
        for words in
            ["--workers 0", "--shim-deadline soon", "--shim-install-dir a", "--shim-config a"]
        {
            let words = ["x"].into_iter().chain(words.split_whitespace());
            assert!(Line::try_parse_from(words.clone()).is_err(), "{words:?}");
        }
    }
}
