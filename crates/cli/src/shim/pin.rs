//! `portolan shim pin FILE`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures_util::StreamExt as _;
use portolan_core::digest::{Algorithm, Hasher};
use portolan_registry::durable::{DurableError, TempFile};
use portolan_shim::lint::pin::{self, File, Missing};

use crate::build::files;
use crate::exit::{Exit, Failure};
use crate::format;

/// How long a server may take to answer, and how long it may be silent.
const CONNECT: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 10;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan shim pin shim.yaml > pinned.yaml\n  portolan shim pin --in-place shim.yaml\n\n\
    What is there now is what is pinned: compare with what the makers publish. Comments stay where the text is\n\
    written as people write it. Proxies are taken from HTTPS_PROXY and NO_PROXY."
)]
pub(crate) struct Args {
    /// A file of Shims, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write to the file, and not to stdout
    #[arg(long)]
    in_place: bool,
    /// The largest archive that is downloaded, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    max_size: u64,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let bytes = files::bytes(&args.file, pin::MAX_BYTES as u64)?;
    let name = args.file.display().to_string();
    let text = || -> anyhow::Result<&str> {
        if bytes.len() > pin::MAX_BYTES {
            return Err(anyhow!("it has more than {} bytes", pin::MAX_BYTES));
        }
        std::str::from_utf8(&bytes).context("it is not UTF-8")
    };
    let text = text().with_context(|| name.clone()).map_err(Failure::usage)?;
    let file = File::read(text).with_context(|| name.clone()).map_err(Failure::usage)?;
    let found = digests(&file, args.max_size.saturating_mul(1024 * 1024)).await?;
    let count = found.len();
    let pinned = file.pin(&found);
    for number in &pinned.rewritten {
        format::tell(&format!(
            "warning: document {number} was written anew; its comments are lost"
        ));
    }
    format::tell(&format!("{name}: {count} digests added"));
    if !args.in_place || args.file.as_os_str() == "-" {
        format::write(&pinned.text)?;
    } else if count > 0 {
        write(&args.file, pinned.text.as_bytes())
            .map_err(|error| Failure::new(Exit::Transport, error))?;
    }
    Ok(Exit::Ok)
}

/// In the place of the file, all or nothing, with the mode it has; where it is a link, in the place of what that leads to.
fn write(file: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    let failed = |step| move |error| DurableError::io(step, file, error);
    let there = file.canonicalize().map_err(failed("follow"))?;
    let mode = there.metadata().map_err(failed("read the mode of"))?.permissions();
    let mut temp = TempFile::create(there.parent().unwrap_or(&there))?;
    temp.write(bytes)?;
    temp.file().set_permissions(mode).map_err(failed("set the mode of"))?;
    temp.rename(&there)
}

/// Every location is downloaded once.
async fn digests(file: &File, limit: u64) -> Result<Vec<(Missing, String)>, Failure> {
    let client = client().context("make a client").map_err(Failure::usage)?;
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for missing in file.missing() {
        let digest = match known.get(&missing.location) {
            Some(digest) => digest.clone(),
            None => {
                let digest = download(&client, &missing.location, limit).await?;
                known.insert(missing.location.clone(), digest.clone());
                digest
            }
        };
        found.push((missing, digest));
    }
    Ok(found)
}

fn client() -> Result<reqwest::Client, reqwest::Error> {
    let follow = reqwest::redirect::Policy::custom(|attempt| {
        let from_tls = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
        match attempt.previous().len() {
            REDIRECTS.. => attempt.error("too many redirects"),
            _ if from_tls && attempt.url().scheme() != "https" => {
                attempt.error("it leads from https to plain http")
            }
            _ => attempt.follow(),
        }
    });
    reqwest::Client::builder()
        .user_agent(concat!("portolan/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .redirect(follow)
        .build()
}

/// The digest of what is there, counted and hashed as it comes; nothing of it is kept.
async fn download(client: &reqwest::Client, location: &str, limit: u64) -> Result<String, Failure> {
    let scheme = location.split_once("://").map(|(scheme, _)| scheme);
    if !matches!(scheme, Some("http" | "https")) {
        return Err(Failure::usage(anyhow!("{location:?} is no http or https URL")));
    }
    let trouble = |error: anyhow::Error| {
        Failure::new(Exit::Transport, error.context(format!("download {location}")))
    };
    let response = client.get(location).send().await.map_err(|error| trouble(error.into()))?;
    let status = response.status();
    if !status.is_success() {
        let exit = if status.as_u16() == 404 { Exit::NotFound } else { Exit::Transport };
        return Err(Failure::new(exit, anyhow!("download {location}: the server says {status}")));
    }
    let (mut hasher, mut size) = (Hasher::new(Algorithm::Sha256), 0_u64);
    let mut body = response.bytes_stream();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| trouble(error.into()))?;
        size += piece.len() as u64;
        if size > limit {
            return Err(Failure::usage(anyhow!(
                "{location} has more than {}; --max-size sets another limit",
                format::size(limit)
            )));
        }
        hasher.update(&piece);
    }
    match size {
        0 => Err(Failure::usage(anyhow!("{location} is empty"))),
        _ => Ok(hasher.finish().hex()),
    }
}
