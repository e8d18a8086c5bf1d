//! Credentials.
use super::Secret;
use crate::ErrorClass;
use portolan_core::{Host, Repository};

/// What to show a registry.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Nothing.
    Anonymous,
    /// A user name and a password or access token.
    Basic {
        /// Who.
        username: String,
        /// With what.
        password: Secret,
    },
    /// An OAuth2 refresh token, to be exchanged for access tokens.
    IdentityToken(Secret),
    /// An access token that is sent as it is.
    RegistryToken(Secret),
}

/// Where credentials are kept.
#[derive(Debug, Clone, Default)]
pub struct CredentialStore {}

/// Trouble.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// x
    #[error("x")]
    X,
}
impl CredentialError {
    /// The class.
    pub fn class(&self) -> ErrorClass {
        ErrorClass::Local
    }
}

impl CredentialStore {
    /// Knows nobody.
    pub fn anonymous() -> Self {
        Self::default()
    }
    /// The docker configuration and containers' auth.json of this user, with their helpers.
    pub fn from_environment() -> Self {
        Self::default()
    }
    /// What is known for a registry, or for one repository of it.
    pub async fn lookup(
        &self,
        _host: &Host,
        _repository: Option<&Repository>,
    ) -> Result<Credential, CredentialError> {
        todo!()
    }
    /// Keeps a login.
    pub async fn store(
        &self,
        _host: &Host,
        _username: &str,
        _password: &Secret,
    ) -> Result<(), CredentialError> {
        todo!()
    }
    /// Forgets a login; false when there was none.
    pub async fn erase(&self, _host: &Host) -> Result<bool, CredentialError> {
        todo!()
    }
}
