//! What git's words mean, in the words of a BuildRun's status.

use portolan_registry::ErrorClass;

use crate::steps::StepError;

pub(super) const OTHER: &str = "GitError";
pub(super) const REVISION: &str = "GitRevisionNotFound";
pub(super) const NOT_FOUND: &str = "GitRemoteRepositoryNotFound";
pub(super) const PRIVATE: &str = "GitRemoteRepositoryPrivate";
pub(super) const PASSWORD: &str = "GitAuthInvalidUserOrPass";
pub(super) const KEY: &str = "GitAuthInvalidKey";
pub(super) const INCOMPLETE: &str = "GitBasicAuthIncomplete";
pub(super) const KEY_UNEXPECTED: &str = "GitSSHAuthUnexpected";
pub(super) const KEY_EXPECTED: &str = "GitSSHAuthExpected";
pub(super) const OVER_HTTP: &str = "AuthUnexpectedHTTP";

/// No URL was given.
pub const EXIT_NO_URL: u8 = 100;
/// No target was given.
pub const EXIT_NO_TARGET: u8 = 101;
/// The secret does not go with the URL.
pub const EXIT_AUTH: u8 = 110;
/// A program is missing.
pub const EXIT_TOOL: u8 = 120;

/// Words that tell why, and what they tell; the first that is found counts. In lower case.
const WORDS: &[(&str, &str)] = &[
    ("could not read username", PRIVATE),
    ("terminal prompts disabled", PRIVATE),
    ("authentication failed", PASSWORD),
    ("invalid username or password", PASSWORD),
    ("invalid username or token", PASSWORD),
    ("the requested url returned error: 401", PASSWORD),
    ("the requested url returned error: 403", PASSWORD),
    ("permission denied (publickey", KEY),
    ("error in libcrypto", KEY),
    ("invalid format", KEY),
    ("couldn't find remote ref", REVISION),
    ("not our ref", REVISION),
    ("remote branch", REVISION),
    ("did not match any file", REVISION),
    ("unadvertised object", REVISION),
    ("repository not found", NOT_FOUND),
    ("does not appear to be a git repository", NOT_FOUND),
    ("does not exist", NOT_FOUND),
    ("' not found", NOT_FOUND),
    ("/ not found", NOT_FOUND),
    ("the requested url returned error: 404", NOT_FOUND),
];

/// What kind of trouble a failed clone is, for a program that ends with the class of what went wrong.
pub fn class(error: &StepError) -> ErrorClass {
    match (error.exit, error.reason) {
        // Words that mean nothing to git are not shown to it, which is why it did not fail.
        (2 | EXIT_NO_URL | EXIT_NO_TARGET | EXIT_AUTH, _) | (1, REVISION) => ErrorClass::BadInput,
        (_, REVISION | NOT_FOUND) => ErrorClass::NotFound,
        (_, PRIVATE | PASSWORD | KEY) => ErrorClass::Denied,
        (EXIT_TOOL, _) => ErrorClass::Local,
        _ => ErrorClass::Transport,
    }
}

/// The lines that tell something: what the other side said comes before what git made of it.
fn telling(stderr: &str) -> impl Iterator<Item = &str> {
    let of = |prefixes: &'static [&'static str]| {
        stderr.lines().map(str::trim).filter(move |line| {
            prefixes.iter().any(|prefix| {
                line.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
            })
        })
    };
    of(&["remote:"]).chain(of(&["error:", "fatal:"])).chain(stderr.lines().map(str::trim))
}

/// The reason that git's standard error tells.
pub fn classify(stderr: &str) -> &'static str {
    let found = telling(stderr).find_map(|line| {
        let line = line.to_lowercase();
        WORDS.iter().find(|(word, _)| line.contains(word)).map(|(_, reason)| *reason)
    });
    found.unwrap_or(OTHER)
}

/// The line that people are told: the one the reason comes from, or git's last word.
pub(super) fn telling_line(stderr: &str) -> Option<&str> {
    let known = telling(stderr).find(|line| {
        let line = line.to_lowercase();
        WORDS.iter().any(|(word, _)| line.contains(word))
    });
    let lines = || stderr.lines().map(str::trim);
    // An object that git refuses: what comes after it only says that something was refused.
    let refused = || lines().find(|line| line.starts_with("error: object "));
    let last = || lines().rfind(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    known.or_else(refused).or_else(last)
}

/// Whether a program that git called is not there.
pub(super) fn lacks_tool(stderr: &str) -> bool {
    stderr.lines().any(|line| {
        let missing = line.contains("not found") || line.contains("cannot run");
        missing
            && ["git-lfs", "ssh:"].iter().any(|tool| line.contains(tool))
            && !line.contains("remote:")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_git_and_its_hosts_are_understood() {
        for (stderr, reason) in [
            ("fatal: Authentication failed for 'https://h/r'", PASSWORD),
            ("remote: Invalid username or password.\nfatal: x", PASSWORD),
            ("fatal: could not read Username for 'https://h': terminal prompts disabled", PRIVATE),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                KEY,
            ),
            ("Load key \"/tmp/key\": error in libcrypto\nfatal: x", KEY),
            ("fatal: couldn't find remote ref refs/heads/nope", REVISION),
            (
                "remote: Repository not found.\nfatal: repository 'https://h/r/' not found",
                NOT_FOUND,
            ),
            ("fatal: '/srv/none' does not appear to be a git repository", NOT_FOUND),
            ("fatal: unable to access 'x': Could not resolve host: h", OTHER),
            ("", OTHER),
        ] {
            assert_eq!(classify(stderr), reason, "{stderr}");
        }
    }

    #[test]
    fn a_failure_has_the_class_of_what_went_wrong() {
        for (reason, exit, class) in [
            (OTHER, 2, ErrorClass::BadInput),
            (OTHER, EXIT_NO_URL, ErrorClass::BadInput),
            (REVISION, 1, ErrorClass::BadInput),
            (OVER_HTTP, EXIT_AUTH, ErrorClass::BadInput),
            (KEY_EXPECTED, EXIT_AUTH, ErrorClass::BadInput),
            (REVISION, 128, ErrorClass::NotFound),
            (NOT_FOUND, 128, ErrorClass::NotFound),
            (PRIVATE, 128, ErrorClass::Denied),
            (OTHER, EXIT_TOOL, ErrorClass::Local),
            (OTHER, 5, ErrorClass::Transport),
            (OTHER, 128, ErrorClass::Transport),
        ] {
            assert_eq!(super::class(&StepError::new(reason, exit, "")), class, "{reason} {exit}");
        }
    }

    #[test]
    fn people_hear_the_line_that_tells() {
        let stderr = "Cloning\nremote: Repository not found.\nfatal: repository 'x' not found";
        assert_eq!(telling_line(stderr), Some("remote: Repository not found."));
        assert_eq!(telling_line("warning: x\nfatal: a\nfatal: b"), Some("fatal: b"));
        assert_eq!(telling_line("nothing"), None);
        let refused = "error: object ab: badTimezone: bad\nfatal: fsck error in packed object";
        assert_eq!(telling_line(refused), Some("error: object ab: badTimezone: bad"));
        assert!(lacks_tool("git-lfs filter-process: 1: git-lfs: not found"));
        assert!(!lacks_tool("fatal: repository 'x' not found"));
    }
}
