//! Custom resource definitions: there, ours, and of this version?

use portolan_api::definitions::{self, Definition};
use portolan_api::upgrade::{self, Standing};
use serde_json::Value;

use super::super::finding::{Finding, missing, ok, wrong};
use super::{Facts, each, programs, text};

const CHECK: &str = "definitions";
const APPLY: &str = "portolan install --crds-only | kubectl apply --server-side -f -";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let there = match facts.definitions.items(CHECK) {
        Ok(there) => there,
        Err(finding) => return vec![finding],
    };
    let served = programs::served(facts);
    let mut findings = Vec::new();
    let (mut current, mut absent) = (0, Vec::new());
    for definition in definitions::all() {
        let name = text(&definition.value, "/metadata/name");
        let found = there.iter().find(|one| text(one, "/metadata/name") == name);
        match judge(definition, name, found) {
            Judged::Current => current += 1,
            Judged::Missing if is_needed(definition, &served) => findings.push(wrong(
                CHECK,
                format!("{name} is not there, and the controller is to serve it"),
                APPLY,
            )),
            Judged::Missing => absent.push(definition.kind()),
            Judged::Wrong(finding) => findings.push(finding),
        }
    }
    if current > 0 {
        findings.insert(0, ok(CHECK, format!("{current} are those of this version")));
    }
    if !absent.is_empty() {
        let found = format!("{} are not installed", absent.join(", "));
        findings.push(missing(
            CHECK,
            found,
            "portolan install --components …, old and new, where they are wanted",
        ));
    }
    findings
}

enum Judged {
    Current,
    Missing,
    Wrong(Finding),
}

fn judge(definition: &Definition, name: &str, there: Option<&Value>) -> Judged {
    let Some(there) = there else { return Judged::Missing };
    let is = |kind: &str| {
        each(there, "/status/conditions").any(|one| one["type"] == kind && one["status"] == "True")
    };
    if text(there, "/spec/conversion/strategy") == "Webhook" {
        let found = format!("{name} is converted by somebody else's webhook");
        let advice = "docs/controller.md, \"From upstream's controller\", says how to take over";
        return Judged::Wrong(wrong(CHECK, found, advice));
    }
    if !is("Established") {
        let found = format!("{name} is not taken by the cluster");
        let advice = format!("kubectl describe crd {name}");
        return Judged::Wrong(wrong(CHECK, found, advice));
    }
    match upgrade::standing(Some(there), &definition.value) {
        Standing::Missing => Judged::Missing,
        Standing::Current => Judged::Current,
        Standing::Older => {
            let found =
                format!("{name} is older than this portolan; nothing is lost by a newer one");
            Judged::Wrong(wrong(CHECK, found, APPLY))
        }
        Standing::Loses(changes) => {
            let first = changes.first();
            let first = first.map(|one| format!("{}: {}", one.at, one.what)).unwrap_or_default();
            let found = format!(
                "{name} is another or newer one; with ours {} would be lost, first {first}",
                changes.len()
            );
            let advice = "use the portolan of the cluster's version, or look at `portolan crds` before you apply it";
            Judged::Wrong(wrong(CHECK, found, advice))
        }
    }
}

/// Whether a controller that is there would be told to serve it.
fn is_needed(definition: &Definition, served: &[String]) -> bool {
    let word = match definition.group() {
        "shipwright.io" => "builds",
        "runtime.spinkube.dev" => "shims",
        "portolan.dev" => "releases",
        _ => return false,
    };
    served.iter().any(|one| one == word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Asked;
    use super::*;
    use crate::doctor::finding::State;

    fn installed() -> Vec<Value> {
        let all = definitions::all().into_iter().map(|one| one.value.clone());
        all.map(|mut one| {
            one["status"] = json!({
                "conditions": [{"type": "Established", "status": "True"}],
                "storedVersions": [one["spec"]["versions"][0]["name"]],
            });
            one
        })
        .collect()
    }

    fn of(definitions: Vec<Value>) -> Vec<Finding> {
        check(&Facts { definitions: Asked::Is(definitions), ..super::super::facts() })
    }

    #[test]
    fn definitions_are_current_older_foreign_or_not_taken() {
        assert_eq!(of(installed()).iter().map(|one| one.state).collect::<Vec<_>>(), [State::Ok]);
        assert_eq!(of(vec![])[0].state, State::Missing, "nothing of ours is there");
        let schema = |one: &mut Value| {
            one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].take()
        };
        type Change = Box<dyn Fn(&mut Value)>;
        let cases: [(Change, &str); 4] = [
            (Box::new(|one: &mut Value| one["status"]["conditions"] = json!([])), "not taken"),
            (
                Box::new(|one: &mut Value| {
                    one["spec"]["conversion"] = json!({"strategy": "Webhook"})
                }),
                "webhook",
            ),
            (
                Box::new(|one: &mut Value| {
                    one["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
                }),
                "older",
            ),
            (
                Box::new(move |one: &mut Value| {
                    let mut spec = schema(one);
                    spec["properties"]["theirs"] = json!({"type": "string"});
                    one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
                        spec;
                }),
                ".spec.theirs",
            ),
        ];
        for (change, word) in cases {
            let mut all = installed();
            change(&mut all[0]);
            let found = of(all);
            let wrong: Vec<_> = found.iter().filter(|one| one.state == State::Wrong).collect();
            assert_eq!(wrong.len(), 1, "{found:?}");
            assert!(wrong[0].found.contains(word), "{found:?}");
        }
    }

    #[test]
    fn what_cannot_be_listed_is_not_guessed() {
        let definitions = Asked::Denied("no".to_owned());
        let found = check(&Facts { definitions, ..super::super::facts() });
        assert_eq!((found.len(), found[0].state), (1, State::Unknown));
    }
}
