//! What a list of weaknesses says: SARIF, which every scanner can write, and Trivy's own JSON, which
//! is what Trivy puts into the predicate that cosign attests (`--format cosign-vuln`).

use std::collections::HashMap;

use serde_json::Value;

use super::documents::{Finding, list, objects, text};
use crate::policy::{Severity, VulnerabilityRule};

/// Of Trivy's JSON, since 2021.
const TRIVY_SCHEMA: u64 = 2;

/// What a list of weaknesses has that it may not; or why it is none.
pub fn findings_in_weaknesses(
    rule: &VulnerabilityRule,
    listed: &Value,
) -> Result<Vec<Finding>, &'static str> {
    match (listed.get("runs"), &listed["SchemaVersion"]) {
        (None, Value::Number(version)) if version.as_u64() == Some(TRIVY_SCHEMA) => {
            in_trivy(rule, listed)
        }
        (None, Value::Number(_)) => Err("it is Trivy's JSON of another version than 2"),
        _ => in_sarif(rule, listed),
    }
}

/// What the weakness with these names comes to, if it may not be there. One without a name might be
/// any that is denied.
fn finding(
    rule: &VulnerabilityRule,
    names: &[&str],
    severity: Severity,
) -> Result<Option<Finding>, &'static str> {
    let first = names.first().ok_or("a weakness has no name")?;
    let shown = |name: &str| name.chars().take(80).collect::<String>();
    if let Some(denied) = names.iter().find(|name| rule.ids.contains(&name.to_ascii_uppercase())) {
        return Ok(Some(Finding(format!("{}, which is denied", shown(denied)))));
    }
    let text = || Finding(format!("{} of severity {severity:?}", shown(first)));
    Ok(rule.severities.contains(&severity).then(text))
}

/// Trivy leaves out what is empty: an image of which it knows nothing has no results at all, and a
/// part without weaknesses has no list of them.
fn in_trivy(rule: &VulnerabilityRule, report: &Value) -> Result<Vec<Finding>, &'static str> {
    let mut findings = Vec::new();
    for result in or_none(report, "Results").ok_or("Trivy's results are no list")? {
        let all = or_none(result, "Vulnerabilities");
        for one in all.ok_or("Trivy's weaknesses are no list")? {
            let severity = match text(one, "Severity").to_ascii_uppercase().as_str() {
                "CRITICAL" => Severity::Critical,
                "HIGH" => Severity::High,
                "LOW" => Severity::Low,
                // UNKNOWN too: as one in SARIF of which nothing is said.
                _ => Severity::Medium,
            };
            let id = text(one, "VulnerabilityID");
            let names = if id.is_empty() { &[][..] } else { &[id] };
            findings.extend(finding(rule, names, severity)?);
        }
    }
    Ok(findings)
}

/// A list of objects, also where it is left out; none where it is something else.
fn or_none<'a>(of: &'a Value, key: &str) -> Option<&'a [Value]> {
    match of.get(key) {
        None | Some(Value::Null) => Some(&[]),
        Some(_) => objects(of, key),
    }
}

/// Over all runs. A weakness has every name that its result or its rule gives it, and is denied by any.
fn in_sarif(rule: &VulnerabilityRule, sarif: &Value) -> Result<Vec<Finding>, &'static str> {
    let runs = objects(sarif, "runs").filter(|runs| !runs.is_empty());
    let mut findings = Vec::new();
    for run in runs.ok_or("it is neither SARIF with runs nor Trivy's JSON")? {
        let results = objects(run, "results").ok_or("it is no SARIF: a run has no results")?;
        let rules = Rules::of(run);
        for result in results {
            let described = rules.of_result(result);
            let own = [text(result, "ruleId"), text(&result["rule"], "id")];
            let names = own.into_iter().chain(described.map(|one| text(one, "id")));
            let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
            findings.extend(finding(rule, &names, severity(described, result)?)?);
        }
    }
    Ok(findings)
}

/// What the tool of a run says of its rules.
struct Rules<'a> {
    driver: &'a Value,
    extensions: &'a [Value],
    /// The first of each name, the driver's before those of extensions. There may be as many results
    /// as rules, so nobody goes through them for each.
    by_id: HashMap<&'a str, &'a Value>,
}

impl<'a> Rules<'a> {
    fn of(run: &'a Value) -> Self {
        let tool = &run["tool"];
        let driver = &tool["driver"];
        let extensions = list(tool, "extensions").as_slice();
        let mut by_id = HashMap::new();
        let all = std::iter::once(driver).chain(extensions);
        for one in all.flat_map(|component| list(component, "rules")) {
            by_id.entry(text(one, "id")).or_insert(one);
        }
        Self { driver, extensions, by_id }
    }

