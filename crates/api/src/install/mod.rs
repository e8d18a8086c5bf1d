//! What a cluster gets: every object that Portolan needs there, in the order in which it is applied.
//!
//! The manifests below `deploy/` are the one source. They are read, changed where an installation differs from
//! them (namespace, image, replicas, whom to trust) and labelled; nothing is put together from text.
//!
//! | module | what it holds |
//! |---|---|
//! | `options` | components, namespaces, what an installation is like |
//! | `sources` | the manifests, and which component each is for |
//! | `place` | everywhere an object says a namespace |
//! | `settings` | images, replicas, what the controller serves, which ConfigMaps are the operator's |
//! | `agent` | what agents do, and where on nodes |
//! | `trust` | the verifier's certificate, policy, and who may ask it |
//! | `order` | what is applied before what |
//! | `chart` | the same as a Helm chart |

mod agent;
mod chart;
mod options;
mod order;
mod place;
mod settings;
mod sources;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::BTreeSet;

use serde::Deserialize as _;
use serde_json::{Value, json};

pub use agent::is_agent_root;
pub use chart::{CHART_DIR, files as chart_files};
pub use options::{Action, Agent, Component, Gate, InstallError, Namespace, Options, Trust};
pub use sources::NOBODY;

use crate::definitions;
use sources::{ROWS, Row, When};

/// Every object of an installation has it.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "portolan");
/// Which Portolan wrote an object.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// An object with this label is for that component alone.
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Where programs run if nothing else is said.
pub const NAMESPACE: &str = "portolan-system";
/// Where Jobs of nodes run if nothing else is said.
pub const SHIM_NAMESPACE: &str = "portolan-shims";
/// Where agents run if nothing else is said.
pub const AGENT_NAMESPACE: &str = "portolan-nodes";
/// Where agents keep what they keep, on nodes, if nothing else is said.
pub const AGENT_ROOT: &str = "/var/lib/portolan";

/// An object, and what it is installed for.
#[derive(Debug, Clone)]
struct Piece {
    object: Value,
    /// One of these.
    of: BTreeSet<Component>,
    when: When,
    /// The file that it is from.
    path: &'static str,
}

/// Everything to apply, in order. Applied again, it changes nothing.
pub fn objects(options: &Options) -> Result<Vec<Value>, InstallError> {
    options.distinct()?;
    let mut all = crds(options);
    let pieces = pieces(options, |row| options.has(row))?;
    all.extend(pieces.into_iter().map(|piece| piece.object));
    all.retain(|object| is_wanted(object, options));
    all.sort_by_key(order::rank);
    Ok(all)
}

/// The objects of some rows, for this installation.
fn pieces(options: &Options, has: impl Fn(&Row) -> bool) -> Result<Vec<Piece>, InstallError> {
    let mut all: Vec<Piece> = Vec::new();
    for row in ROWS.iter().filter(|row| has(row)) {
        for source in row.files {
            let wrong = |why: String| InstallError::Shipped { path: source.path.to_owned(), why };
            for mut object in documents(source.text).map_err(wrong)? {
                place::place(&mut object, options);
                settings::set(&mut object, options);
                agent::set(&mut object, options).map_err(wrong)?;
                trust::set(&mut object, options).map_err(wrong)?;
                label(&mut object, &options.version);
                let of = match component(&object) {
                    Some(one) => BTreeSet::from([one]),
                    None => row.of.iter().copied().collect(),
                };
                let piece = Piece { object, of, when: row.when, path: source.path };
                add(&mut all, piece).map_err(wrong)?;
            }
        }
    }
    if let Some(mut object) = trust::gatekeepers_authority(options) {
        label(&mut object, &options.version);
        let of = BTreeSet::from([Component::Verify]);
        all.push(Piece { object, of, when: When::Always, path: "verifier/gatekeeper-ca.yaml" });
    }
    Ok(all)
}

