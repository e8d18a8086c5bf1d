//! Digests put into the text of a Shim, with all that people wrote around it.
//!
//! The text is changed line by line, and then read again: unless it says exactly what it said before plus the
//! digests, it is written anew from its values, and comments are lost.

use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use serde_json::{Value, json};

/// The largest file that is read.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Where a digest is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Which document of the file, from 0.
    pub document: usize,
    /// Which of its platforms, from 0.
    pub entry: usize,
    /// What to download.
    pub location: String,
}

/// Why a text cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// Nested deeper than any Shim.
    #[error("it nests deeper than {MAX_FLOW_DEPTH} levels")]
    TooDeep,
    /// No YAML.
    #[error("document {number} is not valid YAML")]
    Yaml {
        /// Which, from 1.
        number: usize,
        /// Why.
        #[source]
        source: serde_yaml_ng::Error,
    },
}

/// A file with Shims in it.
#[derive(Debug)]
pub struct File {
    documents: Vec<Document>,
}

#[derive(Debug)]
struct Document {
    /// With the line that begins it.
    text: String,
    value: Value,
}

/// A text with its digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The whole file.
    pub text: String,
    /// Documents that were written anew, without their comments; from 1.
    pub rewritten: Vec<usize>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It is not YAML, or nests too deep.
    pub fn read(text: &str) -> Result<Self, PinError> {
        // With digests it is no deeper.
        if yaml::is_too_deep(text.as_bytes()) {
            return Err(PinError::TooDeep);
        }
        let mut parts = vec![String::new()];
        for line in text.split_inclusive('\n') {
            if line.starts_with("---") && line[3..].starts_with([' ', '\n', '\r']) {
                parts.push(String::new());
            }
            parts.last_mut().expect("there is one").push_str(line);
        }
        let documents = parts.into_iter().enumerate().map(|(at, text)| {
            let value = serde_yaml_ng::from_str(&text)
                .map_err(|source| PinError::Yaml { number: at + 1, source })?;
            Ok(Document { text, value })
        });
        Ok(Self { documents: documents.collect::<Result<_, _>>()? })
    }

    /// Every platform without a digest that a download could match.
    pub fn missing(&self) -> Vec<Missing> {
        let of = |(document, one): (usize, &Document)| {
            let entries = platforms(&one.value).into_iter().flatten().enumerate();
            let open = entries.filter(|(_, entry)| {
                let digest = entry["sha256"].as_str().unwrap_or_default();
                crate::resolve::digest(digest).is_none()
            });
            let missing = open.filter_map(move |(entry, value)| {
                let location = value["location"].as_str()?.to_owned();
                Some(Missing { document, entry, location })
            });
            missing.collect::<Vec<_>>()
        };
        self.documents.iter().enumerate().flat_map(of).collect()
    }

    /// The file with these digests.
    pub fn pin(self, found: &[(Missing, String)]) -> Pinned {
        let mut pinned = Pinned { text: String::new(), rewritten: Vec::new() };
        for (at, document) in self.documents.into_iter().enumerate() {
            let own: Vec<(usize, &str)> = found
                .iter()
                .filter(|(missing, _)| missing.document == at)
                .map(|(missing, digest)| (missing.entry, digest.as_str()))
                .collect();
            if own.is_empty() {
                pinned.text.push_str(&document.text);
                continue;
            }
            let mut wanted = document.value;
            for (entry, digest) in &own {
                wanted["spec"]["fetchStrategy"]["platforms"][*entry]["sha256"] = json!(digest);
            }
            let edited = edit(&document.text, &own);
            match serde_yaml_ng::from_str::<Value>(&edited) {
                Ok(value) if value == wanted => pinned.text.push_str(&edited),
                _ => {
                    pinned.rewritten.push(at + 1);
                    pinned.text.push_str(&anew(&document.text, &wanted));
                }
            }
        }
        pinned
    }
}

fn platforms(value: &Value) -> Option<&Vec<Value>> {
    let ours = value["kind"] == "Shim"
        && value["apiVersion"]
            .as_str()
            .is_some_and(|version| version.starts_with("runtime.spinkube.dev/"));
    value["spec"]["fetchStrategy"]["platforms"].as_array().filter(|_| ours)
}

fn anew(old: &str, value: &Value) -> String {
    if old.trim_start().starts_with('{') {
        return serde_json::to_string_pretty(value).expect("values are JSON") + "\n";
    }
    let begin = if old.starts_with("---") { "---\n" } else { "" };
    format!("{begin}{}", serde_yaml_ng::to_string(value).expect("JSON is YAML"))
}

/// How far a line is indented.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_blank(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

/// The text with a line for each digest; whatever it does not understand it leaves, and the caller sees that.
fn edit(text: &str, digests: &[(usize, &str)]) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some(head) = lines.iter().position(|line| is_key(line, "platforms")) else {
        return text.to_owned();
    };
    let mut out: String = lines[..=head].concat();
    let (mut entry, mut dash) = (None::<usize>, None::<usize>);
    let mut at = head + 1;
    while at < lines.len() {
        let line = lines[at];
        let here = indent(line);
        if !is_blank(line) {
            let begins = line.trim_start().starts_with("- ");
            let first = *dash.get_or_insert(here);
            if here < first || (here == first && !begins) {
                break;
            }
            if here == first && begins {
                entry = Some(entry.map_or(0, |entry| entry + 1));
            }
        }
        let digest = digests.iter().find(|(wanted, _)| Some(*wanted) == entry);
        out.push_str(&match digest {
            Some((_, digest)) => changed(line, digest),
            None => line.to_owned(),
        });
        at += 1;
    }
    out + &lines[at..].concat()
}

