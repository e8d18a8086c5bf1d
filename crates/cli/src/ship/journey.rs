//! Carries out the plan: one stage after the other, each with what the one before it gave.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use portolan_agent::config::{Config, Percent};
use portolan_agent::run::configure;
use portolan_build::names::Outputs;
use portolan_core::{Reference, causes};
use portolan_registry::durable;
use tokio_util::sync::CancellationToken;

use super::boot::Machinery;
use super::disk::{self, RootDisk};
use super::harbour::Harbour;
use super::log::{Log, Screens, until};
use super::plan::{self, Keeper, Plan, Seen, Stage};
use super::report::{Report, command, word};
use super::signer::Signer;
use super::site::{Site, local};
use super::stages::{self, Said, Wish};
use super::{Args, boot, config_failure};
use crate::cli::Global;
use crate::exit::{Exit, Failure};
use crate::{build, context};

/// What an image needs, if the directory says so.
const NEEDS: &str = "compatibility.json";

/// What the journey begins with.
struct Start<'a> {
    args: &'a Args,
    global: &'a Global,
    dir: PathBuf,
    config: Config,
    plan: Plan,
    agent: Option<portolan_agent::client::Client>,
    machinery: Option<Machinery>,
    cancel: CancellationToken,
}

pub(super) async fn run(args: &Args, global: &Global) -> Result<Exit, Failure> {
    let began = Instant::now();
    let cancel = context::asked_to_end()?;
    let start = until(&cancel, prepare(args, global, cancel.clone())).await?;
    let site = Site::open(&start.config.root).map_err(|failure| advise(failure, &start.config))?;
    let lock = site.lock(&cancel).await?;
    let screens = Screens::new(global.progress);
    let mut report = Report::default();
    let mut log = Log { screens: &screens, rows: Vec::new() };
    let ended = travel(start, &site, &mut log, &mut report).await;
    report.stages = log.rows;
    report.seconds = began.elapsed().as_secs_f64();
    drop((screens, lock));
    // Also where it failed: what is there is there. Why it failed counts more than that it cannot be shown.
    let shown = match ended.is_ok() || !report.stages.is_empty() {
        true => args.format.print(&report, Report::table),
        false => Ok(()),
    };
    let exit = ended?;
    shown.map(|()| exit)
}

/// Finds out what is there, before anything is done.
async fn prepare<'a>(
    args: &'a Args,
    global: &'a Global,
    cancel: CancellationToken,
) -> Result<Start<'a>, Failure> {
    let dir = build::local::existing(&args.dir)?;
    let dir = dir.canonicalize().with_context(|| format!("find {}", dir.display()));
    let dir = dir.map_err(local)?;
    let (file, root, socket) = (&args.agent_config, &args.root, &args.agent.socket);
    let mut config =
        configure(file.as_deref(), root.clone(), socket.clone()).map_err(config_failure)?;
    if file.is_none() {
        // When others have filled a disk, an agent keeps room for machines; one disk for one person
        // is made as long as it fits.
        config.cache.target_percent = Percent::new(100);
        config.cache.high_water_percent = Percent::new(100);
    }
    if global.registries.is_some() {
        config.registries.clone_from(&global.registries);
    }
    if config.root.starts_with(&dir) {
        let error = anyhow::anyhow!(
            "{} is in the directory that is built, and would be a part of the image's source; \
             choose another --root",
            config.root.display()
        );
        return Err(Failure::usage(error));
    }
    let agent = disk::agent(&config).await?;
    if let (Some(_), Some(flag)) = (&agent, args.boot.own()) {
        let error = anyhow::anyhow!(
            "{flag} means nothing where an agent runs: it boots what its own configuration says"
        );
        return Err(Failure::usage(error));
    }
    let machinery = match args.boot.boot && agent.is_none() {
        true => Some(args.boot.machinery(&config, file.is_some())?),
        false => None,
    };
    let plan = plan::plan(Seen {
        registry_given: args.to.is_some(),
        says_needs: dir.join(NEEDS).is_file(),
        agent_answers: agent.is_some(),
        boot: args.boot.boot,
    });
    Ok(Start { args, global, dir, config, plan, agent, machinery, cancel })
}

