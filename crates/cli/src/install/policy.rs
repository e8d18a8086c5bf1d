//! Whom an installed verifier trusts: keys, or a policy with the files that it names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use portolan_registry::durable;
use portolan_verify::policy as verify;
use serde_json::json;

use crate::exit::{Exit, Failure};

/// What a ConfigMap can hold is a little more.
const MAX_ALL: u64 = 900 * 1024;
/// The name under which the verifier looks.
const POLICY: &str = "policy.yaml";

fn read(file: &Path) -> Result<String, Failure> {
    let bytes = match durable::read_bounded(file, MAX_ALL) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            return Err(Failure::new(Exit::NotFound, anyhow!("there is no {}", file.display())));
        }
        Err(error) => return Err(Failure::usage(error)),
    };
    let text = String::from_utf8(bytes).with_context(|| format!("{} is no text", file.display()));
    text.map_err(Failure::usage)
}

/// Each of these keys may have signed; for the machines of the cluster.
pub(super) fn of_keys(files: &[PathBuf]) -> Result<BTreeMap<String, String>, Failure> {
    let mut all = BTreeMap::new();
    let mut signers = BTreeMap::new();
    for (n, file) in files.iter().enumerate() {
        let name = format!("key-{}", n + 1);
        let key = format!("{name}.pub");
        signers.insert(name, json!({"keys": {"files": [&key]}}));
        all.insert(key, read(file)?);
    }
    let names: Vec<_> = signers.keys().collect();
    let policy = json!({
        "version": 1,
        "default": {"require": {"anyOf": names}, "platforms": "nodes"},
        "signers": signers,
    });
    let text = serde_yaml_ng::to_string(&policy).map_err(Failure::usage)?;
    gathered(text, &|name| all.get(name).cloned().ok_or_else(not_beside))
}

/// A folder, of which the policy and the files that it names are taken, or a policy that needs no others.
pub(super) fn from_path(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    if !path.is_dir() {
        return gathered(read(path)?, &|_| Err(not_beside()));
    }
    // What else is in the folder, such as the private half of a key, is nobody's business.
    gathered(read(&path.join(POLICY))?, &|name| {
        read(&path.join(name)).map_err(|failure| format!("{:#}", failure.error))
    })
}

fn not_beside() -> String {
    "it is not beside policy.yaml; a ConfigMap has no folders".to_owned()
}

/// The policy with every file that it names. What a verifier would not take is refused here, before it is in a
/// cluster.
fn gathered(
    policy: String,
    beside: &dyn Fn(&str) -> Result<String, String>,
) -> Result<BTreeMap<String, String>, Failure> {
    let named = RefCell::new(BTreeMap::new());
    let collect = |file: &Path| {
        let name = file.to_str().filter(|name| !name.contains('/')).ok_or_else(not_beside)?;
        let text = beside(name)?;
        named.borrow_mut().insert(name.to_owned(), text.clone());
        Ok(text.into_bytes())
    };
    verify::parse(policy.as_bytes(), &collect).map_err(|error| {
        Failure::usage(anyhow::Error::new(error).context("the policy is wrong"))
    })?;
    let mut all = named.into_inner();
    all.insert(POLICY.to_owned(), policy);
    let wrong = |what: String| Failure::usage(anyhow!(what));
    let size: usize = all.values().map(String::len).sum();
    if size as u64 > MAX_ALL {
        return Err(wrong(format!(
            "the policy has {size} bytes with its files, at most {MAX_ALL}"
        )));
    }
    let is_key = |name: &String| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && name.len() <= 253
    };
    if let Some(name) = all.keys().find(|name| !is_key(name)) {
        return Err(wrong(format!(
            "{name:?} cannot be a key of a ConfigMap: letters, digits, - _ and . only"
        )));
    }
    Ok(all)
}

/// Certificates in PEM.
pub(super) fn authority(file: &Path) -> Result<String, Failure> {
    let text = read(file)?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        let what = anyhow!("{} has no certificate in PEM", file.display());
        return Err(Failure::usage(what));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_is_a_policy_that_the_verifier_takes() {
        let options = portolan_api::install::Options::new("1");
        let all = portolan_api::install::objects(&options).unwrap();
        let found = all.iter().find(|one| one["metadata"]["name"] == "portolan-policy").unwrap();
        let data: BTreeMap<String, String> = serde_json::from_value(found["data"].clone()).unwrap();
        let beside = |name: &str| data.get(name).cloned().ok_or_else(not_beside);
        let all = gathered(data[POLICY].clone(), &beside).map_err(|failure| failure.error).unwrap();
        assert_eq!(all, data);
    }

    #[test]
    fn a_policy_with_a_file_that_is_not_beside_it_is_refused() {
        let policy = "version: 1\nsigners:\n  a: {keys: {files: [keys/a.pub]}}\n\
                      default: {require: {anyOf: [a]}}\n";
        let refused = gathered(policy.to_owned(), &|name| panic!("{name} is looked for"));
        let error = format!("{:#}", refused.unwrap_err().error);
        assert!(error.contains("keys/a.pub") && error.contains("no folders"), "{error}");
    }
}
