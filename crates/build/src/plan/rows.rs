//! The platforms of a run by themselves: what a status has a row for. Needs no strategy and no
//! class, which may have changed or gone since the run began.

use portolan_api::build::{BuildRunSpec, BuildSpec};
use portolan_core::{Platform, Reference};

use super::effective::{self, Platforms};
use crate::names;

/// One platform of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub platform: Platform,
    /// Where its image goes.
    pub image: Reference,
    /// The task of the pipeline that builds it.
    pub task: String,
}

/// The platforms of a run, in the order in which they were asked for; none for one image.
pub fn rows(spec: &BuildSpec, run: &BuildRunSpec) -> Vec<Row> {
    let effective = effective::merge(spec, run);
    let wanted = match &effective.platforms {
        Platforms::Unsaid => return Vec::new(),
        Platforms::Native(wanted) => wanted,
        Platforms::Class(multi_arch) => &multi_arch.platforms,
    };
    let Ok(outputs) = names::Outputs::parse(&effective.image) else { return Vec::new() };
    let mut rows: Vec<Row> = Vec::new();
    for platform in wanted.iter().map(portolan_api::platform::Platform::normalised) {
        if rows.iter().all(|row| row.platform != platform) {
            let image = outputs.platform(&platform);
            rows.push(Row { image, task: names::build_task(&platform), platform });
        }
    }
    rows
}
