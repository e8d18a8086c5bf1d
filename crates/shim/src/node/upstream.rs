//! What runtime-class-manager's installer left on a node: a state file, programs in `bin`, and blocks of
//! text at the end of configurations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Its state file, in the install directory.
pub const STATE: &str = "rcm-lock.json";

/// Its state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// By the name of the runtime.
    #[serde(default)]
    pub shims: BTreeMap<String, Shim>,
}

/// One program of its.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shim {
    /// Of the program, lowercase hex.
    pub sha256: String,
    /// As the host names it.
    pub path: String,
}

impl State {
    /// Reads the file.
    ///
    /// # Errors
    /// It is no such JSON, or a digest is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let state: Self = serde_json::from_slice(bytes)?;
        for shim in state.shims.values() {
            let hex =
                shim.sha256.len() % 2 == 0 && shim.sha256.bytes().all(|b| b.is_ascii_hexdigit());
            if !hex {
                return Err(serde::de::Error::custom("a sha256 is no hexadecimal number"));
            }
        }
        Ok(state)
    }

    /// As upstream writes it: indented by one space, no newline at the end.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = Vec::new();
        let style = serde_json::ser::PrettyFormatter::with_indent(b" ");
        let mut writer = serde_json::Serializer::with_formatter(&mut out, style);
        self.serialize(&mut writer).expect("strings only");
        String::from_utf8(out).expect("JSON is text")
    }
}

/// A text without upstream's blocks for the runtime `name`, whatever options they have and in which order.
///
/// A block begins with a newline and a comment that names the runtime, exactly that one. With options it
/// ends without a newline, so that the one after its last line belongs to whatever follows. The newline before it
/// stays where something was written after it that needs a line of its own.
#[must_use]
pub fn remove_block(text: &str, name: &str) -> String {
    let mut text = text.to_owned();
    while let Some((start, end)) = find_block(&text, name) {
        let (before, after) = (&text[..start], &text[end..]);
        let ended = before.is_empty() || before.ends_with('\n');
        let joins = !ended && !after.is_empty() && !after.starts_with(['\n', '\r']);
        text.replace_range(start..end, if joins { "\n" } else { "" });
    }
    text
}

/// A text with upstream's block for the runtime `name` that `model` has and it has not: at its end, where upstream
/// writes it.
#[must_use]
pub fn put_back(text: &str, model: &str, name: &str) -> String {
    let block = find_block(model, name).filter(|_| find_block(text, name).is_none());
    let Some(block) = block.and_then(|(start, end)| model.get(start..end)) else {
        return text.to_owned();
    };
    // One at the very beginning of a file has no newline before it.
    let joins = !text.is_empty() && !block.starts_with('\n');
    [text, if joins { "\n" } else { "" }, block].concat()
}

