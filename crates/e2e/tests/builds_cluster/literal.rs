//! What people write, on its way through a real Tekton and a real pod.

use anyhow::{Context as _, Result};
use portolan_e2e::BuildSite;
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
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
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
    let mut wide = many(&class);
    merge(&mut wide, &hostile);
    for (name, spec) in [("one", &hostile), ("wide", &wide)] {
        site.apply(build(name, "telling", spec))?;
        site.apply(run(name, name, &json!({})))?;
        let failed =
            site.reaches(name, "False", "Failed", LONG).with_context(|| controller.log())?;
        let details = &failed["status"]["failureDetails"];
        assert_eq!(details["message"], json!(expected), "{name}: {}", failed["status"]);
        for row in failed["status"]["output"]["platforms"].as_array().into_iter().flatten() {
            assert_eq!(row["failure"]["message"], json!(expected), "{row}");
        }
    }
    nothing_forbidden(&controller);
    Ok(())
}
