//! One signature against one policy: what is always enforced, then what the policy grades.

use jiff::Timestamp;
use portolan_core::Descriptor;

use super::certificate::Certificate;
use super::chain::Chain;
use super::envelope::Envelope;
use super::headers::Scheme;
use super::policy::{
    Action, Check, Identities, StoreKind, StoreName, TrustPolicy, Verify, VerifyTimestamp,
};
use super::refuse::{malformed, refuse, untrusted};
use super::revocation::{self, Status};
use super::signature::Fault;
use super::stores::TrustStores;
use super::timestamp;
use crate::authority::{Accepted, Authority, Claim, Judgement, Refusal, RefusalCode};
use crate::evidence::{Content, Evidence};
use crate::subject::Subject;

/// Judges Notary Project signatures by one statement of a trust policy.
#[derive(Debug, Clone)]
pub struct NotationAuthority {
    policy: TrustPolicy,
    stores: TrustStores,
}

/// Why a policy and stores make no authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The policy trusts a store that was not given.
    #[error("the trust policy {policy:?} names the store {store}, which has no certificates")]
    NoStore {
        /// The policy's name.
        policy: String,
        /// The store's.
        store: StoreName,
    },
}

impl NotationAuthority {
    /// An authority of one policy; every store that it names has to be in `stores`.
    pub fn new(policy: TrustPolicy, stores: TrustStores) -> Result<Self, AuthorityError> {
        let mut named = policy.verify().stores.iter();
        if let Some(missing) = named.find(|store| stores.get(store).is_none()) {
            let (policy, store) = (policy.name().to_owned(), missing.clone());
            return Err(AuthorityError::NoStore { policy, store });
        }
        Ok(Self { policy, stores })
    }

    fn judge_envelope(
        &self,
        subject: &Descriptor,
        (media_type, bytes): (&str, &[u8]),
        now: Timestamp,
    ) -> Result<Accepted, Refusal> {
        let envelope = Envelope::read(media_type, bytes)?;
        // Whatever the level: evidence for another image is no evidence for this one.
        envelope.speaks_of(subject)?;
        let chain = Chain::read(&envelope.chain)?;
        check_signature(&envelope, &chain)?;
        let verify = self.policy.verify();
        Judging { verify, stores: &self.stores, envelope: &envelope, chain: &chain, now }.run()
    }
}

impl Authority for NotationAuthority {
    fn judge(&self, subject: &Subject, evidence: &Evidence, now: Timestamp) -> Option<Judgement> {
        let Content::Notation { media_type, envelope } = &evidence.content else { return None };
        Some(self.judge_envelope(&subject.descriptor, (media_type, envelope), now).into())
    }
}

fn check_signature(envelope: &Envelope, chain: &Chain) -> Result<(), Refusal> {
    let leaf = chain.leaf();
    let key = leaf.key().ok_or_else(|| malformed("the signer has no key"))?;
    key.verify_envelope(envelope.headers.algorithm, &envelope.signed, &envelope.signature).map_err(
        |fault| match fault {
            Fault::Algorithm => refuse(
                RefusalCode::Unsupported,
                format!(
                    "the envelope says {:?}, which is not the algorithm of the key of {}",
                    envelope.headers.algorithm,
                    leaf.subject()
                ),
            ),
            Fault::Mismatch => refuse(
                RefusalCode::BadSignature,
                format!("the signature does not fit the key of {}", leaf.subject()),
            ),
        },
    )
}

/// A signature whose integrity is proven, on its way through the graded checks.
struct Judging<'a> {
    verify: &'a Verify,
    stores: &'a TrustStores,
    envelope: &'a Envelope,
    chain: &'a Chain,
    now: Timestamp,
}

/// What the graded checks found.
#[derive(Default)]
struct Ledger {
    checks: Vec<&'static str>,
    warnings: Vec<String>,
}