    /// The rule that a result speaks of: by its place in the list of the part of the tool that it
    /// names, which without a name is the driver, else by name.
    fn of_result(&self, result: &Value) -> Option<&'a Value> {
        let own = &result["rule"];
        let index = [&result["ruleIndex"], &own["index"]].into_iter().find_map(place);
        let id = [text(result, "ruleId"), text(own, "id")].into_iter().find(|id| !id.is_empty());
        let by_index = index
            .and_then(|n| list(self.component(&own["toolComponent"])?, "rules").as_slice().get(n))
            .filter(|one| id.is_none_or(|id| text(one, "id") == id));
        by_index.or_else(|| self.by_id.get(id?).copied())
    }

    /// A part of the tool, by its place among the extensions, its guid or its name.
    fn component(&self, named: &Value) -> Option<&'a Value> {
        if named.is_null() {
            return Some(self.driver);
        }
        if let Some(n) = place(&named["index"]) {
            return self.extensions.get(n);
        }
        let key = ["guid", "name"].into_iter().find(|key| !text(named, key).is_empty())?;
        let mut all = std::iter::once(self.driver).chain(self.extensions);
        all.find(|one| text(one, key) == text(named, key))
    }
}

/// A place in a list; SARIF writes -1 for none.
fn place(index: &Value) -> Option<usize> {
    index.as_u64().and_then(|n| usize::try_from(n).ok())
}

/// How bad: the number that GitHub asks for, else the word that Trivy and Grype write into the help,
/// else the level of the result. None of these means a warning, as SARIF says.
fn severity(described: Option<&Value>, result: &Value) -> Result<Severity, &'static str> {
    for one in [Some(result), described].into_iter().flatten() {
        if let Some(number) = number(&one["properties"]["security-severity"])? {
            return Ok(match number {
                n if n >= 9.0 => Severity::Critical,
                n if n >= 7.0 => Severity::High,
                n if n >= 4.0 => Severity::Medium,
                _ => Severity::Low,
            });
        }
    }
    let help = described.map(|one| text(&one["help"], "text")).unwrap_or_default();
    let word = help.split_once("Severity:").map(|(_, rest)| rest.trim_start());
    let word = word.map(|rest| rest.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default());
    match word.map(str::to_ascii_lowercase).as_deref() {
        Some("critical") => return Ok(Severity::Critical),
        Some("high") => return Ok(Severity::High),
        Some("medium" | "moderate") => return Ok(Severity::Medium),
        Some("low" | "negligible") => return Ok(Severity::Low),
        _ => {}
    }
    let level = match text(result, "level") {
        "" => described.map(|one| text(&one["defaultConfiguration"], "level")).unwrap_or_default(),
        level => level,
    };
    Ok(match level {
        "error" => Severity::High,
        "note" | "none" => Severity::Low,
        _ => Severity::Medium,
    })
}

