//! The rules of the house, as tests: who may use whom, no file that nothing compiles, no promise
//! without a test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives in the root").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn metadata() -> Value {
    // Only what ships on Linux: crates for other systems may not even be downloaded here.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--filter-platform", &target])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// `portolan-core` is `core` in the table, `xtask` is itself.
fn short(package: &str) -> &str {
    package.strip_prefix("portolan-").unwrap_or(package)
}

#[derive(Debug, Default)]
struct Row {
    may_use: BTreeSet<String>,
    never: BTreeSet<String>,
}

/// The table under "Who may use whom".
fn table(markdown: &str) -> BTreeMap<String, Row> {
    let section = markdown.split("## Who may use whom").nth(1).expect("the section is there");
    section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [name, may_use, never] = cells[..] else { panic!("three cells: {line}") };
            let may_use =
                may_use.split(',').map(str::trim).filter(|word| *word != "–").map(str::to_owned);
            let never = never.split_whitespace().map(|word| word.trim_matches('`').to_owned());
            (name.to_owned(), Row { may_use: may_use.collect(), never: never.collect() })
        })
        .collect()
}

/// Every crate that ends up in what a package makes with these features and no others. The features
/// that other members of the workspace ask for do not count: who builds one of them gets one of them.
fn shipped_with(package: &str, features: &str) -> BTreeSet<String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--no-default-features", "--target", &target, "--package", package])
        .args(["--features", features])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo tree prints text");
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn crates_use_only_what_their_row_names() {
    let metadata = metadata();
    let table = table(&read(&root().join("ARCHITECTURE.md")));
    let packages: BTreeMap<&str, &Value> =
        array(&metadata, "packages").iter().map(|p| (text(p, "id"), p)).collect();
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"], "nodes").iter().map(|n| (text(n, "id"), n)).collect();
    let members: BTreeSet<&str> =
        array(&metadata, "workspace_members").iter().filter_map(Value::as_str).collect();

    let mut wrong = Vec::new();
    for id in &members {
        let name = short(text(packages[id], "name"));
        let Some(row) = table.get(name) else {
            wrong.push(format!("{name} has no row"));
            continue;
        };
        for dep in array(nodes[id], "deps").iter().map(|dep| text(dep, "pkg")) {
            let dep_name = short(text(packages[dep], "name"));
            if members.contains(dep) && !row.may_use.contains(dep_name) {
                wrong.push(format!("{name} uses {dep_name}, which its row does not name"));
            }
        }
    }
    let names: BTreeMap<&str, &str> = members
        .iter()
        .map(|id| text(packages[id], "name"))
        .map(|package| (short(package), package))
        .collect();
    for (name, row) in &table {
        // `verify+server` is the crate with one of its features.
        let (own, features) = name.split_once('+').unwrap_or((name, ""));
        let Some(package) = names.get(own) else {
            wrong.push(format!("no crate {name}"));
            continue;
        };
        let shipped = shipped_with(package, features);
        assert!(shipped.contains(*package), "{shipped:?}");
        let seen = row.never.iter().filter(|never| shipped.contains(*never));
        wrong.extend(seen.map(|never| format!("{name} must never see {never}, and ships it")));
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md and the crates disagree:\n{}", wrong.join("\n"));
}

/// The verifier writes its own certificate to the cluster and nothing else: who writes needs one of
/// these, and they are used in one place.
#[test]
fn only_the_certificate_of_the_verifier_is_written_to_a_cluster() {
    let mut files = BTreeSet::new();
    rust_files(&root().join("crates/verify/src"), &mut files);
    let writes = |file: &&PathBuf| {
        let text = read(file);
        let calls = ["PostParams", "PatchParams", "DeleteParams", "EvictParams", ".entry_mut("];
        calls.iter().any(|call| text.contains(call))
    };
    let wrong: Vec<_> = files.iter().filter(writes).collect();
    let own = root().join("crates/verify/src/server/cluster/certificate");
    assert!(!wrong.is_empty(), "the certificate is written somewhere");
    assert!(wrong.iter().all(|file| file.starts_with(&own)), "{wrong:?}");
}

/// Follows `mod` declarations from a crate root and collects every file they include.
fn follow(file: &Path, dir: &Path, seen: &mut BTreeSet<PathBuf>) {
    if !seen.insert(file.to_owned()) {
        return;
    }
    let parsed = syn::parse_file(&read(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    follow_items(&parsed.items, file, dir, seen);
}

fn follow_items(items: &[syn::Item], file: &Path, dir: &Path, seen: &mut BTreeSet<PathBuf>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        if let Some((_, inner)) = &module.content {
            follow_items(inner, file, &dir.join(&name), seen);
            continue;
        }
        let given = module.attrs.iter().find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => {
                    Some(plain(&file.parent().expect("a file has a folder").join(path.value())))
                }
                _ => None,
            },
            _ => None,
        });
        let flat = dir.join(format!("{name}.rs"));
        let nested = dir.join(&name).join("mod.rs");
        match given {
            Some(path) => follow(&path, path.parent().expect("a file has a folder"), seen),
            None if flat.exists() => follow(&flat, &dir.join(&name), seen),
            None => follow(&nested, &dir.join(&name), seen),
        }
    }
}

/// The same file by its shortest name, so that it is the one that a listing of its folder has.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => assert!(plain.pop(), "{}", path.display()),
            part => plain.push(part),
        }
    }
    plain
}

