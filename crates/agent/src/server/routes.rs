//! Every path of the API, once: for the router, for the OpenAPI document, and for people.

use axum::response::Response;
use futures_util::future::BoxFuture;
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::call::Call;
use super::{ApiError, App, cache, console, health, instances};
use crate::api::{
    CacheReport, GcReport, GcRequest, InstanceList, InstanceStatus, PrefetchReport,
    PrefetchRequest, Status, VerifyReport,
};
use crate::spec::WorkloadSpec;

type Handler = fn(App, Call) -> BoxFuture<'static, Result<Response, ApiError>>;

/// Writes a type's schema.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One method of one path.
#[derive(Debug)]
pub struct Route {
    /// The method. HEAD is answered where GET is.
    pub method: Method,
    /// The path with its `{…}`.
    pub path: &'static str,
    /// The name of the operation.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// What the query may have: name, type, meaning.
    pub query: &'static [(&'static str, &'static str, &'static str)],
    /// The body it takes.
    pub request: Option<SchemaOf>,
    /// Answers that are a success.
    pub answers: &'static [(u16, Content)],
    /// Other answers, all of them with an `ErrorBody`.
    pub errors: &'static [u16],
    /// It may take as long as it takes.
    pub(super) patient: bool,
    /// It is answered even when there are too many calls.
    pub(super) always: bool,
    pub(super) handler: Handler,
}

/// What an answer carries.
#[derive(Debug)]
pub enum Content {
    /// JSON of this type.
    Json(SchemaOf),
    /// Something else.
    Other(&'static str),
    /// Nothing.
    Empty,
}

const fn schema<T: JsonSchema>() -> SchemaOf {
    |generator| generator.subschema_for::<T>()
}

fn any(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "object" })
}

/// What most rows have in common.
const ROW: Route = Route {
    method: Method::GET,
    path: "/",
    name: "",
    summary: "",
    query: &[],
    request: None,
    answers: &[],
    errors: &[],
    patient: false,
    always: false,
    handler: |_, _| Box::pin(std::future::ready(Err(ApiError::unknown_path()))),
};

/// The whole API.
pub static ALL: [Route; 14] = [
    Route {
        path: "/v1/instances",
        name: "listInstances",
        summary: "List instances by id, in pages",
        query: &[
            ("after", "string", "Begin after this id"),
            ("limit", "integer", "How many at most: 1 to 1000, else 500"),
        ],
        answers: &[(200, Content::Json(schema::<InstanceList>()))],
        errors: &[400],
        handler: |app, call| Box::pin(instances::list(app, call)),
        ..ROW
    },
    Route {
        path: "/v1/instances/{id}",
        name: "getInstance",
        summary: "Look at an instance",
        answers: &[(200, Content::Json(schema::<InstanceStatus>()))],
        errors: &[400, 404],
        handler: |app, call| Box::pin(instances::get(app, call)),
        ..ROW
    },
    Route {
        method: Method::PUT,
        path: "/v1/instances/{id}",
        name: "putInstance",
        summary: "Make an instance, or change its desired state; the same again changes nothing",
        request: Some(schema::<WorkloadSpec>()),
        answers: &[
            (200, Content::Json(schema::<InstanceStatus>())),
            (201, Content::Json(schema::<InstanceStatus>())),
        ],
        errors: &[400, 408, 409, 413, 415, 422, 503, 507],
        handler: |app, call| Box::pin(instances::put(app, call)),
        ..ROW
    },
    Route {
        method: Method::DELETE,
        path: "/v1/instances/{id}",
        name: "deleteInstance",
        summary: "Stop an instance and forget it with its scratch disk; one that is gone is fine",
        answers: &[(204, Content::Empty)],
        errors: &[400, 503, 504, 507],
        handler: |app, call| Box::pin(instances::delete(app, call)),
        ..ROW
    },
    Route {
        path: "/v1/instances/{id}/console",
        name: "readConsole",
        summary: "Read what the guest wrote to its console",
        query: &[
            ("tail", "integer", "Only this many lines from the end"),
            ("follow", "boolean", "Go on until the instance stops"),
        ],
        answers: &[(200, Content::Other("text/plain; charset=utf-8"))],
        errors: &[400, 404, 503],
        patient: true,
        handler: |app, call| Box::pin(console::read(app, call)),
        ..ROW
    },
    Route {
        method: Method::POST,
        path: "/v1/prefetch",
        name: "prefetch",
        summary: "Fetch images and build their root disks before anybody needs them; waits",
        request: Some(schema::<PrefetchRequest>()),
        answers: &[(200, Content::Json(schema::<PrefetchReport>()))],
        errors: &[400, 408, 413, 415, 503],
        patient: true,
        handler: |app, call| Box::pin(cache::prefetch(app, call)),
        ..ROW
    },
    Route {
        path: "/v1/cache",
        name: "getCache",
        summary: "Say what the cache holds",
        answers: &[(200, Content::Json(schema::<CacheReport>()))],
        errors: &[400],
        handler: |app, call| Box::pin(cache::report(app, call)),
        ..ROW
    },
    Route {
        method: Method::POST,
        path: "/v1/cache/{key}/verify",
        name: "verifyRootdisk",
        summary: "Read a root disk and compare it with its checksum; one that differs is replaced",
        answers: &[(200, Content::Json(schema::<VerifyReport>()))],
        errors: &[400, 404, 503],
        patient: true,
        handler: |app, call| Box::pin(cache::verify(app, call)),
        ..ROW
    },
    Route {
        method: Method::POST,
        path: "/v1/gc",
        name: "collectGarbage",
        summary: "Evict what nobody holds, least recently used first",
        request: Some(schema::<GcRequest>()),
        answers: &[(200, Content::Json(schema::<GcReport>()))],
        errors: &[400, 408, 413, 415, 503],
        handler: |app, call| Box::pin(cache::gc(app, call)),
        ..ROW
    },
    Route {
        path: "/v1/status",
        name: "getStatus",
        summary: "Say how the agent is: degraded or not, disks, instances by phase",
        answers: &[(200, Content::Json(schema::<Status>()))],
        errors: &[400],
        always: true,
        handler: |app, call| Box::pin(health::status(app, call)),
        ..ROW
    },
    Route {
        path: "/healthz",
        name: "healthz",
        summary: "Say that the process answers",
        answers: &[(200, Content::Json(any))],
        always: true,
        handler: |app, call| Box::pin(health::healthz(app, call)),
        ..ROW
    },
    Route {
        path: "/readyz",
        name: "readyz",
        summary: "Say whether calls are answered with what is true",
        answers: &[(200, Content::Json(any))],
        errors: &[503],
        always: true,
        handler: |app, call| Box::pin(health::readyz(app, call)),
        ..ROW
    },
    Route {
        path: "/metrics",
        name: "metrics",
        summary: "Give all metrics to Prometheus",
        answers: &[(200, Content::Other("application/openmetrics-text"))],
        always: true,
        handler: |app, call| Box::pin(health::metrics(app, call)),
        ..ROW
    },
    Route {
        path: "/openapi.json",
        name: "openapi",
        summary: "Give this document",
        answers: &[(200, Content::Json(any))],
        handler: |app, call| Box::pin(health::document(app, call)),
        ..ROW
    },
];

