//! Circles, roots, and an order in which everything can be answered once.

use super::{Namespace, NamespaceId};

/// What follows from the references.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// No circles.
    Dag {
        /// Nobody refers to these.
        roots: Vec<NamespaceId>,
        /// Every namespace after all it refers to.
        order: Vec<NamespaceId>,
    },
    /// These refer to each other, the last one to the first.
    Cycle(Vec<NamespaceId>),
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    OnPath,
    Done,
}

/// A depth-first walk with a stack of its own: depth is the author's choice, not ours.
pub(super) fn shape(namespaces: &[Namespace]) -> Shape {
    let refs: Vec<Vec<NamespaceId>> =
        namespaces.iter().map(|namespace| namespace.refs.iter().collect()).collect();
    let mut referred = vec![false; namespaces.len()];
    for id in refs.iter().flatten() {
        referred[id.0] = true;
    }
    let mut marks = vec![Mark::New; namespaces.len()];
    let mut order = Vec::with_capacity(namespaces.len());
    for start in 0..namespaces.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::OnPath;
        let mut path = vec![(start, 0)];
        while let Some((here, next)) = path.last_mut() {
            let Some(to) = refs[*here].get(*next) else {
                marks[*here] = Mark::Done;
                order.push(NamespaceId(*here));
                path.pop();
                continue;
            };
            *next += 1;
            match marks[to.0] {
                Mark::Done => {}
                Mark::New => {
                    marks[to.0] = Mark::OnPath;
                    path.push((to.0, 0));
                }
                Mark::OnPath => {
                    let from = path.iter().position(|(n, _)| *n == to.0).unwrap_or_default();
                    return Shape::Cycle(
                        path[from..].iter().map(|(n, _)| NamespaceId(*n)).collect(),
                    );
                }
            }
        }
    }
    let roots = (0..namespaces.len()).filter(|n| !referred[*n]).map(NamespaceId).collect();
    Shape::Dag { roots, order }
}
