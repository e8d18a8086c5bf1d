//! What came out of a run: digests, sizes, a row for each platform, and what was built.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::build::{
    Failure, GitResult, OciArtifactResult, OutputStatus, PlatformState, PlatformStatus,
    SourceStatus, Vulnerability,
};
use portolan_api::condition::Status;
use portolan_api::keys;
use portolan_build::plan::Row;

use super::Parts;
use super::verdict::Verdict;
use crate::objects::{Executor, Progress, TaskRun};

const DIGEST: &str = "shp-image-digest";
const SIZE: &str = "shp-image-size";
const VULNERABILITIES: &str = "shp-image-vulnerabilities";
/// The tasks that are not of one platform.
const SOURCE_TASK: &str = "source";
const INDEX_TASK: &str = "assemble-index";
/// Of one image; a strategy may tell more than anybody reads.
const MAX_VULNERABILITIES: usize = 50;

impl Parts<'_> {
    pub(super) fn output(&self, verdict: &Verdict) -> Option<OutputStatus> {
        let progress = self.seen.executor.progress();
        let output = match self.seen.executor {
            Executor::Task(_) => OutputStatus {
                digest: progress.result(DIGEST).map(str::to_owned),
                size: size(&progress),
                vulnerabilities: vulnerabilities(&progress),
                platforms: Vec::new(),
            },
            Executor::Pipeline(_) => {
                let platforms: Vec<PlatformStatus> =
                    self.rows.iter().map(|row| self.row(row, verdict)).collect();
                // The pipeline's, or that of the very task: never whichever was told last.
                let index = self.task(INDEX_TASK).map(TaskRun::progress);
                let digest = progress
                    .result(DIGEST)
                    .or_else(|| index.and_then(|index| index.result(DIGEST)))
                    .map(str::to_owned);
                OutputStatus { digest, size: None, vulnerabilities: merged(&platforms), platforms }
            }
        };
        (output != OutputStatus::default()).then_some(output)
    }

    fn row(&self, row: &Row, verdict: &Verdict) -> PlatformStatus {
        let task = self.task(&row.task);
        let progress = task.map(TaskRun::progress);
        let state = self.state(task, verdict);
        let failure = match (state, task) {
            (PlatformState::Failed, Some(task)) => {
                let why = self.why(task);
                let message = why.details.message.or(Some(why.message));
                let reason = why.details.reason.or_else(|| Some(why.reason.to_owned()));
                Some(Failure { reason, message, location: why.details.location })
            }
            _ => None,
        };
        let told = |name: &str| progress.and_then(|progress| progress.result(name));
        PlatformStatus {
            os: row.platform.os.clone(),
            arch: row.platform.architecture.clone(),
            variant: row.platform.variant.clone(),
            image_platform: self.image_platform(row),
            image: row.image.to_string(),
            digest: told(DIGEST).map(str::to_owned),
            size: progress.as_ref().and_then(size),
            vulnerabilities: progress.as_ref().map(vulnerabilities).unwrap_or_default(),
            state,
            task_run: task.and_then(|task| task.metadata.name.clone()),
            failure,
        }
    }

    fn state(&self, task: Option<&TaskRun>, verdict: &Verdict) -> PlatformState {
        let over = verdict.status != Status::Unknown;
        let Some(task) = task else {
            // What never began because another part failed was stopped, not built badly.
            return if over { PlatformState::Canceled } else { PlatformState::Pending };
        };
        match task.progress().condition {
            Some(condition) if condition.status == Status::True => PlatformState::Succeeded,
            Some(condition) if condition.status == Status::False => {
                match condition.reason == "TaskRunCancelled" {
                    true => PlatformState::Canceled,
                    false => PlatformState::Failed,
                }
            }
            _ if over => PlatformState::Canceled,
            Some(condition) if condition.reason == "Running" && self.wait(task).is_none() => {
                PlatformState::Running
            }
            _ => PlatformState::Pending,
        }
    }

    /// The ImagePlatform that said how, as it is written on the executor.
    fn image_platform(&self, row: &Row) -> Option<String> {
        let annotations = self.seen.executor.metadata().annotations.as_ref()?;
        let used: serde_json::Value =
            serde_json::from_str(annotations.get(keys::IMAGE_PLATFORMS)?).ok()?;
        Some(used[row.platform.to_string()]["name"].as_str()?.to_owned())
    }

    pub(super) fn source(&self) -> Option<SourceStatus> {
        let progress = match self.seen.executor {
            Executor::Task(task) => task.progress(),
            // Without a task for the source each platform pulled it: they agree, or the index fails.
            Executor::Pipeline(_) => {
                let first = self.rows.first().and_then(|row| self.task(&row.task));
                self.task(SOURCE_TASK).or(first)?.progress()
            }
        };
        let told = |name: &str| progress.result(&format!("shp-source-{name}")).map(str::to_owned);
        let git = GitResult {
            commit_sha: told("default-commit-sha"),
            commit_author: told("default-commit-author"),
            branch_name: told("default-branch-name"),
        };
        let seconds = told("default-source-timestamp").and_then(|text| text.parse().ok());
        let timestamp = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        let source = SourceStatus {
            git: (git != GitResult::default()).then_some(git),
            oci_artifact: told("default-image-digest")
                .or_else(|| told("bundle-digest"))
                .map(|digest| OciArtifactResult { digest }),
            timestamp: timestamp.map(Time),
        };
        (source != SourceStatus::default()).then_some(source)
    }
}

fn size(progress: &Progress<'_>) -> Option<i64> {
    progress.result(SIZE)?.parse().ok()
}

/// `CVE-1:h,CVE-2:l`
fn vulnerabilities(progress: &Progress<'_>) -> Vec<Vulnerability> {
    let text = progress.result(VULNERABILITIES).unwrap_or_default();
    let all = text.split(',').filter_map(|entry| {
        let (id, letter) = entry.rsplit_once(':')?;
        let severity = match letter {
            "c" => "critical",
            "h" => "high",
            "m" => "medium",
            "l" => "low",
            _ => "unknown",
        };
        Some(Vulnerability { id: id.to_owned(), severity: severity.to_owned() })
    });
    all.take(MAX_VULNERABILITIES).collect()
}

/// Of all platforms, each once, as bad as the worst says.
fn merged(platforms: &[PlatformStatus]) -> Vec<Vulnerability> {
    const ORDER: [&str; 5] = ["critical", "high", "medium", "low", "unknown"];
    let rank = |found: &Vulnerability| ORDER.iter().position(|word| *word == found.severity);
    let mut all: Vec<Vulnerability> =
        platforms.iter().flat_map(|platform| platform.vulnerabilities.clone()).collect();
    all.sort_by_key(|found| (rank(found), found.id.clone()));
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|found| seen.insert(found.id.clone()));
    all.truncate(MAX_VULNERABILITIES);
    all
}