fn is_key(line: &str, key: &str) -> bool {
    let rest = line.trim_start().strip_prefix(key).and_then(|rest| rest.strip_prefix(':'));
    rest.is_some_and(is_blank)
}

/// One line of an entry, with the digest in it or after it.
fn changed(line: &str, digest: &str) -> String {
    let begin = line.trim_start();
    let inner = begin.strip_prefix("- ").map_or(begin, str::trim_start);
    let column = line.len() - inner.len();
    let end = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
    if inner.starts_with('{') {
        let Some((before, after)) = line.rsplit_once('}') else { return line.to_owned() };
        return format!("{}, sha256: \"{digest}\"}}{after}", before.trim_end());
    }
    if inner.starts_with("sha256:") {
        // What was there matches nothing; the digest after the location takes its place.
        return String::new();
    }
    if inner.starts_with("location:") {
        let whole = line.trim_end_matches(['\r', '\n']);
        return format!("{whole}{end}{}sha256: \"{digest}\"{end}", " ".repeat(column));
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    /// The reader of YAML would take a minute for it.
    #[test]
    fn a_text_that_nests_too_deep_is_refused_at_once() {
        let deep = "{\"a\":".repeat(60_000);
        assert!(matches!(File::read(&deep), Err(PinError::TooDeep)));
    }

    fn pin(text: &str) -> (Vec<String>, Pinned) {
        let file = File::read(text).unwrap();
        let missing = file.missing();
        let locations = missing.iter().map(|one| one.location.clone()).collect();
        let found: Vec<_> = missing.into_iter().zip([A, B].map(str::to_owned)).collect();
        (locations, file.pin(&found))
    }

    const TEXT: &str = "\
# Ours.
apiVersion: v1
kind: ConfigMap
---
apiVersion: runtime.spinkube.dev/v1alpha1
kind: Shim # the shim
metadata:
  name: spin-v2
spec:
  fetchStrategy:
    # One for each.
    platforms:
      - os: linux
        arch: aarch64
        location: \"https://x.example/arm\" # from the release

      # The other.
      - location: https://x.example/amd
        os: linux
        arch: x86_64
        sha256: \"a1b2...\"
  runtimeClass: {name: a, handler: b}
  rolloutStrategy:
    type: recreate
";

    #[test]
    fn digests_are_added_and_comments_stay() {
        let (locations, pinned) = pin(TEXT);
        assert_eq!(locations, ["https://x.example/arm", "https://x.example/amd"]);
        let expected = TEXT
            .replace(
                "# from the release\n",
                &format!("# from the release\n        sha256: \"{A}\"\n"),
            )
            .replace("        sha256: \"a1b2...\"\n", "")
            .replace(
                "https://x.example/amd\n",
                &format!("https://x.example/amd\n        sha256: \"{B}\"\n"),
            );
        assert_eq!(pinned, Pinned { text: expected.clone(), rewritten: Vec::new() });
        assert_eq!(pin(&expected), (Vec::new(), Pinned { text: expected, rewritten: Vec::new() }));
    }

    #[test]
    fn flow_style_line_ends_and_lists_without_indentation_are_understood() {
        let flow = "apiVersion: runtime.spinkube.dev/v1alpha1\r\nkind: Shim\r\nspec:\r\n  fetchStrategy:\r\n    platforms:\r\n    - {os: linux, arch: amd64, location: 'https://x.example/a'} # x\r\n    - os: linux\r\n      arch: arm64\r\n      location: https://x.example/b\r\n";
        let (_, pinned) = pin(flow);
        assert_eq!(pinned.rewritten, [0; 0], "{}", pinned.text);
        assert!(pinned.text.contains(&format!("'https://x.example/a', sha256: \"{A}\"}} # x\r\n")));
        assert!(pinned.text.ends_with(&format!("      sha256: \"{B}\"\r\n")));
    }

    #[test]
    fn what_is_not_understood_is_written_anew_and_said() {
        let folded = TEXT.replace(
            "location: https://x.example/amd",
            "location: >-\n          https://x.example/amd",
        );
        let (_, pinned) = pin(&folded);
        assert_eq!(pinned.rewritten, [2]);
        let value: Value =
            serde_yaml_ng::from_str(pinned.text.split("---\n").nth(1).unwrap()).unwrap();
        assert_eq!(value["spec"]["fetchStrategy"]["platforms"][1]["sha256"], B);
        let json = r#"{"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "spec": {"fetchStrategy": {"platforms": [{"os": "linux", "arch": "amd64", "location": "https://x.example/a"}]}}}"#;
        let (_, pinned) = pin(json);
        let value: Value = serde_json::from_str(&pinned.text).unwrap();
        assert_eq!(value["spec"]["fetchStrategy"]["platforms"][0]["sha256"], A);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(pieces in proptest::collection::vec(proptest::sample::select(vec![
            "kind: Shim\n", "apiVersion: runtime.spinkube.dev/v1\n", "spec:\n", "  fetchStrategy:\n", "    platforms:\n",
            "    - ", "      - ", "os: linux\n", "location: x\n", "        location: x\n", "{location: x}\n", "---\n", "---",
            "sha256: y\n", "# z\n", "\u{feff}", "\r\n", "}", "é", " ", "- - -\n",
        ]), 0..24)) {
            let text = pieces.concat();
            if let Ok(file) = File::read(&text) {
                let missing = file.missing();
                let found: Vec<_> = missing.into_iter().map(|one| (one, A.to_owned())).collect();
                let count = found.len();
                let pinned = file.pin(&found);
                let again = File::read(&pinned.text).expect("what was written can be read");
                proptest::prop_assert!(count == 0 || again.missing().is_empty(), "{}", pinned.text);
            }
        }
    }
}
