//! Calls of git: nothing of this machine's settings counts, nothing is asked of a terminal, and what
//! it says is kept within bounds.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use super::credentials::Credentials;
use super::failed;
use super::halt::{Halt, Pipes};
use super::reason::{EXIT_TOOL, OTHER};
use super::url::{GitUrl, Transport, redacted};
use crate::steps::StepError;

/// More than this of what a command says is not kept.
const MAX_SAID: u64 = 1024 * 1024;

/// Who is told what is run, without secrets.
pub type Log<'a> = &'a dyn Fn(&str);

/// What a command came to.
pub(super) struct Ran {
    pub(super) succeeded: bool,
    pub(super) code: u8,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

pub(super) struct Git<'a> {
    target: &'a Path,
    allowed: &'static str,
    config: Vec<(String, String)>,
    ssh: Option<&'a str>,
    work: &'a Path,
    log: Log<'a>,
    halt: &'a Halt,
}

impl<'a> Git<'a> {
    pub(super) fn new(
        target: &'a Path,
        url: &GitUrl,
        credentials: &'a Credentials,
        work: &'a Path,
        (log, halt): (Log<'a>, &'a Halt),
    ) -> Self {
        let fixed = [
            // The directory may be another user's, who made the volume.
            ("safe.directory", "*"),
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            // When and by whom it was cloned is nothing of the source.
            ("core.logAllRefUpdates", "false"),
            ("advice.detachedHead", "false"),
            ("gc.auto", "0"),
            ("fetch.fsckObjects", "true"),
            // What old programs wrote into the history of ordinary repositories. It cannot be mended there without new
            // names for every commit since, and leads nobody anywhere; hosts take it, too.
            ("fetch.fsck.zeroPaddedFilemode", "warn"),
            ("fetch.fsck.badTimezone", "warn"),
            ("fetch.fsck.missingSpaceBeforeDate", "warn"),
            // The same as `git lfs install` writes; without the program a checkout of its files fails.
            ("filter.lfs.process", "git-lfs filter-process"),
            ("filter.lfs.smudge", "git-lfs smudge -- %f"),
            ("filter.lfs.clean", "git-lfs clean -- %f"),
            ("filter.lfs.required", "true"),
        ];
        let mut config: Vec<(String, String)> =
            fixed.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        config.extend(credentials.config.iter().cloned());
        let allowed = url.allowed();
        Self { target, allowed, config, ssh: credentials.ssh.as_deref(), work, log, halt }
    }

    pub(super) fn target(&self) -> &Path {
        self.target
    }

    /// Whether the programs are there that this clone needs.
    pub(super) fn check_tools(
        &self,
        url: &GitUrl,
        credentials: &Credentials,
    ) -> Result<(), StepError> {
        let mut needed = vec![("git", "--version")];
        if url.transport() == Transport::Ssh || credentials.ssh.is_some() {
            needed.push(("ssh", "-V"));
        }
        for (program, ask) in needed {
            let asked = Command::new(program)
                .arg(ask)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if asked.is_err() {
                let what = format!(
                    "there is no {program} in this image; the step image needs it for git sources"
                );
                return Err(StepError::new(OTHER, EXIT_TOOL, what));
            }
        }
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        // A variable of git's from outside could name a program; certificates are welcome.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GIT_") && !text.starts_with("GIT_SSL_") {
                command.env_remove(&name);
            }
        }
        command
            .args(args)
            .current_dir(self.target)
            .stdin(Stdio::null())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "/bin/false")
            // None: samples of hooks are those of one version of git.
            .env("GIT_TEMPLATE_DIR", "")
            .env("GIT_ALLOW_PROTOCOL", self.allowed)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_COUNT", self.config.len().to_string())
            .env("TMPDIR", self.work);
        for (at, (key, value)) in self.config.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{at}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        if let Some(ssh) = self.ssh {
            command.env("GIT_SSH_COMMAND", ssh);
        }
        command
    }

    /// Runs git, however it ends.
    pub(super) fn try_run(&self, args: &[&str]) -> Result<Ran, StepError> {
        (self.log)(&format!("git {}", redacted(&args.join(" "))));
        let io = |source| StepError::local(OTHER, format!("cannot run git {}", args[0]), source);
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Pipes { out, err } = self.halt.start(&mut command).map_err(io)?;
        let (stdout, stderr) = std::thread::scope(|scope| {
            let err = scope.spawn(move || said(err));
            (said(out), err.join().unwrap_or_default())
        });
        let status = self.halt.wait().map_err(io)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Ok(Ran { succeeded: status.success(), code, stdout, stderr: redacted(&stderr) })
    }

    /// What it came to, or the error that it is.
    pub(super) fn good(&self, ran: Ran) -> Result<(), StepError> {
        match ran.succeeded {
            true => Ok(()),
            false => Err(failed(&ran, "git failed")),
        }
    }

    /// Runs git, which must succeed.
    pub(super) fn run(&self, args: &[&str]) -> Result<(), StepError> {
        self.output(args).map(drop)
    }

    /// The same, and what it prints.
    pub(super) fn output(&self, args: &[&str]) -> Result<String, StepError> {
        let ran = self.try_run(args)?;
        match ran.succeeded {
            true => Ok(ran.stdout),
            false => Err(failed(&ran, &format!("git {} failed", args[0]))),
        }
    }
}

/// The beginning of what a pipe says; the rest is read and dropped, so that nobody waits.
fn said(pipe: Option<impl Read>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut kept = Vec::new();
    let _ = pipe.by_ref().take(MAX_SAID).read_to_end(&mut kept);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}