fn find_block(text: &str, name: &str) -> Option<(usize, usize)> {
    let comment = format!("# RCM runtime config for {name}");
    let mut at = 0;
    let lines: Vec<(usize, &str)> = text
        .split_inclusive('\n')
        .map(|line| {
            let start = at;
            at += line.len();
            (start, line)
        })
        .collect();
    let is = |index: usize, test: &dyn Fn(&str) -> bool| {
        lines.get(index).is_some_and(|(_, line)| test(line.trim_end()))
    };
    for (index, (start, line)) in lines.iter().enumerate() {
        if line.trim_end() != comment {
            continue;
        }
        let table = |options: &str| {
            let tail = format!(".containerd.runtimes.{name}{options}]");
            move |line: &str| line.starts_with("[plugins.") && line.ends_with(&tail)
        };
        let whole =
            is(index + 1, &table("")) && is(index + 2, &|l: &str| l.starts_with("runtime_type"));
        if !whole {
            continue;
        }
        let start = if text[..*start].ends_with('\n') { start - 1 } else { *start };
        let (at, last) = lines[index + 2];
        if !is(index + 3, &table(".options")) {
            return Some((start, at + last.len()));
        }
        let mut end = index + 3;
        while is(end + 1, &|l: &str| !l.is_empty() && !l.starts_with(['[', '#']) && l.contains('='))
        {
            end += 1;
        }
        let (at, last) = lines[end];
        return Some((start, at + last.trim_end_matches(['\r', '\n']).len()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str, options: &[(&str, &str)]) -> String {
        let table = format!("plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}");
        let mut text = format!(
            "\n# RCM runtime config for {name}\n[{table}]\nruntime_type = \"/opt/rcm/bin/containerd-shim-{name}\"\n"
        );
        if !options.is_empty() {
            text += &format!("[{table}.options]");
            for (key, value) in options {
                text += &format!("\n{key} = {value}");
            }
        }
        text
    }

    /// N5: the order of options was drawn anew at every run, so removing failed in half of them.
    #[test]
    fn n5_a_block_is_removed_whatever_the_order_of_its_options() {
        let mut options = [("a", "1"), ("b", "true"), ("c", "\"x\""), ("d", "[1]")];
        for round in 0..1000 {
            options.swap(round % 4, (round / 4) % 4);
            for before in ["version = 2", "version = 2\n", "", "a = 1\n\n[b]\nc = 2\n"] {
                let text = format!("{before}{}", block("spin-v1", &options));
                assert_eq!(remove_block(&text, "spin-v1"), before);
            }
        }
    }

    /// N6: options that changed since made the block unknown, and its options table stayed.
    #[test]
    fn n6_a_block_is_removed_whatever_its_options_are_now() {
        for options in [&[][..], &[("x", "1")], &[("SystemdCgroup", "true"), ("y", "\"z\"")]] {
            let others = format!("{}{}", block("spin", &[("k", "1")]), block("spin-v10", &[]));
            let text = format!("version = 2\n{}{others}", block("spin-v1", options));
            assert_eq!(remove_block(&text, "spin-v1"), format!("version = 2\n{others}"));
            let text = format!("version = 2\n{others}{}", block("spin-v1", options));
            assert_eq!(remove_block(&text, "spin-v1"), format!("version = 2\n{others}"));
        }
    }

    #[test]
    fn what_follows_a_block_keeps_its_line() {
        for options in [&[][..], &[("x", "1")]] {
            for after in ["[debug]\n", "\n[debug]\n"] {
                let gap = if options.is_empty() { "" } else { "\n" };
                let text = format!("version = 2{}{gap}{after}", block("spin", options));
                let rest = remove_block(&text, "spin");
                assert!(rest.starts_with("version = 2\n") && rest.ends_with(after), "{rest:?}");
                assert!(rest.parse::<toml_edit::DocumentMut>().is_ok(), "{rest:?}");
            }
        }
    }

    #[test]
    fn a_block_is_put_back_once_and_where_there_was_one() {
        for options in [&[][..], &[("x", "1")]] {
            for before in ["version = 2", "version = 2\n", ""] {
                let (own, others) = (block("spin", options), block("spin-v1", options));
                let model = format!("{before}{others}{own}");
                let without = remove_block(&model, "spin");
                assert_eq!(put_back(&without, &model, "spin"), model);
                assert_eq!(put_back(&model, &model, "spin"), model);
                assert_eq!(put_back(&without, &without, "spin"), without);
                // Not the last one of them, and the first thing in the file.
                for model in [format!("{before}{own}{others}"), own[1..].to_owned() + &others] {
                    let back = put_back(&remove_block(&model, "spin"), &model, "spin");
                    assert!(back.parse::<toml_edit::DocumentMut>().is_ok(), "{back:?}");
                    assert_eq!(remove_block(&back, "spin"), remove_block(&model, "spin"));
                    assert_eq!(back.matches("runtimes.spin]").count(), 1, "{back:?}");
                }
            }
        }
    }

    #[test]
    fn what_only_mentions_the_name_stays() {
        let text = "# RCM runtime config for spin-v1\n# spin-v1\n[x]\nspin-v1 = 1\n";
        assert_eq!(remove_block(text, "spin-v1"), text);
    }

    #[test]
    fn the_state_reads_back_as_upstream_writes_it() {
        let text = "{\n \"shims\": {\n  \"spin-v1\": {\n   \"sha256\": \"6da5\",\n   \"path\": \"/opt/rcm/bin/x\"\n  }\n }\n}";
        let state = State::parse(text.as_bytes()).unwrap();
        assert_eq!(state.to_text(), text);
        assert!(State::parse(b"no").is_err());
        assert!(State::parse(br#"{"shims":{"a":{"sha256":"abc","path":"x"}}}"#).is_err(), "odd");
        assert_eq!(State::parse(b"{}").unwrap(), State::default());
    }
}
