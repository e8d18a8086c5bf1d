//! What guides show is what the program says: each `$ portolan …` in a `console` block is run, in the root of the
//! repository, and says what is written below it. The first commands of the README are run as they are written.

mod support;

use std::path::Path;

use support::{Said, Server, portolan};

const PLATFORMS: &str = include_str!("../../../docs/platforms.md");
const FIRST_IMAGE: &str = include_str!("../../../docs/first-image.md");
const README: &str = include_str!("../../../README.md");

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

/// What the README has run by cargo, in its order.
fn of_cargo(readme: &str) -> Vec<&str> {
    let blocks = readme.split("\n```\n").skip(1).step_by(2);
    let commands = blocks.flat_map(str::lines);
    commands.filter_map(|line| line.strip_prefix("cargo run --release -- ")).collect()
}

/// On a machine where nothing runs and nobody has been: an empty home, and the repository as it was cloned.
#[test]
fn the_first_two_commands_of_the_readme_succeed_with_nothing_else_set_up() {
    let commands = of_cargo(README);
    assert_eq!(commands[..2], ["ship examples/hello", "ship examples/hello -o json"]);
    let home = tempfile::tempdir().unwrap();
    let temp = home.path().join("tmp");
    std::fs::create_dir(&temp).unwrap();
    let run = |command: &str| -> Said {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let data = home.path().join("data");
        let mut portolan = portolan(home.path());
        portolan.env("TMPDIR", &temp).env("XDG_DATA_HOME", &data).current_dir(root);
        // Root's usual place is the machine's, and its state would be ours.
        portolan.args(command.split(' ')).args(["--root", data.join("portolan").to_str().unwrap()]);
        portolan.output().expect("portolan runs").into()
    };
    let first = run(commands[0]);
    assert_eq!(first.code, 0, "{}", first.err);
    // The table has the stages that the README shows, in their order.
    let (_, shown) = README.split_once("STAGE    TOOK     RESULT\n").expect("the table");
    let stage = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let shown: Vec<String> = shown.lines().take_while(|line| *line != "```").map(stage).collect();
    let said: Vec<String> = first.out.lines().skip(1).map(stage).collect();
    assert_eq!(said[..shown.len()], shown, "{}", first.out);
    let second = run(commands[1]).json();
    assert_eq!(second["stages"][0]["state"], "unchanged", "{second:#}");
    assert!(Path::new(second["rootdisk"].as_str().unwrap()).is_file(), "{second:#}");
}

/// What a part of a guide has run by `portolan`, each command in one line.
fn of_portolan(part: &str) -> Vec<String> {
    let blocks = part.split("\n```\n").skip(1).step_by(2).map(|block| block.replace("\\\n", " "));
    let lines: Vec<String> =
        blocks.flat_map(|b| b.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().filter_map(|line| line.strip_prefix("portolan ")).map(str::to_owned).collect()
}

/// The half without a cluster, as it is written, but for the port, which may be somebody else's here.
#[test]
fn an_empty_laptop_gets_its_first_image_as_the_guide_says() {
    let (_, laptop) = FIRST_IMAGE.split_once("## An empty laptop\n").expect("its part");
    let (laptop, _) = laptop.split_once("## An empty cluster\n").expect("its end");
    let home = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    std::os::unix::fs::symlink(examples, home.path().join("examples")).unwrap();
    let server = Server::start(home.path(), &home.path().join("registry"), &[]);
    let run = |command: &str| -> Said {
        let command = command.replace("127.0.0.1:5000", &server.address);
        let mut portolan = portolan(home.path());
        portolan.args(command.split_whitespace()).current_dir(home.path());
        let said: Said = portolan.output().expect("portolan runs").into();
        assert_eq!(said.code, 0, "{command}: {}", said.err);
        said
    };
    let commands = of_portolan(laptop);
    // A server that goes on is the one above.
    let (served, commands): (Vec<_>, Vec<_>) =
        commands.iter().partition(|command| command.ends_with('&'));
    assert_eq!(served, ["registry serve --listen 127.0.0.1:5000 --root ./registry &"]);
    assert_eq!(commands.len(), 3, "{commands:?}");
    let shown: Vec<String> = commands.iter().map(|command| run(command).out).collect();
    for platform in ["linux/amd64", "linux/arm64"] {
        assert!(shown[1].contains(platform), "{}", shown[1]);
    }
    let digest =
        |image: &str| run(&format!("image inspect {image} -o json")).json()["digest"].take();
    assert_eq!(digest("oci:hello:1"), digest("127.0.0.1:5000/hello:1"));
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
