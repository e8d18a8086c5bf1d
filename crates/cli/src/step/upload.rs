//! `portolan step wait-upload`

use std::path::PathBuf;
use std::time::Duration;

use portolan_build::steps::{Results, upload};

use super::{Errors, Stopped};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step wait-upload --lock-file /shp-tmp/waiter.lock --timeout 5m\n  portolan step wait-upload done --lock-file /shp-tmp/waiter.lock"
)]
pub(crate) struct Args {
    /// What to do
    #[arg(value_enum, default_value_t = Action::Start)]
    action: Action,
    /// The file that is there as long as the upload is not
    #[arg(long, value_name = "FILE", default_value = "/shp-tmp/waiter.lock")]
    lock_file: PathBuf,
    /// How long to wait, such as 90s or 5m; a second or less is a minute
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    pub(super) errors: Errors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Wait
    Start,
    /// Say that the files are there
    #[value(alias = "stop")]
    Done,
}

/// As a Build writes durations.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = portolan_api::duration::parse(text);
    parsed.map(Into::into).map_err(|why| format!("{text:?} {why}"))
}

pub(super) fn run(args: &Args) -> Result<Results, Stopped> {
    match args.action {
        Action::Done => upload::done(&args.lock_file)?,
        Action::Start => {
            let (timeout, replaced) = upload::effective_timeout(args.timeout);
            if replaced {
                let text =
                    "warning: a second or less is too short to upload anything; waiting a minute";
                crate::format::tell(text);
            }
            upload::wait(&args.lock_file, timeout)?;
        }
    }
    Ok(Results::default())
}
