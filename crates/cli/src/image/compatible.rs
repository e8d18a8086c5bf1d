//! `portolan image resolve --compatible`: the best manifest whose requirements the host meets.

use portolan_compat::report::Compatibility;
use portolan_core::Digest;
use portolan_core::platform::HostPlatform;
use portolan_core::select::Selection;
use serde::Serialize;

use crate::cli::Global;
use crate::compat::external::PluginArgs;
use crate::compat::hosts::Machine;
use crate::compat::images::Looked;
use crate::compat::judge;
use crate::exit::{Exit, Failure};
use crate::format;

/// A manifest that would have been better, and why it is not the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PassedOver {
    digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<String>,
    /// What says what it needs.
    artifact: Digest,
    verdict: Compatibility,
    reason: String,
}

/// Goes down the list of what `host` runs, best first, to the first manifest that asks for nothing
/// or whose requirements the machine meets. What could not be found out does not count as met.
pub(crate) async fn choose(
    looked: &mut Looked,
    host: &HostPlatform,
    machine: &Machine,
    plugins: &PluginArgs,
    global: &Global,
) -> Result<(Selection, Vec<PassedOver>), Failure> {
    let mut left = looked.candidates().clone();
    let mut passed_over = Vec::new();
    loop {
        let selection = match looked.select_from(&left, host) {
            Ok(selection) => selection,
            Err(failure) if passed_over.is_empty() => return Err(failure),
            Err(_) => return Err(none_fits(host, &passed_over)),
        };
        let digest = selection.chosen.digest;
        let (artifact, report) = match looked.needs(digest).await {
            Ok(needs) => (needs.found.digest, judge(&needs, machine, plugins, global).await?),
            Err(failure) if failure.exit == Exit::NoArtifact => {
                return Ok((selection, passed_over));
            }
            Err(failure) => return Err(failure),
        };
        if report.verdict == Compatibility::Compatible {
            return Ok((selection, passed_over));
        }
        let over = PassedOver {
            digest,
            platform: selection.platform.map(|platform| platform.to_string()),
            artifact,
            verdict: report.verdict,
            reason: report.why().next().unwrap_or_default(),
        };
        format::tell(&format!("passed over: {}", over.text()));
        passed_over.push(over);
        left = left.without(&digest);
    }
}

impl PassedOver {
    fn text(&self) -> String {
        let name = self.platform.clone().unwrap_or_else(|| self.digest.short());
        let Self { verdict, reason, artifact, .. } = self;
        format!("{name} is {}: {reason}, by the artifact {}", verdict.as_str(), artifact.short())
    }
}

fn none_fits(host: &HostPlatform, passed_over: &[PassedOver]) -> Failure {
    let unknown = passed_over.iter().any(|one| one.verdict == Compatibility::Unknown);
    let lines: String = passed_over.iter().map(|one| format!("\n  {}", one.text())).collect();
    let error = anyhow::anyhow!(
        "{host} runs nothing here whose needs it meets:{lines}\n`portolan compat list` shows these \
         artifacts, `portolan compat remove` takes away what holds no more"
    );
    Failure::new(if unknown { Exit::CannotTell } else { Exit::No }, error)
}
