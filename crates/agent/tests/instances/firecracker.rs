//! A fake of Firecracker: a process with its API on a socket, which takes what the published
//! description allows and nothing else, and behaves like a guest of ours behind it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

const DESCRIPTION: &str = include_str!("../../../../fixtures/firecracker-api.yaml");
/// What every violation of the description, and every second machine, is appended to; two folders
/// above the instance's.
const VIOLATIONS: &str = "violations";
/// At the end of the scratch disk: somebody has written to it.
const WRITTEN: &[u8; 8] = b"WRITTEN!";

/// Makes a program in `dir` that starts this test's program as a fake Firecracker.
pub(crate) fn program(dir: &Path) -> PathBuf {
    let path = dir.join("firecracker");
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nexport FAKE_FIRECRACKER=\"$*\"\nexec '{}' --exact fake_firecracker_takes_what_is_published --nocapture\n",
        own.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// What went against the description so far.
pub(crate) fn violations(root: &Path) -> String {
    std::fs::read_to_string(root.join(VIOLATIONS)).unwrap_or_default()
}

/// The description's rules and what the machine was told.
pub(crate) struct Api {
    description: serde_yaml_ng::Value,
    started: bool,
    boot_source: Option<Value>,
    drives: Vec<Value>,
}

impl Api {
    pub(crate) fn new() -> Self {
        let description = serde_yaml_ng::from_str(DESCRIPTION).unwrap();
        Self { description, started: false, boot_source: None, drives: vec![] }
    }

    /// Takes a request or says why not.
    pub(crate) fn take(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let (template, operation) = self.operation(method, path)?;
        for parameter in list(&operation["parameters"]) {
            if parameter["in"] == "body" {
                self.check(&parameter["schema"], body, path)?;
            }
        }
        let summary = operation["summary"].as_str().unwrap_or_default();
        if self.started && summary.contains("Pre-boot only") {
            return Err(format!("{method} {path} after the start"));
        }
        match template.as_str() {
            "/" => {
                let state = if self.started { "Running" } else { "Not started" };
                return Ok(
                    json!({"app_name": "Firecracker", "id": "fake", "state": state, "vmm_version": "0"}),
                );
            }
            "/boot-source" => self.boot_source = Some(body.clone()),
            "/drives/{drive_id}" => {
                let named = path.rsplit('/').next().unwrap_or_default();
                if body["drive_id"] != named {
                    return Err(format!("{path} is not {}", body["drive_id"]));
                }
                for needed in ["path_on_host", "is_read_only"] {
                    if body.get(needed).is_none() {
                        return Err(format!("{needed} is required for virtio-block"));
                    }
                }
                self.drives.push(body.clone());
            }
            "/actions" => self.act(body["action_type"].as_str().unwrap_or_default())?,
            _ => {}
        }
        Ok(Value::Null)
    }

    fn act(&mut self, action: &str) -> Result<(), String> {
        match (action, self.started, &self.boot_source) {
            ("InstanceStart", true, _) => Err("started twice".to_owned()),
            ("InstanceStart", false, None) => Err("no boot source".to_owned()),
            ("InstanceStart", false, Some(boot)) => {
                let drives = self.drives.iter().map(|drive| &drive["path_on_host"]);
                for path in
                    [&boot["kernel_image_path"], &boot["initrd_path"]].into_iter().chain(drives)
                {
                    File::open(path.as_str().unwrap_or_default())
                        .map_err(|e| format!("{path}: {e}"))?;
                }
                self.started = true;
                Ok(())
            }
            (_, false, _) => Err(format!("{action} before the start")),
            _ => Ok(()),
        }
    }

    fn operation(
        &self,
        method: &str,
        path: &str,
    ) -> Result<(String, serde_yaml_ng::Value), String> {
        let fits = |template: &str| {
            let (template, path) = (template.split('/'), path.split('/'));
            template.clone().count() == path.clone().count()
                && template.zip(path).all(|(t, p)| t == p || (t.starts_with('{') && !p.is_empty()))
        };
        let paths = self.description["paths"].as_mapping().unwrap();
        let (template, methods) = paths
            .iter()
            .find(|(template, _)| template.as_str().is_some_and(fits))
            .ok_or_else(|| format!("no path {path}"))?;
        let operation = methods
            .get(method.to_ascii_lowercase())
            .ok_or_else(|| format!("no {method} of {path}"))?;
        Ok((template.as_str().unwrap().to_owned(), operation.clone()))
    }

    fn check(&self, schema: &serde_yaml_ng::Value, value: &Value, at: &str) -> Result<(), String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.trim_start_matches("#/definitions/");
            return self.check(&self.description["definitions"][name], value, at);
        }
        let wrong = |what: &str| Err(format!("{at}: {what}: {value}"));
        if let Some(allowed) = schema["enum"].as_sequence()
            && !allowed.iter().any(|one| one.as_str() == value.as_str())
        {
            return wrong("not one of the words");
        }
        match schema["type"].as_str() {
            Some("object") => self.check_object(schema, value, at),
            Some("string") if !value.is_string() => wrong("no string"),
            Some("boolean") if !value.is_boolean() => wrong("no boolean"),
            Some("integer") => match value.as_i64() {
                None => wrong("no integer"),
                Some(n) if schema["minimum"].as_i64().is_some_and(|least| n < least) => {
                    wrong("too small")
                }
                Some(n) if schema["maximum"].as_i64().is_some_and(|most| n > most) => {
                    wrong("too large")
                }
                Some(_) => Ok(()),
            },
            Some("array") if !value.is_array() => wrong("no array"),
            _ => Ok(()),
        }
    }

    fn check_object(
        &self,
        schema: &serde_yaml_ng::Value,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        let Some(fields) = value.as_object() else {
            return Err(format!("{at}: no object: {value}"));
        };
        for needed in list(&schema["required"]) {
            let needed = needed.as_str().unwrap_or_default();
            if !fields.contains_key(needed) {
                return Err(format!("{at}: {needed} is missing"));
            }
        }
        for (name, value) in fields {
            let property = &schema["properties"][name.as_str()];
            if property.is_null() {
                return Err(format!("{at}: there is no {name}"));
            }
            self.check(property, value, &format!("{at}.{name}"))?;
        }
        Ok(())
    }
}

