//! `portolan step receive-upload`: the other end of `portolan build upload`, in the pod that waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use portolan_build::source::{self, Announced};
use portolan_core::Digest;

use crate::context;
use crate::exit::{Exit, Failure};

/// How long the one who waits may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step receive-upload --target /workspace/source --lock-file /shp-tmp/waiter.lock \\\n    --digest sha256:… --size 1024 --diff-id sha256:… < layer.tar.gz\n\n\
    Reads the layer of a source artifact from stdin, as `portolan build upload` sends it."
)]
pub(crate) struct Args {
    /// The empty directory that it goes to
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// The file whose end the waiting step waits for
    #[arg(long, value_name = "FILE")]
    lock_file: PathBuf,
    /// The digest of what is sent
    #[arg(long)]
    digest: Digest,
    /// How many bytes are sent
    #[arg(long, value_name = "BYTES")]
    size: u64,
    /// The digest of the tar in it
    #[arg(long, value_name = "DIGEST")]
    diff_id: Digest,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    // Who waits makes the file. Taken away before it is there, it would be waited for without end.
    begun(&args.lock_file).await?;
    let announced = Announced { digest: args.digest, size: args.size, diff_id: args.diff_id };
    let temp = std::env::temp_dir();
    let received = source::receive(std::io::stdin(), &announced, &temp, &args.target).await;
    received.map_err(|error| context::classed(error.class(), error))?;
    std::fs::remove_file(&args.lock_file)
        .with_context(|| format!("cannot remove {}", args.lock_file.display()))
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    Ok(Exit::Ok)
}

async fn begun(lock: &Path) -> Result<(), Failure> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !lock.exists() {
        if tokio::time::Instant::now() >= deadline {
            let error =
                anyhow::anyhow!("nobody waits for a source: there is no {}", lock.display());
            return Err(Failure::new(Exit::NotFound, error));
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok(())
}
