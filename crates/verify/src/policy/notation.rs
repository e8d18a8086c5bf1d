//! A signer of the Notary Project in a policy: its stores and identities, as its own trust policies
//! name them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portolan_core::causes::chain;
use schemars::JsonSchema;
use serde::Deserialize;

use super::document::{given, unique};
use super::read::{PolicyContentError, ReadFile, wrong};
use super::signer::file_of;
use crate::notation::{
    Action, Identities, Level, NotationAuthority, Override, PolicyParts, StoreError, StoreName,
    TrustPolicy, TrustStores, VerifyTimestamp,
};

/// Whom certificates call so, with signatures of the Notary Project.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Notation {
    /// Certificates that are trusted, PEM or DER, by `ca:NAME`, `signingAuthority:NAME` and
    /// `tsa:NAME`; files relative to the policy.
    #[serde(deserialize_with = "unique")]
    trust_stores: BTreeMap<String, Vec<PathBuf>>,
    /// `*` alone, or `x509.subject: C=…, ST=…, O=…`.
    trusted_identities: Vec<String>,
    /// Which checks decide.
    #[serde(default)]
    level: Level,
    /// Other actions than the level's.
    #[serde(default)]
    r#override: NotationOverride,
    /// When the countersignature of a clock is looked at.
    #[serde(default)]
    verify_timestamp: VerifyTimestamp,
    /// Revocation lists, PEM or DER; relative to the policy.
    #[serde(default)]
    revocation_lists: Vec<PathBuf>,
}

/// Actions instead of the level's; authenticity is not among them, or anybody would be this signer.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NotationOverride {
    /// Whether the certificates were valid when it was signed.
    #[serde(default, deserialize_with = "given")]
    authentic_timestamp: Option<Action>,
    /// The end that the signer set.
    #[serde(default, deserialize_with = "given")]
    expiry: Option<Action>,
    /// Certificates that were taken back; the only one that may be skipped.
    #[serde(default, deserialize_with = "given")]
    revocation: Option<Action>,
}

impl Notation {
    /// The authority that this means; `place` is where it stands.
    pub(super) fn authority(
        &self,
        place: &str,
        read: ReadFile<'_>,
    ) -> Result<NotationAuthority, PolicyContentError> {
        let bad = |error: &dyn std::error::Error| wrong(place, chain(error));
        let mut stores = TrustStores::new();
        let mut names = Vec::new();
        for (name, files) in &self.trust_stores {
            let store: StoreName = name.parse().map_err(|error| bad(&error))?;
            for file in files {
                let bytes = file_of(place, file, read)?;
                let added = stores.add_certificates(store.clone(), &bytes);
                added.map_err(|error| not_taken(place, file, &error))?;
            }
            names.push(store);
        }
        for file in &self.revocation_lists {
            let added = stores.add_crls(&file_of(place, file, read)?);
            added.map_err(|error| not_taken(place, file, &error))?;
        }
        let NotationOverride { authentic_timestamp, expiry, revocation } = self.r#override;
        let policy = TrustPolicy::new(PolicyParts {
            name: place.to_owned(),
            level: self.level,
            overrides: Override { authentic_timestamp, expiry, revocation },
            verify_timestamp: self.verify_timestamp,
            stores: names,
            identities: Identities::parse(&self.trusted_identities).map_err(|error| bad(&error))?,
        });
        let policy = policy.map_err(|error| bad(&error))?;
        NotationAuthority::new(policy, stores).map_err(|error| bad(&error))
    }
}

fn not_taken(place: &str, file: &Path, error: &StoreError) -> PolicyContentError {
    PolicyContentError::File { place: place.to_owned(), file: file.to_owned(), what: chain(error) }
}

#[cfg(test)]
mod tests {
    use portolan_core::Digest;

    use super::super::{Policy, parse};
    use super::*;
    use crate::authority::{Judgement, RefusalCode};
    use crate::evidence::{Carrier, Content, Evidence};
    use crate::notation::JWS;
    use crate::subject::{Kind, Subject};

