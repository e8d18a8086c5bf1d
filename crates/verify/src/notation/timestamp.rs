//! Countersignatures of timestamping authorities (RFC 3161): a token that says when the signature
//! of an envelope was there already.

use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData, SignerIdentifier, SignerInfo};
use const_oid::db::rfc5911;
use der::asn1::{AnyRef, OctetString, OctetStringRef, SetOfVec};
use der::{Any, Decode, Reader, Sequence, SliceReader};
use jiff::{SignedDuration, Timestamp};
use x509_cert::attr::Attribute;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_tsp::{Accuracy, MessageImprint};

use super::asn1::{DerFault, decode, elements, encode};
use super::certificate::{Certificate, Found};
use super::chain::{Chain, MAX_CHAIN, Purpose};
use super::refuse::{refuse, untrusted};
use super::signature::{Fault, Hash};
use crate::authority::{Refusal, RefusalCode};

/// Real ones have six kilobytes.
const MAX_TOKEN_BYTES: usize = 256 * 1024;
/// What a token may be over: `id-ct-TSTInfo`.
const TST_INFO: const_oid::ObjectIdentifier =
    const_oid::ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.1.4");
/// ETSI's best practices policy: without an accuracy, it is a second.
const BASELINE_POLICY: const_oid::ObjectIdentifier =
    const_oid::ObjectIdentifier::new_unwrap("0.4.0.2023.1.1");

/// Tag of the certificates in signed data: `[0]`, constructed.
const CERTIFICATES: u8 = 0xa0;
/// Tag of a certificate; the other choices in a set of them are attribute certificates.
const SEQUENCE: u8 = 0x30;

/// A token that is genuine: when, and who says so.
#[derive(Debug, Clone)]
pub(super) struct Stamp {
    /// Not earlier than this.
    pub(super) earliest: Timestamp,
    /// Not later than this.
    pub(super) latest: Timestamp,
    /// From the authority's certificate to a trusted root.
    pub(super) chain: Chain,
}

/// Judges `token` as a countersignature over `signature`, by an authority below one of `roots`.
pub(super) fn judge(
    token: &[u8],
    signature: &[u8],
    roots: &[&Certificate],
) -> Result<Stamp, Refusal> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(no(format!("it has {} bytes; {MAX_TOKEN_BYTES} are taken", token.len())));
    }
    let (signed, certificates) = signed_data(token)?;
    let content = content(&signed)?;
    let info = Info::read(&content)?;
    let imprint = Hash::from_oid(&info.imprint.hash_algorithm.oid)
        .ok_or_else(|| no("its imprint is not made with SHA-2"))?;
    if imprint.of(signature) != info.imprint.hashed_message.as_bytes() {
        return Err(no("it is over another signature"));
    }
    let signer = match signed.signer_infos.0.as_slice() {
        [only] => only,
        _ => return Err(no("it has not exactly one signer")),
    };
    let certificate = find_signer(signer, &certificates)?;
    check_signer(signer, certificate, &content)?;
    let chain = build_chain(certificate, &certificates, roots)?;
    chain.valid_at(info.time, "the time that it states")?;
    let around = |offset: SignedDuration| {
        info.time.checked_add(offset).map_err(|_| no("its time is beyond all calendars"))
    };
    Ok(Stamp { earliest: around(-info.accuracy)?, latest: around(info.accuracy)?, chain })
}

fn no(why: impl std::fmt::Display) -> Refusal {
    refuse(RefusalCode::NotTimestamped, format!("the timestamp does not count: {why}"))
}

/// What is signed, and the certificates that came with it.
fn signed_data(token: &[u8]) -> Result<(SignedData, Vec<Certificate>), Refusal> {
    let outer: ContentInfo = decode(token).map_err(no)?;
    if outer.content_type != rfc5911::ID_SIGNED_DATA {
        return Err(no("it is not signed data"));
    }
    let signed: SignedData = outer.content.decode_as().map_err(no)?;
    if signed.encap_content_info.econtent_type != TST_INFO {
        return Err(no("what it signs is no time"));
    }
    let certificates = certificates(outer.content.value()).map_err(no)?;
    let read = certificates.iter().map(|der| Certificate::read(der).map_err(no));
    Ok((signed, read.collect::<Result<_, _>>()?))
}

