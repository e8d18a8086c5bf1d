//! What people write, on its way through a real Tekton and a real pod.

use anyhow::{Context as _, Result};
use portolan_e2e::{BuildSite, Controller};
use serde_json::{Value, json};

use crate::objects::{LONG, build, busybox, many, merge, nothing_forbidden, run, two_platforms};

/// Everything that somebody on the way would replace.
const HOSTILE: &str = "$(params.text) $(params['text']) $(context.taskRun.name) $(results.shp-image-digest.path) \
    $(workspaces.source.path) $(tasks.source.results.x) $(HOME) $(SHP_DOLLAR) $$(HOME) 5$ $$";

/// A strategy that says what it was told, and fails.
fn telling() -> Result<Value> {
    let script =
        "printf '%s|%s|%s' \"$0\" \"$1\" \"$HOSTILE\" > $(results.shp-error-message.path); exit 1";
    Ok(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildStrategy", "metadata": {"name": "telling"},
        "spec": {
            "parameters": [
                {"name": "SHP_BUILD_PLATFORM", "description": "the platform", "default": ""},
                {"name": "text", "description": "a text"},
                {"name": "list", "description": "a list", "type": "array", "defaults": []},
            ],
            "steps": [{
                "name": "build", "image": busybox()?, "command": ["sh", "-c", script],
                "args": ["$(params.text)", "$(params.list[*])"],
            }],
        },
    }))
}

#[test]
fn what_people_write_reaches_the_steps_of_a_real_tekton_as_it_is() -> Result<()> {
    let site = BuildSite::new("literal")?;
    let controller = site.lead(busybox()?, &[])?;
    let _platforms = two_platforms(site.namespace.name())?;
    site.apply(telling()?)?;
    let hostile = json!({
        "paramValues": [{"name": "text", "value": HOSTILE}, {"name": "list", "values": [{"value": HOSTILE}]}],
        // The pod's own rules hold for variables.
        "env": [{"name": "FIRST", "value": "one"},
                {"name": "HOSTILE", "value": "$(FIRST) $$(FIRST) $(params.text) $(context.taskRun.name)"}],
        "output": {"annotations": {"a": HOSTILE}, "labels": {"b": HOSTILE}},
    });
    let expected =
        format!("{HOSTILE}|{HOSTILE}|one $(FIRST) $(params.text) $(context.taskRun.name)");
    tells(&site, &controller, &hostile, &expected)
}

/// A Build of one image and one of two platforms say what they were told.
fn tells(site: &BuildSite, controller: &Controller, said: &Value, expected: &str) -> Result<()> {
    let mut wide = many(site.namespace.name());
    merge(&mut wide, said);
    for (name, spec) in [("one", said), ("wide", &wide)] {
        site.apply(build(name, "telling", spec))?;
        site.apply(run(name, name, &json!({})))?;
    }
    for (name, rows) in [("one", 0), ("wide", 2)] {
        let failed =
            site.reaches(name, "False", "Failed", LONG).with_context(|| controller.log())?;
        let status = &failed["status"];
        assert_eq!(status["failureDetails"]["message"], json!(expected), "{name}: {status}");
        let told = status["output"]["platforms"].as_array().cloned().unwrap_or_default();
        assert_eq!(told.len(), rows, "{name}: {status}");
        for row in told {
            assert_eq!(row["failure"]["message"], json!(expected), "{row}");
        }
    }
    nothing_forbidden(controller);
    Ok(())
}

#[test]
fn what_secrets_and_config_maps_keep_reaches_the_steps_of_a_real_tekton_as_it_is() -> Result<()> {
    let site = BuildSite::new("values")?;
    let controller = site.lead(busybox()?, &[])?;
    let _platforms = two_platforms(site.namespace.name())?;
    site.apply(telling()?)?;
    let (secret, public) = (format!("secret {HOSTILE}"), format!("public {HOSTILE}"));
    for (kind, field, text) in [("Secret", "stringData", &secret), ("ConfigMap", "data", &public)] {
        site.apply(json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": "values"}, field: {"text": text},
        }))?;
    }
    let kept = json!({
        "paramValues": [
            {"name": "text", "secretValue": {"name": "values", "key": "text"}},
            {"name": "list", "values": [{"configMapValue": {
                "name": "values", "key": "text", "format": "--with=${CONFIGMAP_VALUE};",
            }}]},
        ],
        "env": [{"name": "HOSTILE", "valueFrom": {"secretKeyRef": {"name": "values", "key": "text"}}}],
    });
    tells(&site, &controller, &kept, &format!("{secret}|--with={public};|{secret}"))
}
