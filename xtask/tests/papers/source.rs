//! What the source says of conditions and reasons: the words, and the comments beside them.

use std::collections::BTreeMap;

use super::read;

fn parse(file: &str) -> syn::File {
    syn::parse_file(&read(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// A doc comment, on one line.
fn documented(attributes: &[syn::Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => text(&pair.value),
        _ => None,
    });
    lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(" ")
}

fn text(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The constants of a file that are texts, by their name: the text and what is said of it.
pub(crate) fn constants(file: &str) -> BTreeMap<String, (String, String)> {
    fn collect(items: &[syn::Item], out: &mut BTreeMap<String, (String, String)>) {
        for item in items {
            match item {
                syn::Item::Const(one) => {
                    let known = text(&one.expr).map(|word| (word, documented(&one.attrs)));
                    out.extend(known.map(|known| (one.ident.to_string(), known)));
                }
                syn::Item::Mod(module) => {
                    module.content.iter().for_each(|(_, inner)| collect(inner, out));
                }
                _ => {}
            }
        }
    }
    let mut out = BTreeMap::new();
    collect(&parse(file).items, &mut out);
    out
}

/// The words of `reasons! { /// what it means Word, … }` in a file, in their order.
pub(crate) fn reasons(file: &str) -> Vec<(String, String)> {
    let parsed = parse(file);
    let call = parsed.items.iter().find_map(|item| match item {
        syn::Item::Macro(call) if call.mac.path.is_ident("reasons") => Some(&call.mac),
        _ => None,
    });
    let list = syn::punctuated::Punctuated::<syn::Variant, syn::Token![,]>::parse_terminated;
    let words = call.unwrap_or_else(|| panic!("{file} lists no reasons")).parse_body_with(list);
    words.unwrap().iter().map(|one| (one.ident.to_string(), documented(&one.attrs))).collect()
}

/// What a function can answer of a condition: `Status::True, "Word"`, in the order of the text.
pub(crate) fn verdicts(file: &str, function: &str) -> Vec<(String, String)> {
    let source = read(file);
    let body = source
        .split_once(&format!("fn {function}("))
        .unwrap_or_else(|| panic!("{file} has no function {function}"))
        .1;
    let body = body.split_once("\n}").map_or(body, |(body, _)| body);
    let mut found: Vec<(String, String)> = Vec::new();
    for piece in body.split("Status::").skip(1) {
        let Some((status, rest)) = piece.split_once(',') else { continue };
        let Some(word) =
            rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next())
        else {
            continue;
        };
        let verdict = (status.to_owned(), word.to_owned());
        if !found.contains(&verdict) {
            found.push(verdict);
        }
    }
    assert!(!found.is_empty(), "{file}: {function} gives no reason");
    found
}
