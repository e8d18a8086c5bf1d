//! What guides show is what the program says: each `$ portolan …` in a `console` block is run, in the root of the
//! repository, and says what is written below it.

mod support;

use std::path::Path;

use support::{Said, portolan};

const PLATFORMS: &str = include_str!("../../../docs/platforms.md");

/// A command line with what it is said to print.
#[derive(Debug)]
struct Example<'a> {
    command: &'a str,
    lines: Vec<&'a str>,
}

fn examples(guide: &str) -> Vec<Example<'_>> {
    let mut found: Vec<Example> = Vec::new();
    for block in guide.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("a block has an end");
        for line in block.lines() {
            match line.strip_prefix("$ portolan ") {
                Some(command) => found.push(Example { command, lines: Vec::new() }),
                None => found.last_mut().expect("a command comes first").lines.push(line),
            }
        }
    }
    found
}

/// Whether lines are as shown; `…` stands for any number of them.
fn as_shown(said: &[&str], shown: &[&str]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((&"…", rest)) => (0..=said.len()).any(|skip| as_shown(&said[skip..], rest)),
        Some((line, rest)) => said.split_first().is_some_and(|(first, said)| {
            first.trim_end() == line.trim_end() && as_shown(said, rest)
        }),
    }
}

fn check(example: &Example, home: &Path) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let words = example.command.split(' ');
    let output = portolan(home).args(words).current_dir(root).output().expect("portolan runs");
    let Said { code, out, err } = output.into();
    let ending = format!("(exit code {code})");
    let mut said: Vec<&str> = out.lines().chain(err.lines()).collect();
    if code != 0 {
        said.push(&ending);
    }
    let command = example.command;
    assert!(as_shown(&said, &example.lines), "portolan {command} says\n{}", said.join("\n"));
}

#[test]
fn the_guide_to_platforms_shows_what_is_said() {
    let home = tempfile::tempdir().unwrap();
    let all = examples(PLATFORMS);
    assert!(all.len() >= 9, "{all:?}");
    all.iter().for_each(|example| check(example, home.path()));
}

#[test]
fn lines_that_differ_are_seen() {
    assert!(as_shown(&["a", "b", "c"], &["a", "…", "c"]) && as_shown(&["a"], &["…", "a", "…"]));
    assert!(
        !as_shown(&["a", "b"], &["a"])
            && !as_shown(&["a"], &["a", "b"])
            && !as_shown(&["a"], &["…", "b"])
    );
}
