//! A plan as objects of Tekton: a TaskRun for one image, a PipelineRun in three phases for many.

use serde_json::{Map, Value as Json, json};

use crate::plan::{Param, Phases, Plan, Pod, Task, Value, Work, duration};

/// The version of Tekton's resources.
const API_VERSION: &str = "tekton.dev/v1";
/// What a `finally` task may take of the whole time.
const FINALLY_SECONDS: u64 = 60;

/// The object that a controller makes for a plan.
pub fn render(plan: &Plan) -> Json {
    let (kind, spec) = match &plan.work {
        Work::Single(task) => ("TaskRun", task_run(plan, task)),
        Work::Multi(phases) => ("PipelineRun", pipeline_run(plan, phases)),
    };
    let mut metadata = json!({ "name": plan.name });
    let mut said = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            metadata[key] = value;
        }
    };
    said("namespace", plan.namespace.as_ref().map(|namespace| json!(namespace)));
    said("labels", Some(json!(plan.labels)));
    said("annotations", (!plan.annotations.is_empty()).then(|| json!(plan.annotations)));
    said(
        "ownerReferences",
        plan.owner.as_ref().map(|owner| {
            json!([{
                "apiVersion": "shipwright.io/v1beta1",
                "kind": "BuildRun",
                "name": owner.name,
                "uid": owner.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }])
        }),
    );
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec })
}

