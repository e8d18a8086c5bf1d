//! Whether a registry takes a login.

use ::http::Method;
use portolan_core::Host;

use super::error::ClientError;
use super::http::{Access, Answer, Call};
use super::step::Step;
use super::{Client, Credential, CredentialStore};

/// What a registry made of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginCheck {
    /// It asked for one and took this.
    Accepted,
    /// It let us in without asking, so the credential is unproven.
    NotAsked,
}

impl Client {
    /// Shows `credential` to a registry. One that is not taken is an error of class Denied.
    /// Nothing is kept; see [`CredentialStore::store`].
    pub async fn check_login(
        &self,
        registry: &Host,
        credential: &Credential,
    ) -> Result<LoginCheck, ClientError> {
        // A client of its own, so that neither remembered tokens nor stored logins help out.
        let credentials = CredentialStore::anonymous().with(registry.clone(), credential.clone());
        let other = Self::new((*self.0.settings).clone(), credentials)?;
        let endpoint = other.0.endpoint(registry, None);
        let call = Call::new(Method::GET, endpoint.url(""), Access::Registry);
        let answer = other.0.exchange(&endpoint, &call, 64 * 1024).await;
        answer
            .and_then(Answer::success)
            .map_err(|failure| endpoint.error(&Step::Login, failure))?;
        Ok(if other.0.auth.was_asked(registry) {
            LoginCheck::Accepted
        } else {
            LoginCheck::NotAsked
        })
    }
}
