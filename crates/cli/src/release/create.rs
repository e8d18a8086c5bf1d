//! `portolan release create IMAGE`

use std::path::PathBuf;
use std::time::Duration;

use portolan_api::names::is_subdomain;
use portolan_api::release::{PolicySource, READY, Release, ReleaseSpec, SecretName};
use portolan_api::{ObjectMeta, condition};
use portolan_core::{Platform, Reference};
use tokio::time::Instant;

use super::{exit, local, show, tell_why};
use crate::cli::Global;
use crate::cluster::{Cluster, Flags, created};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::image::wanted;

/// How often `--wait` looks.
const LOOK: Duration = Duration::from_millis(300);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan release create registry.example/app:1 --policy-map release-policy --wait\n  \
    portolan release create registry.example/app:1 --policy policy.yaml --local -o yaml > release.yaml\n  \
    portolan release workload -f release.yaml --platform linux/arm64 > workload.json\n\n\
    Exit codes, with --wait or --local: 0 ready, 1 refused, 2 bad input, 3 not known yet, 4 no such image or policy, \
    5 transport, 6 no policy."
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest]
    #[arg(value_name = "IMAGE")]
    image: Reference,
    /// What the Release is called [default: made of the image's name and tag]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// For this platform (repeatable) [default: all that the image has]
    #[arg(long = "platform", value_name = "PLATFORM")]
    platforms: Vec<Platform>,
    /// Who must have signed it: a ConfigMap of the namespace with policy.yaml
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    policy_map: Option<String>,
    /// Who must have signed it, with --local: a file (docs/verify.md)
    #[arg(long, value_name = "FILE", requires = "local")]
    policy: Option<PathBuf>,
    /// A Secret of the namespace with a login for the registry (repeatable)
    #[arg(long = "pull-secret", value_name = "NAME", conflicts_with = "local")]
    pull_secrets: Vec<String>,
    /// Follow the tag when it moves
    #[arg(long, conflicts_with = "local")]
    track: bool,
    /// Let it be Ready without being verified
    #[arg(long)]
    no_verification: bool,
    /// Look here and now, without a cluster, and print what a controller would record
    #[arg(long, conflicts_with_all = ["wait", "kubeconfig", "context"])]
    local: bool,
    /// Wait until it is Ready, or refused
    #[arg(long)]
    wait: bool,
    /// With --wait: for at most this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "wait")]
    timeout: u64,
    #[command(flatten)]
    cluster: Flags,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let release = asked_for(&args)?;
    created::check(&release)?;
    if args.local {
        let release = local::look(release, args.policy.as_deref(), global).await?;
        args.format.print(&release, show::table)?;
        tell_why(&release);
        return Ok(exit(&release));
    }
    let cluster = Cluster::connect(&args.cluster).await?;
    let mut made: Release = cluster.create(&cluster.here(), &release).await?;
    if !args.wait {
        let told = format!("the Release {} was made", created::name(&made));
        created::print(&made, args.format, &told)?;
        return Ok(Exit::Ok);
    }
    // Held against what went by: somebody may say a limit that no clock reaches.
    let (began, limit) = (Instant::now(), Duration::from_secs(args.timeout));
    while !is_answered(&made) && began.elapsed() < limit {
        tokio::time::sleep(LOOK).await;
        made = cluster.get(&cluster.here(), &created::name(&made)).await?;
    }
    if !is_answered(&made) {
        format::tell(&not_yet(&made, args.timeout));
    }
    args.format.print(&crate::cluster::tidy(made.clone()), show::table)?;
    tell_why(&made);
    Ok(exit(&made))
}

/// What is told of one that was waited for in vain.
fn not_yet(release: &Release, seconds: u64) -> String {
    let why = match release.status {
        None => {
            format!("nobody has looked at it for {seconds} s; does a controller serve releases?")
        }
        Some(_) => format!("a controller looks at it, and cannot tell after {seconds} s;"),
    };
    format!("{why} portolan release show {} looks again", created::name(release))
}

/// Whether somebody looked, and came to a yes or a no.
fn is_answered(release: &Release) -> bool {
    let conditions = release.status.as_ref().map(|status| status.conditions.as_slice());
    let ready = condition::find(conditions.unwrap_or_default(), READY);
    ready.is_some_and(|ready| ready.status != condition::Status::Unknown)
}

fn asked_for(args: &Args) -> Result<Release, Failure> {
    let Reference::Registry(reference) = &args.image else {
        let what =
            "a Release is of an image in a registry, so that others can have it; push it first";
        return Err(Failure::usage(anyhow::anyhow!(what)));
    };
    let name = args.name.clone().unwrap_or_else(|| {
        let last = reference.repository.as_str().rsplit('/').next().unwrap_or_default();
        let rest = match (&reference.tag, &reference.digest) {
            (Some(tag), _) => tag.to_string(),
            (None, Some(digest)) => digest.hex().chars().take(12).collect(),
            (None, None) => "latest".to_owned(),
        };
        name_of(&format!("{last}-{rest}"))
    });
    args.platforms.iter().for_each(wanted::warn);
    let spec = ReleaseSpec {
        platforms: args.platforms.iter().map(ToString::to_string).collect(),
        policy: args.policy_map.clone().map(|config_map| PolicySource { config_map }),
        pull_secrets: args.pull_secrets.iter().cloned().map(|name| SecretName { name }).collect(),
        track: args.track,
        require_verification: !args.no_verification,
        ..ReleaseSpec::new(reference.to_string())
    };
    if args.name.is_some() && !is_subdomain(&name) {
        let told = format!(
            "{name:?} is no name that an object can have: lower-case letters, digits, - and ."
        );
        return Err(Failure::usage(anyhow::anyhow!(told)));
    }
    let mut release = Release::new(&name, spec);
    // Without a cluster it is where a policy is told that it is asked from.
    let namespace = args.cluster.namespace().filter(|_| args.local).map(str::to_owned);
    release.metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    Ok(release)
}

/// The same as objects may be called: small letters, digits, dashes and dots.
fn name_of(text: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
        _ => '-',
    };
    let name: String = text.chars().map(plain).take(63).collect();
    name.trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waited_in_vain_is_told_for_whom() {
        let mut release = Release::new("app", ReleaseSpec::new("r.example/app"));
        assert!(not_yet(&release, 60).contains("does a controller serve releases?"));
        release.status = Some(Default::default());
        let told = not_yet(&release, 60);
        assert!(told.contains("cannot tell after 60 s") && told.contains("show app"), "{told}");
    }

    #[test]
    fn names_are_such_that_a_cluster_takes_them() {
        let (long, cut) = ("x".repeat(100), "x".repeat(63));
        for (text, expected) in [
            ("app-1.2", "app-1.2"),
            ("my_app-V1", "my-app-v1"),
            ("app-latest_", "app-latest"),
            (long.as_str(), cut.as_str()),
        ] {
            assert_eq!(name_of(text), expected);
        }
    }
}
