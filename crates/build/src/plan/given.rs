//! How the step behind a strategy finds what that strategy made in this run, and not what an earlier run or
//! another one at the same time left under the same tag.

use portolan_api::build::Step as StrategyStep;
use portolan_core::Reference;

use super::task::Step;
use super::values;
use crate::names;

/// Where a strategy that does not push leaves its image.
pub(super) const OUTPUT_PARAM: &str = "shp-output-directory";
/// Where one that pushes leaves the digest.
const DIGEST_RESULT: &str = "shp-image-digest";

/// What a strategy's steps say of where their image will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Given {
    /// In the directory that they are given.
    InDirectory,
    /// Pushed, and told by its digest. A tag says less: a strategy that pushed nothing would leave the image of the run
    /// before, and one that pushed the same again cannot be told from it.
    ByDigest,
    /// Pushed, and told by nothing. So they are given a name that only this run has, and the step behind them gives the
    /// image its tag.
    Under {
        /// What they push to.
        name: String,
        /// What it is called in the end.
        image: String,
    },
    /// Pushed to what is no name of an image here: the step behind them says so.
    Unknown,
}

impl Given {
    /// Reads the steps of a strategy whose image is to be `image`: `own` as it says them, `steps` with all that is put in.
    pub(super) fn of(
        own: &[StrategyStep],
        steps: &[Step],
        image: Option<&Reference>,
        run: &str,
    ) -> Self {
        if steps.iter().any(|step| values::uses(step, OUTPUT_PARAM)) {
            return Self::InDirectory;
        }
        if own.iter().any(tells_digest) {
            return Self::ByDigest;
        }
        match image {
            Some(image) => {
                let name = names::of_run(image, run).to_string();
                Self::Under { name, image: image.to_string() }
            }
            None => Self::Unknown,
        }
    }
}

/// Whether a step names the result, in any of Tekton's spellings or by its path. What a Build puts into its variables
/// says nothing of what the step does.
fn tells_digest(step: &StrategyStep) -> bool {
    let env = step.env.iter().filter_map(|variable| variable.value.as_deref());
    let mut texts = step.command.iter().chain(&step.args).map(String::as_str).chain(env);
    texts.any(|text| text.contains(DIGEST_RESULT))
}
