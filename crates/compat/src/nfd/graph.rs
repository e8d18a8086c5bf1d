//! Rules as a graph of namespaces, so that they are reported and drawn like a spec.

use crate::document::{Namespace, NamespaceId, Plugin, Refs, Spec};
use crate::evaluate::{Answer, Depth, Evaluation, evaluate as evaluate_graph};
use crate::json::Place;
use crate::text::shown;

/// A set, a rule, or one choice of a rule.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// What each of its terms came to, by the feature's name.
    pub(super) answers: Vec<(String, Answer)>,
    pub(super) all: Vec<String>,
    pub(super) one_of: Option<Vec<String>>,
}

/// A name of the graph: the place in the document, and what its author called it as far as a name
/// can hold it.
pub(super) fn name(place: &str, called: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let called: String = called.chars().filter(fits).take(60).collect();
    if called.is_empty() { place.to_owned() } else { format!("{place}-{called}") }
}

/// Puts the answers together. `roots` are names of nodes, in the order in which they are tried.
pub(super) fn evaluate(mut nodes: Vec<Node>, roots: &[&str]) -> (Spec, Evaluation) {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let id = |name: &str| {
        let found = names.binary_search_by(|one| one.as_str().cmp(name));
        NamespaceId(found.expect("every name is that of a node"))
    };
    let mut answers = Vec::with_capacity(nodes.len());
    let mut namespaces = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut asked = numbered(node.answers);
        asked.sort_by(|a, b| a.0.cmp(&b.0));
        let place = Place { line: 1, column: 1 };
        let plugin = |name: &String| Plugin {
            name: name.clone(),
            place,
            source: None,
            digest: None,
            data: None,
        };
        namespaces.push(Namespace {
            plugins: asked.iter().map(|(name, _)| plugin(name)).collect(),
            place,
            refs: Refs {
                all: node.all.iter().map(|name| id(name)).collect(),
                one_of: node.one_of.map(|names| names.iter().map(|name| id(name)).collect()),
                none_of: Vec::new(),
            },
            name: node.name,
        });
        answers.push(asked.into_iter().map(|(_, answer)| answer));
    }
    let spec = Spec::assembled(namespaces);
    let roots: Vec<NamespaceId> = roots.iter().map(|name| id(name)).collect();
    // Namespaces and their plugins are asked in the order in which they were made above.
    let mut answers = answers.into_iter().flatten();
    let evaluation = evaluate_graph(&spec, Some(&roots), Depth::Everything, &mut |_, _| {
        answers.next().expect("one answer for each plugin")
    });
    (spec, evaluation)
}

/// Names that no other answer has: a rule may ask for one feature several times. They stand where
/// a spec's plugins do, whose names are plain; a feature may be called anything.
fn numbered(answers: Vec<(String, Answer)>) -> Vec<(String, Answer)> {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut named = Vec::with_capacity(answers.len());
    for (feature, answer) in answers {
        let feature = shown(&feature);
        let count = seen.entry(feature.clone()).or_default();
        *count += 1;
        let name = if *count == 1 { feature } else { format!("{feature}-{count}") };
        named.push((name, answer));
    }
    named
}
