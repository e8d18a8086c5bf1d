//! What came of the journey: a row for each stage, and what to try next.

use std::path::PathBuf;

use portolan_core::Digest;
use serde::Serialize;

use super::plan::Stage;
use crate::format;

/// What a script reads.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Where it was pushed.
    pub(super) image: String,
    /// The same without a registry, where that is ours: an `oci:` reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resolved_digest: Option<Digest>,
    /// What the image that this host runs is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<String>,
    /// Of whoever signed, for `portolan verify image --key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) public_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rootdisk_key: Option<String>,
    /// Its file, where this program keeps it and no agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rootdisk: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<Booted>,
    pub(super) stages: Vec<Row>,
    /// All of it.
    pub(super) seconds: f64,
    /// Commands for a shell.
    pub(super) next: Vec<String>,
}

/// One stage.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) stage: Stage,
    pub(super) state: State,
    /// In one line.
    pub(super) result: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) produced: Vec<Product>,
    pub(super) seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum State {
    /// It was done.
    Done,
    /// What would have come of it was there already.
    Unchanged,
    Failed,
    Interrupted,
}

/// Something that is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Product {
    /// `source`, `index`, a platform.
    pub(super) name: String,
    pub(super) digest: String,
    /// Whether it was there before.
    pub(super) existing: bool,
}

/// A machine that ran.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Booted {
    /// What ran it.
    pub(super) vmm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_line: Option<String>,
    /// From the order to start the machine on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds_to_first_line: Option<f64>,
    /// How the program ended.
    pub(super) end: String,
}

impl Report {
    pub(super) fn table(&self) -> String {
        let rows = self.stages.iter().map(|row| {
            let result = match row.state {
                State::Done => row.result.clone(),
                State::Unchanged => format!("unchanged: {}", row.result),
                State::Failed => format!("failed: {}", row.result),
                State::Interrupted => "interrupted".to_owned(),
            };
            vec![row.stage.to_string(), took(row.seconds), format::safe(&result)]
        });
        let total = vec!["total".to_owned(), took(self.seconds), String::new()];
        let table = format::table(&["STAGE", "TOOK", "RESULT"], rows.chain([total]).collect());
        if self.next.is_empty() {
            return table;
        }
        let next: String = self.next.iter().map(|command| format!("  {command}\n")).collect();
        format!("{table}\nNext:\n{next}")
    }
}

fn took(seconds: f64) -> String {
    format!("{seconds:.3} s")
}

/// A word as a shell reads it.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@=,+-%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// How this program was called, so that what is printed calls it again.
pub(super) fn program() -> String {
    let own = std::env::args_os().next().and_then(|own| own.into_string().ok());
    own.filter(|own| own.contains('/')).unwrap_or_else(|| "portolan".to_owned())
}

/// A command of ours.
pub(super) fn command(words: &[&str]) -> String {
    let all = [program()].into_iter().chain(words.iter().map(|one| (*one).to_owned()));
    all.map(|one| word(&one)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_command_as_they_are() {
        for (text, shown) in [
            ("oci:/a/b_c/_layout:1", "oci:/a/b_c/_layout:1"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$(x);*", "'$(x);*'"),
        ] {
            assert_eq!(word(text), shown);
            let echo = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", word(text))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(echo.stdout).unwrap(), text);
        }
    }

    #[test]
    fn a_row_says_what_came_of_it_and_how_long_it_took() {
        let row = |stage, state, result: &str| Row {
            stage,
            state,
            result: result.to_owned(),
            produced: Vec::new(),
            seconds: 0.25,
        };
        let report = Report {
            stages: vec![
                row(Stage::Build, State::Unchanged, "two images"),
                row(Stage::Sign, State::Done, "3 signatures"),
                row(Stage::Resolve, State::Failed, "no \u{1b}[2J key"),
            ],
            seconds: 0.75,
            next: vec!["portolan image inspect x".to_owned()],
            ..Report::default()
        };
        let table = report.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("STAGE    TOOK     RESULT"), "{table}");
        assert!(lines[1].ends_with("unchanged: two images"), "{table}");
        assert!(lines[3].contains("failed: no \\u{1b}[2J key"), "{table}");
        assert!(lines[4].starts_with("total    0.750 s"), "{table}");
        assert_eq!(lines.last(), Some(&"  portolan image inspect x"));
    }
}
