//! Dashboard, alerts and guides ask for what is counted, by names and labels that exist; and what is counted is drawn.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::promql::{self, Matcher};
use super::{page, papers, read};

const DASHBOARD: &str = "deploy/monitoring/dashboard.json";
/// For the Prometheus operator, and for a Prometheus that reads files.
const ALERTS: [&str; 2] = ["deploy/monitoring/alerts.yaml", "deploy/monitoring/alerts.rules.yaml"];
/// For promtool, which need not be here.
const CASES: &str = "deploy/monitoring/alerts.test.yaml";
const GUIDE: &str = "docs/operations.md";

/// Labels that whoever scrapes adds.
const SCRAPED: [&str; 4] = ["instance", "job", "namespace", "pod"];

/// What names of our metrics begin with; other words of this kind are names of modules.
const BEGINNINGS: [&str; 6] = [
    "portolan_agent_",
    "portolan_controller_",
    "portolan_shim_",
    "portolan_verifier_",
    "build_build",
    "ratify_",
];

#[derive(Debug)]
struct Metric {
    kind: String,
    /// Each with its values, as far as there is a list of them.
    labels: BTreeMap<String, Vec<String>>,
}

/// What is in code marks.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Every metric of the checked-in reference, which tests hold to the programs.
fn counted() -> BTreeMap<String, Metric> {
    let mut all = BTreeMap::new();
    for program in ["portolan-agent", "portolan-controller", "portolan-verifier"] {
        let text = read(&format!("docs/reference/metrics/{program}.md"));
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let labels = cells[2].split("; ").filter_map(|label| {
                let values = label.split_once(" = ").map_or("", |(_, values)| values);
                let values = values.split(", ").filter(|value| !value.is_empty());
                Some((codes(label).next()?.to_owned(), values.map(str::to_owned).collect()))
            });
            let labels = labels.collect();
            let name = codes(cells[0]).next().expect("a name").to_owned();
            all.insert(name, Metric { kind: cells[1].to_owned(), labels });
        }
    }
    assert!(all.len() > 40, "{all:?}");
    all
}

/// The metric that a series belongs to, and whether it is one of a histogram's buckets.
fn metric_of<'a>(all: &'a BTreeMap<String, Metric>, series: &str) -> Option<(&'a str, bool)> {
    let whole = all.get_key_value(series).filter(|(_, metric)| metric.kind != "histogram");
    let parts = ["_bucket", "_count", "_sum"].into_iter().filter_map(|ending| {
        let (name, metric) = all.get_key_value(series.strip_suffix(ending)?)?;
        (metric.kind == "histogram").then_some((name.as_str(), ending == "_bucket"))
    });
    whole.map(|(name, _)| (name.as_str(), false)).into_iter().chain(parts).next()
}

/// A label, or a value of it, that a metric does not have.
fn stranger(metric: &Metric, matcher: &Matcher) -> Option<String> {
    if SCRAPED.contains(&matcher.label.as_str()) {
        return None;
    }
    let Some(known) = metric.labels.get(&matcher.label) else {
        return Some(format!("label {}", matcher.label));
    };
    // A pattern is words beside each other; anything finer is not looked at.
    let pattern = matcher.operator.ends_with('~');
    let wanted: Vec<&str> = match pattern {
        true => matcher.value.split('|').collect(),
        false => vec![&matcher.value],
    };
    let strange = wanted.into_iter().find(|word| !known.iter().any(|value| value == word));
    strange.filter(|_| !known.is_empty()).map(|word| format!("{}={word}", matcher.label))
}

