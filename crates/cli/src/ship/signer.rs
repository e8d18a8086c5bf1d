//! The key that signs: the one that is given, or the development key of this machine.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use portolan_registry::durable;
use portolan_verify::key::{MAX_KEY_BYTES, PrivateKey, PublicKey};

use super::site::{Site, local};
use crate::exit::Failure;
use crate::format;
use crate::key::{self, generate};
use crate::sign::fingerprint;

/// What keys of nobody in particular are called.
const DEVELOPMENT: &str = "development";

/// Who signs.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) key: PrivateKey,
    /// For people.
    pub(super) name: String,
    /// The file of the public half, for whoever verifies.
    pub(super) public: PathBuf,
}

impl Signer {
    /// Opens the key that is given, or the development key, which is made when it is not there.
    pub(super) fn open(given: Option<&Path>, site: &Site) -> Result<Self, Failure> {
        let private = match given {
            Some(file) => file.to_owned(),
            None => site.keys().join(format!("{DEVELOPMENT}.key")),
        };
        if given.is_none() && private.symlink_metadata().is_err() {
            generated(&private)?;
        }
        let key = key::open(&private)?;
        let public = public_half(&private, &key, given.is_some(), site)?;
        let name = match given {
            Some(file) => format!("the key {}", file.display()),
            None => "the development key".to_owned(),
        };
        Ok(Self { key, name, public })
    }
}

/// Makes the development key. It has no password: it says that an image was made on this machine, and
/// nothing that anybody else should rely on.
fn generated(private: &Path) -> Result<(), Failure> {
    let key = PrivateKey::generate().map_err(local)?;
    let public = private.with_extension("pub");
    // Of a pair whose private half is gone.
    let _ = std::fs::remove_file(&public);
    generate::write_pair((private, &key.to_plain_pem()), (&public, &key.public().to_pem()))?;
    format::tell(&format!(
        "made a development key, {}, in {}; it has no password: sign what others run with --key",
        fingerprint(&key),
        private.display()
    ));
    Ok(())
}

/// The file of the public half: the one beside the key, or one of ours where there is none.
fn public_half(
    private: &Path,
    key: &PrivateKey,
    given: bool,
    site: &Site,
) -> Result<PathBuf, Failure> {
    let beside = private.with_extension("pub");
    let own = key.public().fingerprint();
    match (public(&beside), given) {
        (Ok(Some(public)), _) if public.fingerprint() == own => return Ok(beside),
        // Somebody was ended between the two halves.
        (Ok(None), false) => {
            generate::write_public(&beside, &key.public().to_pem())?;
            return Ok(beside);
        }
        (read, false) => {
            let what = format!(
                "{} is not the public half of {}; remove both, and a new pair is made",
                beside.display(),
                private.display()
            );
            return Err(match read {
                Ok(_) => Failure::usage(anyhow::anyhow!(what)),
                Err(Failure { exit, error }) => Failure::new(exit, error.context(what)),
            });
        }
        // What lies beside a key of somebody's is theirs.
        (_, true) => {}
    }
    let kept = site.keys().join(format!("{}.pub", &own[..16]));
    match public(&kept) {
        Ok(Some(public)) if public.fingerprint() == own => {}
        _ => {
            let _ = std::fs::remove_file(&kept);
            generate::write_public(&kept, &key.public().to_pem())?;
        }
    }
    Ok(kept)
}

/// A public key; none where there is no file.
fn public(path: &Path) -> Result<Option<PublicKey>, Failure> {
    let read = durable::read_bounded(path, MAX_KEY_BYTES as u64).map_err(Failure::usage)?;
    let Some(pem) = read else { return Ok(None) };
    let key = PublicKey::from_pem(&pem).with_context(|| path.display().to_string());
    key.map(Some).map_err(Failure::usage)
}
