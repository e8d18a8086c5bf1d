//! The compatibility spec: a graph of namespaces, read from JSON.
//!
//! Where the text of the proposal and its example disagree, the example is understood with a
//! warning, and refused when reading strictly:
//!
//! | found | taken as |
//! |---|---|
//! | `refs` among the plugins | the namespace's `refs`: as a plugin it would turn "all of these" into "any of these" |
//! | `schema` | `schemaVersion` |
//! | `source` of a plugin that is built in | nothing, unless a host's policy lets it take the built-in's place |
//! | unknown fields | nothing |

mod graph;
mod read;
mod refs;

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::json::{self, Place, Spanned};
use crate::plugins::builtin;

/// Namespaces in one document.
pub const MAX_NAMESPACES: usize = 1_000;
/// References between them.
pub const MAX_EDGES: usize = 10_000;
/// Plugins in one document.
pub const MAX_PLUGINS: usize = 10_000;

/// Which namespace of a [`Spec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub(crate) usize);

/// A document that means something: names resolve, nothing refers to itself, and there is at least
/// one root.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// As written.
    pub schema_version: String,
    namespaces: Vec<Namespace>,
    roots: Vec<NamespaceId>,
    /// Every namespace after all it refers to.
    order: Vec<NamespaceId>,
}

/// A validation area.
#[derive(Debug, Clone, PartialEq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Where it was written.
    pub place: Place,
    /// What it asks for, sorted by name.
    pub plugins: Vec<Plugin>,
    /// What it refers to.
    pub refs: Refs,
}

/// What a namespace refers to. Lists keep the author's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refs {
    /// All must pass.
    pub all: Vec<NamespaceId>,
    /// At least one must pass; none where the document has no such list.
    pub one_of: Option<Vec<NamespaceId>>,
    /// None may pass.
    pub none_of: Vec<NamespaceId>,
}

/// What a plugin is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// Where it was written.
    pub place: Place,
    /// Where the program could be had, as written.
    pub source: Option<String>,
    /// The digest that `source` is pinned to, where it has a field of its own.
    pub digest: Option<Spanned>,
    /// What it is given.
    pub data: Option<Spanned>,
}

/// A document that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// None if there are errors.
    pub spec: Option<Spec>,
    /// In the order of the document.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more there were.
    pub left_out: usize,
}

/// Whether what can be understood is, or nothing but what the specification says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// What is wrong and can be understood is, with a warning.
    #[default]
    Lenient,
    /// They are errors.
    Strict,
}

/// Who knows plugins that need no program of their own.
pub trait BuiltIn {
    /// Whether there is one of this name.
    fn has(&self, name: &str) -> bool;

    /// Adds remarks on its data, to which `path` leads.
    fn lint(&self, plugin: &Plugin, path: String, found: &mut Diagnostics);
}

/// Names alone: nobody looks at the data.
impl<F: Fn(&str) -> bool> BuiltIn for F {
    fn has(&self, name: &str) -> bool {
        self(name)
    }

    fn lint(&self, _: &Plugin, _: String, _: &mut Diagnostics) {}
}

/// The plugins of this crate.
#[derive(Debug, Clone, Copy, Default)]
struct OurPlugins;

impl BuiltIn for OurPlugins {
    fn has(&self, name: &str) -> bool {
        builtin::is(name)
    }

    fn lint(&self, plugin: &Plugin, path: String, found: &mut Diagnostics) {
        builtin::lint(&plugin.name, plugin.place, plugin.data.as_ref(), path, found);
    }
}

/// Reads a document and everything that is wrong with it, also with the data of its plugins.
pub fn read(bytes: &[u8], mode: Mode) -> Read {
    read_with(bytes, mode, &OurPlugins)
}

/// [`read`] with other plugins built in.
pub fn read_with(bytes: &[u8], mode: Mode, built_in: &dyn BuiltIn) -> Read {
    let mut diagnostics = Diagnostics::new(mode == Mode::Strict);
    let spec = match json::parse(bytes) {
        Ok(document) => read::spec(&document, built_in, &mut diagnostics),
        Err(error) => {
            let code = match error {
                json::ParseJsonError::DuplicateKey { .. } => Code::DuplicateKey,
                json::ParseJsonError::Syntax { .. } => Code::Json,
                _ => Code::Limit,
            };
            let place = error.place().unwrap_or(Place { line: 1, column: 1 });
            // The place is printed with every remark; once is enough.
            let text = error.to_string();
            let text = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
            diagnostics.add(code, place, "", text.to_owned());
            None
        }
    };
    let spec = spec.filter(|_| !diagnostics.failed());
    let (diagnostics, left_out) = diagnostics.finish();
    Read { spec, diagnostics, left_out }
}

impl Spec {
    /// A spec that this crate itself puts together, of namespaces that are sorted by name and do
    /// not refer to each other in a circle.
    pub(crate) fn assembled(namespaces: Vec<Namespace>) -> Self {
        let graph::Shape::Dag { roots, order } = graph::shape(&namespaces) else {
            unreachable!("the caller makes no circles");
        };
        Self { schema_version: String::new(), namespaces, roots, order }
    }

    /// All namespaces, sorted by name.
    pub fn namespaces(&self) -> impl ExactSizeIterator<Item = (NamespaceId, &Namespace)> {
        self.namespaces.iter().enumerate().map(|(n, namespace)| (NamespaceId(n), namespace))
    }

    /// The namespace of an id of this spec.
    pub fn namespace(&self, id: NamespaceId) -> &Namespace {
        &self.namespaces[id.0]
    }

    /// The namespace of this name.
    pub fn find(&self, name: &str) -> Option<NamespaceId> {
        let found = self.namespaces.binary_search_by(|one| one.name.as_str().cmp(name));
        found.ok().map(NamespaceId)
    }

    /// Where evaluation begins: namespaces that no other refers to, not even to forbid them.
    pub fn roots(&self) -> &[NamespaceId] {
        &self.roots
    }

    /// Every namespace after all that it refers to.
    pub fn order(&self) -> &[NamespaceId] {
        &self.order
    }
}

impl Refs {
    /// Every namespace referred to, in whatever way.
    pub fn iter(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        let one_of = self.one_of.iter().flatten();
        self.all.iter().chain(one_of).chain(&self.none_of).copied()
    }
}

#[cfg(test)]
mod tests;