/// The certificates in the fields of signed data, as they were written: `cms` would give them
/// back in its own encoding, which need not have the hash that was signed.
fn certificates(fields: &[u8]) -> Result<Vec<Vec<u8>>, DerFault> {
    let fields = elements(fields)?;
    let Some(set) = fields.iter().find(|field| field.first() == Some(&CERTIFICATES)) else {
        return Ok(Vec::new());
    };
    let inner = AnyRef::from_der(set)?;
    let all = elements(inner.value())?;
    let plain = all.into_iter().filter(|element| element.first() == Some(&SEQUENCE));
    Ok(plain.map(<[u8]>::to_vec).collect())
}

/// The signed octets.
fn content(signed: &SignedData) -> Result<Vec<u8>, Refusal> {
    let content = signed.encap_content_info.econtent.as_ref();
    let content = content.ok_or_else(|| no("it has no content"))?;
    let octets: OctetStringRef<'_> = content.decode_as().map_err(no)?;
    Ok(octets.as_bytes().to_vec())
}

/// What a token says, as far as it is needed.
struct Info {
    imprint: MessageImprint,
    time: Timestamp,
    accuracy: SignedDuration,
}

impl Info {
    /// Read by hand because `x509-tsp` takes no fractions of seconds, which RFC 3161 allows.
    fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        // The walk over the shape; the type is looked at below.
        decode::<AnyRef<'_>>(bytes).map_err(no)?;
        let mut reader = SliceReader::new(bytes).map_err(no)?;
        let read = reader.sequence(|inner| {
            let version: u8 = inner.decode()?;
            let policy: const_oid::ObjectIdentifier = inner.decode()?;
            let imprint: MessageImprint = inner.decode()?;
            let _serial: der::asn1::Int = inner.decode()?;
            let time: AnyRef<'_> = inner.decode()?;
            let accuracy: Option<Accuracy> = inner.decode()?;
            // ordering, nonce, the authority's name and extensions say nothing about when.
            while !inner.is_finished() {
                inner.tlv_bytes()?;
            }
            Ok((version, policy, imprint, time, accuracy))
        });
        let (version, policy, imprint, time, accuracy) =
            read.and_then(|read| reader.finish(read)).map_err(no)?;
        if version != 1 {
            return Err(no(format!("its version is {version}")));
        }
        let accuracy = match accuracy {
            Some(accuracy) => duration(&accuracy)?,
            None if policy == BASELINE_POLICY => SignedDuration::from_secs(1),
            None => SignedDuration::ZERO,
        };
        Ok(Self { imprint, time: generalized_time(time)?, accuracy })
    }
}

fn duration(accuracy: &Accuracy) -> Result<SignedDuration, Refusal> {
    // A clock that is wrong by more than a day is none; and nothing below overflows.
    let seconds = accuracy.seconds.unwrap_or(0);
    let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds <= 86_400);
    let seconds = seconds.ok_or_else(|| no("its accuracy is worse than a day"))?;
    let part = |part: Option<i16>| match part.unwrap_or(0) {
        part @ 0..=999 => Ok(i64::from(part)),
        _ => Err(no("its accuracy has a fraction beyond 0 to 999")),
    };
    Ok(SignedDuration::from_secs(seconds)
        + SignedDuration::from_millis(part(accuracy.millis)?)
        + SignedDuration::from_micros(part(accuracy.micros)?))
}

/// `YYYYMMDDhhmmss[.f…]Z`
fn generalized_time(time: AnyRef<'_>) -> Result<Timestamp, Refusal> {
    let wrong = || no("its time cannot be read");
    if der::Tagged::tag(&time) != der::Tag::GeneralizedTime {
        return Err(wrong());
    }
    let text = std::str::from_utf8(time.value()).ok().filter(|text| text.is_ascii());
    let text = text.and_then(|text| text.strip_suffix('Z')).ok_or_else(wrong)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 14
        || !digits(whole)
        || !(1..=9).contains(&fraction.len())
        || !digits(fraction)
    {
        return Err(wrong());
    }
    let (date, clock) = whole.split_at(8);
    format!(
        "{}-{}-{}T{}:{}:{}.{fraction}Z",
        &date[..4],
        &date[4..6],
        &date[6..],
        &clock[..2],
        &clock[2..4],
        &clock[4..]
    )
    .parse()
    .map_err(|_| wrong())
}

fn find_signer<'a>(
    signer: &SignerInfo,
    certificates: &'a [Certificate],
) -> Result<&'a Certificate, Refusal> {
    let mut fits = certificates.iter().filter(|certificate| match &signer.sid {
        SignerIdentifier::IssuerAndSerialNumber(id) => {
            id.issuer == *certificate.issuer_name()
                && id.serial_number.as_bytes() == certificate.serial()
        }
        SignerIdentifier::SubjectKeyIdentifier(wanted) => {
            let found: Found<SubjectKeyIdentifier> = certificate.subject_key_identifier();
            matches!(found, Found::There { value, .. } if value == *wanted)
        }
    });
    fits.next().ok_or_else(|| no("the certificate of its signer is not in it"))
}

