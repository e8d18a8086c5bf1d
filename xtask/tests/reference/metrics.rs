//! A page of a program's metrics, from what it tells Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::page::{MARK, cell, settle};

#[derive(Default)]
struct Metric {
    kind: String,
    help: String,
    /// Names of labels, each with the values that were seen. Sorted: a program tells them in any order.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Holds the page of a program against the one in `docs/reference/metrics`. `text` must have a sample of every metric;
/// of labels in `open` the values are not told, because there is no list of them.
pub(crate) fn check(program: &str, text: &str, open: &[&str]) {
    let mut page = format!(
        "{MARK}# Metrics of {program}\n\nWhat they are good for is in the [operations guide](../../operations.md).\n\n\
         | metric | type | labels | |\n|---|---|---|---|\n"
    );
    let metrics = read(text);
    assert!(!metrics.is_empty(), "{text}");
    for (name, metric) in &metrics {
        // What is asked for in a query: counters and infos have an ending that their type does not tell.
        let ending = match metric.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels: Vec<String> = metric
            .labels
            .iter()
            .filter(|(label, _)| *label != "le")
            .map(|(label, values)| {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                match open.contains(&label.as_str()) {
                    true => format!("`{label}`"),
                    false => format!("`{label}` = {}", values.join(", ")),
                }
            })
            .collect();
        let help = cell(metric.help.trim_end_matches('.'));
        let _ = writeln!(
            page,
            "| `{name}{ending}` | {} | {} | {help} |",
            metric.kind,
            cell(&labels.join("; "))
        );
    }
    let file = format!("{program}.md");
    settle("metrics", &BTreeMap::from([(file.clone(), page)]), |name| name == file);
}

fn read(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_default().kind = kind.to_owned();
            current = name.to_owned();
        } else if let Some((labels, _)) =
            line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'))
        {
            let metric = metrics.get_mut(&current).expect("a type comes before its samples");
            for (label, value) in pairs(labels) {
                metric.labels.entry(label).or_default().insert(value);
            }
        }
    }
    metrics
}

/// No value here has a quote in it: they are our own words.
fn pairs(labels: &str) -> impl Iterator<Item = (String, String)> {
    labels.split("\",").filter_map(|pair| {
        let (label, value) = pair.split_once("=\"")?;
        Some((label.to_owned(), value.trim_end_matches('"').to_owned()))
    })
}
