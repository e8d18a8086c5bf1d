//! The OpenAPI 3.1 document of the host API and the JSON Schema of a WorkloadSpec, written from
//! the types and the table of routes. Both are checked in below `docs/schemas`.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::api::{ErrorBody, StatusReport};
use crate::server::routes::{self, Content, Route};
use crate::spec::WorkloadSpec;

/// Where the schema of a WorkloadSpec says it lives.
const WORKLOAD_ID: &str = "https://portolan.dev/schemas/workload-spec.json";

/// The document that `GET /openapi.json` gives.
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    // Every refusal has it, and the control plane gets the other; no route says so by itself.
    let error = generator.subschema_for::<ErrorBody>().to_value();
    generator.subschema_for::<StatusReport>();
    let mut paths = Map::new();
    for route in &routes::ALL {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        let method = route.method.as_str().to_ascii_lowercase();
        path[method] = operation(route, &mut generator, &error);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Portolan host agent",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs digest-pinned images in microVMs from a verified cache. Served on a unix socket, and over the network only to clients with a certificate.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, error: &Value) -> Value {
    let mut parameters: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| path_parameter(name, generator))
        .collect();
    parameters.extend(route.query.iter().map(|(name, kind, meaning)| {
        json!({ "name": name, "in": "query", "description": meaning, "schema": { "type": kind } })
    }));
    let mut responses = Map::new();
    for (status, content) in route.answers {
        responses.insert(status.to_string(), answer(*status, content, generator));
    }
    for status in route.errors {
        let content = json!({ "application/json": { "schema": error } });
        let description = describe(*status);
        responses
            .insert(status.to_string(), json!({ "description": description, "content": content }));
    }
    let any = json!({ "application/json": { "schema": error } });
    responses.insert(
        "default".to_owned(),
        json!({ "description": "Any other refusal", "content": any }),
    );
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "responses": responses,
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(request) = route.request {
        let schema = request(generator).to_value();
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn path_parameter(name: &str, generator: &mut SchemaGenerator) -> Value {
    let schema = match name {
        "id" => generator.subschema_for::<crate::id::InstanceId>().to_value(),
        _ => json!({ "type": "string", "pattern": crate::api::KEY }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn answer(status: u16, content: &Content, generator: &mut SchemaGenerator) -> Value {
    let mut answer = json!({ "description": describe(status) });
    match content {
        Content::Json(schema) => {
            let schema = schema(generator).to_value();
            answer["content"] = json!({ "application/json": { "schema": schema } });
        }
        Content::Other(kind) => {
            answer["content"] = json!({ *kind: { "schema": { "type": "string" } } });
        }
        Content::Empty => {}
    }
    answer
}

fn describe(status: u16) -> &'static str {
    match status {
        200 => "Done",
        201 => "Made",
        204 => "Gone",
        400 => "The request cannot be read",
        404 => "There is no such thing",
        408 => "The body did not come in time",
        409 => "It contradicts what is there",
        413 => "The body is too large",
        415 => "The body is not JSON",
        422 => "The spec cannot be carried out",
        503 => "Too many calls at once, or not ready",
        504 => "It takes longer than a call may, and goes on by itself",
        507 => "No room, and nothing that may be evicted",
        _ => "Other",
    }
}

/// The JSON Schema of what `PUT /v1/instances/{id}` and `portolan agent run -f` take.
pub fn workload_schema() -> Value {
    let mut schema = schemars::schema_for!(WorkloadSpec).to_value();
    schema["$id"] = json!(WORKLOAD_ID);
    schema
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Compares a checked-in file with what the code says, or writes it when asked to.
    fn checked_in(name: &str, value: &Value) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(name);
        let text = serde_json::to_string_pretty(value).unwrap() + "\n";
        if std::env::var_os("PORTOLAN_UPDATE_SCHEMAS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "docs/schemas/{name} is not what the types say; run cargo xtask schemas"
        );
    }

    #[test]
    fn the_checked_in_openapi_document_is_what_the_code_says() {
        checked_in("agent-openapi.json", &document());
    }

    #[test]
    fn the_checked_in_workload_schema_is_what_the_code_says() {
        checked_in("workload-spec.schema.json", &workload_schema());
    }

    /// Every `$ref` below a value.
    fn references(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                out.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|inner| references(inner, out));
            }
            Value::Array(list) => list.iter().for_each(|inner| references(inner, out)),
            _ => {}
        }
    }

    #[test]
    fn every_route_is_in_the_document_and_every_reference_leads_somewhere() {
        let document = document();
        let mut written = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let route = routes::ALL.iter().find(|route| {
                    route.path == path && route.method.as_str().eq_ignore_ascii_case(method)
                });
                assert_eq!(operation["operationId"], route.expect("a route").name);
                written += 1;
            }
        }
        assert_eq!(written, routes::ALL.len());
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("local");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
