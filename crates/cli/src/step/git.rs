//! `portolan step git --url URL --target DIR`

use std::path::PathBuf;

use portolan_build::steps::{Results, git};

use super::{Errors, Stopped};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step git --url https://git.example/app.git --target ./app --revision v1.0\n\n\
    Needs the programs git, for SSH ssh, and for large files git-lfs. Exit codes: 100 no URL, 101 no target,\n\
    110 the secret does not go with the URL, 120 a program is missing, else that of git."
)]
pub(crate) struct Args {
    /// The repository
    #[arg(long, value_name = "URL", default_value = "")]
    url: String,
    /// Where it goes; an empty directory
    #[arg(long, value_name = "DIR", default_value = "")]
    target: String,
    /// A branch, tag or commit; the default branch where nothing is said
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// So many commits; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u32,
    /// A directory with ssh-privatekey and perhaps known_hosts, or with username and password
    #[arg(long, value_name = "DIR")]
    secret_path: Option<PathBuf>,
    /// With an SSH key, speak SSH to where an https URL leads
    #[arg(long)]
    git_url_rewrite: bool,
    /// The file that gets the commit
    #[arg(long, value_name = "FILE")]
    result_file_commit_sha: Option<PathBuf>,
    /// The file that gets the author's name
    #[arg(long, value_name = "FILE")]
    result_file_commit_author: Option<PathBuf>,
    /// The file that gets the default branch, where no revision was named
    #[arg(long, value_name = "FILE")]
    result_file_branch_name: Option<PathBuf>,
    /// The file that gets the time of the commit, in seconds since 1970
    #[arg(long, value_name = "FILE")]
    result_file_source_timestamp: Option<PathBuf>,
    #[command(flatten)]
    pub(super) errors: Errors,
}

pub(super) fn run(args: &Args) -> Result<Results, Stopped> {
    let request = git::Clone {
        url: args.url.clone(),
        target: PathBuf::from(&args.target),
        revision: args.revision.clone(),
        depth: args.depth,
        secret: args.secret_path.clone(),
        rewrite: args.git_url_rewrite,
    };
    let cloned = git::clone(&request, &super::temp(), &|line| crate::format::tell(line))?;
    crate::format::tell(&format!("{} by {}", cloned.commit, cloned.author));
    let mut results = Results::default();
    results.add(args.result_file_commit_sha.as_deref(), &cloned.commit);
    results.add(args.result_file_commit_author.as_deref(), &cloned.author);
    if let Some(branch) = &cloned.branch {
        results.add(args.result_file_branch_name.as_deref(), branch);
    }
    results.add(args.result_file_source_timestamp.as_deref(), &cloned.timestamp.to_string());
    Ok(results)
}
