//! Every link in a Markdown file leads to a file, and to a heading where it names one; every path of the repository
//! that is named in code marks is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::page::root;
use super::{papers, read};

/// The text without blocks of code; lines keep their numbers.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    let lines = text.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        let code = fenced || fence;
        fenced ^= fence;
        if code { String::new() } else { line.to_owned() }
    });
    lines.collect()
}

/// A line without what is in code marks, and what is in them.
fn apart(line: &str) -> (String, Vec<&str>) {
    let parts: Vec<&str> = line.split('`').collect();
    let text: Vec<&str> = parts.iter().copied().step_by(2).collect();
    (text.join("``"), parts.into_iter().skip(1).step_by(2).collect())
}

/// Where `[text](target)`, `[name]: target` and `src="target"` lead.
fn targets(line: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (start, end) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
        let pieces = line.split(start).skip(1);
        found.extend(pieces.filter_map(|rest| Some(rest.split_once(end)?.0.to_owned())));
    }
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    found.extend(named.map(|(_, target)| target.trim().to_owned()));
    found
}

/// What a heading is called in a link, as forges make it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The names of all headings; one that is there again has a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let lines = prose(text);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    let named = headings.map(|line| {
        let slug = slug(line.trim_start_matches('#'));
        let times = seen.entry(slug.clone()).or_default();
        *times += 1;
        if *times == 1 { slug } else { format!("{slug}-{}", *times - 1) }
    });
    named.collect()
}

/// The path that a link means, by its shortest name; none where it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<PathBuf> {
    let mut path = Path::new(from).parent()?.to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

fn fault(from: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(PathBuf::from(from)) } else { resolve(from, file) };
    let Some(path) = path.filter(|path| root().join(path).exists()) else {
        return Some("no such file");
    };
    if anchor.is_empty() {
        return None;
    }
    let known = path.extension().is_some_and(|ending| ending == "md")
        && anchors(&read(&path.to_string_lossy())).contains(anchor);
    (!known).then_some("no such heading")
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for name in papers() {
        for (number, line) in prose(&read(&name)).iter().enumerate() {
            for target in targets(&apart(line).0) {
                seen += 1;
                if let Some(why) = fault(&name, &target) {
                    wrong.push(format!("{name}:{}: {target}: {why}", number + 1));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} links were found");
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn links_and_headings_are_read_as_forges_read_them() {
    assert_eq!(slug(" What it *may* do: `x.y` and 3 more"), "what-it-may-do-xy-and-3-more");
    let text = "# A b\n```\n# no\n```\n## A b\n[x](#a-b-1) `[no](no)` [y](z.md)";
    assert_eq!(anchors(text), BTreeSet::from(["a-b".to_owned(), "a-b-1".to_owned()]));
    let last = text.lines().last().unwrap();
    assert_eq!(targets(&apart(last).0), ["#a-b-1", "z.md"]);
    assert_eq!(resolve("docs/a.md", "../x.md"), Some("x.md".into()));
    assert_eq!(resolve("docs/a.md", "../../x.md"), None);
    assert!(fault("README.md", "docs/nothing.md").is_some());
    assert!(fault("README.md", "docs/agent.md#no-such-heading").is_some());
    assert!(fault("README.md", "docs/agent.md#metrics").is_none());
}

/// The first folders of paths that papers name.
const FOLDERS: [&str; 7] =
    ["crates/", "deploy/", "docs/", "examples/", "fixtures/", "fuzz/", "xtask/"];

/// Whether it is written as a path that is meant literally.
fn is_path(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    FOLDERS.iter().any(|folder| word.starts_with(folder))
        && word.chars().all(plain)
        // Decisions and others say NNNN for a number.
        && !word.contains("NNNN")
}

#[test]
fn every_path_that_papers_name_is_there() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    // What was is told in the past tense.
    for name in papers().into_iter().filter(|name| name != "CHANGELOG.md") {
        for (number, line) in prose(&read(&name)).iter().enumerate() {
            for word in apart(line).1.into_iter().filter(|word| is_path(word)) {
                seen += 1;
                if !root().join(word).exists() {
                    wrong.push(format!("{name}:{}: {word}", number + 1));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} paths were found");
    assert!(wrong.is_empty(), "paths that are not there:\n{}", wrong.join("\n"));
}
