//! What people write arrives as they wrote it: replaced as Tekton replaces and as pods do, it is the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::World;

/// Everything that somebody on the way would replace, and what looks like our own escape.
const HOSTILE: &str = "$(params.dockerfile) $(params['token']) $(params[\"token\"]) $(context.taskRun.name) \
    $(context.pipelineRun.name) $(results.shp-image-digest.path) $(workspaces.source.path) \
    $(tasks.source.results.shp-source-bundle-digest) $(HOME) $(LEVEL) $(SHP_DOLLAR) $$(LEVEL) 5$ $$ $";

/// One go of Tekton's: all of these at once, and none in what it puts in.
fn replaced(text: &str, known: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("$(") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match known.iter().find(|(name, _)| rest.starts_with(name.as_str())) {
            Some((name, value)) => {
                out.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                out.push_str("$(");
                rest = &rest[2..];
            }
        }
    }
    out + rest
}

/// What a pod makes of a text.
fn expanded(text: &str, env: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
        {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

/// What Tekton knows besides parameters.
fn others() -> BTreeMap<String, String> {
    let names = [
        "context.taskRun.name",
        "context.pipelineRun.name",
        "results.shp-image-digest.path",
        "workspaces.source.path",
        "tasks.source.results.shp-source-bundle-digest",
    ];
    names.map(|name| (format!("$({name})"), "BY TEKTON".to_owned())).into()
}

/// A value of a task's parameter, as the pipeline passes it on. What is no reference that Tekton knows, its
/// webhook refuses here.
#[track_caller]
fn passed(value: &Value, outer: &BTreeMap<String, Value>) -> Value {
    let known = ["$(params.", "$(tasks.", "$(context.", "$(workspaces.", "$(results."];
    for text in texts(value) {
        let references = text.match_indices("$(").map(|(at, _)| &text[at..]);
        for reference in references {
            assert!(known.iter().any(|word| reference.starts_with(word)), "{text}");
        }
    }
    let whole = |text: &str| {
        let name = text.strip_prefix("$(params.")?.strip_suffix(')')?;
        outer.get(name.strip_suffix("[*]").unwrap_or(name)).cloned()
    };
    match value {
        Value::String(text) => whole(text).unwrap_or_else(|| json!(replaced(text, &others()))),
        list => {
            let items = texts(list).into_iter().flat_map(|text| match whole(&text) {
                Some(items) => texts(&items),
                None => vec![replaced(&text, &others())],
            });
            json!(items.collect::<Vec<_>>())
        }
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// What the containers of a task are started with: arguments and variables by their step.
struct Started(BTreeMap<String, (Vec<String>, BTreeMap<String, String>)>);

impl Started {
    /// `params` as Tekton has them when it makes the pod.
    fn of(task_spec: &Value, params: &Value) -> Self {
        let mut single = BTreeMap::new();
        let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for declared in task_spec["params"].as_array().into_iter().flatten() {
            let name = declared["name"].as_str().unwrap();
            let said = params.as_array().into_iter().flatten().find(|one| one["name"] == name);
            let value = said.map_or(&declared["default"], |said| &said["value"]);
            if value.is_array() {
                lists.insert(format!("$(params.{name}[*])"), texts(value));
                continue;
            }
            for form in [format!(".{name}"), format!("['{name}']"), format!("[\"{name}\"]")] {
                let value = value.as_str().unwrap_or_default().to_owned();
                single.insert(format!("$(params{form})"), value);
            }
        }
        let tektons = |text: &str| replaced(&replaced(text, &single), &others());
        let steps = task_spec["steps"].as_array().unwrap().iter().map(|step| {
            let mut env = BTreeMap::new();
            for variable in step["env"].as_array().into_iter().flatten() {
                let value = tektons(variable["value"].as_str().unwrap_or("kept"));
                let value = expanded(&value, &env);
                env.insert(variable["name"].as_str().unwrap().to_owned(), value);
            }
            let args = texts(&step["args"]).into_iter().flat_map(|arg| match lists.get(&arg) {
                Some(items) => items.iter().map(|item| replaced(item, &others())).collect(),
                None => vec![tektons(&arg)],
            });
            let args = args.map(|arg| expanded(&arg, &env)).collect();
            (step["name"].as_str().unwrap().to_owned(), (args, env))
        });
        Self(steps.collect())
    }

    /// Those of an object, task by task.
    fn all(rendered: &Value) -> BTreeMap<String, Self> {
        let spec = &rendered["spec"];
        if rendered["kind"] == "TaskRun" {
            return [("build".to_owned(), Self::of(&spec["taskSpec"], &spec["params"]))].into();
        }
        // What is passed to the pipeline, by the name it has there.
        let outer: BTreeMap<String, Value> = spec["params"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| (one["name"].as_str().unwrap().to_owned(), one["value"].clone()))
            .collect();
        let tasks = spec["pipelineSpec"]["tasks"].as_array().unwrap().iter().map(|task| {
            let mut params = task["params"].clone();
            for param in params.as_array_mut().into_iter().flatten() {
                param["value"] = passed(&param["value"], &outer);
            }
            (task["name"].as_str().unwrap().to_owned(), Self::of(&task["taskSpec"], &params))
        });
        tasks.collect()
    }

    fn args(&self, step: &str) -> &[String] {
        &self.0[step].0
    }

    #[track_caller]
    fn has(&self, step: &str, flag: &str, value: &str) {
        let args = self.args(step);
        assert!(
            args.windows(2).any(|pair| pair[0] == flag && pair[1] == value),
            "{flag} {value}: {args:#?}"
        );
    }
}

fn hostile(world: &mut World) {
    let spec = &mut world.build["spec"];
    spec["source"]["git"]["url"] = json!(HOSTILE);
    spec["source"]["git"]["revision"] = json!(HOSTILE);
    spec["output"]["annotations"] = json!({"a": HOSTILE});
    spec["output"]["labels"] = json!({"$(params.token)": HOSTILE});
    spec["output"].as_object_mut().unwrap().remove("timestamp");
    spec["paramValues"] = json!([
        {"name": "build-args", "values": [
            {"value": HOSTILE},
            {"configMapValue": {"name": "args", "key": "b", "format": format!("{HOSTILE}${{CONFIGMAP_VALUE}}")}},
        ]},
        {"name": "token", "value": HOSTILE},
    ]);
    world.run["spec"]["paramValues"][0]["value"] = json!(HOSTILE);
    spec["env"] = json!([
        {"name": "FIRST", "value": "one"},
        {"name": "HOSTILE", "value": "$(FIRST) $$(FIRST) $(params.token) $(context.taskRun.name) $(nobody)"},
    ]);
    world.run["spec"].as_object_mut().unwrap().remove("env");
}

#[track_caller]
fn arrives(build: &Started) {
    let args = build.args("build");
    assert_eq!(args[0], format!("--file={HOSTILE}"), "{args:#?}");
    assert_eq!(args[3], HOSTILE, "{args:#?}");
    assert_eq!(args[4], format!("{HOSTILE}kept"), "{args:#?}");
    let env = &build.0["build"].1;
    assert_eq!(env["TOKEN"], HOSTILE);
    // What Kubernetes says of variables holds; what Tekton would make of them does not.
    assert_eq!(env["HOSTILE"], "one $(FIRST) $(params.token) $(context.taskRun.name) $(nobody)");
    let step = "image-processing";
    build.has(step, "--annotation", &format!("a={HOSTILE}"));
    build.has(step, "--label", &format!("$(params.token)={HOSTILE}"));
}

#[test]
fn what_people_write_is_replaced_by_nobody_in_a_task_run() {
    let started = Started::all(&World::new().with(hostile).rendered());
    let build = &started["build"];
    build.has("source-default", "--url", HOSTILE);
    build.has("source-default", "--revision", HOSTILE);
    arrives(build);
}

#[test]
fn what_people_write_is_replaced_by_nobody_in_a_pipeline_run() {
    let world = World::multi().with(hostile).with(|world| {
        world.platforms[2]["spec"]["paramValues"][0]["value"] = json!(HOSTILE);
    });
    let started = Started::all(&world.rendered());
    started["source"].has("source-default", "--url", HOSTILE);
    started["source"].has("source-default", "--revision", HOSTILE);
    arrives(&started["build-linux-s390x"]);
    let args = started["build-linux-ppc64le"].args("build");
    assert_eq!(args[1], format!("--platform={HOSTILE}"));
    started["assemble-index"].has("assemble-index", "--annotation", &format!("a={HOSTILE}"));
}

#[test]
fn an_artifact_is_named_as_it_was_written() {
    let world = World::multi().with(hostile).with(|world| {
        world.build["spec"]["source"] = json!({"type": "OCI", "ociArtifact": {"image": HOSTILE}});
    });
    let started = Started::all(&world.rendered());
    started["build-linux-amd64"].has("source-default", "--image", HOSTILE);
}

/// Pods replace variables in commands, arguments and variables, and nowhere else.
#[test]
fn what_could_only_arrive_changed_is_refused() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 4] = [
        ("\"dockerfile\" has a `$`", |world| {
            world.run["spec"]["paramValues"][0]["value"] = json!("$(params.token)");
            world.strategy["spec"]["steps"][0]["workingDir"] =
                json!("/dir/$(params['dockerfile'])");
        }),
        ("\"shp-source-context\" has a `$`", |world| {
            world.build["spec"]["source"]["contextDir"] = json!("a$b");
            world.strategy["spec"]["steps"][1]["workingDir"] =
                json!("$(params.shp-source-context)");
        }),
        ("variable \"FROM_SECRET\"", |world| {
            world.build["spec"]["env"][1]["valueFrom"]["secretKeyRef"]["name"] =
                json!("$(params.token)");
        }),
        ("volume \"settings\" has a `$(`", |world| {
            world.build["spec"]["volumes"][0]["configMap"]["name"] = json!("$(params.token)");
        }),
    ];
    for (told, change) in cases {
        for world in [World::new(), World::multi()] {
            let refusals = world.with(change).plan().expect_err(told);
            let all: Vec<&str> = refusals.iter().map(|one| one.message.as_str()).collect();
            assert!(all.iter().any(|message| message.contains(told)), "{told}: {all:#?}");
        }
    }
}