/// What is wrong with a query; the metrics that it asks for are noted.
fn faults(all: &BTreeMap<String, Metric>, query: &str, used: &mut BTreeSet<String>) -> Vec<String> {
    // What Grafana writes in place of its own names: a time, and a pattern.
    let plain = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
    let asked = match promql::read(&plain) {
        Ok(asked) => asked,
        Err(error) => return vec![format!("{query}: {error}")],
    };
    let (mut wrong, mut labels) = (Vec::new(), BTreeSet::from(SCRAPED.map(str::to_owned)));
    for (series, matched) in &asked.series {
        let Some((name, bucket)) = metric_of(all, series) else {
            // Prometheus' own.
            if series != "up" {
                wrong.push(format!("{query}: nothing counts {series}"));
            }
            continue;
        };
        used.insert(name.to_owned());
        let matched = matched.iter().filter(|matcher| !(bucket && matcher.label == "le"));
        let strange = matched.filter_map(|matcher| stranger(&all[name], matcher));
        wrong.extend(strange.map(|what| format!("{query}: {series} has no {what}")));
        labels.extend(all[name].labels.keys().cloned());
        labels.extend(bucket.then(|| "le".to_owned()));
    }
    let unknown = asked.grouped.iter().filter(|label| !labels.contains(*label));
    wrong.extend(unknown.map(|label| format!("{query}: nothing there has a label {label}")));
    wrong
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// All panels, those in rows too.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let flat = list(&dashboard["panels"]);
    flat.flat_map(|panel| std::iter::once(panel).chain(list(&panel["panels"]))).collect()
}

#[test]
fn every_query_of_the_dashboard_asks_for_what_is_counted_and_all_of_it_is_drawn() {
    let (all, mut used, mut wrong) = (counted(), BTreeSet::new(), Vec::new());
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let variables: Vec<&str> =
        list(&dashboard["templating"]["list"]).filter_map(|one| one["name"].as_str()).collect();
    for panel in panels(&dashboard) {
        for target in list(&panel["targets"]) {
            let query = target["expr"].as_str().expect("a query");
            wrong.extend(faults(&all, query, &mut used));
            // A variable that nobody declared would be sent to Prometheus as it stands.
            let names = query.split('$').skip(1).map(|rest| {
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .next()
                    .unwrap_or_default()
            });
            let unknown = names.filter(|name| !name.starts_with("__") && !variables.contains(name));
            wrong.extend(unknown.map(|name| format!("{query}: no variable {name}")));
        }
    }
    let forgotten = all.keys().filter(|name| !used.contains(*name));
    wrong.extend(forgotten.map(|name| format!("no panel shows {name}")));
    assert!(wrong.is_empty(), "{DASHBOARD}:\n{}", wrong.join("\n"));
}

