//! Template, constraint, provider and mutations for one cluster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::parameters::Parameters;
use super::read::{ReadTemplateError, documents};
use super::{CONSTRAINT, MUTATION, PROVIDER, TEMPLATE};

/// What is filled in.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of the constraint.
    pub parameters: Parameters,
    /// Where the verifier is; the shipped address where it is not said.
    pub url: Option<String>,
    /// Who signed its certificate, in PEM.
    pub authority: Option<Vec<u8>>,
    /// What Gatekeeper does about a violation: `deny`, `warn` or `dryrun`.
    pub action: String,
    /// Also what makes digests of tags.
    pub pin: bool,
}

/// Template, constraint, provider and, where they are wanted, mutations, in this order.
pub fn objects(options: &Options) -> Result<Vec<Value>, ReadTemplateError> {
    let mut all = documents(TEMPLATE.as_bytes())?;
    all.extend(filled(options)?);
    Ok(all)
}

/// The same as text. The template is as it is shipped, with its comments.
pub fn yaml(options: &Options) -> Result<String, ReadTemplateError> {
    let mut text = TEMPLATE.to_owned();
    for (n, one) in filled(options)?.iter().enumerate() {
        let wrong = |source| ReadTemplateError::Yaml { number: n + 2, source };
        text.push_str("---\n");
        text.push_str(&serde_yaml_ng::to_string(one).map_err(wrong)?);
    }
    Ok(text)
}

fn filled(options: &Options) -> Result<Vec<Value>, ReadTemplateError> {
    let provider = options.parameters.provider();
    let mut found = Vec::new();
    for mut one in documents(CONSTRAINT.as_bytes())? {
        one["spec"]["parameters"] = json!(options.parameters);
        one["spec"]["enforcementAction"] = json!(options.action);
        found.push(one);
    }
    for mut one in documents(PROVIDER.as_bytes())? {
        one["metadata"]["name"] = json!(provider);
        fill_provider(&mut one, options.url.as_deref(), options);
        found.push(one);
    }
    if options.pin {
        let url = options.url.as_deref().map(mutate_url);
        for mut one in documents(MUTATION.as_bytes())? {
            if one["kind"] == "Provider" {
                fill_provider(&mut one, url.as_deref(), options);
            }
            found.push(one);
        }
    }
    Ok(found)
}

fn fill_provider(one: &mut Value, url: Option<&str>, options: &Options) {
    if let Some(url) = url {
        one["spec"]["url"] = json!(url);
    }
    if let Some(authority) = &options.authority {
        one["spec"]["caBundle"] = json!(STANDARD.encode(authority));
    }
}

/// The verifier's other route, beside the one that verifies.
fn mutate_url(verify: &str) -> String {
    let (beside, _) = verify.rsplit_once('/').unwrap_or((verify, ""));
    format!("{beside}/mutate")
}
