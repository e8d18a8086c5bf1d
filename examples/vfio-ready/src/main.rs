//! A sample plugin: can devices of this host be passed through to virtual machines?
//!
//! It reads no file. Two built-in plugins answer for it, once it has said what to ask them: are the
//! vfio modules there (`kernelModules`), and is the IOMMU switched on (`kernelCmdline`)? From the
//! host's facts it only wants the processor's maker, because AMD switches its IOMMU on by itself.
//!
//! ```text
//! "plugins": {"vfio-ready": {"data": {"modules": ["vfio_pci"]}}}
//! ```
//!
//! Built for a host without libraries of its own:
//! `cargo build --release -p portolan-vfio-ready --target x86_64-unknown-linux-musl`

use std::io::Read as _;
use std::process::ExitCode;

use serde_json::{Value, json};

const API: &str = "imagecompat/v1";

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a plugin talks on stdout")]
fn main() -> ExitCode {
    let mut input = String::new();
    let read = std::io::stdin().read_to_string(&mut input);
    let question: Option<Value> = read.ok().and_then(|_| serde_json::from_str(&input).ok());
    let Some(question) = question.filter(|question| question["apiVersion"] == API) else {
        eprintln!("expected a question of {API} on stdin");
        return ExitCode::from(3);
    };
    let (answer, code) = match std::env::args().nth(1).as_deref() {
        Some("describe") => (describe(&question), 0),
        Some("check") => check(&question),
        _ => {
            eprintln!("usage: vfio-ready describe|check");
            return ExitCode::from(3);
        }
    };
    println!("{answer}");
    ExitCode::from(code)
}

/// What must be known before the question can be answered.
fn describe(question: &Value) -> Value {
    json!({
        "apiVersion": API,
        "name": "vfio-ready",
        "version": env!("CARGO_PKG_VERSION"),
        "facts": ["cpu.model"],
        "asks": [
            {"plugin": "kernelModules", "data": modules(&question["data"])},
            {"plugin": "kernelCmdline", "data": {"intel_iommu": "on"}},
        ],
        "dataSchema": {
            "type": "object",
            "properties": {"modules": {"type": "array", "items": {"type": "string"}}},
            "additionalProperties": false,
        },
    })
}

/// The modules that the spec names, or those that every pass-through needs.
fn modules(data: &Value) -> Value {
    let named = data["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named: Vec<&str> = named.iter().filter_map(Value::as_str).collect();
    let names = if named.is_empty() { vec!["vfio", "vfio_pci", "vfio_iommu_type1"] } else { named };
    names.into_iter().map(|name| (name.to_owned(), json!({}))).collect()
}

/// What follows from what the built-in plugins found.
fn check(question: &Value) -> (Value, u8) {
    // In the order in which they were asked.
    let modules = &question["answers"][0];
    let command_line = &question["answers"][1];
    let maker = &question["host"]["facts"]["attributes"]["cpu.model"]["elements"]["vendor_id"];
    let iommu = match maker.as_str() {
        Some("AMD") => "pass",
        Some("Intel") => command_line["result"].as_str().unwrap_or("unknown"),
        _ => "unknown",
    };
    let modules = modules["result"].as_str().unwrap_or("unknown");
    let (result, code) = match (modules, iommu) {
        ("pass", "pass") => ("pass", 0),
        ("fail", _) | (_, "fail") => ("fail", 1),
        _ => ("unknown", 2),
    };
    let reason = |code: &str, result: &str, message: String| json!({"code": code, "result": result, "message": message});
    let maker = maker.as_str().unwrap_or("an unknown maker");
    let answer = json!({
        "apiVersion": API,
        "result": result,
        "reasons": [
            reason("VFIO_MODULES", modules, format!("kernelModules says {modules}")),
            reason("VFIO_IOMMU", iommu, format!("the IOMMU of a processor of {maker}: {iommu}")),
        ],
        // For plugins that come after this one and declare `plugin/vfio-ready`.
        "facts": {"attributes": {"passthrough": {"elements": {"iommu": iommu, "modules": modules}}}},
    });
    (answer, code)
}