fn rust_files(dir: &Path, out: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let entry = entry.expect("the folder can be listed");
        let path = entry.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        // Links are not followed: fixtures have some that lead nowhere or in circles.
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && name != "target"
            && !name.starts_with('.')
        {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.insert(path);
        }
    }
}

#[test]
fn every_source_file_is_part_of_a_target() {
    let metadata = metadata();
    let members = array(&metadata, "workspace_members");
    let mut linked = BTreeSet::new();
    for package in array(&metadata, "packages").iter().filter(|p| members.contains(&p["id"])) {
        for target in array(package, "targets") {
            let file = PathBuf::from(text(target, "src_path"));
            let dir = file.parent().expect("a file has a folder").to_owned();
            follow(&file, &dir, &mut linked);
        }
    }
    // The fuzz crate is a workspace of its own; its targets are named one by one.
    let fuzz = root().join("fuzz");
    for line in read(&fuzz.join("Cargo.toml")).lines() {
        if let Some(path) = line.strip_prefix("path = ") {
            let file = fuzz.join(path.trim_matches('"'));
            let dir = file.parent().expect("a file has a folder").to_owned();
            follow(&file, &dir, &mut linked);
        }
    }
    let mut written = BTreeSet::new();
    rust_files(&root(), &mut written);
    let orphans: Vec<_> = written
        .iter()
        .filter(|file| !linked.contains(*file))
        .filter(|file| !made_by_hand(file))
        .collect();
    assert!(orphans.is_empty(), "no module includes these files: {orphans:#?}");
}

/// A program of an example that is no crate: its README says how it is made, by the file's name.
fn made_by_hand(file: &Path) -> bool {
    let dir = file.parent().expect("a file has a folder");
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let example =
        dir.parent() == Some(&root().join("examples")) && !dir.join("Cargo.toml").exists();
    example && read(&dir.join("README.md")).lines().any(|line| line.ends_with(&format!(" {name}")))
}

/// Every `fn` in the repository that carries a test attribute.
fn tests_by_name() -> BTreeSet<String> {
    fn collect(items: &[syn::Item], names: &mut BTreeSet<String>) {
        for item in items {
            match item {
                syn::Item::Fn(function) => {
                    let is = |word: &str| {
                        let mut paths = function.attrs.iter().map(|one| one.path());
                        paths.any(|path| path.segments.last().is_some_and(|s| s.ident == word))
                    };
                    // What nobody runs holds nothing.
                    if is("test") && !is("ignore") {
                        names.insert(function.sig.ident.to_string());
                    }
                }
                syn::Item::Mod(module) => {
                    if let Some((_, inner)) = &module.content {
                        collect(inner, names);
                    }
                }
                // proptest! { #[test] fn name(..) { .. } }: the macro hides the item.
                syn::Item::Macro(call)
                    if call.mac.path.segments.last().is_some_and(|s| s.ident == "proptest") =>
                {
                    let body = call.mac.tokens.to_string();
                    names.extend(body.split("fn ").skip(1).map(|rest| {
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
                    }));
                }
                _ => {}
            }
        }
    }
    let mut files = BTreeSet::new();
    rust_files(&root(), &mut files);
    let mut names = BTreeSet::new();
    for file in &files {
        collect(&syn::parse_file(&read(file)).expect("the workspace compiles").items, &mut names);
    }
    names
}

/// Rows of a paper's tables that begin with `| X1`: how many there are, and which of them name, in the last of their cells, no
/// test or one that does not exist.
fn rows_held(paper: &str, letter: char, cells: usize) -> (usize, Vec<String>) {
    let tests = tests_by_name();
    let mut numbers = BTreeSet::new();
    let mut wrong = Vec::new();
    let numbered = |line: &&str| {
        let rest = line.strip_prefix("| ").and_then(|rest| rest.strip_prefix(letter));
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    for line in read(&root().join(paper)).lines().filter(numbered) {
        let found: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(found.len(), cells, "{paper}: {line}");
        let (number, named) = (found[0], found[cells - 1]);
        if !numbers.insert(number.to_owned()) {
            wrong.push(format!("{number} is there twice"));
        }
        let named: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            wrong.push(format!("{number} names no test"));
        }
        for name in named {
            if !tests.contains(name) {
                wrong.push(format!("{number} names {name}, which is no test"));
            }
        }
    }
    (numbers.len(), wrong)
}

#[test]
fn every_promise_names_tests_that_exist() {
    let (promises, wrong) = rows_held("SPEC.md", 'P', 3);
    assert!(promises >= 20, "SPEC.md has lost its promises: {promises} left");
    assert!(wrong.is_empty(), "SPEC.md promises what nothing checks:\n{}", wrong.join("\n"));
}

#[test]
fn every_threat_names_tests_that_exist() {
    let (threats, wrong) = rows_held("docs/threat-model.md", 'T', 4);
    assert!(threats >= 50, "the threat model has lost its threats: {threats} left");
    assert!(wrong.is_empty(), "threats that nothing holds off:\n{}", wrong.join("\n"));
}

/// Words that only make sense on the machine that wrote them.
#[test]
fn no_file_speaks_of_one_machine() {
    let output =
        Command::new("git").arg("ls-files").current_dir(root()).output().expect("git runs");
    // A list that git would not give must not pass for one without faults.
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let home = format!("{}root/", '/');
    let bench = format!("{}work/", '/');
    let mut wrong = Vec::new();
    for name in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(content) = std::fs::read_to_string(root().join(name)) else { continue };
        for (number, line) in content.lines().enumerate() {
            if line.contains(&home) || line.contains(&bench) {
                wrong.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "paths of a machine:\n{}", wrong.join("\n"));
}
