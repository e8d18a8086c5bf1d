//! From a signer in the file to somebody who judges.
//!
//! A new kind of authority is a member of [`document::Signer`] and an arm here; the rest of the
//! policy and the decision do not look at what kind a signer is.

use std::path::Path;
use std::sync::Arc;

use super::document::{self, KeylessLog, Log, Sct};
use super::read::{PolicyContentError, ReadFile, wrong};
use crate::authority::Authority;
use crate::key::PublicKey;
use crate::sigstore::{
    KeyAuthority, KeylessAuthority, KeylessOptions, LogPolicy, Match, TrustedRoot, pattern,
};

/// Makes the authority that `written` means; `place` is where it stands.
pub(super) fn authority(
    place: &str,
    written: &document::Signer,
    read: ReadFile<'_>,
) -> Result<Arc<dyn Authority>, PolicyContentError> {
    match (&written.keys, &written.keyless, &written.notation) {
        (Some(keys), None, None) => Ok(Arc::new(key_authority(place, keys, read)?)),
        (None, Some(keyless), None) => Ok(Arc::new(keyless_authority(place, keyless, read)?)),
        (None, None, Some(notation)) => Ok(Arc::new(notation.authority(place, read)?)),
        _ => Err(wrong(place, "a signer has exactly one of `keys`, `keyless` and `notation`")),
    }
}

fn key_authority(
    place: &str,
    written: &document::Keys,
    read: ReadFile<'_>,
) -> Result<KeyAuthority, PolicyContentError> {
    let mut keys = Vec::new();
    for file in &written.files {
        let key = PublicKey::from_pem(&file_of(place, file, read)?);
        keys.push(key.map_err(|error| PolicyContentError::File {
            place: place.to_owned(),
            file: file.clone(),
            what: error.to_string(),
        })?);
    }
    for (n, pem) in written.inline.iter().enumerate() {
        let key = PublicKey::from_pem(pem.as_bytes());
        keys.push(
            key.map_err(|error| wrong(place, format!("key {} in `inline`: {error}", n + 1)))?,
        );
    }
    if keys.is_empty() {
        return Err(wrong(place, "it has no key; add `files` or `inline`"));
    }
    let log = match (written.log, &written.trusted_root) {
        (Log::Ignored, None) => LogPolicy::Ignore,
        (Log::Required, Some(file)) => LogPolicy::Require(root(place, file, read)?),
        (Log::Required, None) => {
            return Err(wrong(place, "`log: required` needs `trustedRoot` to say which logs"));
        }
        (Log::Ignored, Some(_)) => {
            return Err(wrong(place, "`trustedRoot` means nothing without `log: required`"));
        }
    };
    for key in &keys {
        log.fits(key).map_err(|error| wrong(place, error.to_string()))?;
    }
    Ok(KeyAuthority::new(keys, log))
}

fn keyless_authority(
    place: &str,
    written: &document::Keyless,
    read: ReadFile<'_>,
) -> Result<KeylessAuthority, PolicyContentError> {
    let identity = matched(&format!("{place}.identity"), &written.identity)?;
    let issuer = matched(&format!("{place}.issuer"), &written.issuer)?;
    let root = root(place, &written.trusted_root, read)?;
    let options = KeylessOptions {
        require_log: written.log == KeylessLog::Required,
        require_sct: written.sct == Sct::Required,
    };
    if !options.require_log && !root.has_clocks() {
        let file = written.trusted_root.display();
        let what = format!(
            "`log: timestamp` needs somebody who timestamps, and {file} names no timestamping authority"
        );
        return Err(wrong(place, what));
    }
    KeylessAuthority::new(identity, issuer, root, options)
        .map_err(|error| wrong(place, error.to_string()))
}

fn matched(place: &str, written: &document::Match) -> Result<Match, PolicyContentError> {
    match (&written.exact, &written.regex) {
        (Some(exact), None) if !exact.is_empty() => Ok(Match::Exact(exact.clone())),
        (None, Some(text)) if !text.is_empty() => {
            Ok(Match::Regex(pattern(text).map_err(|error| wrong(place, error.to_string()))?))
        }
        _ => Err(wrong(place, "it has exactly one of `exact` and `regex`, and it is not empty")),
    }
}

fn root(place: &str, file: &Path, read: ReadFile<'_>) -> Result<TrustedRoot, PolicyContentError> {
    let bytes = file_of(place, file, read)?;
    TrustedRoot::from_json(&bytes).map_err(|error| PolicyContentError::File {
        place: place.to_owned(),
        file: file.to_owned(),
        what: error.to_string(),
    })
}

pub(super) fn file_of(
    place: &str,
    file: &Path,
    read: ReadFile<'_>,
) -> Result<Vec<u8>, PolicyContentError> {
    read(file).map_err(|what| PolicyContentError::File {
        place: place.to_owned(),
        file: file.to_owned(),
        what,
    })
}
