//! Where a shim comes from, and what of it is wanted: the flags that `fetch` and `install` share.

use std::path::PathBuf;
use std::time::Duration;

use portolan_shim::node::NodeError;
use portolan_shim::node::fetch::{Location, MAX_BYTES, Transport};
use portolan_shim::node::install::digest;
use portolan_shim::node::request::{Options, Wanted};
use portolan_shim::resolve::{Policy, Requirement};

// How an archive is fetched. No documentation: clap would give it to the commands.
#[derive(Debug, clap::Args)]
pub(super) struct Fetching {
    /// The archive: http or https
    #[arg(long, value_name = "URL", env = "SHIM_LOCATION")]
    pub(super) location: Option<String>,
    /// What the archive must hash to: 64 hexadecimal digits
    #[arg(long, value_name = "HEX", env = "SHIM_SHA256")]
    sha256: Option<String>,
    /// Whether the archive needs a digest: off, warn or enforce
    #[arg(long, value_name = "HOW", default_value = "warn", env = "PORTOLAN_REQUIRE_DIGEST")]
    require_digest: Requirement,
    /// Whether it needs https: off, warn or enforce
    #[arg(long, value_name = "HOW", default_value = "warn", env = "PORTOLAN_REQUIRE_HTTPS")]
    require_https: Requirement,
    /// Refuse archives with more bytes
    #[arg(long, value_name = "BYTES", default_value_t = MAX_BYTES)]
    max_bytes: u64,
    /// For the whole download, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// How long nothing may come, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    idle_timeout: u64,
    /// How often to try again
    #[arg(long, value_name = "N", env = "NUM_RETRY", default_value_t = 3)]
    retries: u32,
    /// How long to wait before it is tried again, in seconds; each further wait is twice as long
    #[arg(long, value_name = "SECONDS", env = "SLEEP_DURATION", default_value = "0.25", value_parser = seconds)]
    retry_wait: Duration,
    /// Certificates to trust beside the system's
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
}

impl Fetching {
    pub(super) fn location(&self, location: &str) -> Result<Location, NodeError> {
        let policy =
            Policy { require_digest: self.require_digest, require_https: self.require_https };
        let digest = digest(self.sha256.as_deref())?;
        Ok(Location::new(location, digest, policy)?)
    }

    pub(super) fn transport(&self) -> Transport {
        Transport {
            max_bytes: self.max_bytes,
            timeout: Duration::from_secs(self.timeout),
            stall: Duration::from_secs(self.idle_timeout),
            retries: self.retries,
            first_wait: self.retry_wait,
            ca: self.ca_bundle.clone(),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds
        .filter(|s| *s <= Duration::from_secs(60))
        .ok_or_else(|| "give seconds, 60 at most".to_owned())
}

// What is wanted of it. No documentation, as above.
#[derive(Debug, clap::Args)]
pub(super) struct Naming {
    /// The shim's name
    #[arg(long, value_name = "NAME", env = "SHIM_NAME")]
    pub(super) name: String,
    /// The file to take out of the archive; containerd-shim-NAME where nothing is said
    #[arg(long, value_name = "FILE")]
    binary: Option<String>,
}

impl Naming {
    pub(super) fn wanted(
        &self,
        handler: Option<&str>,
        options: Options,
    ) -> Result<Wanted, NodeError> {
        Ok(Wanted::new(&self.name, handler, self.binary.as_deref(), options)?)
    }
}