impl Judging<'_> {
    fn run(&self) -> Result<Accepted, Refusal> {
        let mut ledger =
            Ledger { checks: vec!["subject", "chain", "signature"], ..Ledger::default() };
        self.grade(&mut ledger, Check::Authenticity, Self::authenticity)?;
        let signed_at = self.grade(&mut ledger, Check::AuthenticTimestamp, Self::signing_time)?;
        self.grade(&mut ledger, Check::Expiry, Self::expiry)?;
        self.grade(&mut ledger, Check::Revocation, Self::revocation)?;
        let leaf = self.chain.leaf();
        Ok(Accepted {
            signer: leaf.subject(),
            issuer: Some(leaf.issuer()),
            signed_at: signed_at.flatten(),
            claim: Claim::Signature,
            checks: ledger.checks,
            warnings: ledger.warnings,
        })
    }

    /// What `check` found, as far as the policy lets it decide; none when it failed and that was
    /// only told, or when it is skipped.
    fn grade<T>(
        &self,
        ledger: &mut Ledger,
        check: Check,
        run: impl Fn(&Self) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        let action = self.verify.action(check);
        if action == Action::Skip {
            return Ok(None);
        }
        match run(self) {
            Ok(found) => {
                ledger.checks.push(match check {
                    Check::Authenticity => "authenticity",
                    Check::AuthenticTimestamp => "authenticTimestamp",
                    Check::Expiry => "expiry",
                    Check::Revocation => "revocation",
                });
                Ok(Some(found))
            }
            Err(refusal) if action == Action::Log => {
                ledger.warnings.push(format!("{check} is not enforced by the policy: {refusal}"));
                Ok(None)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// A certificate of the chain is in a store for this scheme, and the signer is one of those
    /// who may.
    fn authenticity(&self) -> Result<(), Refusal> {
        let leaf = self.chain.leaf();
        let kind = match self.envelope.headers.scheme {
            Scheme::X509 { .. } => StoreKind::Ca,
            Scheme::SigningAuthority { .. } => StoreKind::SigningAuthority,
        };
        let roots = self.trusted(kind);
        let mut chain = self.chain.certificates().iter();
        if !chain.any(|certificate| roots.contains(&certificate)) {
            return Err(untrusted(format!(
                "no certificate from {} up to {} is in a {} store of the policy",
                leaf.subject(),
                self.chain.certificates().last().unwrap_or(leaf).subject(),
                kind.as_str()
            )));
        }
        match &self.verify.identities {
            Identities::Any => Ok(()),
            Identities::Subjects(patterns) => {
                if patterns.iter().any(|pattern| pattern.fits(leaf.subject_name())) {
                    return Ok(());
                }
                Err(refuse(
                    RefusalCode::OtherSigner,
                    format!("{} is none of the policy's trusted identities", leaf.subject()),
                ))
            }
        }
    }

    /// When it was signed, if somebody proves it; and the certificates were valid then, else now.
    fn signing_time(&self) -> Result<Option<Timestamp>, Refusal> {
        let (chain, now) = (self.chain, self.now);
        if let Scheme::SigningAuthority { authentic_signing_time } = self.envelope.headers.scheme {
            chain.valid_at(authentic_signing_time, "the authentic time of signing")?;
            return Ok(Some(authentic_signing_time));
        }
        let roots = self.trusted(StoreKind::Tsa);
        let expired = || chain.certificates().iter().any(|certificate| certificate.is_after(now));
        let needed = match self.verify.verify_timestamp {
            VerifyTimestamp::Always => true,
            VerifyTimestamp::AfterCertExpiry => expired(),
        };
        if roots.is_empty() || !needed {
            chain.valid_at(now, "the time of judging")?;
            return Ok(None);
        }
        let token = self.envelope.timestamp.as_deref().ok_or_else(|| {
            refuse(RefusalCode::NotTimestamped, "the envelope has no timestamp countersignature")
        })?;
        let stamp = timestamp::judge(token, &self.envelope.signature, &roots)?;
        chain.valid_at(stamp.earliest, "the earliest time of its timestamp")?;
        chain.valid_at(stamp.latest, "the latest time of its timestamp")?;
        if self.verify.action(Check::Revocation) != Action::Skip {
            told(revocation::status(&stamp.chain, self.stores.crls(), now))?;
        }
        Ok(Some(stamp.latest))
    }

    fn expiry(&self) -> Result<(), Refusal> {
        match self.envelope.headers.expiry {
            Some(expiry) if expiry <= self.now => Err(refuse(
                RefusalCode::Expired,
                format!("the signature expired at {expiry}, by its signer's wish"),
            )),
            _ => Ok(()),
        }
    }

    fn revocation(&self) -> Result<(), Refusal> {
        told(revocation::status(self.chain, self.stores.crls(), self.now))
    }

    /// The certificates of the policy's stores of one kind.
    fn trusted(&self, kind: StoreKind) -> Vec<&Certificate> {
        let stores = self.verify.stores.iter().filter(|store| store.kind() == kind);
        stores.filter_map(|store| self.stores.get(store)).flatten().collect()
    }
}

fn told(status: Status) -> Result<(), Refusal> {
    match status {
        Status::Good => Ok(()),
        Status::Revoked(why) => Err(refuse(RefusalCode::Revoked, why)),
        Status::Unknown(why) => Err(refuse(RefusalCode::RevocationUnknown, why)),
    }
}
