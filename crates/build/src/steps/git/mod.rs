//! `git`: a repository becomes a directory, with what a BuildRun's status says of it.
//!
//! The `git` program does the work; why is in `docs/decisions/0014`. What it is given is checked first:
//! URLs and revisions come from whoever writes Builds, and no word of theirs may become an option or a
//! helper program.

mod command;
mod credentials;
mod halt;
mod reason;
mod settle;
mod url;

use std::path::{Path, PathBuf};

use super::StepError;
use super::source::workshop;

pub use command::Log;
pub use halt::Halt;
pub use reason::{EXIT_AUTH, EXIT_NO_TARGET, EXIT_NO_URL, EXIT_TOOL, class, classify};
pub use url::{GitUrl, Transport, redacted};

use command::{Git, Ran};
use credentials::Credentials;
use reason::{NOT_FOUND, OTHER, REVISION};

/// What is cloned.
#[derive(Debug, Clone)]
pub struct Clone {
    /// From where.
    pub url: String,
    /// To where; made, or an empty directory.
    pub target: PathBuf,
    /// A branch, tag or commit; the default branch where nothing is said.
    pub revision: Option<String>,
    /// So many commits; 0 for all.
    pub depth: u32,
    /// The directory that a secret is mounted at.
    pub secret: Option<PathBuf>,
    /// With a key, speak SSH to where an https URL leads.
    pub rewrite: bool,
}

/// What was cloned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cloned {
    /// The commit.
    pub commit: String,
    /// Who wrote it.
    pub author: String,
    /// The default branch, where no revision was named.
    pub branch: Option<String>,
    /// When it was committed: seconds since 1970.
    pub timestamp: i64,
}

/// What is fetched.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Branch(String),
    Tag(String),
    /// A ref in full, or a commit in full.
    Exact(String),
    /// Something that only the whole history tells.
    Somewhere(String),
}

/// Clones; everything that is worked with beside the target is in `temp` and goes.
pub fn clone(request: &Clone, temp: &Path, log: Log<'_>) -> Result<Cloned, StepError> {
    clone_until(request, temp, log, &Halt::default())
}

/// The same, unless it is halted.
pub fn clone_until(
    request: &Clone,
    temp: &Path,
    log: Log<'_>,
    halt: &Halt,
) -> Result<Cloned, StepError> {
    if request.url.trim().is_empty() {
        return Err(StepError::new(OTHER, EXIT_NO_URL, "--url is empty"));
    }
    if request.target.as_os_str().is_empty() {
        return Err(StepError::new(OTHER, EXIT_NO_TARGET, "--target is empty"));
    }
    let url = GitUrl::parse(&request.url)?;
    let revision = request.revision.as_deref().filter(|revision| !revision.is_empty());
    if let Some(revision) = revision {
        check_revision(revision)?;
    }
    let work = workshop(temp, OTHER)?;
    let credentials =
        Credentials::read(request.secret.as_deref(), &url, request.rewrite, work.path())?;
    let git = Git::new(&request.target, &url, &credentials, work.path(), (log, halt));
    git.check_tools(&url, &credentials)?;
    std::fs::create_dir_all(&request.target).map_err(|source| {
        StepError::local(OTHER, format!("cannot make {}", request.target.display()), source)
    })?;
    git.run(&["init", "--quiet", "--initial-branch=main", "."])?;
    git.run(&["remote", "add", "--", "origin", url.text()])?;
    let (wanted, branch) = wanted(&git, revision)?;
    fetch(&git, &wanted, request.depth)?;
    submodules(&git, request.depth)?;
    let mut cloned = describe(&git)?;
    settle::settle(&git, cloned.timestamp)?;
    cloned.branch = branch;
    Ok(cloned)
}