/// A score, where there is one. What is there and is none (`NaN` is not less than 4) is not judged.
fn number(score: &Value) -> Result<Option<f64>, &'static str> {
    let number = match score {
        Value::Null => return Ok(None),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    let fits = number.filter(|number| (0.0..=10.0).contains(number));
    fits.map(Some).ok_or("a security-severity is no number from 0 to 10")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(severities: &[Severity], ids: &[&str]) -> VulnerabilityRule {
        VulnerabilityRule {
            severities: severities.to_vec(),
            ids: ids.iter().map(|&id| id.to_owned()).collect(),
            maximum_age: None,
            allow_unsigned: false,
        }
    }

    fn trivy(severities: &[&str]) -> Value {
        let one = |(n, severity): (usize, &&str)| json!({"VulnerabilityID": format!("CVE-2026-000{n}"), "PkgName": "musl", "Severity": severity});
        let all: Vec<_> = severities.iter().enumerate().map(one).collect();
        json!({"SchemaVersion": 2, "ArtifactName": "hello", "Results": [
            {"Target": "app", "Class": "lang-pkgs"},
            {"Target": "hello", "Class": "os-pkgs", "Vulnerabilities": all},
        ]})
    }

    #[test]
    fn the_json_of_trivy_is_read_as_sarif_is() {
        let found = |rule: &VulnerabilityRule, value: &Value| {
            let found = findings_in_weaknesses(rule, value).unwrap();
            found.into_iter().map(|one| one.0).collect::<Vec<_>>()
        };
        let grave = rule(&[Severity::Critical, Severity::High], &[]);
        let report = trivy(&["CRITICAL", "HIGH", "MEDIUM", "LOW", "UNKNOWN"]);
        let expected = ["CVE-2026-0000 of severity Critical", "CVE-2026-0001 of severity High"];
        assert_eq!(found(&grave, &report), expected);
        let middle = rule(&[Severity::Medium], &[]);
        let expected = ["CVE-2026-0002 of severity Medium", "CVE-2026-0004 of severity Medium"];
        assert_eq!(found(&middle, &report), expected);
        let denied = rule(&[], &["CVE-2026-0003"]);
        assert_eq!(found(&denied, &report), ["CVE-2026-0003, which is denied"]);
        for clean in [json!({"SchemaVersion": 2}), json!({"SchemaVersion": 2, "Results": null})] {
            assert_eq!(found(&grave, &clean), Vec::<String>::new());
        }
    }

    #[test]
    fn what_is_no_list_of_weaknesses_is_told_and_not_taken_for_a_clean_one() {
        let all = rule(&[Severity::Critical], &[]);
        for (value, part) in [
            (json!({}), "neither SARIF with runs nor"),
            (json!({"runs": []}), "neither SARIF with runs nor"),
            (json!({"Results": []}), "neither SARIF with runs nor"),
            (json!({"SchemaVersion": "2", "Results": []}), "neither SARIF with runs nor"),
            (json!({"SchemaVersion": 1, "Results": []}), "another version"),
            (json!({"SchemaVersion": 2, "Results": {}}), "results are no list"),
            (json!({"SchemaVersion": 2, "Results": ["x"]}), "results are no list"),
            (
                json!({"SchemaVersion": 2, "Results": [{"Vulnerabilities": "none"}]}),
                "weaknesses are no list",
            ),
            // Who writes both is read as SARIF.
            (json!({"SchemaVersion": 2, "runs": []}), "neither SARIF with runs nor"),
        ] {
            let error = findings_in_weaknesses(&all, &value).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }

    fn sarif(tool: &Value, results: &Value) -> Value {
        json!({"version": "2.1.0", "runs": [{"tool": tool, "results": results}]})
    }

    /// SARIF says the name of a rule in four places, and any of them may be the only one.
    #[test]
    fn a_weakness_in_sarif_is_found_by_every_name_that_it_may_have() {
        let rules = |id: &str| json!([{"id": "CVE-0"}, {"id": id}]);
        let driver = json!({"name": "scanner", "rules": rules("CVE-1")});
        let extension = json!({"name": "plugin", "guid": "g", "rules": rules("CVE-2")});
        let tool = json!({"driver": driver, "extensions": [{"name": "none"}, extension]});
        let by = |component: Value| json!({"rule": {"index": 1, "toolComponent": component}});
        for (result, denied) in [
            (json!({"ruleId": "CVE-3"}), "CVE-3"),
            (json!({"rule": {"id": "CVE-3"}}), "CVE-3"),
            (json!({"ruleId": "CVE-4", "rule": {"id": "CVE-3"}}), "CVE-3"),
            (json!({"ruleIndex": 1}), "CVE-1"),
            (json!({"rule": {"index": 1}}), "CVE-1"),
            (by(json!({"index": 1})), "CVE-2"),
            (by(json!({"guid": "g", "name": "scanner"})), "CVE-2"),
            (by(json!({"name": "plugin"})), "CVE-2"),
            (by(json!({"name": "scanner", "index": -1})), "CVE-1"),
        ] {
            let rule = rule(&[], &["CVE-1", "CVE-2", "CVE-3"]);
            let found = findings_in_weaknesses(&rule, &sarif(&tool, &json!([result])));
            let expected = vec![Finding(format!("{denied}, which is denied"))];
            assert_eq!(found, Ok(expected), "{result}");
        }
        for unnamed in [
            json!({"level": "note"}),
            json!({"ruleIndex": 7}),
            by(json!({})),
            by(json!({"name": "other"})),
            by(json!({"index": 0})),
        ] {
            let found = findings_in_weaknesses(&rule(&[], &[]), &sarif(&tool, &json!([unnamed])));
            assert_eq!(found, Err("a weakness has no name"), "{unnamed}");
        }
    }

    #[test]
    fn a_score_in_sarif_is_a_number_from_0_to_10_or_nothing_is_judged() {
        let low = rule(&[Severity::Low], &[]);
        let judged = |score: Value| {
            let own = json!({"ruleId": "CVE-1", "properties": {"security-severity": score}});
            let found = findings_in_weaknesses(&low, &sarif(&json!({}), &json!([own])));
            found.map(|found| found.len())
        };
        for (score, is_low) in
            [("0.0", 1), (" 3.9 ", 1), ("-0", 1), ("4", 0), ("10.0", 0), ("", 0), ("1e-3", 1)]
        {
            assert_eq!(judged(json!(score)), Ok(is_low), "{score}");
        }
        assert_eq!(
            (judged(json!(2)), judged(json!(9.1)), judged(json!(null))),
            (Ok(1), Ok(0), Ok(0))
        );
        for score in ["NaN", "nan", "-1", "10.1", "inf", "-inf", "1e400", "low", "9,8"] {
            let error = judged(json!(score)).unwrap_err();
            assert!(error.contains("no number from 0 to 10"), "{score}: {error}");
        }
        assert!(judged(json!([])).is_err() && judged(json!(-3)).is_err());
    }
}
