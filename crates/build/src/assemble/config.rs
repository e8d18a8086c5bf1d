//! An image's configuration: that of what it stands on, and what instructions change.

use portolan_core::Platform;
use serde_json::{Map, Value, json};

use super::layer::Layer;
use crate::containerfile::{Change, Inherited};

/// A configuration as JSON, so that what a base says and we do not know stays.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    value: Map<String, Value>,
    /// Whether this stage said CMD itself.
    own_cmd: bool,
    created: String,
}

impl Config {
    /// Of an image that stands on nothing.
    pub(crate) fn scratch(created: String) -> Self {
        let value = Map::from_iter([
            ("rootfs".to_owned(), json!({ "type": "layers", "diff_ids": [] })),
            ("history".to_owned(), json!([])),
        ]);
        Self { value, own_cmd: false, created }
    }

    /// Of an image that stands on another.
    pub(crate) fn on(mut base: Map<String, Value>, created: String) -> Self {
        for legacy in ["container", "container_config", "docker_version", "id", "parent"] {
            base.remove(legacy);
        }
        if !base.get("history").is_some_and(Value::is_array) {
            base.insert("history".to_owned(), json!([]));
        }
        Self { value: base, own_cmd: false, created }
    }

    pub(crate) fn value(&self) -> &Map<String, Value> {
        &self.value
    }

    fn start(&mut self) -> &mut Map<String, Value> {
        let config = self.value.entry("config").or_insert_with(|| json!({}));
        if !config.is_object() {
            *config = json!({});
        }
        config.as_object_mut().expect("it is one")
    }

    /// What a stage on it sees.
    pub(crate) fn inherited(&self) -> Inherited {
        let config = self.value.get("config").unwrap_or(&Value::Null);
        let texts = |key: &str| -> Vec<String> {
            let list = config[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let pair = |text: String| {
            let (key, value) = text.split_once('=').unwrap_or((&text, ""));
            (key.to_owned(), value.to_owned())
        };
        Inherited {
            env: texts("Env").into_iter().map(pair).collect(),
            workdir: config["WorkingDir"].as_str().unwrap_or_default().to_owned(),
            shell: texts("Shell"),
        }
    }

    /// Makes a change that adds no files.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Env(key, value) => self.env(key, value),
            Change::Label(key, value) => self.entry("Labels", key, json!(value)),
            Change::Workdir(dir) => self.set("WorkingDir", json!(dir)),
            Change::User(user) => self.set("User", json!(user)),
            Change::Expose(port) => self.entry("ExposedPorts", port, json!({})),
            Change::Volume(dir) => self.entry("Volumes", dir, json!({})),
            Change::Entrypoint(words) => {
                self.set("Entrypoint", json!(words));
                // Arguments of the base were meant for the base's program.
                if !self.own_cmd {
                    self.start().remove("Cmd");
                }
            }
            Change::Cmd(words) => {
                self.own_cmd = true;
                self.set("Cmd", json!(words));
            }
            Change::Shell(words) => self.set("Shell", json!(words)),
            Change::StopSignal(signal) => self.set("StopSignal", json!(signal)),
            Change::Copy(_) => {}
        }
    }

    fn set(&mut self, key: &str, value: Value) {
        self.start().insert(key.to_owned(), value);
    }

    /// Puts an entry into a map.
    fn entry(&mut self, map: &str, key: &str, value: Value) {
        let all = self.start().entry(map).or_insert_with(|| json!({}));
        if !all.is_object() {
            *all = json!({});
        }
        all.as_object_mut().expect("it is one").insert(key.to_owned(), value);
    }

    fn env(&mut self, key: &str, value: &str) {
        let all = self.start().entry("Env").or_insert_with(|| json!([]));
        if !all.is_array() {
            *all = json!([]);
        }
        let list = all.as_array_mut().expect("it is one");
        let same = |text: &Value| {
            text.as_str().and_then(|text| text.split_once('=')).is_some_and(|(k, _)| k == key)
        };
        let text = json!(format!("{key}={value}"));
        match list.iter_mut().find(|other| same(other)) {
            Some(other) => *other = text,
            None => list.push(text),
        }
    }

    /// Tells an instruction in the history, and the layer that it made.
    pub(crate) fn tell(&mut self, text: &str, layer: Option<&Layer>) {
        let mut line = json!({ "created": self.created, "created_by": text });
        match layer {
            None => line["empty_layer"] = json!(true),
            Some(layer) => {
                if let Some(ids) = self.value["rootfs"]["diff_ids"].as_array_mut() {
                    ids.push(json!(layer.diff_id));
                }
            }
        }
        if let Some(history) = self.value["history"].as_array_mut() {
            history.push(line);
        }
    }

    /// As it is stored, for a platform.
    pub(crate) fn finish(mut self, platform: &Platform) -> Vec<u8> {
        self.value.insert("created".to_owned(), json!(self.created));
        self.value.insert("os".to_owned(), json!(platform.os));
        self.value.insert("architecture".to_owned(), json!(platform.architecture));
        match &platform.variant {
            Some(variant) => self.value.insert("variant".to_owned(), json!(variant)),
            None => self.value.remove("variant"),
        };
        serde_json::to_vec(&self.value).expect("JSON")
    }
}