/// Fields in the order given, without those that say nothing.
fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    let empty = |value: &Json| match value {
        Json::Null => true,
        Json::Array(items) => items.is_empty(),
        Json::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let said = fields.into_iter().filter(|(_, value)| !empty(value));
    Json::Object(said.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

fn pod_template(pod: &Pod) -> Json {
    json!(pod)
}

/// A directory of its own for each pod: no claim that would tie pods to one node.
fn workspaces(needed: bool) -> Json {
    match needed {
        true => json!([{ "name": "source", "emptyDir": {} }]),
        false => json!([]),
    }
}

fn task_run(plan: &Plan, task: &Task) -> Json {
    let params: Vec<Json> = task
        .params
        .iter()
        .filter_map(|param| {
            let value = param.value.as_ref()?;
            Some(json!({ "name": param.name, "value": literal(value) }))
        })
        .collect();
    object([
        ("params", json!(params)),
        ("serviceAccountName", json!(plan.service_account)),
        ("timeout", json!(plan.timeout.map(duration))),
        ("podTemplate", pod_template(&plan.pod)),
        ("workspaces", workspaces(task.workspace)),
        ("taskSpec", task_spec(task)),
    ])
}

fn task_spec(task: &Task) -> Json {
    let params: Vec<Json> = task.params.iter().map(declaration).collect();
    let workspaces = match task.workspace {
        true => json!([{ "name": "source", "description": "The source" }]),
        false => json!([]),
    };
    object([
        ("params", json!(params)),
        ("results", json!(task.results)),
        ("workspaces", workspaces),
        ("steps", json!(task.steps)),
        ("volumes", json!(task.volumes)),
    ])
}

fn declaration(param: &Param) -> Json {
    let kind = if param.is_list() { "array" } else { "string" };
    object([
        ("name", json!(param.name)),
        ("description", json!(param.description)),
        ("type", json!(kind)),
        // A list that is empty is a default all the same.
        ("default", Json::Null),
    ])
    .as_object()
    .cloned()
    .map(|mut fields| {
        if let Some(default) = &param.default {
            fields.insert("default".to_owned(), literal(default));
        }
        Json::Object(fields)
    })
    .unwrap_or_default()
}

/// What a value is where nothing is put in its place.
fn literal(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::List(items) => json!(items),
        Value::Result { task, result, prefix } => json!(reference(prefix, task, result)),
        Value::Results(all) => {
            json!(
                all.iter()
                    .map(|(prefix, task, result)| reference(prefix, task, result))
                    .collect::<Vec<_>>()
            )
        }
    }
}

fn reference(prefix: &str, task: &str, result: &str) -> String {
    format!("{prefix}$(tasks.{task}.results.{result})")
}

/// Values with variables of pods in them, which Tekton takes for references. In a TaskRun they stand where it does
/// not look; in a task of a pipeline its webhook refuses what it does not know, so they are passed in from outside.
#[derive(Debug, Default)]
struct Hoisted(Vec<Json>);

impl Hoisted {
    fn value(&mut self, value: &Value) -> Json {
        let looks = |text: &String| text.contains("$(");
        match value {
            Value::Text(text) if looks(text) => {
                let name = self.add(json!(text));
                json!(format!("$(params.{name})"))
            }
            Value::List(items) if items.iter().any(looks) => {
                let name = self.add(json!(items));
                json!([format!("$(params.{name}[*])")])
            }
            other => literal(other),
        }
    }

    fn add(&mut self, value: Json) -> String {
        let at = match self.0.iter().position(|known| *known == value) {
            Some(at) => at,
            None => {
                self.0.push(value);
                self.0.len() - 1
            }
        };
        format!("shp-value-{}", at + 1)
    }

    fn declarations(&self) -> Vec<Json> {
        let kind = |value: &Json| if value.is_array() { "array" } else { "string" };
        let named = self.0.iter().enumerate();
        named
            .map(|(at, value)| json!({ "name": format!("shp-value-{}", at + 1), "type": kind(value) }))
            .collect()
    }

    fn values(&self) -> Vec<Json> {
        let named = self.0.iter().enumerate();
        named
            .map(|(at, value)| json!({ "name": format!("shp-value-{}", at + 1), "value": value }))
            .collect()
    }
}

fn pipeline_run(plan: &Plan, phases: &Phases) -> Json {
    let mut hoisted = Hoisted::default();
    let mut tasks = Vec::new();
    let source = phases.source.as_ref().map(|task| task.name.as_str());
    tasks.extend(phases.source.iter().map(|task| pipeline_task(task, &[], &mut hoisted)));
    let before: Vec<&str> = source.into_iter().collect();
    for platform in &phases.platforms {
        tasks.push(pipeline_task(&platform.task, &before, &mut hoisted));
    }
    let builds: Vec<&str> = phases.platforms.iter().map(|p| p.task.name.as_str()).collect();
    tasks.push(pipeline_task(&phases.index, &builds, &mut hoisted));
    let finally: Vec<Json> =
        phases.prune.iter().map(|task| pipeline_task(task, &[], &mut hoisted)).collect();
    let pods: Vec<Json> = phases
        .platforms
        .iter()
        .filter(|platform| !platform.pod.is_empty())
        .map(|platform| {
            // Tekton puts field in place of field, so each is told as a whole.
            json!({ "pipelineTaskName": platform.task.name, "podTemplate": pod_template(&platform.pod) })
        })
        .collect();
    object([
        ("params", json!(hoisted.values())),
        (
            "taskRunTemplate",
            object([
                ("serviceAccountName", json!(plan.service_account)),
                ("podTemplate", pod_template(&plan.pod)),
            ]),
        ),
        ("taskRunSpecs", json!(pods)),
        ("timeouts", timeouts(plan, phases.prune.is_some())),
        ("workspaces", workspaces(true)),
        (
            "pipelineSpec",
            object([
                ("params", json!(hoisted.declarations())),
                ("workspaces", json!([{ "name": "source" }])),
                ("results", json!(pipeline_results(phases))),
                ("tasks", json!(tasks)),
                ("finally", json!(finally)),
            ]),
        ),
    ])
}

fn pipeline_task(task: &Task, after: &[&str], hoisted: &mut Hoisted) -> Json {
    let params: Vec<Json> = task
        .params
        .iter()
        .filter_map(|param| {
            let value = param.value.as_ref()?;
            Some(json!({ "name": param.name, "value": hoisted.value(value) }))
        })
        .collect();
    let workspaces = match task.workspace {
        true => json!([{ "name": "source", "workspace": "source" }]),
        false => json!([]),
    };
    object([
        ("name", json!(task.name)),
        ("runAfter", json!(after)),
        ("params", json!(params)),
        ("workspaces", workspaces),
        ("taskSpec", task_spec(task)),
    ])
}

/// The index, and what phase one told of the source. Results of platforms stay with their tasks:
/// put together they would overwrite each other. What a task may leave unsaid stays there too: Tekton
/// would fail a pipeline for it, when everything is published.
fn pipeline_results(phases: &Phases) -> Vec<Json> {
    let of = |task: &Task| {
        let name = task.name.clone();
        let told = task.results.iter().filter(|result| !result.optional);
        told.map(|result| {
            json!({
                "name": result.name,
                "description": result.description,
                "value": reference("", &name, &result.name),
            })
        })
        .collect::<Vec<_>>()
    };
    let mut results = of(&phases.index);
    results.extend(phases.source.iter().flat_map(of));
    results
}

/// With something to do at the end, the rest must end a little earlier.
fn timeouts(plan: &Plan, finally: bool) -> Json {
    let Some(timeout) = plan.timeout else { return Json::Null };
    let mut timeouts = json!({ "pipeline": duration(timeout) });
    let whole = std::time::Duration::from(timeout);
    let rest = whole.checked_sub(std::time::Duration::from_secs(FINALLY_SECONDS));
    if let Some(rest) = rest.filter(|rest| finally && !rest.is_zero()) {
        timeouts["tasks"] = json!(duration(rest.into()));
    }
    timeouts
}