/// The definitions alone, of the components.
pub fn crds(options: &Options) -> Vec<Value> {
    let all = definitions::all().into_iter().filter(|one| {
        sources::component_of(one.group()).is_some_and(|of| options.components.contains(&of))
    });
    all.map(|definition| {
        let mut value = definition.value.clone();
        label(&mut value, &options.version);
        value
    })
    .collect()
}

/// What to delete, in order: what asks first, so that nothing asks who is gone. Definitions go with every object of
/// theirs, so they stay unless that is wanted; and so does what a component that is not named may need, too.
pub fn leavings(
    options: &Options,
    with_crds: bool,
    with_namespaces: bool,
) -> Result<Vec<Value>, InstallError> {
    options.distinct()?;
    let mut options = options.clone();
    // What was given when it was installed is not said at the end; what is not there is passed over.
    options.trust.gatekeeper_ca.get_or_insert_default();
    let staying: BTreeSet<_> =
        Component::available().difference(&options.components).copied().collect();
    let mut all = if with_crds { crds(&options) } else { Vec::new() };
    // Of every component, for only then is it known who shares what.
    let pieces = pieces(&options, |_| true)?.into_iter();
    let gone = pieces.filter(|one| one.of.is_disjoint(&staying) && options.may_have(one.when));
    all.extend(gone.map(|piece| piece.object));
    all.retain(|object| with_namespaces || object["kind"] != "Namespace");
    all.sort_by_key(order::rank);
    all.reverse();
    Ok(all)
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents.map(Value::deserialize).collect::<Result<_, _>>().map_err(|e| e.to_string())
}

/// Objects that are for one component say so.
fn component(object: &Value) -> Option<Component> {
    let said = object["metadata"]["labels"][COMPONENT_LABEL].as_str()?;
    Component::ALL.into_iter().find(|one| one.as_str() == said)
}

fn is_wanted(object: &Value, options: &Options) -> bool {
    let trust = &options.trust;
    match (object["kind"].as_str().unwrap_or_default(), &object["metadata"]["name"]) {
        // A budget that wants one of one would stop every node from being drained.
        ("PodDisruptionBudget", _) => options.replicas != Some(1),
        // What somebody made of these since must not be put back by an upgrade that says nothing of it.
        ("PortolanVerifiedImages", _) => !options.upgrade || trust.action.is_some(),
        ("ConfigMap", name) if name == "portolan-policy" => {
            !options.upgrade || !trust.policy.is_empty()
        }
        // Flags are repeated with every upgrade, so what they say of settings is told and not put there.
        ("ConfigMap", name) if options.upgrade && holds_settings(name) => false,
        _ => component(object).is_none_or(|one| options.components.contains(&one)),
    }
}

/// Whether it holds settings of a program, which are the operator's once it runs.
fn holds_settings(name: &Value) -> bool {
    name.as_str().is_some_and(|name| settings::MAPS.contains(&name))
}

/// What an object is called among all of a cluster.
fn identity(object: &Value) -> [&str; 4] {
    fn text(value: &Value) -> &str {
        value.as_str().unwrap_or_default()
    }
    let metadata = &object["metadata"];
    [
        text(&object["apiVersion"]),
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    ]
}

/// Two files may name one namespace, in the same words.
fn add(all: &mut Vec<Piece>, piece: Piece) -> Result<(), String> {
    let there = all.iter_mut().find(|one| identity(&one.object) == identity(&piece.object));
    match there {
        None => all.push(piece),
        Some(there) if there.object == piece.object => there.of.extend(piece.of),
        Some(_) => {
            return Err(format!("{:?} is there already, and is another", identity(&piece.object)));
        }
    }
    Ok(())
}

fn label(object: &mut Value, version: &str) {
    let labels = &mut object["metadata"]["labels"];
    if labels.is_null() {
        *labels = json!({});
    }
    labels[PART_OF.0] = json!(PART_OF.1);
    labels[VERSION_LABEL] = json!(version);
}