/// A revision that may be shown to git: not an option, and nothing that refs cannot be.
fn check_revision(revision: &str) -> Result<(), StepError> {
    let bad = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    if revision.starts_with('-') || revision.contains("..") || revision.contains(bad) {
        let what = format!("{revision:?} is no branch, tag or commit");
        return Err(StepError::new(REVISION, 1, what));
    }
    Ok(())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What a revision means to the remote, and the default branch where none was named.
fn wanted(git: &Git<'_>, revision: Option<&str>) -> Result<(Wanted, Option<String>), StepError> {
    let Some(revision) = revision else {
        let listed = git.output(&["ls-remote", "--symref", "origin", "HEAD"])?;
        let branch = listed.lines().find_map(|line| {
            let line = line.strip_prefix("ref: refs/heads/")?;
            line.split_once('\t').map(|(branch, _)| branch.to_owned())
        });
        let branch = branch.ok_or_else(|| {
            let what = "the repository has no default branch; it is empty, or name a revision";
            StepError::new(REVISION, 128, what)
        })?;
        check_revision(&branch)?;
        return Ok((Wanted::Branch(branch.clone()), Some(branch)));
    };
    let whole = matches!(revision.len(), 40 | 64) && is_hex(revision);
    if whole || revision.starts_with("refs/") {
        return Ok((Wanted::Exact(revision.to_owned()), None));
    }
    let (head, tag) = (format!("refs/heads/{revision}"), format!("refs/tags/{revision}"));
    let listed = git.output(&["ls-remote", "origin", &head, &tag])?;
    let has = |name: &str| listed.lines().any(|line| line.split('\t').nth(1) == Some(name));
    let wanted = match (has(&head), has(&tag)) {
        (true, _) => Wanted::Branch(revision.to_owned()),
        (false, true) => Wanted::Tag(revision.to_owned()),
        (false, false) if (7..40).contains(&revision.len()) && is_hex(revision) => {
            Wanted::Somewhere(revision.to_owned())
        }
        (false, false) => {
            let what = format!("the repository has no branch, tag or commit {revision:?}");
            return Err(StepError::new(REVISION, 128, what));
        }
    };
    Ok((wanted, None))
}

fn fetch(git: &Git<'_>, wanted: &Wanted, depth: u32) -> Result<(), StepError> {
    let depth = (depth > 0).then(|| format!("--depth={depth}"));
    let get = |refspec: &str| {
        let mut args = vec!["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
        args.extend(depth.as_deref());
        args.extend(["origin", refspec]);
        git.try_run(&args)
    };
    match wanted {
        Wanted::Branch(branch) => {
            git.good(get(&format!("+refs/heads/{branch}:refs/remotes/origin/{branch}"))?)?;
            let start = format!("refs/remotes/origin/{branch}");
            git.run(&["checkout", "--quiet", "--force", "-B", branch, &start, "--"])
        }
        Wanted::Tag(tag) => {
            git.good(get(&format!("+refs/tags/{tag}:refs/tags/{tag}"))?)?;
            let start = format!("refs/tags/{tag}");
            git.run(&["checkout", "--quiet", "--force", "--detach", &start, "--"])
        }
        Wanted::Exact(name) => {
            let got = get(name)?;
            if got.succeeded {
                return git.run(&[
                    "checkout",
                    "--quiet",
                    "--force",
                    "--detach",
                    "FETCH_HEAD",
                    "--",
                ]);
            }
            // Some servers give commits away only with a branch that they are on.
            match is_hex(name) {
                true => everything(git, name),
                false => git.good(got),
            }
        }
        Wanted::Somewhere(name) => everything(git, name),
    }
}

/// The whole history, and a commit in it.
fn everything(git: &Git<'_>, commit: &str) -> Result<(), StepError> {
    let refspec = "+refs/heads/*:refs/remotes/origin/*";
    git.run(&["fetch", "--quiet", "--tags", "--no-recurse-submodules", "origin", refspec])?;
    let name = format!("{commit}^{{commit}}");
    let found = git.try_run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?;
    if !found.succeeded {
        let what = format!("the repository has no commit {commit}");
        return Err(StepError::new(REVISION, 128, what));
    }
    git.run(&["checkout", "--quiet", "--force", "--detach", found.stdout.trim(), "--"])
}

fn submodules(git: &Git<'_>, depth: u32) -> Result<(), StepError> {
    if git.target().join(".gitmodules").symlink_metadata().is_err() {
        return Ok(());
    }
    let depth = (depth > 0).then(|| format!("--depth={depth}"));
    let mut args = vec!["submodule", "--quiet", "update", "--init", "--recursive"];
    args.extend(depth.as_deref());
    git.run(&args)
}

fn describe(git: &Git<'_>) -> Result<Cloned, StepError> {
    let said = git.output(&[
        "show",
        "--no-patch",
        "--no-show-signature",
        "--format=%H%n%ct%n%an",
        "HEAD",
    ])?;
    let mut lines = said.lines();
    let (commit, time) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let timestamp = time.parse().map_err(|_| {
        StepError::new(OTHER, 1, format!("git says that HEAD was committed at {time:?}"))
    })?;
    let author = lines.next().unwrap_or_default().to_owned();
    Ok(Cloned { commit: commit.to_owned(), author, branch: None, timestamp })
}

/// What git said about a failure, as a step's error.
fn failed(ran: &Ran, what: &str) -> StepError {
    let reason = classify(&ran.stderr);
    let said = reason::telling_line(&ran.stderr).unwrap_or(what);
    let exit = if reason::lacks_tool(&ran.stderr) { EXIT_TOOL } else { ran.code };
    let hint = match reason {
        NOT_FOUND => "; check spec.source.git.url",
        reason::PRIVATE => "; set spec.source.git.cloneSecret",
        _ => "",
    };
    StepError::new(reason, exit, format!("{what}: {said}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_that_are_options_or_no_refs_are_refused() {
        for good in ["main", "v1.2", "feature/x", "refs/pull/1/head", "0123abc"] {
            assert!(check_revision(good).is_ok(), "{good}");
        }
        for bad in ["--upload-pack=touch x", "a..b", "a b", "x:y", "a\nb", "HEAD^"] {
            assert_eq!(check_revision(bad).unwrap_err().reason, REVISION, "{bad}");
        }
    }
}
