//! Docker's `config.json`: writing one entry of `auths` and leaving everything else as it is.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use portolan_core::Host;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::CredentialError;
use super::config::{malformed, normal_key, read_bounded, server_key};
use crate::client::Secret;

/// A JSON object whose keys keep their order and whose values keep every byte: numbers that no
/// other type holds exactly, and the order of keys that other programs wrote.
#[derive(Default)]
struct Object(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Object;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Object(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl Object {
    fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Docker indents by tabs.
    fn print(&self, depth: usize) -> String {
        if self.0.is_empty() {
            return "{}".to_owned();
        }
        let indent = "\t".repeat(depth + 1);
        let pair = |(key, value): &(String, Box<RawValue>)| {
            format!("{indent}{}: {}", serde_json::Value::String(key.clone()), value.get())
        };
        let pairs: Vec<String> = self.0.iter().map(pair).collect();
        format!("{{\n{}\n{}}}", pairs.join(",\n"), "\t".repeat(depth))
    }
}

/// Sets the entry of a host: `auth`, or an empty one beside a helper's.
pub(super) fn set(path: &Path, host: &Host, auth: Option<&Secret>) -> Result<(), CredentialError> {
    let entry = match auth {
        Some(auth) => Zeroizing::new(format!("{{\n\t\t\t\"auth\": \"{}\"\n\t\t}}", auth.expose())),
        None => Zeroizing::new("{}".to_owned()),
    };
    change(path, |auths| {
        // One entry per host, whatever spelling it had.
        auths.0.retain(|(key, _)| normal_key(key) != host.as_str() || *key == server_key(host));
        auths.set(
            &server_key(host),
            RawValue::from_string(entry.to_string()).expect("base64 in quotes is JSON"),
        );
        true
    })
    .map(drop)
}

/// Removes all entries of a host; false when there was none.
pub(super) fn remove(path: &Path, host: &Host) -> Result<bool, CredentialError> {
    change(path, |auths| {
        let before = auths.0.len();
        auths.0.retain(|(key, _)| normal_key(key) != host.as_str());
        auths.0.len() != before
    })
}

/// Reads the file, lets `edit` change `auths`, and writes it back if it did.
fn change(path: &Path, edit: impl FnOnce(&mut Object) -> bool) -> Result<bool, CredentialError> {
    let bytes = read_bounded(path)?.unwrap_or_default();
    let parse = |bytes: &[u8]| -> Result<Object, CredentialError> {
        serde_json::from_slice(bytes).map_err(|error| malformed(path, &error))
    };
    let mut file = if bytes.trim_ascii().is_empty() { Object::default() } else { parse(&bytes)? };
    let mut auths = match file.get("auths") {
        Some(value) if value.get() != "null" => parse(value.get().as_bytes())?,
        _ => Object::default(),
    };
    if !edit(&mut auths) {
        return Ok(false);
    }
    file.set("auths", RawValue::from_string(auths.print(1)).expect("printed objects are JSON"));
    let text = Zeroizing::new(file.print(0) + "\n");
    write(path, text.as_bytes())
        .map_err(|source| CredentialError::Write { path: path.to_owned(), source })?;
    Ok(true)
}

/// Temp file, fsync, rename, fsync of the directory; mode 0600. A symbolic link keeps pointing to
/// the file, which is replaced where it really is.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let temp = temp_path(&path)?;
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temp, &path)?;
        File::open(dir)?.sync_all()
    })();
    if result.is_err() {
        // Gone already after a rename that worked; else it must not stay, it holds secrets.
        let _ = std::fs::remove_file(&temp);
    }
    result
}

fn temp_path(path: &Path) -> io::Result<PathBuf> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(path.with_file_name(format!(".{name}.{number:016x}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn host(name: &str) -> Host {
        name.parse().unwrap()
    }

    #[test]
    fn other_keys_keep_their_bytes_and_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let before = "{ \"zeta\": 1.50e3, \"big\": 123456789012345678901234567890,\n  \"auths\": {\"z.example\": {\"auth\":\"eDp5\", \"email\" : \"a@b\"}, \"a.example\": {}},\n \"alpha\": {\"b\":1,\"a\":[ 2 ]} }";
        std::fs::write(&path, before).unwrap();
        set(&path, &host("new.example"), Some(&Secret::new("bTpw"))).unwrap();
        let after = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            after,
            "{\n\t\"zeta\": 1.50e3,\n\t\"big\": 123456789012345678901234567890,\n\t\"auths\": {\n\t\t\"z.example\": {\"auth\":\"eDp5\", \"email\" : \"a@b\"},\n\t\t\"a.example\": {},\n\t\t\"new.example\": {\n\t\t\t\"auth\": \"bTpw\"\n\t\t}\n\t},\n\t\"alpha\": {\"b\":1,\"a\":[ 2 ]}\n}\n"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temp file is left");
    }

    #[test]
    fn a_new_file_in_a_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docker/config.json");
        set(&path, &Host::docker_hub(), Some(&Secret::new("bTpw"))).unwrap();
        let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("https://index.docker.io/v1/"), "{text}");
        assert!(remove(&path, &Host::docker_hub()).unwrap());
        assert!(!remove(&path, &Host::docker_hub()).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\n\t\"auths\": {}\n}\n");
    }

    #[test]
    fn every_spelling_of_a_host_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let text = r#"{"auths":{"https://r.example/v1/":{},"r.example":{},"r.example:5000":{},"r.example/org":{}}}"#;
        std::fs::write(&path, text).unwrap();
        assert!(remove(&path, &host("r.example")).unwrap());
        let after = std::fs::read_to_string(&path).unwrap();
        assert!(after.contains("r.example:5000") && after.contains("r.example/org"), "{after}");
        assert!(!after.contains("v1"), "{after}");
    }

    #[test]
    fn what_is_no_configuration_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["[1]", "{", "{\"auths\": 3}", "not json"] {
            let path = dir.path().join("config.json");
            std::fs::write(&path, text).unwrap();
            assert!(set(&path, &host("r.example"), None).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.json");
        let link = dir.path().join("config.json");
        std::fs::write(&real, "{}").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        set(&link, &host("r.example"), None).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(std::fs::read_to_string(&real).unwrap().contains("r.example"));
    }
}
