//! `portolan key generate --output PREFIX`

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use portolan_registry::durable::{DurableError, TempFile};
use portolan_verify::key::{Password, PrivateKey};

use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan key generate --output release\n  \
    COSIGN_PASSWORD=$(pass show release) portolan key generate --output release\n\n\
    Writes release.key (mode 0600, encrypted) and release.pub. The password comes from \
    COSIGN_PASSWORD, else it is asked for twice. Nothing is ever overwritten.")]
pub(crate) struct Args {
    /// Path and beginning of the names of the two files
    #[arg(long, value_name = "PREFIX", default_value = "portolan")]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let with = |suffix: &str| {
        let mut name = args.output.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (private, public) = (with(".key"), with(".pub"));
    // Before the password is asked for: nobody types one for nothing.
    for path in [&private, &public] {
        if path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
    }
    let password = choose().map_err(Failure::usage)?;
    let key = PrivateKey::generate().map_err(failed)?;
    let sealed = key.to_encrypted_pem(&password).map_err(failed)?;
    write_pair((&private, &sealed), (&public, &key.public().to_pem()))?;
    let fingerprint = key.public().fingerprint();
    format::write(&format!("{}\n{}\n", private.display(), public.display()))?;
    format::tell(&format!("the key is sha256:{fingerprint}; keep {} secret", private.display()));
    Ok(Exit::Ok)
}

/// Writes both halves of a pair, each to its path. Nothing is overwritten.
pub(crate) fn write_pair(private: (&Path, &str), public: (&Path, &str)) -> Result<(), Failure> {
    // Both are whole before either has its name.
    let sealed = written(private.0, 0o600, private.1)?;
    let open = written(public.0, 0o644, public.1)?;
    name(sealed, private.0)?;
    if let Err(failure) = name(open, public.0) {
        // Half a pair is of no use, and it would be in the way of the next attempt.
        let _ = std::fs::remove_file(private.0);
        return Err(failure);
    }
    Ok(())
}

/// Writes the public half alone, where there is none.
pub(crate) fn write_public(path: &Path, pem: &str) -> Result<(), Failure> {
    name(written(path, 0o644, pem)?, path)
}

fn taken(path: &Path) -> Failure {
    let error = anyhow::anyhow!(
        "{} is there already and is not overwritten: what it signed would no longer verify; choose another --output",
        path.display()
    );
    Failure::usage(error)
}

/// A typed password is typed twice: a slip would lock the key away.
fn choose() -> anyhow::Result<Password> {
    if std::env::var_os(super::PASSWORD).is_some() {
        return super::password("").map(|password| password.expect("it is set"));
    }
    let first = super::password("Password for the new key: ")?;
    let second = super::password("The same again: ")?;
    match (first, second) {
        (Some(first), Some(second)) => {
            anyhow::ensure!(first == second, "the two passwords differ");
            Ok(first)
        }
        _ => anyhow::bail!("no password: set {} or use a terminal", super::PASSWORD),
    }
}

/// The content of `path`, without that name yet.
fn written(path: &Path, mode: u32, text: &str) -> Result<TempFile, Failure> {
    let dir =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let write = || -> anyhow::Result<TempFile> {
        let mut temp = TempFile::create(dir)?;
        // Before there is anything in it to be read.
        temp.file().set_permissions(Permissions::from_mode(mode))?;
        temp.write(text.as_bytes())?;
        Ok(temp)
    };
    write().with_context(|| format!("write {}", path.display())).map_err(failed)
}

fn name(temp: TempFile, path: &Path) -> Result<(), Failure> {
    temp.rename_new(path).map_err(|error| match &error {
        DurableError::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists => taken(path),
        _ => failed(error),
    })
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Transport, error)
}
