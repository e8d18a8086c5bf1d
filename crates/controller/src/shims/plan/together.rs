//! Which Shims of a node go into one Job: its runtime is then started again once for all of them.
//!
//! Only what is installed there, and never failed there: what failed is tried alone, so that one that is bad holds up nobody.
//! Who may not begin by its own budget is not in the Job.

use portolan_api::shim::ShimSpec;
use portolan_shim::report::MAX_PARTS;

use super::Planner;
use crate::shims::budget::{Candidate, Turn};
use crate::shims::cell::{Cell, Want};
use crate::shims::identity::Operation;

/// What people wrote of all its Shims: a Job is an object, and its texts are a program's arguments.
const MOST_BYTES: usize = 64 << 10;

impl Planner {
    /// The Shims that begin on a node with the one whose turn it is, by their names: whoever finds them announced makes the
    /// very Job, whose turn it may be then.
    pub(super) fn together(&self, one: &Candidate, turn: &Turn) -> Vec<String> {
        let first = &one.group.shim;
        let mut shims = vec![first.clone()];
        let wants = self.ledger.of_node(&one.node).into_iter().flatten();
        let mut wants: Vec<_> =
            wants.filter_map(|(shim, cell)| Some((shim, joins(cell)?))).collect();
        let Some(at) = wants.iter().position(|(shim, _)| *shim == first) else { return shims };
        let (_, want) = wants.remove(at);
        let mut bytes = self.bytes(first, want);
        for (shim, want) in wants {
            let more = bytes + self.bytes(shim, want);
            let room = shims.len() < MAX_PARTS && more <= MOST_BYTES;
            if room && turn.allows(&want.group(shim), &self.ledger.books) {
                shims.push(shim.clone());
                bytes = more;
            }
        }
        shims.sort_unstable();
        shims
    }

    fn bytes(&self, shim: &str, want: &Want) -> usize {
        let spec = self.shims.get(shim).map(|shim| &shim.value.spec);
        let location = want.artifact.as_ref().map_or(0, |artifact| artifact.location.len());
        location + spec.map_or(0, written)
    }
}

fn written(spec: &ShimSpec) -> usize {
    let options = spec.containerd_runtime_options.iter().flatten();
    options.map(|(key, value)| key.len() + value.len()).sum()
}

/// What is wanted, where others may come along.
fn joins(cell: &Cell) -> Option<&Want> {
    let want = cell.want.as_ref()?;
    (want.operation == Operation::Install && cell.record.failed.is_none()).then_some(want)
}
