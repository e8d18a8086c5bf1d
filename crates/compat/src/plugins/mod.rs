//! Plugins: what a document can ask of a host.
//!
//! Those that are built in read their data into *demands*. A demand says which facts it needs, so
//! that only those are collected, and answers from them; both are pure. Whatever is wrong with the
//! data is found while it is read, so a linter sees it without a host.
//!
//! | file | what it holds |
//! |---|---|
//! | `builtin` | the names, and the way in |
//! | `finding` | how an answer is put into words |
//! | `kernel_version`, `kernel_configuration`, `kernel_modules`, `kernel_cmdline`, `hardware` | the plugins of the proposal's example |
//! | `areas` | the eight areas, put together from the others |
//! | `attribute`, `instance`, `things`, `cpu` | what the areas ask for |
//! | `hazards` | known mistakes |
//! | `schema` | what data looks like, as JSON Schema |

mod areas;
mod attribute;
pub mod builtin;
mod cpu;
mod finding;
mod hardware;
mod hazards;
mod instance;
mod kernel_cmdline;
mod kernel_configuration;
mod kernel_modules;
mod kernel_version;
pub(crate) mod schema;
mod things;

use portolan_host::facts::{Facts, Wanted};

use crate::affinity::Said;
use crate::document::Plugin;
use crate::evaluate::{Answer, Reason};
use crate::verdict::Verdict;

pub use finding::{BUILT_IN, code};
pub(crate) use finding::{NOT_SHOWN, input, without_value};

/// Answers for plugins that are not built in.
pub trait External {
    /// What the plugin says of the host that `facts` describe. Whatever goes wrong is an answer,
    /// too: unknown, with the reason.
    fn ask(&mut self, namespace: &str, plugin: &Plugin, facts: &Facts) -> Answer;

    /// Whether this plugin, which is built in, is answered for here all the same.
    fn overrides(&self, _namespace: &str, _plugin: &Plugin) -> bool {
        false
    }
}

/// There are no others: what is not built in stays unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExternal;

impl External for NoExternal {
    fn ask(&mut self, _: &str, plugin: &Plugin, _: &Facts) -> Answer {
        let message = format!(
            "{:?} is not built in, and no program for it may be run here",
            crate::text::short(&plugin.name)
        );
        Answer {
            verdict: Verdict::Unknown,
            provider: "none".to_owned(),
            digest: None,
            duration_ms: None,
            sandbox: Vec::new(),
            reasons: vec![Reason {
                verdict: Verdict::Unknown,
                code: code::PLUGIN_NOT_FOUND.into(),
                message,
                expected: None,
                found: None,
                source: None,
                remedy: Some("allow it in the policy file, or ask for what is built in".to_owned()),
            }],
        }
    }
}

/// How facts are compared where a document leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manner {
    /// A kernel option that is asked for as `m` must be `m`; else `y` will do as well.
    pub exact_options: bool,
}

/// One thing that a built-in plugin was asked for.
trait Demand: std::fmt::Debug {
    /// And the facts that this one needs.
    fn needs(&self, wanted: Wanted) -> Wanted;

    /// What it means for the labels of a node.
    fn labels(&self) -> Said;

    /// What the facts say to it.
    fn ask(&self, facts: &Facts, manner: Manner, reasons: &mut Vec<Reason>);
}

/// What a plugin's data comes to.
type Demands = Vec<Box<dyn Demand>>;
