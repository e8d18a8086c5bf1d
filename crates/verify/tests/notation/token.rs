//! RFC 3161 tokens of any shape, right and wrong.

use cms::cert::{CertificateChoices, IssuerAndSerialNumber};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{
    CertificateSet, EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5911, rfc5912};
use der::asn1::{Int, OctetString, SetOfVec};
use der::{Any, Decode as _, Encode as _, Sequence, Tag};
use sha2::{Digest as _, Sha256};
use x509_cert::Certificate;
use x509_cert::attr::Attribute;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_tsp::{Accuracy, MessageImprint};

use crate::mint::Key;

pub(crate) const TST_INFO: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.1.4");

/// A token to be.
#[derive(Clone)]
pub(crate) struct Token<'a> {
    pub(crate) key: &'a Key,
    /// The signer's first.
    pub(crate) certificates: Vec<Vec<u8>>,
    /// As DER writes a GeneralizedTime.
    pub(crate) time: &'static str,
    pub(crate) accuracy: Option<Accuracy>,
    pub(crate) policy: &'static str,
    pub(crate) imprint: fn(&[u8]) -> Vec<u8>,
    pub(crate) imprint_hash: ObjectIdentifier,
    pub(crate) content_type: ObjectIdentifier,
    /// Which certificate its attribute names; none for no attribute.
    pub(crate) names: Option<Vec<u8>>,
    /// A change of the content after it was signed.
    pub(crate) after: fn(&mut [u8]),
}

#[derive(Sequence)]
struct Info {
    version: u8,
    policy: ObjectIdentifier,
    imprint: MessageImprint,
    serial: Int,
    time: Any,
    #[asn1(optional = "true")]
    accuracy: Option<Accuracy>,
    #[asn1(optional = "true")]
    nonce: Option<Int>,
}

#[derive(Sequence)]
struct SigningCertificate {
    certs: Vec<Named>,
}

#[derive(Sequence)]
struct Named {
    hash: OctetString,
}

fn algorithm(oid: ObjectIdentifier) -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid, parameters: None }
}

fn attribute(oid: ObjectIdentifier, value: &impl der::Encode) -> Attribute {
    let value = Any::from_der(&value.to_der().unwrap()).unwrap();
    Attribute { oid, values: SetOfVec::try_from(vec![value]).unwrap() }
}

impl<'a> Token<'a> {
    pub(crate) fn new(key: &'a Key, certificates: Vec<Vec<u8>>) -> Self {
        Self {
            key,
            names: Some(certificates[0].clone()),
            certificates,
            time: "20261101080000Z",
            accuracy: None,
            policy: "1.2.3.4",
            imprint: |signature| Sha256::digest(signature).to_vec(),
            imprint_hash: rfc5912::ID_SHA_256,
            content_type: TST_INFO,
            after: |_| {},
        }
    }

    fn info(&self, signature: &[u8]) -> Vec<u8> {
        let info = Info {
            version: 1,
            policy: ObjectIdentifier::new_unwrap(self.policy),
            imprint: MessageImprint {
                hash_algorithm: algorithm(self.imprint_hash),
                hashed_message: OctetString::new((self.imprint)(signature)).unwrap(),
            },
            serial: Int::new(&[9]).unwrap(),
            time: Any::new(Tag::GeneralizedTime, self.time.as_bytes()).unwrap(),
            accuracy: self.accuracy.clone(),
            nonce: Some(Int::new(&[5]).unwrap()),
        };
        info.to_der().unwrap()
    }

    /// Over the signature of an envelope.
    pub(crate) fn over(&self, signature: &[u8]) -> Vec<u8> {
        let mut content = self.info(signature);
        let mut attributes = vec![
            attribute(rfc5911::ID_CONTENT_TYPE, &self.content_type),
            attribute(
                rfc5911::ID_MESSAGE_DIGEST,
                &OctetString::new(Sha256::digest(&content).to_vec()).unwrap(),
            ),
        ];
        if let Some(named) = &self.names {
            let hash = OctetString::new(Sha256::digest(named).to_vec()).unwrap();
            let value = SigningCertificate { certs: vec![Named { hash }] };
            attributes.push(attribute(rfc5911::ID_AA_SIGNING_CERTIFICATE_V_2, &value));
        }
        let attributes = SetOfVec::try_from(attributes).unwrap();
        let (signature_algorithm, signed) = self.key.sign_x509(&attributes.to_der().unwrap());
        let read = |der: &Vec<u8>| Certificate::from_der(der).unwrap();
        let leaf = read(&self.certificates[0]).tbs_certificate;
        let signer = SignerInfo {
            version: CmsVersion::V1,
            sid: SignerIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                issuer: leaf.issuer,
                serial_number: leaf.serial_number,
            }),
            digest_alg: algorithm(rfc5912::ID_SHA_256),
            signed_attrs: Some(attributes),
            signature_algorithm,
            signature: OctetString::new(signed).unwrap(),
            unsigned_attrs: None,
        };
        (self.after)(&mut content);
        let content = OctetString::new(content).unwrap().to_der().unwrap();
        let certificates = self.certificates.iter().map(read).map(CertificateChoices::Certificate);
        let data = SignedData {
            version: CmsVersion::V3,
            digest_algorithms: SetOfVec::try_from(vec![algorithm(rfc5912::ID_SHA_256)]).unwrap(),
            encap_content_info: EncapsulatedContentInfo {
                econtent_type: self.content_type,
                econtent: Some(Any::from_der(&content).unwrap()),
            },
            certificates: Some(CertificateSet::try_from(certificates.collect::<Vec<_>>()).unwrap()),
            crls: None,
            signer_infos: SignerInfos::try_from(vec![signer]).unwrap(),
        };
        ContentInfo {
            content_type: rfc5911::ID_SIGNED_DATA,
            content: Any::from_der(&data.to_der().unwrap()).unwrap(),
        }
        .to_der()
        .unwrap()
    }
}