/// What a method and a path lead to.
#[derive(Debug)]
pub(super) enum Found {
    Route(&'static Route, Vec<String>),
    /// The path is ours, the method is not: which are.
    OtherMethod(String),
    Nothing,
}

/// Looks in the table. No part of a path is decoded: no id and no key needs it.
pub(super) fn find(method: &Method, path: &str) -> Found {
    let wanted = if method == Method::HEAD { &Method::GET } else { method };
    let mut allow = Vec::new();
    for route in &ALL {
        let Some(parameters) = parameters(route.path, path) else { continue };
        if route.method == wanted {
            return Found::Route(route, parameters);
        }
        allow.push(route.method.as_str());
        if route.method == Method::GET {
            allow.push("HEAD");
        }
    }
    if allow.is_empty() { Found::Nothing } else { Found::OtherMethod(allow.join(", ")) }
}

/// The values of a pattern's `{…}`; none when the path is another one.
fn parameters(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut values = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(values),
            (Some(part), Some(value)) if part.starts_with('{') => {
                values.push(value.chars().take(256).collect());
            }
            (Some(part), Some(value)) if part == value => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_route_or_says_which_methods_it_knows() {
        let Found::Route(route, parameters) = find(&Method::HEAD, "/v1/instances/web-1") else {
            panic!("not found");
        };
        assert_eq!((route.name, parameters), ("getInstance", vec!["web-1".to_owned()]));
        let Found::OtherMethod(allow) = find(&Method::POST, "/v1/instances/web-1") else {
            panic!("found");
        };
        assert_eq!(allow, "GET, HEAD, PUT, DELETE");
        for path in ["", "/", "/v1", "/v1/instances/", "/v1/instances/a/b", "//v1/instances", "*"] {
            let found = find(&Method::GET, path);
            let empty = matches!(&found, Found::Route(route, values)
                if route.name == "getInstance" && values[0].is_empty());
            assert!(empty || matches!(found, Found::Nothing), "{path}");
        }
    }

    #[test]
    fn no_two_rows_are_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        let mut names = std::collections::BTreeSet::new();
        for route in &ALL {
            assert!(seen.insert((route.path, route.method.as_str())), "{}", route.path);
            assert!(names.insert(route.name), "{}", route.name);
            assert!(!route.summary.is_empty() && !route.answers.is_empty(), "{}", route.path);
        }
    }
}
