//! A graph as SVG: boxes in layers, arrows between them, and what the arrows mean.

use std::fmt::Write as _;

use super::layout::{Edge, EdgeKind, Graph, Node, as_f64};
use crate::text::xml;
use crate::verdict::Verdict;

/// Of one character of the fixed-width font.
const CHARACTER: f64 = 7.3;
/// Of one line of text.
const LINE: f64 = 17.0;
/// Around the text of a box.
const PADDING: f64 = 10.0;
/// Between boxes of a layer.
const ACROSS: f64 = 24.0;
/// Between layers.
const DOWN: f64 = 64.0;
/// Around everything.
const MARGIN: f64 = 20.0;
/// For the key at the bottom.
const KEY: f64 = 30.0;
/// What the key needs.
const LEAST_WIDTH: f64 = 420.0;

struct Box {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

pub(super) fn draw(graph: &Graph) -> String {
    let (boxes, width, height) = places(graph);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"12\">\n\
         <title>Compatibility</title>\n\
         <style>.all,.oneOf,.noneOf{{fill:none;stroke:#555}}.oneOf{{stroke-dasharray:6 4}}\
         .noneOf{{stroke:#c03030;stroke-dasharray:2 3}}</style>\n\
         <defs><marker id=\"to\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\" fill=\"#555\"/></marker>\
         <marker id=\"not\" viewBox=\"0 0 10 10\" refX=\"5\" refY=\"5\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M5 0L5 10\" stroke=\"#c03030\" \
         stroke-width=\"2\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for edge in &graph.edges {
        arrow(&mut out, edge, &boxes);
    }
    for (node, place) in graph.nodes.iter().zip(&boxes) {
        draw_box(&mut out, node, place);
    }
    key(&mut out, height);
    out.push_str("</svg>\n");
    out
}

fn size(node: &Node) -> (f64, f64) {
    let plugins = node.plugins.iter().map(|(name, _)| name.chars().count() + 2);
    let longest = plugins.chain([node.name.chars().count()]).max().unwrap_or(0);
    let lines = node.plugins.len() + 1;
    (as_f64(longest) * CHARACTER + 2.0 * PADDING, as_f64(lines) * LINE + PADDING)
}

/// Where each box goes, and how large the picture is.
fn places(graph: &Graph) -> (Vec<Box>, f64, f64) {
    let layers = graph.layers();
    let sizes: Vec<(f64, f64)> = graph.nodes.iter().map(size).collect();
    let row = |layer: &[usize]| {
        let boxes: f64 = layer.iter().map(|node| sizes[*node].0).sum();
        boxes + ACROSS * as_f64(layer.len().saturating_sub(1))
    };
    let widest = layers.iter().map(|layer| row(layer)).fold(LEAST_WIDTH, f64::max);
    let mut boxes: Vec<Box> = sizes
        .iter()
        .map(|(width, height)| Box { x: 0.0, y: 0.0, width: *width, height: *height })
        .collect();
    let mut y = MARGIN;
    for layer in &layers {
        let mut x = MARGIN + (widest - row(layer)) / 2.0;
        let mut tallest: f64 = 0.0;
        for node in layer {
            (boxes[*node].x, boxes[*node].y) = (x, y);
            x += boxes[*node].width + ACROSS;
            tallest = tallest.max(boxes[*node].height);
        }
        y += tallest + DOWN;
    }
    (boxes, widest + 2.0 * MARGIN, y - DOWN + MARGIN + KEY)
}

fn arrow(out: &mut String, edge: &Edge, boxes: &[Box]) {
    let (from, to) = (&boxes[edge.from], &boxes[edge.to]);
    let (x1, y1) = (from.x + from.width / 2.0, from.y + from.height);
    let (x2, y2) = (to.x + to.width / 2.0, to.y);
    let bend = (y2 - y1) / 2.0;
    _ = writeln!(
        out,
        "<path class=\"{}\" d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\" marker-end=\"url(#{})\"/>",
        edge.kind.as_str(),
        y1 + bend,
        y2 - bend,
        if edge.kind == EdgeKind::NoneOf { "not" } else { "to" },
    );
}

fn draw_box(out: &mut String, node: &Node, place: &Box) {
    let fill = match node.verdict {
        Some(Verdict::Pass) => "#d3f2d3",
        Some(Verdict::Fail) => "#f7d4d4",
        Some(Verdict::Unknown) => "#f7edc3",
        None => "#f2f2f2",
    };
    let border = if node.root { 2 } else { 1 };
    let Box { x, y, width, height } = place;
    _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\" fill=\"{fill}\" stroke=\"#333\" stroke-width=\"{border}\"/>"
    );
    let left = x + PADDING;
    let mut base = y + LINE;
    _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{base:.1}\" font-weight=\"bold\">{}</text>",
        xml(&node.name)
    );
    for (name, verdict) in &node.plugins {
        base += LINE;
        let mark = match verdict {
            Some(Verdict::Pass) => "✓",
            Some(Verdict::Fail) => "✗",
            Some(Verdict::Unknown) => "?",
            None => "·",
        };
        _ = writeln!(out, "<text x=\"{left:.1}\" y=\"{base:.1}\">{mark} {}</text>", xml(name));
    }
}

/// What the arrows mean.
fn key(out: &mut String, height: f64) {
    let y = height - MARGIN / 2.0;
    for (n, (kind, words)) in
        [(EdgeKind::All, "all of"), (EdgeKind::OneOf, "one of"), (EdgeKind::NoneOf, "none of")]
            .iter()
            .enumerate()
    {
        let x = MARGIN + as_f64(n) * 130.0;
        _ = writeln!(
            out,
            "<path class=\"{}\" d=\"M{x:.1} {:.1}L{:.1} {:.1}\"/><text x=\"{:.1}\" y=\"{y:.1}\">{words}</text>",
            kind.as_str(),
            y - 4.0,
            x + 40.0,
            y - 4.0,
            x + 48.0,
        );
    }
}
