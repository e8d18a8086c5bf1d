//! In whose name a registry is asked.
//!
//! The operator's logins serve every question. A login of a namespace serves the questions of who
//! has it: what was read with it is kept under the login itself, so only who shows the same one
//! finds it again. What two logins read is never mixed in one answer.

use std::sync::Arc;

use portolan_core::{Digest, Host};
use portolan_registry::client::{Client, Credential, CredentialStore};

/// The Secrets that a pod names, and the account that it runs as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PodLogins {
    pub(super) secrets: Vec<String>,
    /// None: the account that a pod has that names none.
    pub(super) service_account: Option<String>,
}

/// Who asks, where they are believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a PodLogins,
}

/// A login for one registry.
#[derive(Debug, Clone)]
pub(super) struct Login {
    pub(super) host: Host,
    pub(super) credential: Credential,
}

/// What makes two logins the same: the registry and all that it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LoginId(Digest);

impl Login {
    pub(super) fn id(&self) -> LoginId {
        let parts = match &self.credential {
            Credential::Anonymous => ["none", "", ""],
            Credential::Basic { username, password } => ["basic", username, password.expose()],
            Credential::IdentityToken(token) => ["identity", token.expose(), ""],
            Credential::RegistryToken(token) => ["registry", token.expose(), ""],
        };
        let mut bytes = zeroize::Zeroizing::new(Vec::new());
        for part in [self.host.as_str()].iter().chain(&parts) {
            // With its length, so that no two lists of words are the same bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        LoginId(Digest::sha256(&bytes))
    }

    /// The same registries, but for this login nobody is known.
    pub(super) fn client(self, base: &Client) -> Client {
        let store = CredentialStore::anonymous().with(self.host, self.credential);
        base.with_credentials(store)
    }
}

/// In whose name a registry is asked.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub(super) client: Client,
    /// None: the operator.
    pub(super) login: Option<LoginId>,
}

impl Reader {
    /// Under which name is kept what is read in a repository.
    pub(super) fn keeps_under(&self, repository: &Arc<str>) -> Arc<str> {
        match self.login {
            None => Arc::clone(repository),
            // No name of a repository has such a sign in it.
            Some(LoginId(id)) => format!("{repository}\n{id}").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_registry::client::Secret;
    use proptest::prelude::*;

    use super::*;

    fn login(host: &str, username: &str, password: &str) -> Login {
        let password = Secret::new(password);
        let credential = Credential::Basic { username: username.to_owned(), password };
        Login { host: host.parse().unwrap(), credential }
    }

    proptest! {
        /// Two who are not shown the same never share what was read.
        #[test]
        fn other_logins_are_kept_apart(
            one in ("[a-c]{1,3}", "[a:\n]{0,3}", "[a:\n]{0,3}"),
            other in ("[a-c]{1,3}", "[a:\n]{0,3}", "[a:\n]{0,3}"),
        ) {
            let id = |(host, user, password): &(String, String, String)| {
                login(&format!("{host}.example"), user, password).id()
            };
            prop_assert_eq!(one == other, id(&one) == id(&other));
        }
    }

    #[test]
    fn the_kind_of_a_login_counts() {
        let host: Host = "r.example".parse().unwrap();
        let token = |credential| Login { host: host.clone(), credential }.id();
        let (identity, registry) = (
            token(Credential::IdentityToken(Secret::new("x"))),
            token(Credential::RegistryToken(Secret::new("x"))),
        );
        assert_ne!(identity, registry);
        assert_ne!(identity, login("r.example", "x", "").id());
    }
}
