//! Signers from flags, where there is no policy.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use portolan_verify::authority::Authority;
use portolan_verify::key::PublicKey;
use portolan_verify::policy::{NamedSigner, Rule};
use portolan_verify::rego::RegoPolicy;
use portolan_verify::sigstore::{
    KeyAuthority, KeylessAuthority, KeylessOptions, LogPolicy, Match, TrustedRoot, pattern,
};

use super::read;
use crate::exit::Failure;

/// A trusted root is the largest of them.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// Any one of these.
#[derive(Debug, clap::Args)]
pub(crate) struct SignerArgs {
    /// Signed with this public key, in PEM (repeatable: one of them)
    #[arg(long = "key", value_name = "FILE", group = "signer")]
    keys: Vec<PathBuf>,
    /// Signatures by a key must be in a transparency log of --trusted-root
    #[arg(long, requires = "trusted_root", requires = "keys")]
    require_log: bool,
    /// Signed by this identity
    #[arg(
        long,
        value_name = "IDENTITY",
        group = "signer",
        conflicts_with = "certificate_identity_regexp"
    )]
    certificate_identity: Option<String>,
    /// Signed by an identity that this pattern describes as a whole
    #[arg(long, value_name = "PATTERN", group = "signer")]
    certificate_identity_regexp: Option<String>,
    /// Who vouches for the identity
    #[arg(long, value_name = "URL", conflicts_with = "certificate_oidc_issuer_regexp")]
    certificate_oidc_issuer: Option<String>,
    /// Who vouches for the identity, by a pattern
    #[arg(long, value_name = "PATTERN")]
    certificate_oidc_issuer_regexp: Option<String>,
    /// Whose certificates and logs are trusted: trusted_root.json of Sigstore or of one's own
    #[arg(long, value_name = "FILE")]
    trusted_root: Option<PathBuf>,
}

impl SignerArgs {
    /// Any one of the signers, for the index and what would run of it.
    pub(super) fn rule(&self) -> Result<Rule, Failure> {
        let nobody = || anyhow::anyhow!("give --policy, --key or --certificate-identity");
        Rule::any_of(self.named()?).ok_or_else(|| Failure::usage(nobody()))
    }

    /// A policy in Rego decides over what the signers say.
    pub(super) fn by_rego(&self, rego: RegoPolicy) -> Result<Rule, Failure> {
        let nobody = "Rego sees only what was verified: give --key or --certificate-identity, or name \
                      it as `rego` in a policy with signers";
        let rule = Rule::by_rego(self.named()?, rego);
        rule.ok_or_else(|| Failure::usage(anyhow::anyhow!(nobody)))
    }

    /// Whether there is any of these flags.
    pub(super) fn is_given(&self) -> bool {
        // Each is named here: one that is overlooked would be ignored beside a policy.
        let Self {
            keys,
            require_log,
            certificate_identity,
            certificate_identity_regexp,
            certificate_oidc_issuer,
            certificate_oidc_issuer_regexp,
            trusted_root,
        } = self;
        let texts = [
            certificate_identity,
            certificate_identity_regexp,
            certificate_oidc_issuer,
            certificate_oidc_issuer_regexp,
        ];
        !keys.is_empty()
            || *require_log
            || texts.iter().any(|text| text.is_some())
            || trusted_root.is_some()
    }

    /// A trusted root that nothing is held against would be ignored.
    fn unused_root(&self, has_identity: bool) -> Result<(), Failure> {
        match self.trusted_root.is_some() && !self.require_log && !has_identity {
            true => Err(Failure::usage(anyhow::anyhow!(
                "--trusted-root means nothing here: with --key add --require-log, or name an identity"
            ))),
            false => Ok(()),
        }
    }

    fn named(&self) -> Result<Vec<NamedSigner>, Failure> {
        let mut signers = Vec::new();
        for file in &self.keys {
            let key = PublicKey::from_pem(&read(file, MAX_FILE)?);
            let key = key.with_context(|| file.display().to_string()).map_err(Failure::usage)?;
            let log = match self.require_log {
                true => LogPolicy::Require(self.root()?),
                false => LogPolicy::Ignore,
            };
            log.fits(&key).map_err(Failure::usage)?;
            signers.push(by_key(file.display().to_string(), key, log));
        }
        let identity = either(&self.certificate_identity, &self.certificate_identity_regexp)?;
        let issuer = either(&self.certificate_oidc_issuer, &self.certificate_oidc_issuer_regexp)?;
        self.unused_root(identity.is_some())?;
        match (identity, issuer) {
            (Some(identity), Some(issuer)) => {
                let options = KeylessOptions::default();
                let authority = KeylessAuthority::new(identity, issuer, self.root()?, options);
                let authority = authority.map_err(Failure::usage)?;
                signers.push(named("identity".to_owned(), authority));
            }
            (None, None) => {}
            _ => {
                let what = "an identity means nothing without who vouches for it; give both \
                            --certificate-identity and --certificate-oidc-issuer, or their patterns";
                return Err(Failure::usage(anyhow::anyhow!(what)));
            }
        }
        Ok(signers)
    }

    fn root(&self) -> Result<TrustedRoot, Failure> {
        let what = "give --trusted-root: whose certificates and logs are trusted";
        let missing = || Failure::usage(anyhow::anyhow!(what));
        let file = self.trusted_root.as_ref().ok_or_else(missing)?;
        let root = TrustedRoot::from_json(&read(file, MAX_FILE)?);
        root.with_context(|| file.display().to_string()).map_err(Failure::usage)
    }
}

/// Any signature of this key, for the index and what would run of it.
pub(crate) fn rule_of(name: &str, key: PublicKey) -> Rule {
    let signer = by_key(name.to_owned(), key, LogPolicy::Ignore);
    Rule::any_of(vec![signer]).expect("there is somebody")
}

fn by_key(name: String, key: PublicKey, log: LogPolicy) -> NamedSigner {
    named(name, KeyAuthority::new(vec![key], log))
}

fn named(name: String, authority: impl Authority + 'static) -> NamedSigner {
    NamedSigner { name, authority: Arc::new(authority) }
}

fn either(exact: &Option<String>, regex: &Option<String>) -> Result<Option<Match>, Failure> {
    match (exact, regex) {
        (Some(exact), _) => Ok(Some(Match::Exact(exact.clone()))),
        (None, Some(regex)) => {
            let regex = pattern(regex).map_err(Failure::usage)?;
            Ok(Some(Match::Regex(regex)))
        }
        (None, None) => Ok(None),
    }
}