fn list(value: &serde_yaml_ng::Value) -> &[serde_yaml_ng::Value] {
    value.as_sequence().map_or(&[], Vec::as_slice)
}

/// The process: serves its API until its guest ends.
pub(crate) fn serve(arguments: &str) -> ! {
    let words: Vec<&str> = arguments.split(' ').collect();
    let socket = match words[..] {
        ["--api-sock", socket, "--id", _] => socket,
        _ => violate(&format!("arguments {arguments}")),
    };
    // A second machine in one folder is what must never be.
    let only = File::create("only").unwrap();
    if only.try_lock().is_err() {
        violate("a second machine for one instance");
    }
    let listener =
        UnixListener::bind(socket).unwrap_or_else(|error| violate(&format!("bind: {error}")));
    let api = Arc::new(Mutex::new(Api::new()));
    let asked = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming() {
        if let Err(error) = answer(stream.unwrap(), &api, &asked)
            // Agents of these tests are killed in mid request.
            && !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
        {
            violate(&error.to_string());
        }
    }
    unreachable!("a listener has no end");
}

fn violate(what: &str) -> ! {
    let path = Path::new("../..").join(VIOLATIONS);
    let mut file = File::options().append(true).create(true).open(path).unwrap();
    writeln!(file, "{what}").unwrap();
    std::process::exit(3);
}

fn answer(stream: UnixStream, api: &Mutex<Api>, asked: &Arc<AtomicBool>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
    let mut api = api.lock().unwrap();
    let (status, text) = match api.take(&method, &path, &body) {
        Ok(Value::Null) => ("204 No Content", String::new()),
        Ok(value) => ("200 OK", value.to_string()),
        Err(why) => {
            let file = Path::new("../..").join(VIOLATIONS);
            writeln!(File::options().append(true).create(true).open(file)?, "{why}")?;
            ("400 Bad Request", json!({ "fault_message": why }).to_string())
        }
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )?;
    match body["action_type"].as_str() {
        Some("InstanceStart") if api.started => {
            let boot = api.boot_source.clone().unwrap();
            let (drives, asked) = (api.drives.clone(), Arc::clone(asked));
            std::thread::spawn(move || guest(&boot, &drives, &asked));
        }
        Some("SendCtrlAltDel") => asked.store(true, Ordering::SeqCst),
        _ => {}
    }
    Ok(())
}

/// Behaves as the workload's name says.
fn guest(boot: &Value, drives: &[Value], asked: &AtomicBool) {
    let initramfs = std::fs::read(boot["initrd_path"].as_str().unwrap()).unwrap();
    let config = config_in(&initramfs);
    let say = |text: &str| {
        let line = format!("\nportolan-init[{}]: {text}\n", config["token"].as_str().unwrap());
        // Nobody may be left to read it.
        let _ = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
    };
    let wait_until_asked = || {
        while !asked.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let argv: Vec<&str> =
        config["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    if argv[0] == "die" {
        std::process::exit(1);
    }
    if argv[0] == "hang" {
        return;
    }
    if argv[0] == "give-up" {
        say("failed: could not mount /dev/vda (ext4) at /lower: No such device");
        std::process::exit(0);
    }
    let scratch = drives.iter().find(|drive| drive["drive_id"] == "scratch").unwrap();
    let fresh = write_scratch(Path::new(scratch["path_on_host"].as_str().unwrap())).unwrap();
    say("workload started");
    let status = match argv[..] {
        _ if !fresh => "99",
        ["exit", status] => status,
        ["stubborn"] => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        ["flood"] => {
            for _ in 0..10_000 {
                io::stdout().write_all(&[b'x'; 1000]).unwrap();
            }
            wait_until_asked();
            "0"
        }
        _ => {
            wait_until_asked();
            "0"
        }
    };
    say(&format!("workload exited with status {status}"));
    std::process::exit(0);
}

/// What the agent put into the last archive of the initramfs.
fn config_in(initramfs: &[u8]) -> Value {
    let start = b"{\"token\":";
    let at = initramfs.windows(start.len()).rposition(|window| window == start).unwrap();
    let mut values = serde_json::Deserializer::from_slice(&initramfs[at..]).into_iter();
    values.next().unwrap().unwrap()
}

/// Writes to the scratch disk; false where somebody has before.
fn write_scratch(path: &Path) -> io::Result<bool> {
    let file = File::options().read(true).write(true).open(path)?;
    let end = file.metadata()?.len() - WRITTEN.len() as u64;
    let mut last = [0; 8];
    file.read_exact_at(&mut last, end)?;
    file.write_all_at(WRITTEN, end)?;
    Ok(&last != WRITTEN)
}