async fn travel(
    mut start: Start<'_>,
    site: &Site,
    log: &mut Log<'_>,
    report: &mut Report,
) -> Result<Exit, Failure> {
    let machinery = start.machinery.take();
    let outcome = async {
        let disk = to_the_disk(&start, site, log, report).await?;
        let (ok, booted) = match start.plan.stages.contains(&Stage::Boot) {
            true => (boot_it(&start, machinery, site, &disk, log, report).await?, true),
            false => (true, false),
        };
        report.next = next(&start, site, report, booted);
        Ok(if ok { Exit::Ok } else { Exit::No })
    };
    outcome.await.map_err(|failure| advise(failure, &start.config))
}

/// Where the images go: where that is said, else to a registry of our own.
async fn harbour(start: &Start<'_>, site: &Site, screens: &Screens) -> Result<Harbour, Failure> {
    let given = match start.plan.harbour {
        plan::Harbour::Given => start.args.to.as_ref().map(Harbour::given),
        plan::Harbour::Embedded => None,
    };
    match given {
        Some(harbour) => Ok(harbour),
        None => Harbour::embedded(start.args, site, &start.dir, screens).await,
    }
}

/// Everything but the machine.
async fn to_the_disk(
    start: &Start<'_>,
    site: &Site,
    log: &mut Log<'_>,
    report: &mut Report,
) -> Result<RootDisk, Failure> {
    let Start { args, global, dir, cancel, .. } = start;
    let client = context::client(global)?;
    let harbour = harbour(start, site, log.screens).await?;
    let outputs =
        Outputs::new(Reference::Registry(harbour.image.clone())).map_err(Failure::usage)?;
    report.image = outputs.index().to_string();
    report.layout = harbour.layout.as_ref().map(ToString::to_string);
    let signer = Signer::open(args.key.as_deref(), site)?;
    report.public_key = Some(signer.public.clone());
    let wish = Wish {
        dir: dir.as_path(),
        file: args.dockerfile.clone(),
        platforms: args.platforms()?,
        outputs,
        record: harbour.record.clone(),
    };
    let screens = log.screens;
    let work = stages::build(&wish, site, &client, screens);
    let index = log.stage(Stage::Build, until(cancel, work)).await?;
    report.index_digest = Some(index);
    // From here on the digest alone counts: a tag could be moved.
    let image = wish.outputs.index().with_digest(index);
    let work = stages::sign_all(&image, &signer, &client);
    log.stage(Stage::Sign, until(cancel, work)).await?;
    if start.plan.stages.contains(&Stage::Attach) {
        let file = dir.join(NEEDS);
        let work = stages::attach_needs(&image, &file, &client);
        log.stage(Stage::Attach, until(cancel, work)).await?;
    }
    let work = stages::verify_both(&image, &signer, &client);
    log.stage(Stage::Verify, until(cancel, work)).await?;
    let said = Said {
        by_directory: start.plan.stages.contains(&Stage::Attach),
        image: report.layout.as_ref().unwrap_or(&report.image),
    };
    let work = stages::check(&image, &said, &client, global);
    let mut met = log.stage(Stage::Check, until(cancel, work)).await?;
    let work = stages::resolve(&mut met, global);
    let selection = log.stage(Stage::Resolve, until(cancel, work)).await?;
    report.resolved_digest = Some(selection.chosen.digest);
    report.platform = selection.platform.as_ref().map(ToString::to_string);
    let spec = disk::spec(&harbour.image, index, &selection)?;
    let work = async {
        match (start.plan.keeper, &start.agent) {
            (Keeper::Agent, Some(agent)) => disk::by_agent(agent, spec).await,
            _ => disk::by_ourselves(&start.config, met.host, spec, cancel).await,
        }
    };
    let disk = log.stage(Stage::Disk, until(cancel, work)).await?;
    report.rootdisk_key = Some(disk.key.clone());
    report.rootdisk = disk.path();
    Ok(disk)
}