    /// What the notation command line made (`fixtures/notation/README.md`).
    fn recorded(file: &Path) -> Result<Vec<u8>, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/notation");
        std::fs::read(folder.join(file)).map_err(|error| error.to_string())
    }

    fn policy(signer: &str) -> Result<Policy, PolicyContentError> {
        let text = format!(
            "version: 1\nsigners: {{acme: {{notation: {{{signer}}}}}}}\ndefault: {{require: {{allOf: [acme]}}}}"
        );
        parse(text.as_bytes(), &recorded)
    }

    fn judged(signer: &str, now: &str) -> Judgement {
        let policy = policy(signer).unwrap();
        let rule = policy.rule(&"registry.example/team/app".parse().unwrap()).unwrap();
        let descriptor = serde_json::from_slice(&recorded(Path::new("subject.json")).unwrap());
        let subject =
            Subject { descriptor: descriptor.unwrap(), kind: Kind::Manifest, platform: None };
        let envelope = recorded(Path::new("P-256.jws")).unwrap();
        let evidence = Evidence {
            artifact: Digest::sha256(&envelope),
            carrier: Carrier::Referrer,
            content: Content::Notation { media_type: JWS.to_owned(), envelope: envelope.into() },
        };
        let judged = rule.signers[0].authority.judge(&subject, &evidence, now.parse().unwrap());
        judged.expect("it reads such evidence")
    }

    const STORES: &str = "trustStores: {\"ca:acme\": [root.crt]}";
    const WHO: &str = "trustedIdentities: [\"x509.subject: C=US, ST=WA, O=Portolan Fixtures\"]";
    const THEN: &str = "2026-11-17T13:00:00Z";
    /// After the end that the signer set, before that of the certificates.
    const LATER: &str = "2026-11-20T00:00:00Z";

    #[test]
    fn a_signer_of_the_notary_project_is_one_of_a_policys() {
        let signer = format!("{STORES}, {WHO}");
        assert!(matches!(judged(&signer, THEN), Judgement::Accepted(_)));
        let refused = |signer: &str, now| match judged(signer, now) {
            Judgement::Refused(refusal) => refusal.code,
            Judgement::Accepted(accepted) => panic!("{accepted:?}"),
        };
        assert_eq!(refused(&signer, LATER), RefusalCode::Expired);
        let other = format!("{STORES}, trustedIdentities: [\"x509.subject: C=US, ST=WA, O=Else\"]");
        assert_eq!(refused(&other, THEN), RefusalCode::OtherSigner);
        let store = format!("trustStores: {{\"ca:acme\": [self-signed.crt]}}, {WHO}");
        assert_eq!(refused(&store, THEN), RefusalCode::UntrustedCertificate);

        for told in ["level: permissive", "override: {expiry: log}"] {
            let Judgement::Accepted(accepted) = judged(&format!("{signer}, {told}"), LATER) else {
                panic!("{told} does not enforce the end")
            };
            assert_eq!(accepted.warnings.len(), 1, "{accepted:?}");
        }
    }

    #[test]
    fn what_would_make_everybody_this_signer_is_refused() {
        for (signer, said) in [
            (format!("{STORES}, {WHO}, level: audit"), "unknown variant `audit`"),
            (format!("{STORES}, {WHO}, level: skip"), "unknown variant `skip`"),
            (format!("{STORES}, {WHO}, override: {{authenticity: log}}"), "`authenticity`"),
            (format!("{STORES}, {WHO}, override: {{expiry: skip}}"), "cannot be skipped"),
            (format!("{STORES}, trustedIdentities: []"), "no trusted identities"),
            (format!("trustStores: {{}}, {WHO}"), "no trust store"),
            (format!("trustStores: {{\"ca:acme\": []}}, {WHO}"), "has no certificates"),
            (format!("trustStores: {{acme: [root.crt]}}, {WHO}"), "no trust store"),
            (format!("trustStores: {{\"ca:acme\": [P-256.jws]}}, {WHO}"), "P-256.jws"),
            (format!("trustStores: {{\"ca:acme\": [none.crt]}}, {WHO}"), "none.crt"),
        ] {
            let error = policy(&signer).unwrap_err().to_string();
            assert!(error.contains(said), "{signer}: {error}");
        }
    }
}
