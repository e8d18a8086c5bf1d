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

/// What this weakness comes to, if it may not be there.
fn finding(rule: &VulnerabilityRule, id: &str, severity: Severity) -> Option<Finding> {
    let shown = || id.chars().take(80).collect::<String>();
    if rule.ids.contains(&id.to_ascii_uppercase()) {
        return Some(Finding(format!("{}, which is denied", shown())));
    }
    let text = || Finding(format!("{} of severity {severity:?}", shown()));
    rule.severities.contains(&severity).then(text)
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
            findings.extend(finding(rule, text(one, "VulnerabilityID"), severity));
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

/// Over all runs.
fn in_sarif(rule: &VulnerabilityRule, sarif: &Value) -> Result<Vec<Finding>, &'static str> {
    let runs = objects(sarif, "runs").filter(|runs| !runs.is_empty());
    let mut findings = Vec::new();
    for run in runs.ok_or("it is neither SARIF with runs nor Trivy's JSON")? {
        let results = objects(run, "results").ok_or("it is no SARIF: a run has no results")?;
        let rules = Rules::of(run);
        for result in results {
            let described = rules.of_result(result);
            let id = match text(result, "ruleId") {
                "" => described.map(|one| text(one, "id")).unwrap_or_default(),
                id => id,
            };
            findings.extend(finding(rule, id, severity(described, result)));
        }
    }
    Ok(findings)
}

/// What the tool of a run says of its rules.
struct Rules<'a> {
    driver: &'a [Value],
    /// The first of each name, the driver's before those of extensions. There may be as many results
    /// as rules, so nobody goes through them for each.
    by_id: HashMap<&'a str, &'a Value>,
}

impl<'a> Rules<'a> {
    fn of(run: &'a Value) -> Self {
        let tool = &run["tool"];
        let driver = list(&tool["driver"], "rules").as_slice();
        let extensions = list(tool, "extensions").flat_map(|one| list(one, "rules"));
        let mut by_id = HashMap::new();
        for one in driver.iter().chain(extensions) {
            by_id.entry(text(one, "id")).or_insert(one);
        }
        Self { driver, by_id }
    }

    /// The rule that a result speaks of: by its place in the tool's list, else by name.
    fn of_result(&self, result: &Value) -> Option<&'a Value> {
        let index =
            [&result["ruleIndex"], &result["rule"]["index"]].into_iter().find_map(Value::as_u64);
        let id = text(result, "ruleId");
        let by_index = index
            .and_then(|n| self.driver.get(usize::try_from(n).ok()?))
            .filter(|one| id.is_empty() || text(one, "id") == id);
        by_index.or_else(|| self.by_id.get(id).copied())
    }
}

/// How bad: the number that GitHub asks for, else the word that Trivy and Grype write into the help,
/// else the level of the result. None of these means a warning, as SARIF says.
fn severity(described: Option<&Value>, result: &Value) -> Severity {
    let own = [Some(result), described];
    let number = own.into_iter().flatten().find_map(|one| {
        let number = &one["properties"]["security-severity"];
        number.as_f64().or_else(|| number.as_str()?.trim().parse().ok())
    });
    if let Some(number) = number {
        return match number {
            n if n >= 9.0 => Severity::Critical,
            n if n >= 7.0 => Severity::High,
            n if n >= 4.0 => Severity::Medium,
            _ => Severity::Low,
        };
    }
    let help = described.map(|one| text(&one["help"], "text")).unwrap_or_default();
    let word = help.split_once("Severity:").map(|(_, rest)| rest.trim_start());
    let word = word.map(|rest| rest.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default());
    match word.map(str::to_ascii_lowercase).as_deref() {
        Some("critical") => return Severity::Critical,
        Some("high") => return Severity::High,
        Some("medium" | "moderate") => return Severity::Medium,
        Some("low" | "negligible") => return Severity::Low,
        _ => {}
    }
    let level = match text(result, "level") {
        "" => described.map(|one| text(&one["defaultConfiguration"], "level")).unwrap_or_default(),
        level => level,
    };
    match level {
        "error" => Severity::High,
        "note" | "none" => Severity::Low,
        _ => Severity::Medium,
    }
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
}