/// RFC 5652 5.4 and RFC 5816: what is signed are attributes, and they name the content, its type
/// and the certificate.
fn check_signer(
    signer: &SignerInfo,
    certificate: &Certificate,
    content: &[u8],
) -> Result<(), Refusal> {
    let hash = Hash::from_oid(&signer.digest_alg.oid)
        .ok_or_else(|| no("its digest is not made with SHA-2"))?;
    let attributes = signer.signed_attrs.as_ref().ok_or_else(|| no("nothing in it is signed"))?;
    let kind: const_oid::ObjectIdentifier = attribute(attributes, rfc5911::ID_CONTENT_TYPE)?;
    let digest: OctetString = attribute(attributes, rfc5911::ID_MESSAGE_DIGEST)?;
    if kind != TST_INFO || digest.as_bytes() != hash.of(content) {
        return Err(no("what is signed is not its content"));
    }
    let named: SigningCertificateV2 =
        attribute(attributes, rfc5911::ID_AA_SIGNING_CERTIFICATE_V_2)?;
    named.check(certificate)?;
    let key = certificate.key().ok_or_else(|| no("its signer's key is of a kind not taken"))?;
    let message = encode(attributes).map_err(no)?;
    key.verify_cms(&signer.signature_algorithm, hash, &message, signer.signature.as_bytes())
        .map_err(|fault| match fault {
            Fault::Algorithm => no("its signature algorithm is not taken"),
            Fault::Mismatch => no("its signature does not fit its signer's key"),
        })
}

/// The one value of a signed attribute.
fn attribute<T>(
    attributes: &SetOfVec<Attribute>,
    oid: const_oid::ObjectIdentifier,
) -> Result<T, Refusal>
where
    T: for<'a> Decode<'a>,
{
    let mut found = attributes.iter().filter(|attribute| attribute.oid == oid);
    let (Some(attribute), None) = (found.next(), found.next()) else {
        return Err(no(format!("the attribute {oid} is not there once")));
    };
    let [value] = attribute.values.as_slice() else {
        return Err(no(format!("the attribute {oid} has not one value")));
    };
    let der = encode(value).map_err(no)?;
    decode(&der).map_err(no)
}

/// RFC 5035: which certificate signed, by its hash; policies do not matter here.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct SigningCertificateV2 {
    certs: Vec<EssCertIdV2>,
    #[asn1(optional = "true")]
    policies: Option<Any>,
}

#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct EssCertIdV2 {
    /// SHA-256 when it is absent.
    #[asn1(optional = "true")]
    hash_algorithm: Option<AlgorithmIdentifierOwned>,
    cert_hash: OctetString,
    #[asn1(optional = "true")]
    issuer_serial: Option<Any>,
}

impl SigningCertificateV2 {
    /// The first one it names has to be `certificate`.
    fn check(&self, certificate: &Certificate) -> Result<(), Refusal> {
        let first = self.certs.first().ok_or_else(|| no("it names no certificate"))?;
        let hash = match &first.hash_algorithm {
            None => Some(Hash::Sha256),
            Some(algorithm) => Hash::from_oid(&algorithm.oid),
        };
        let hash =
            hash.ok_or_else(|| no("it names its certificate with another hash than SHA-2"))?;
        if hash.of(certificate.der()) != first.cert_hash.as_bytes() {
            return Err(no("it names another certificate than its signer's"));
        }
        Ok(())
    }
}

/// From `leaf` by whatever the token brings to one of `roots`.
fn build_chain(
    leaf: &Certificate,
    brought: &[Certificate],
    roots: &[&Certificate],
) -> Result<Chain, Refusal> {
    let mut chain = vec![leaf.clone()];
    while chain.len() < MAX_CHAIN {
        let last = chain.last().expect("it begins with the leaf");
        if let Some(root) = roots.iter().find(|root| last.is_issued_by(root).is_ok()) {
            chain.push((*root).clone());
            return Chain::check(chain, Purpose::Timestamping);
        }
        let above =
            brought.iter().find(|above| !chain.contains(above) && last.is_issued_by(above).is_ok());
        match above {
            Some(above) => chain.push(above.clone()),
            None => break,
        }
    }
    Err(untrusted(format!(
        "the timestamp does not count: the certificate of {} leads to no root in a tsa store",
        leaf.subject()
    )))
}
