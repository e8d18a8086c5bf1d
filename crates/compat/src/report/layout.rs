//! A graph of namespaces, and where its boxes go: in layers, each below all that refer to it.

use std::collections::BTreeMap;

use super::Report;
use crate::document::Spec;
use crate::verdict::Verdict;

/// How often neighbouring layers are put in order of each other. More changes little.
const SWEEPS: usize = 4;

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// The boxes.
    pub nodes: Vec<Node>,
    /// The arrows.
    pub edges: Vec<Edge>,
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What came of it, if it was evaluated.
    pub verdict: Option<Verdict>,
    /// Whether evaluation begins here.
    pub root: bool,
    /// Its plugins, with what came of them.
    pub plugins: Vec<(String, Option<Verdict>)>,
}

/// A reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Which node refers.
    pub from: usize,
    /// To which.
    pub to: usize,
    /// In which list.
    pub kind: EdgeKind,
}

/// The list that a reference is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// `all`
    All,
    /// `oneOf`
    OneOf,
    /// `noneOf`
    NoneOf,
}

impl EdgeKind {
    /// As in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::OneOf => "oneOf",
            Self::NoneOf => "noneOf",
        }
    }
}

impl Graph {
    /// What a spec asks for.
    pub fn of_spec(spec: &Spec) -> Self {
        let mut graph = Self::default();
        for (id, namespace) in spec.namespaces() {
            graph.nodes.push(Node {
                name: namespace.name.clone(),
                verdict: None,
                root: spec.roots().contains(&id),
                plugins: namespace.plugins.iter().map(|one| (one.name.clone(), None)).collect(),
            });
            let refs = &namespace.refs;
            let all = refs.all.iter().map(|to| (to, EdgeKind::All));
            let one_of = refs.one_of.iter().flatten().map(|to| (to, EdgeKind::OneOf));
            let none_of = refs.none_of.iter().map(|to| (to, EdgeKind::NoneOf));
            for (to, kind) in all.chain(one_of).chain(none_of) {
                graph.edges.push(Edge { from: id.0, to: to.0, kind });
            }
        }
        graph
    }

    /// What came of a check.
    pub fn of_report(report: &Report) -> Self {
        let skipped = report.skipped.iter().map(|name| (name.as_str(), None));
        let known = report.namespaces.iter().map(|(name, found)| (name.as_str(), Some(found)));
        let all: BTreeMap<&str, _> = skipped.chain(known).collect();
        let index: BTreeMap<&str, usize> =
            all.keys().enumerate().map(|(n, name)| (*name, n)).collect();
        let roots: std::collections::BTreeSet<&str> =
            report.roots.iter().map(|root| root.name.as_str()).collect();
        let mut graph = Self::default();
        for (from, (name, found)) in all.iter().enumerate() {
            let plugins = found.iter().flat_map(|found| &found.plugins);
            graph.nodes.push(Node {
                name: (*name).to_owned(),
                verdict: found.map(|found| found.verdict),
                root: roots.contains(name),
                plugins: plugins.map(|(name, one)| (name.clone(), Some(one.verdict))).collect(),
            });
            let Some(found) = found else { continue };
            for (kind, names) in [
                (EdgeKind::All, &found.refs.all),
                (EdgeKind::OneOf, &found.refs.one_of),
                (EdgeKind::NoneOf, &found.refs.none_of),
            ] {
                let to = names.iter().filter_map(|name| index.get(name.as_str()));
                graph.edges.extend(to.map(|to| Edge { from, to: *to, kind }));
            }
        }
        graph
    }

    /// Nodes by layer from above, each layer from the left.
    pub(super) fn layers(&self) -> Vec<Vec<usize>> {
        let mut layers = self.by_depth();
        let (mut up, mut down) =
            (vec![Vec::new(); self.nodes.len()], vec![Vec::new(); self.nodes.len()]);
        for edge in &self.edges {
            up[edge.to].push(edge.from);
            down[edge.from].push(edge.to);
        }
        let mut place = vec![0.0; self.nodes.len()];
        let number = |layer: &[usize], place: &mut Vec<f64>| {
            for (n, node) in layer.iter().enumerate() {
                place[*node] = as_f64(n) / as_f64(layer.len());
            }
        };
        layers.iter().for_each(|layer| number(layer, &mut place));
        for sweep in 0..SWEEPS {
            let neighbours = if sweep % 2 == 0 { &up } else { &down };
            for layer in &mut layers {
                // Each goes to the middle of those it is tied to; those without stay.
                let mut keyed: Vec<(f64, usize)> = layer
                    .iter()
                    .map(|node| match neighbours[*node].as_slice() {
                        [] => (place[*node], *node),
                        tied => {
                            let sum: f64 = tied.iter().map(|other| place[*other]).sum();
                            (sum / as_f64(tied.len()), *node)
                        }
                    })
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                *layer = keyed.into_iter().map(|(_, node)| node).collect();
                number(layer, &mut place);
            }
        }
        layers
    }

    /// Each node one below the lowest that refers to it.
    fn by_depth(&self) -> Vec<Vec<usize>> {
        let mut waiting = vec![0usize; self.nodes.len()];
        let mut down = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            waiting[edge.to] += 1;
            down[edge.from].push(edge.to);
        }
        let mut depth = vec![0usize; self.nodes.len()];
        let mut todo: Vec<usize> = (0..self.nodes.len()).filter(|n| waiting[*n] == 0).collect();
        while let Some(node) = todo.pop() {
            for to in &down[node] {
                depth[*to] = depth[*to].max(depth[node] + 1);
                waiting[*to] -= 1;
                if waiting[*to] == 0 {
                    todo.push(*to);
                }
            }
        }
        let mut layers = vec![Vec::new(); depth.iter().max().map_or(0, |deepest| deepest + 1)];
        for (node, depth) in depth.into_iter().enumerate() {
            layers[depth].push(node);
        }
        layers
    }
}

/// Counts of boxes are small.
pub(super) fn as_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
        let node =
            |n: usize| Node { name: format!("n{n}"), verdict: None, root: false, plugins: vec![] };
        let edge = |(from, to): &(usize, usize)| Edge { from: *from, to: *to, kind: EdgeKind::All };
        Graph { nodes: (0..nodes).map(node).collect(), edges: edges.iter().map(edge).collect() }
    }

    #[test]
    fn arrows_only_point_down() {
        let graph = graph(6, &[(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (4, 3), (3, 5)]);
        let layers = graph.layers();
        let depth = |node: usize| layers.iter().position(|layer| layer.contains(&node)).unwrap();
        for edge in &graph.edges {
            assert!(depth(edge.from) < depth(edge.to), "{edge:?} {layers:?}");
        }
        assert_eq!(layers.iter().map(Vec::len).sum::<usize>(), 6);
        assert_eq!(depth(5), 3);
    }

    #[test]
    fn what_belongs_together_stands_together() {
        // Crossed as written: 0 has 3, 1 has 2.
        let layers = graph(4, &[(0, 3), (1, 2)]).layers();
        assert_eq!(layers, [vec![0, 1], vec![3, 2]]);
    }
}
