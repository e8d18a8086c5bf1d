//! `docs/reference/README.md`: what there is, from the pages themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::page::{MARK, cell, root, settle};
use super::{crds, read};

/// Folders of the reference, what they hold and how their tables are headed.
const PARTS: [(&str, &str, &str); 3] = [
    ("cli", "Commands", "Every command, from what the programs parse their arguments with."),
    ("crd", "Resources", "Every custom resource, from the definitions in `deploy/crds`."),
    ("metrics", "Metrics", "What the programs count, from what they tell Prometheus."),
];

/// Documents for machines, kept elsewhere by the same rule.
const SCHEMAS: &str = "docs/schemas";

fn files(folder: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Its heading, and the first line below that.
fn summary(text: &str) -> (&str, &str) {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("# "));
    let heading = lines.next().and_then(|line| line.strip_prefix("# ")).expect("a heading");
    (heading, lines.find(|line| !line.is_empty()).unwrap_or_default())
}

/// A text with the words of its links alone: where they lead is told from another folder.
fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (words, after))) =
        rest.split_once('[').and_then(|(before, link)| Some((before, link.split_once("](")?)))
    {
        out.push_str(before);
        out.push_str(words);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out
}

fn render() -> String {
    let mut page = format!(
        "{MARK}# Reference\n\nGenerated from the code: `cargo xtask docs` writes these pages, and tests compare them. \
         The guides are in [docs](..).\n"
    );
    for (folder, heading, about) in PARTS {
        let _ = writeln!(page, "\n## {heading}\n\n{about}\n\n| | |\n|---|---|");
        for name in files(&format!("docs/reference/{folder}")) {
            let text = read(&format!("docs/reference/{folder}/{name}"));
            let (title, first) = summary(&text);
            let _ = writeln!(page, "| [{title}]({folder}/{name}) | {} |", cell(&unlinked(first)));
        }
    }
    page.push_str("\n## Schemas\n\nFor editors and programs; `cargo xtask schemas` writes them.\n\n| | |\n|---|---|\n");
    for name in files(SCHEMAS) {
        let schema: serde_json::Value =
            serde_json::from_str(&read(&format!("{SCHEMAS}/{name}"))).unwrap();
        let titles = [&schema["title"], &schema["info"]["title"]];
        let title = titles.into_iter().find_map(serde_json::Value::as_str).unwrap_or_default();
        let _ = writeln!(page, "| [{name}](../schemas/{name}) | {} |", cell(title));
    }
    page
}

/// Resources first: the index lists what is there.
#[test]
fn the_checked_in_reference_has_every_resource_and_lists_every_page() {
    settle("crd", &crds::pages(), |_| true);
    let index = BTreeMap::from([("README.md".to_owned(), render())]);
    settle("", &index, |name| name.ends_with(".md"));
}
