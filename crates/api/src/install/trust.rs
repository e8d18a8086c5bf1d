//! Whom the verifier trusts, who may ask it, and by which certificate it is known.
//!
//! The shipped configuration names a certificate from files. An installed verifier makes its own: it is written into
//! the Provider or the webhook by the verifier itself, and until then there is one that nobody can use.

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::{Action, NOBODY, Options};

pub(super) const VERIFIER: &str = "portolan-verifier";

pub(super) fn set(object: &mut Value, options: &Options) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match (kind.as_str(), name.as_str()) {
        ("ConfigMap", VERIFIER) => {
            let text = object["data"]["verifier.toml"].as_str().unwrap_or_default();
            object["data"]["verifier.toml"] = json!(configuration(text, options)?);
        }
        ("ConfigMap", "portolan-policy") if !options.trust.policy.is_empty() => {
            object["data"] = json!(options.trust.policy);
        }
        ("Provider", _) => bundle(&mut object["spec"], options),
        ("ValidatingWebhookConfiguration", _) => {
            // One may be without, and is then trusted by nobody; so nothing has to be put here first.
            for webhook in super::place::each(object, "/webhooks") {
                if let Some(client) = webhook["clientConfig"].as_object_mut() {
                    client.remove("caBundle");
                }
            }
        }
        ("PortolanVerifiedImages", _) => {
            let action = options.trust.action.unwrap_or(Action::Dryrun);
            object["spec"]["enforcementAction"] = json!(action.as_str());
        }
        _ => {}
    }
    Ok(())
}

/// On an upgrade the field is the verifier's: who leaves it out of what is applied by the server takes nothing away.
fn bundle(spec: &mut Value, options: &Options) {
    match options.upgrade {
        true => drop(spec.as_object_mut().and_then(|spec| spec.remove("caBundle"))),
        false => spec["caBundle"] = json!(ByteString(NOBODY.as_bytes().to_vec())),
    }
}

/// The shipped configuration with a certificate of the verifier's own making.
fn configuration(text: &str, options: &Options) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e| format!("verifier.toml: {e}"))?;
    let tls = document["tls"].as_table_mut().ok_or("verifier.toml has no [tls]")?;
    tls.remove("certificate");
    tls.remove("key");
    if options.trust.gatekeeper_ca.is_none() {
        // A file that is not there is no reason to let in everybody, so a verifier would not start with it.
        tls.remove("client_ca");
    }
    let service = format!("{VERIFIER}.{}", options.namespace.0);
    let mut generate = Table::new();
    let names = [service.clone(), format!("{service}.svc")];
    generate["names"] = value(names.into_iter().collect::<Array>());
    // Whichever of them is there; one that is not does no harm.
    generate["providers"] = value([VERIFIER, "portolan-mutator"].into_iter().collect::<Array>());
    generate["webhooks"] = value([VERIFIER].into_iter().collect::<Array>());
    tls.insert("generate", Item::Table(generate));
    Ok(document.to_string())
}

/// Who vouches for Gatekeeper, where that was given.
pub(super) fn gatekeepers_authority(options: &Options) -> Option<Value> {
    let authority = options.trust.gatekeeper_ca.as_ref()?;
    options.components.contains(&super::Component::Verify).then(|| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "gatekeeper-ca", "namespace": options.namespace.0},
            "data": {"ca.crt": authority},
        })
    })
}
