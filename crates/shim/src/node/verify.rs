//! Whether a shim is still as it was installed: its program, the configuration, what the runtime says.
//! Nothing is changed, and nothing is waited for.

use std::os::unix::fs::MetadataExt as _;

use portolan_core::Digest;

use super::config;
use super::disk::{Disk, Quiet};
use super::error::NodeError;
use super::install::{Node, open_root};
use super::place;
use super::preset::detect;
use super::progress::{Outcome, Progress};
use super::ready::{self, Expect};
use super::request::{self, Name};
use super::settle::fingerprint;
use super::state::{Shim, Store};
use crate::report::{Operation, Phase};

/// Looks at a shim. `binary` is what its program must hash to; without it, what was installed.
pub async fn verify(node: &Node, name: &Name, binary: Option<&Digest>) -> Outcome {
    let mut progress = Progress::new(Operation::Verify, Phase::Detect);
    let result = run(node, name.as_str(), binary, &mut progress).await;
    progress.end(result)
}

async fn run(
    node: &Node,
    name: &str,
    binary: Option<&Digest>,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    let drifted = |what: String| NodeError::Drifted { what };
    let root = open_root(&node.root)?;
    let store = Store::open(&root, Disk { watch: &Quiet }, &node.install_dir)?;
    let shim = store.state.shims.get(name).cloned();
    let shim = shim.ok_or_else(|| drifted(format!("the shim {name} is not installed")))?;
    if !shim.installed {
        return Err(drifted(format!("the shim {name} is installed in part; install it again")));
    }
    let site = detect(&root, &node.overrides)?;
    progress.report.distro = Some(site.preset.name.to_owned());
    progress.phase(Phase::Place);
    let path = place::path(&store.install_dir, name, &shim.sha256, &shim.binary);
    check_program(&store, &shim, &path, binary, progress)?;
    progress.phase(Phase::Configure);
    let loaded = config::load(&root, &site.config)?;
    let says = loaded.iter().any(|file| {
        let table = config::handler_table(&file.document, file.version, &shim.handler);
        table.and_then(|t| t.get("runtime_type")).and_then(|t| t.as_str()) == Some(&path)
    });
    // What is rendered at the next start is not yet in the file that the last one rendered.
    let in_files = shim.files.iter().any(|file| {
        let text = root.read(file, config::MAX_FILE).ok().flatten().unwrap_or_default();
        String::from_utf8_lossy(&text).contains(&path)
    });
    check_texts(&store, name, &shim)?;
    if !says && !in_files {
        return Err(drifted(format!(
            "no configuration names {path} for the handler {}",
            shim.handler
        )));
    }
    progress.phase(Phase::Ready);
    let socket = ready::socket_here(&root, &ready::socket(&site, &loaded));
    if !socket.exists() {
        let text = format!("the runtime was not asked: there is no socket at {}", socket.display());
        progress.report.warnings.push(text);
        return Ok(());
    }
    match ready::look(&socket, Expect::Known(&[&shim.handler])).await {
        Ok(status) => {
            progress.report.runtime_version = status.version;
            Ok(())
        }
        Err(error) => Err(drifted(portolan_core::causes::chain(&error))),
    }
}

/// What is ours in the configuration is what was written there: its options, too.
fn check_texts(store: &Store<'_>, name: &str, shim: &Shim) -> Result<(), NodeError> {
    for (path, wrote) in &shim.wrote {
        let text = store.root.read(path, config::MAX_FILE)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let own = config::own_text(path, &text, name).map(fingerprint);
        if own.as_deref() != Some(wrote) {
            let what = format!("{path} does not say of {name} what was written there");
            return Err(NodeError::Drifted { what });
        }
    }
    Ok(())
}

fn check_program(
    store: &Store<'_>,
    shim: &Shim,
    path: &str,
    binary: Option<&Digest>,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    let drifted = |what: String| Err(NodeError::Drifted { what });
    let here = store.here(path)?;
    let Some(found) = place::hash(&here) else {
        return drifted(format!("{path} is not there, or cannot be read"));
    };
    progress.report.binary_sha256 = Some(found.hex());
    let recorded = request::sha256(&shim.sha256).ok();
    let expected = binary.or(recorded.as_ref());
    if let Some(expected) = expected.filter(|expected| **expected != found) {
        return drifted(format!("{path} has SHA-256 {}, not {}", found.hex(), expected.hex()));
    }
    let mode = std::fs::metadata(&here).map_or(0, |m| m.mode());
    if mode & 0o111 != 0o111 {
        return drifted(format!("{path} cannot be executed by all"));
    }
    Ok(())
}