/// What Grafana needs to take a dashboard, as far as that can be told without one.
#[test]
fn the_dashboard_has_what_grafana_asks_for() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    for key in ["title", "uid"] {
        assert!(dashboard[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    // An id of its own is what a Grafana gives to it.
    assert!(dashboard["id"].is_null());
    let all = panels(&dashboard);
    let ids: BTreeSet<u64> = all.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), all.len(), "every panel has an id of its own");
    let place =
        |panel: &Value| ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
    for (n, panel) in all.iter().enumerate() {
        let title = panel["title"].as_str().unwrap();
        let [x, y, w, h] = place(panel);
        assert!(x + w <= 24 && w > 0 && h > 0, "{title} is wider than the board");
        for other in &all[n + 1..] {
            let [ox, oy, ow, oh] = place(other);
            let apart = x + w <= ox || ox + ow <= x || y + h <= oy || oy + oh <= y;
            assert!(apart, "{title} and {} lie on each other", other["title"]);
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let refs: BTreeSet<&str> =
            list(&panel["targets"]).map(|target| target["refId"].as_str().unwrap()).collect();
        assert!(!refs.is_empty() && refs.len() == list(&panel["targets"]).count(), "{title}");
    }
}

fn groups(file: &str) -> Value {
    let whole: Value = serde_yaml_ng::from_str(&read(file)).unwrap();
    if whole["kind"] == "PrometheusRule" {
        assert_eq!(whole["apiVersion"], "monitoring.coreos.com/v1");
        return whole["spec"]["groups"].clone();
    }
    whole["groups"].clone()
}

#[test]
fn every_alert_asks_for_what_is_counted_and_is_in_the_guide() {
    let [operator, plain] = ALERTS.map(groups);
    assert_eq!(operator, plain, "both forms say the same");
    let (all, mut used, mut wrong) = (counted(), BTreeSet::new(), Vec::new());
    let guide = read(GUIDE);
    let mut names = BTreeSet::new();
    for rule in list(&plain).flat_map(|group| list(&group["rules"])) {
        let name = rule["alert"].as_str().expect("an alert");
        assert!(names.insert(name.to_owned()), "{name} twice");
        wrong.extend(faults(&all, rule["expr"].as_str().unwrap(), &mut used));
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        for text in ["summary", "description"] {
            assert!(
                rule["annotations"][text].as_str().is_some_and(|text| text.len() > 10),
                "{name}"
            );
        }
        let row = format!("| `{name}` | {severity} |");
        if !guide.contains(&row) {
            wrong.push(format!("{GUIDE} has no row {row}"));
        }
    }
    assert!(names.len() >= 10, "{names:?}");
    let told = guide.lines().filter_map(|line| line.strip_prefix("| `Portolan")?.split_once('`'));
    for (rest, _) in told {
        if !names.contains(&format!("Portolan{rest}")) {
            wrong.push(format!("{GUIDE} tells of Portolan{rest}, which is no alert"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let cases: Value = serde_yaml_ng::from_str(&read(CASES)).unwrap();
    assert_eq!(cases["rule_files"][0], "alerts.rules.yaml");
    let (all, mut wrong) = (counted(), Vec::new());
    let mut seen: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for case in list(&cases["tests"]) {
        for one in list(&case["alert_rule_test"]) {
            let fires = list(&one["exp_alerts"]).next().is_some();
            seen.entry(one["alertname"].as_str().unwrap()).or_default().insert(fires);
        }
        // What is played must be what could be counted.
        for series in list(&case["input_series"]) {
            let played = series["series"].as_str().unwrap();
            wrong.extend(faults(&all, played, &mut BTreeSet::new()));
        }
    }
    let rules = groups(ALERTS[1]);
    for rule in list(&rules).flat_map(|group| list(&group["rules"])) {
        let name = rule["alert"].as_str().unwrap();
        if seen.get(name).is_none_or(|both| both.len() != 2) {
            wrong.push(format!("{name} lacks a case"));
        }
    }
    assert!(wrong.is_empty(), "{CASES}:\n{}", wrong.join("\n"));
}

/// Words in papers that look like a metric of ours are one.
#[test]
fn papers_name_no_metric_that_nothing_counts() {
    let (all, mut wrong, mut seen) = (counted(), Vec::new(), 0);
    for name in papers() {
        for (number, line) in read(&name).lines().enumerate() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| BEGINNINGS.iter().any(|start| word.starts_with(start)))
            {
                seen += 1;
                // As they are named in code, too: a counter without its ending.
                let known = metric_of(&all, word).is_some()
                    || all.contains_key(word)
                    || all.contains_key(&format!("{word}_total"));
                // The page of a command that begins alike.
                let page = line.contains(&format!("{word}.md"));
                if !known && !page {
                    wrong.push(format!("{name}:{}: {word}", number + 1));
                }
            }
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(wrong.is_empty(), "nothing counts these:\n{}", wrong.join("\n"));
}

/// Each check is seen red.
#[test]
fn wrong_queries_are_found() {
    let all = counted();
    let name = "portolan_agent_cache_evictions_total";
    let histogram = "portolan_agent_image_pull_duration_seconds";
    for query in [
        "rate(portolan_agent_no_such_thing_total[5m])".to_owned(),
        format!("rate({name}[5m)"),
        format!("rate({name}{{reason=\"x\"}}[5m])"),
        format!("rate({name}{{kind=~\"blob|no_such_kind\"}}[5m])"),
        format!("sum by (result) (rate({name}[5m]))"),
        histogram.to_owned(),
        format!("{name}_bucket"),
    ] {
        assert!(!faults(&all, &query, &mut BTreeSet::new()).is_empty(), "{query}");
    }
    let right = format!(
        "histogram_quantile(0.9, sum by (le, instance) (rate({histogram}_bucket[$__rate_interval])))"
    );
    assert_eq!(faults(&all, &right, &mut BTreeSet::new()), Vec::<String>::new());
    assert!(page::root().join(DASHBOARD).exists());
}