/// The machine; false where its program ended badly.
async fn boot_it(
    start: &Start<'_>,
    machinery: Option<Machinery>,
    site: &Site,
    disk: &RootDisk,
    log: &mut Log<'_>,
    report: &mut Report,
) -> Result<bool, Failure> {
    let screens = log.screens;
    let work = async {
        match (&start.agent, machinery) {
            (Some(agent), _) => boot::by_agent(agent, &disk.spec, &start.cancel, screens).await,
            (None, Some(machinery)) => {
                boot::ourselves(machinery, site, disk, &start.cancel, screens).await
            }
            (None, None) => Err(local(anyhow::anyhow!("nothing was found to boot it with"))),
        }
    };
    // It ends its machine itself when it is asked to stop.
    let (booted, ok) = log.stage(Stage::Boot, work).await?;
    report.boot = Some(booted);
    Ok(ok)
}

/// Commands that go on from here. They work as they are, with nothing running.
fn next(start: &Start<'_>, site: &Site, report: &Report, booted: bool) -> Vec<String> {
    let image = report.layout.as_ref().unwrap_or(&report.image);
    let mut all = vec![command(&["image", "inspect", image])];
    let path = |path: &Path| path.display().to_string();
    if let Some(key) = &report.public_key {
        let key = path(key);
        all.push(command(&["verify", "image", image, "--key", &key, "--all-platforms"]));
    }
    match &report.rootdisk {
        Some(disk) => {
            all.push(command(&["rootdisk", "inspect", &path(disk), "--ls", "/", "--recursive"]));
        }
        None => {
            let socket = path(&start.config.socket());
            all.push(command(&["agent", "cache", "ls", "--socket", &socket]));
        }
    }
    let can_boot = || {
        let found = start.args.boot.machinery(&start.config, start.args.agent_config.is_some());
        start.agent.is_some() || found.is_ok()
    };
    if !booted && can_boot() {
        all.extend(again_with("--boot", std::env::args_os()));
    }
    if report.layout.is_some() {
        all.push(command(&["registry", "serve", "--root", &path(&site.registry())]));
    }
    all
}

/// The same command with a flag more. None where a word is no text, or all that follows is no flag.
fn again_with(flag: &str, words: impl Iterator<Item = OsString>) -> Option<String> {
    let own: Vec<String> =
        words.skip(1).map(|one| one.into_string().ok()).collect::<Option<_>>()?;
    if own.iter().any(|one| one == "--") {
        return None;
    }
    let own: Vec<String> = own.iter().map(|one| word(one)).collect();
    Some(format!("{} {} {flag}", command(&[]), own.join(" ")))
}

/// Adds what can be done where a disk is full.
fn advise(failure: Failure, config: &Config) -> Failure {
    let Failure { exit, error } = failure;
    let full = error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| durable::is_full(io) || io.kind() == ErrorKind::StorageFull)
    });
    // Of the embedded registry only its words arrive.
    let told = causes::chain(&*error);
    if !full && !told.contains("disk is full") && !told.contains("no room") {
        return Failure { exit, error };
    }
    let what = format!(
        "a disk is full; free some space in {} or choose another --root; images are put together in \
         {}, which TMPDIR changes",
        config.root.display(),
        std::env::temp_dir().display()
    );
    Failure { exit, error: error.context(what) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn what_was_called_is_shown_again_unless_a_shell_could_not_say_it() {
        let again = |words: &[&[u8]]| {
            let words = words.iter().map(|word| OsString::from_vec(word.to_vec()));
            again_with("--boot", words)
        };
        let shown = again(&[b"portolan", b"ship", b"my app"]).unwrap();
        assert!(shown.ends_with(" ship 'my app' --boot"), "{shown}");
        assert_eq!(again(&[b"portolan", b"ship", b"caf\xe9"]), None, "a name need not be text");
        assert_eq!(again(&[b"portolan", b"ship", b"--", b"-dir"]), None);
    }
}
