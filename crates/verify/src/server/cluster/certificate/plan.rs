//! What to do now, given what is in the Secret, what time it is and whom others trust.
//!
//! An authority is followed by the next while it has a third of its life left. The next is made
//! known first (`ca.crt`, every `caBundle`) and signs only when everybody was seen to trust it and
//! some time has passed; the old one stays in the bundle until it has expired, when nothing that it
//! signed can be in use any more. So whatever copy of the verifier shows whichever of both
//! certificates, who asks trusts it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::material::{Kept, MAX_AUTHORITIES, Validity};

/// Clocks of a cluster differ; what is made is good from that much before.
pub(super) const BACKDATED: Duration = Duration::from_secs(300);
/// A clock that is further from that of the API server is not one to make certificates by.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(300);

/// What the operator wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) names: BTreeSet<String>,
    pub(super) lifetime: Duration,
    pub(super) ca_lifetime: Duration,
}

/// What time it is here, and at the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) here: Timestamp,
    pub(super) there: Timestamp,
}

/// What the Secret is.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// There is none, or nothing is in it.
    Nothing,
    /// Somebody else's.
    Foreign,
    /// Ours, but it cannot be used.
    Broken(String),
    /// Ours.
    Kept(Kept),
}

/// What to do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing: it is good.
    Keep,
    /// Nothing, although something would have to be done, and why.
    HandsOff(String),
    /// Write, and why.
    Write(Change, String),
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A new authority and a certificate of it, and nothing of what was.
    Everything,
    /// One more authority, that signs nothing yet.
    Authority,
    /// A certificate of this authority, for these names.
    Certificate { issuer: usize, names: BTreeSet<String> },
    /// Only that authorities that have expired are gone.
    Prune,
}

/// What to do now. `trusted` has, for each object that should have our `caBundle`, whom it trusts.
pub(super) fn decide(
    clock: Clock,
    found: &Found,
    trusted: &[BTreeSet<Vec<u8>>],
    wanted: &Wanted,
) -> Decision {
    let apart = clock.here.duration_since(clock.there).unsigned_abs();
    if apart > MAX_SKEW {
        let what = format!(
            "this machine's clock is {} s from the API server's; set it, nothing is made by it",
            apart.as_secs()
        );
        return Decision::HandsOff(what);
    }
    let kept = match found {
        Found::Foreign => {
            let what = "somebody else's data is in the Secret; delete it or set tls.generate.secret to another name";
            return Decision::HandsOff(what.to_owned());
        }
        Found::Nothing => return everything("there is none yet"),
        Found::Broken(what) => return everything(what),
        Found::Kept(kept) => kept,
    };
    let now = clock.here;
    let live: Vec<usize> = (0..kept.authorities.len())
        .filter(|n| is_good(kept.authorities[*n].validity, now))
        .collect();
    let Some(newest) = live.first().copied() else {
        return everything("no authority in it is good at this time");
    };
    let everybody = |n: &usize| trusted.iter().all(|one| one.contains(&kept.authorities[*n].der));
    let settled = |n: &usize| age(kept.authorities[*n].validity, now) >= settling(wanted);
    // Who signs: the newest that everybody trusts for some time, else the newest that everybody
    // trusts, else the newest. Somebody must.
    let known = || live.iter().copied().filter(|n| everybody(n));
    let signer = known().find(settled).or_else(|| known().next()).unwrap_or(newest);
    if let Some((why, names)) = leaf_is_due(kept, now, signer, wanted) {
        return Decision::Write(Change::Certificate { issuer: signer, names }, why);
    }
    if is_due(kept.authorities[newest].validity, now, wanted.ca_lifetime)
        && kept.authorities.len() < MAX_AUTHORITIES
    {
        let why = "the authority has used two thirds of its life";
        return Decision::Write(Change::Authority, why.to_owned());
    }
    if live.len() < kept.authorities.len() {
        return Decision::Write(Change::Prune, "an authority has expired".to_owned());
    }
    Decision::Keep
}

fn everything(why: &str) -> Decision {
    Decision::Write(Change::Everything, why.to_owned())
}

/// Why a new certificate is needed, and for which names.
fn leaf_is_due(
    kept: &Kept,
    now: Timestamp,
    signer: usize,
    wanted: &Wanted,
) -> Option<(String, BTreeSet<String>)> {
    let leaf = &kept.leaf;
    let plain = |why: &str| Some((why.to_owned(), wanted.names.clone()));
    let issuer = leaf.issuer.map(|n| &kept.authorities[n]);
    match issuer {
        None => return plain("no authority vouches for the certificate"),
        Some(issuer) if !is_good(issuer.validity, now) => {
            return plain("the authority of the certificate is not good at this time");
        }
        Some(_) => {}
    }
    if !is_good(leaf.validity, now) {
        return plain("the certificate is not good at this time");
    }
    if is_due(leaf.validity, now, wanted.lifetime) {
        return plain("the certificate has used two thirds of its life");
    }
    if !wanted.names.is_subset(&leaf.names) {
        // With the names that it had: while a new version is rolled out, copies of the verifier that
        // want other names would otherwise take turns.
        let names = wanted.names.union(&leaf.names).cloned().collect();
        return Some(("the certificate lacks a name".to_owned(), names));
    }
    // Authorities are in order, the newest first.
    let moves = leaf.issuer.is_some_and(|issuer| signer < issuer)
        && age(kept.authorities[signer].validity, now) >= settling(wanted);
    if moves { plain("everybody trusts the next authority") } else { None }
}

/// Whether it counts now. What begins in the future was made by a clock that ran ahead.
pub(super) fn is_good(validity: Validity, now: Timestamp) -> bool {
    let begins = validity.from.duration_since(now);
    begins <= SignedDuration::try_from(MAX_SKEW).unwrap_or_default() && now < validity.until
}

/// Since it was made.
fn age(validity: Validity, now: Timestamp) -> Duration {
    let since = now.duration_since(validity.from);
    Duration::try_from(since).unwrap_or_default().saturating_sub(BACKDATED)
}

/// Two thirds of its life, or of what its life would be if it were made now.
fn is_due(validity: Validity, now: Timestamp, lifetime: Duration) -> bool {
    let whole = validity.until.duration_since(validity.from);
    let whole = Duration::try_from(whole).unwrap_or_default().saturating_sub(BACKDATED);
    age(validity, now) >= whole.min(lifetime) / 3 * 2
}

/// For so long an authority is only known before it signs: caches and copies of the bundle.
fn settling(wanted: &Wanted) -> Duration {
    wanted.ca_lifetime / 20
}
