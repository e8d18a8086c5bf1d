//! Makes what was decided. Every key is new, and for P-256: what every client knows.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use zeroize::Zeroizing;

use super::material::{Authority, Kept, Leaf, MAX_AUTHORITIES, Validity};
use super::plan::{BACKDATED, Change, Wanted, is_good};

/// What the change makes of what was kept. Whatever changes, authorities that are not good at this
/// time go.
pub(super) fn make(
    change: &Change,
    kept: Option<&Kept>,
    now: Timestamp,
    wanted: &Wanted,
) -> Result<Kept, rcgen::Error> {
    let (Some(before), false) = (kept, *change == Change::Everything) else {
        let authorities = vec![authority(now, wanted)?];
        let leaf = leaf(&authorities, 0, &wanted.names, (now, wanted))?;
        return Ok(Kept { authorities, leaf });
    };
    let good = |one: &&Authority| is_good(one.validity, now);
    let mut authorities: Vec<Authority> = before.authorities.iter().filter(good).cloned().collect();
    let signed_by = |n: Option<usize>| n.map(|n| before.authorities[n].der.clone());
    let place = |authorities: &[Authority], der: Option<Vec<u8>>| {
        authorities.iter().position(|one| Some(&one.der) == der.as_ref())
    };
    if *change == Change::Authority {
        authorities.insert(0, authority(now, wanted)?);
        authorities.truncate(MAX_AUTHORITIES);
    }
    let leaf = match change {
        Change::Certificate { issuer, names } => {
            let issuer = place(&authorities, signed_by(Some(*issuer))).unwrap_or(0);
            leaf(&authorities, issuer, names, (now, wanted))?
        }
        Change::Everything | Change::Authority | Change::Prune => {
            let issuer = place(&authorities, signed_by(before.leaf.issuer));
            Leaf { issuer, ..before.leaf.clone() }
        }
    };
    Ok(Kept { authorities, leaf })
}

fn authority(now: Timestamp, wanted: &Wanted) -> Result<Authority, rcgen::Error> {
    let validity = Validity { from: earlier(now), until: later(now, wanted.ca_lifetime) };
    // Each has a name of its own, so that who verifies takes the right one of two.
    let name = format!("portolan-verifier {now:.3}");
    let mut params = authority_params(&name);
    set(&mut params, validity);
    let key = KeyPair::generate()?;
    let made = params.self_signed(&key)?;
    let key = Zeroizing::new(key.serialize_pem());
    Ok(Authority { der: made.der().to_vec(), validity: rounded(validity), name, key })
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf(
    authorities: &[Authority],
    issuer: usize,
    names: &BTreeSet<String>,
    (now, wanted): (Timestamp, &Wanted),
) -> Result<Leaf, rcgen::Error> {
    let authority = &authorities[issuer];
    // It is not good for longer than who vouches for it.
    let until = later(now, wanted.lifetime).min(authority.validity.until);
    let validity = Validity { from: earlier(now), until };
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params.distinguished_name = common_name("portolan-verifier");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set(&mut params, validity);
    let key = KeyPair::generate()?;
    let signer = Issuer::new(authority_params(&authority.name), KeyPair::from_pem(&authority.key)?);
    let made = params.signed_by(&key, &signer)?;
    Ok(Leaf {
        certificate: made.pem(),
        key: Zeroizing::new(key.serialize_pem()),
        validity: rounded(validity),
        names: names.clone(),
        issuer: Some(issuer),
    })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

fn set(params: &mut CertificateParams, validity: Validity) {
    let time = |stamp: Timestamp| {
        let seconds = u64::try_from(stamp.as_second()).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = time(validity.from);
    params.not_after = time(validity.until);
}

/// As certificates hold it: in seconds.
fn rounded(validity: Validity) -> Validity {
    let whole = |stamp: Timestamp| Timestamp::from_second(stamp.as_second()).unwrap_or(stamp);
    Validity { from: whole(validity.from), until: whole(validity.until) }
}

fn earlier(now: Timestamp) -> Timestamp {
    now.checked_sub(BACKDATED).unwrap_or(now)
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(now)
}
