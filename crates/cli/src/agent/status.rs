//! `portolan agent status [ID]`

use std::fmt::Write as _;

use portolan_agent::api::{InstanceStatus, PrefetchStatus, Status};
use portolan_agent::id::InstanceId;

use super::{Agent, failure};
use crate::exit::{Exit, Failure};
use crate::format::{Format, printable, safe, size};

/// How a time is shown to people.
pub(super) const TIME: &str = "%Y-%m-%d %H:%M:%S UTC";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan agent status\n  portolan agent status web-1 -o json")]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// One instance; the agent itself when not given
    id: Option<InstanceId>,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let client = args.agent.client();
    match &args.id {
        None => args.format.print(&client.status().await.map_err(failure)?, agent)?,
        Some(id) => args.format.print(&client.get(id).await.map_err(failure)?, instance)?,
    }
    Ok(Exit::Ok)
}

/// `name   value`, one to a line.
fn lines(rows: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<16}{value}");
    }
    text
}

fn agent(status: &Status) -> String {
    let health = if status.degraded.is_empty() { "well" } else { "degraded" };
    let state = if status.ready { health } else { "starting" };
    let mut rows = vec![
        ("State", state.to_owned()),
        ("Node", safe(&status.node)),
        ("Platform", safe(&status.platform)),
        ("Version", safe(&status.version)),
        ("Disk format", safe(&status.rootdisk_format_version)),
        ("Started", status.started_at.strftime(TIME).to_string()),
    ];
    for degradation in &status.degraded {
        rows.push(("Because", format!("{}: {}", degradation.reason, safe(&degradation.message))));
    }
    for (name, pool) in &status.pools {
        let pressure = if pool.pressure { ", no room" } else { "" };
        let (used, free, all) = (pool.used_bytes, pool.free_bytes, pool.size_bytes);
        let text = format!(
            "{}: {} used, {} of {} free{pressure}",
            safe(name),
            size(used),
            size(free),
            size(all)
        );
        rows.push(("Disk", text));
    }
    if let Some(prefetch) = &status.prefetch {
        rows.push(("Prefetch", releases(prefetch)));
        let absent = prefetch.absent.iter();
        let absent = absent.map(|one| {
            format!("{} {}: {}", safe(&one.release), one.state.as_str(), safe(&one.message))
        });
        rows.extend(absent.map(|text| ("", text)));
    }
    let phases: Vec<_> = status.instances.iter().map(|(phase, n)| format!("{n} {phase}")).collect();
    let instances = if phases.is_empty() { "none".to_owned() } else { phases.join(", ") };
    rows.push(("Instances", instances));
    lines(&rows)
}

/// What is fetched for Releases of the cluster.
fn releases(prefetch: &PrefetchStatus) -> String {
    let some = prefetch.releases.iter().filter(|(_, count)| **count > 0);
    let some: Vec<_> = some.map(|(state, count)| format!("{count} {}", state.as_str())).collect();
    let all = if some.is_empty() { "no Releases".to_owned() } else { some.join(", ") };
    match (&prefetch.problem, prefetch.current) {
        (_, true) => all,
        (None, false) => format!("{all}; the cluster was not heard of yet"),
        (Some(why), false) => format!("{all}; the cluster cannot be asked: {}", safe(why)),
    }
}

/// One instance for people.
pub(super) fn instance(now: &InstanceStatus) -> String {
    let mut rows = vec![
        ("Instance", now.id.to_string()),
        ("Phase", now.phase.to_string()),
        ("Repository", safe(&now.spec.image.repository)),
        ("Digest", now.resolved_digest.clone().unwrap_or_else(|| "-".to_owned())),
        (
            "Machine",
            format!(
                "{} vcpu, {} MiB, scratch {}",
                now.spec.vcpus,
                now.spec.memory_mib,
                size(now.spec.ephemeral_disk_bytes)
            ),
        ),
    ];
    if let Some(progress) = now.progress {
        let (done, all) = (size(progress.bytes_done), size(progress.bytes_total));
        rows.push(("Fetched", format!("{done} of {all}")));
    }
    if let Some(key) = &now.rootdisk_key {
        let how = if now.cached == Some(true) { " (was cached)" } else { "" };
        rows.push(("Root disk", format!("{}{how}", safe(key))));
    }
    if let Some(at) = now.started_at {
        rows.push(("Started", at.strftime(TIME).to_string()));
    }
    if let Some(at) = now.ended_at {
        rows.push(("Ended", at.strftime(TIME).to_string()));
    }
    if let Some(exit) = now.exit {
        let code = exit.code.map(|code| format!("code {code}"));
        let signal = exit.signal.map(|signal| format!("signal {signal}"));
        rows.push(("Exit", code.or(signal).unwrap_or_else(|| "unknown".to_owned())));
    }
    if let Some(reason) = now.reason {
        rows.push(("Reason", reason.to_string()));
    }
    if let Some(message) = &now.message {
        rows.push(("Message", printable(message).replace('\n', " ")));
    }
    if let Some(release) = &now.spec.release {
        rows.push(("Release", safe(release)));
    }
    lines(&rows)
}
