//! A graph in Graphviz' language.

use super::layout::{EdgeKind, Graph};
use crate::text;
use crate::verdict::Verdict;

pub(super) fn draw(graph: &Graph) -> String {
    let mut out = String::from(
        "digraph compatibility {\n  rankdir=TB;\n  node [shape=box, style=\"filled,rounded\", fontname=\"monospace\", fillcolor=\"#f2f2f2\"];\n",
    );
    for node in &graph.nodes {
        let mut label = text::dot(&node.name);
        for (name, verdict) in &node.plugins {
            let mark = match verdict {
                Some(Verdict::Pass) => "✓ ",
                Some(Verdict::Fail) => "✗ ",
                Some(Verdict::Unknown) => "? ",
                None => "",
            };
            label.push_str("\\n");
            label.push_str(mark);
            label.push_str(&text::dot(name));
        }
        let fill = match node.verdict {
            Some(Verdict::Pass) => ", fillcolor=\"#d3f2d3\"",
            Some(Verdict::Fail) => ", fillcolor=\"#f7d4d4\"",
            Some(Verdict::Unknown) => ", fillcolor=\"#f7edc3\"",
            None => "",
        };
        let root = if node.root { ", penwidth=2" } else { "" };
        out.push_str(&format!(
            "  \"{}\" [label=\"{label}\"{fill}{root}];\n",
            text::dot(&node.name)
        ));
    }
    for edge in &graph.edges {
        let style = match edge.kind {
            EdgeKind::All => "",
            EdgeKind::OneOf => " [style=dashed, label=\"one of\"]",
            EdgeKind::NoneOf => {
                " [style=dotted, color=\"#c03030\", arrowhead=tee, label=\"none of\"]"
            }
        };
        out.push_str(&format!(
            "  \"{}\" -> \"{}\"{style};\n",
            text::dot(&graph.nodes[edge.from].name),
            text::dot(&graph.nodes[edge.to].name)
        ));
    }
    out.push_str("}\n");
    out
}
