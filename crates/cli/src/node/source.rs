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
    pub(super) sha256: Option<String>,
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
    /// How long to wait before it is tried again, as `sleep` takes it: 2, 0.5, 5s, 1m, and a minute at most; each further wait is twice as long
    #[arg(long, value_name = "TIME", env = "SLEEP_DURATION", default_value = "0.25", value_parser = pause)]
    retry_wait: Duration,
    /// Certificates to trust beside the system's
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CA_BUNDLE")]
    ca_bundle: Option<PathBuf>,
}

impl Fetching {
    pub(super) fn location(
        &self,
        location: &str,
        sha256: Option<&str>,
    ) -> Result<Location, NodeError> {
        let policy =
            Policy { require_digest: self.require_digest, require_https: self.require_https };
        let digest = digest(sha256)?;
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

/// Longer than this nobody waits, whatever is said: what is slow is given more time by other flags.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A time as `sleep` takes it: upstream's downloader gives it to that program, so that is what ConfigMaps hold.
fn pause(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        Some((at, 'd')) => (&text[..at], 86400.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    match seconds.filter(|seconds| *seconds >= 0.0) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds.min(LONGEST_PAUSE.as_secs_f64()))),
        None => Err("give a time as for sleep: 2, 0.5, 5s, 1m".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_said_as_to_sleep_and_has_a_bound() {
        for (text, millis) in [
            ("2", 2000),
            ("0.25", 250),
            ("5s", 5000),
            (".5m", 30_000),
            ("1m", 60_000),
            ("90", 60_000),
            ("2h", 60_000),
            ("1e300d", 60_000),
            ("infinity", 60_000),
            ("0", 0),
        ] {
            assert_eq!(pause(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "-1s", "soon", "5 s", "NaN", "5ms", "1ä"] {
            assert!(pause(text).is_err(), "{text:?}");
        }
    }
}
