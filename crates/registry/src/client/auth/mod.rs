//! Showing a registry who we are.
//!
//! A registry says by a challenge what it wants to see. The challenge is remembered, so only the
//! first call to a registry is refused once; tokens are remembered per registry and scope until
//! shortly before they expire, and fetched by one caller while the others wait.

mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use portolan_core::{Host, Repository};
use url::Url;
use zeroize::Zeroizing;

use self::token::{Token, TokenKey};
use super::credentials::{Credential, CredentialStore};
use super::error::Failure;
use super::http::{Access, Endpoint, authority};
use super::{Secret, Shared};
use crate::headers::{Challenge, parse_challenges, resolve_location};

/// What goes into the Authorization header.
#[derive(Debug, Clone)]
pub(super) enum Authorization {
    Basic {
        username: String,
        password: Secret,
    },
    /// `fresh`: made for this very call, so that a refusal of it is final.
    Bearer {
        token: Secret,
        scopes: Vec<String>,
        fresh: bool,
    },
}

impl Authorization {
    pub(super) fn value(&self) -> Result<HeaderValue, Failure> {
        let text = match self {
            Self::Basic { username, password } => {
                let pair = Zeroizing::new(format!("{username}:{}", password.expose()));
                Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())))
            }
            Self::Bearer { token, .. } => Zeroizing::new(format!("Bearer {}", token.expose())),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| Failure::UnusableToken)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// How a registry wants to be shown credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scheme {
    Basic,
    Bearer { realm: Url, service: Option<String> },
}

/// Scopes by registry and by the scopes we asked for ourselves.
type Scopes = HashMap<(Host, Vec<String>), Vec<String>>;
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

/// What is remembered about registries and tokens.
#[derive(Debug, Default)]
pub(super) struct AuthState {
    credentials: CredentialStore,
    found: Mutex<HashMap<(Host, Option<Repository>), Credential>>,
    schemes: Mutex<HashMap<Host, Scheme>>,
    /// Scopes that a registry asked for beyond those we asked for ourselves.
    learned: Mutex<Scopes>,
    tokens: Mutex<HashMap<TokenKey, Slot>>,
}

/// Locks a map that no one panics under.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the lock is held")
}

impl AuthState {
    pub(super) fn new(credentials: CredentialStore) -> Self {
        Self { credentials, ..Self::default() }
    }

    /// Whether a registry wanted to see credentials.
    pub(super) fn was_asked(&self, host: &Host) -> bool {
        lock(&self.schemes).contains_key(host)
    }

    async fn credential(&self, endpoint: &Endpoint) -> Result<Credential, Failure> {
        let key = (endpoint.host.clone(), endpoint.repository.clone());
        if let Some(found) = lock(&self.found).get(&key) {
            return Ok(found.clone());
        }
        let found = self.credentials.lookup(&endpoint.host, endpoint.repository.as_ref()).await;
        let found = found.map_err(|source| Failure::Credentials {
            host: endpoint.host.as_str().to_owned(),
            source,
        })?;
        // That there is none is not remembered: somebody may log in while this process runs.
        if !matches!(found, Credential::Anonymous) {
            lock(&self.found).insert(key, found.clone());
        }
        Ok(found)
    }

    fn forget_credential(&self, endpoint: &Endpoint) {
        lock(&self.found).remove(&(endpoint.host.clone(), endpoint.repository.clone()));
    }

    /// Our scopes and those the registry once added to them.
    fn scopes(&self, endpoint: &Endpoint, access: &Access) -> Vec<String> {
        let own = access.scopes(endpoint.repository.as_ref());
        let learned = lock(&self.learned).get(&(endpoint.host.clone(), own.clone())).cloned();
        learned.unwrap_or(own)
    }

    fn learn(&self, endpoint: &Endpoint, access: &Access, asked: &str) {
        let own = access.scopes(endpoint.repository.as_ref());
        let all = merge_scopes(&own, asked);
        if all != own {
            lock(&self.learned).insert((endpoint.host.clone(), own), all);
        }
    }
}

/// Our scopes, then those of the challenge that we did not have, a bounded number.
fn merge_scopes(own: &[String], asked: &str) -> Vec<String> {
    const MAX_SCOPES: usize = 16;
    let mut all = own.to_vec();
    for scope in asked.split_ascii_whitespace() {
        if all.len() < MAX_SCOPES && !all.iter().any(|known| known == scope) {
            all.push(scope.to_owned());
        }
    }
    all
}

impl Shared {
    /// What to show at once, from what is known about the registry; none on the first call.
    pub(super) async fn authorize(
        &self,
        endpoint: &Endpoint,
        access: &Access,
    ) -> Result<Option<Authorization>, Failure> {
        let scheme = lock(&self.auth.schemes).get(&endpoint.host).cloned();
        match scheme {
            None => Ok(None),
            Some(Scheme::Basic) => Ok(basic(self.auth.credential(endpoint).await?)),
            Some(Scheme::Bearer { realm, service }) => {
                self.bearer(endpoint, access, realm, service, None).await.map(Some)
            }
        }
    }

    /// What to show after a refusal; none when there is nothing better than what was shown.
    pub(super) async fn answer_challenge(
        &self,
        endpoint: &Endpoint,
        access: &Access,
        challenges: &[String],
        shown: Option<&Authorization>,
    ) -> Result<Option<Authorization>, Failure> {
        let Some((scheme, challenge)) = choose(endpoint, challenges)? else { return Ok(None) };
        lock(&self.auth.schemes).insert(endpoint.host.clone(), scheme.clone());
        match scheme {
            Scheme::Basic => {
                let before = match shown {
                    Some(Authorization::Basic { password, .. }) => {
                        // A helper may have a newer password than the one we remember.
                        self.auth.forget_credential(endpoint);
                        Some(password.clone())
                    }
                    _ => None,
                };
                let better = basic(self.auth.credential(endpoint).await?);
                Ok(better.filter(|better| match (better, &before) {
                    (Authorization::Basic { password, .. }, Some(before)) => {
                        password.expose() != before.expose()
                    }
                    _ => true,
                }))
            }
            Scheme::Bearer { realm, service } => {
                self.auth.learn(endpoint, access, challenge.get("scope").unwrap_or_default());
                let wanted = self.auth.scopes(endpoint, access);
                let refused = match shown {
                    Some(Authorization::Bearer { scopes, fresh: true, .. })
                        if *scopes == wanted =>
                    {
                        return Ok(None);
                    }
                    Some(Authorization::Bearer { token, .. }) => Some(token),
                    _ => None,
                };
                self.bearer(endpoint, access, realm, service, refused).await.map(Some)
            }
        }
    }

    /// A token for this access: remembered, or fetched. `refused` is one that must not be used again.
    async fn bearer(
        &self,
        endpoint: &Endpoint,
        access: &Access,
        realm: Url,
        service: Option<String>,
        refused: Option<&Secret>,
    ) -> Result<Authorization, Failure> {
        let scopes = self.auth.scopes(endpoint, access);
        let key = TokenKey {
            host: endpoint.host.clone(),
            repository: endpoint.repository.clone(),
            realm,
            service,
            scopes: scopes.clone(),
        };
        let slot = token::slot(&mut lock(&self.auth.tokens), &key);
        let mut remembered = slot.lock().await;
        if let Some(token) = remembered.as_ref()
            && token.is_good()
            && refused.is_none_or(|refused| refused.expose() != token.secret().expose())
        {
            return Ok(Authorization::Bearer {
                token: token.secret().clone(),
                scopes,
                fresh: false,
            });
        }
        if refused.is_some() {
            self.auth.forget_credential(endpoint);
        }
        let token = match self.auth.credential(endpoint).await? {
            Credential::RegistryToken(token) => Token::forever(token),
            credential => {
                self.fetch_token(endpoint, &key, &credential).await.map_err(|source| {
                    // A password that is wrong now may be right in the file by the next call.
                    self.auth.forget_credential(endpoint);
                    Failure::Token { realm: authority(&key.realm), source: Box::new(source) }
                })?
            }
        };
        let secret = token.secret().clone();
        *remembered = Some(token);
        Ok(Authorization::Bearer { token: secret, scopes, fresh: true })
    }
}

fn basic(credential: Credential) -> Option<Authorization> {
    match credential {
        Credential::Basic { username, password } => {
            Some(Authorization::Basic { username, password })
        }
        Credential::Anonymous | Credential::IdentityToken(_) | Credential::RegistryToken(_) => None,
    }
}

/// Picks the challenge to answer: Bearer before Basic, which some registries offer beside it for
/// old clients. None when there is none at all.
fn choose(endpoint: &Endpoint, values: &[String]) -> Result<Option<(Scheme, Challenge)>, Failure> {
    let mut challenges = Vec::new();
    for value in values.iter().take(8) {
        challenges.extend(parse_challenges(value).map_err(Failure::Challenge)?);
    }
    if challenges.is_empty() {
        return Ok(None);
    }
    let by_scheme =
        |scheme: &str| challenges.iter().find(|challenge| challenge.scheme == scheme).cloned();
    if let Some(challenge) = by_scheme("bearer") {
        let realm = realm(endpoint, challenge.get("realm").unwrap_or_default())?;
        let service = challenge.get("service").map(str::to_owned);
        return Ok(Some((Scheme::Bearer { realm, service }, challenge)));
    }
    if let Some(challenge) = by_scheme("basic") {
        return Ok(Some((Scheme::Basic, challenge)));
    }
    let schemes: Vec<String> =
        challenges.iter().map(|challenge| challenge.scheme.chars().take(32).collect()).collect();
    Err(Failure::UnknownScheme { schemes: schemes.join(", ") })
}

/// The token server's URL. It may be any host the registry names, but not a less private one.
fn realm(endpoint: &Endpoint, text: &str) -> Result<Url, Failure> {
    if Url::parse(text).is_err() {
        let value = text.chars().take(120).collect();
        return Err(Failure::Header {
            name: "WWW-Authenticate",
            value,
            problem: "names no token server",
        });
    }
    let realm = resolve_location(&endpoint.base, text).map_err(Failure::Location)?;
    if endpoint.base.scheme() == "https" && realm.scheme() != "https" {
        return Err(Failure::InsecureRealm { realm: authority(&realm) });
    }
    Ok(realm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base: &str) -> Endpoint {
        Endpoint {
            host: "r.example".parse().unwrap(),
            base: Url::parse(base).unwrap(),
            repository: Some("a/b".parse().unwrap()),
            fault: None,
        }
    }

    #[test]
    fn which_challenge() {
        let https = endpoint("https://r.example/");
        let pick = |endpoint: &Endpoint, values: &[&str]| {
            let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
            match choose(endpoint, &values) {
                Ok(None) => "none".to_owned(),
                Ok(Some((Scheme::Basic, _))) => "basic".to_owned(),
                Ok(Some((Scheme::Bearer { realm, service }, _))) => format!("{realm} {service:?}"),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(pick(&https, &[]), "none");
        assert_eq!(pick(&https, &["Basic realm=x"]), "basic");
        assert_eq!(
            pick(&https, &["Basic realm=x", "Bearer realm=\"https://a.example/t\""]),
            "https://a.example/t None"
        );
        assert_eq!(
            pick(
                &https,
                &["Bearer realm=\"https://a.example/t?x=1\",service=\"s\", Basic realm=y"]
            ),
            "https://a.example/t?x=1 Some(\"s\")"
        );
        assert!(pick(&https, &["Negotiate, NTLM"]).contains("negotiate, ntlm"));
        assert!(pick(&https, &["Bearer realm=\"http://a.example/t\""]).contains("plain http"));
        assert!(pick(&https, &["Bearer service=x"]).contains("names no token server"));
        assert!(pick(&https, &["Bearer realm=\"/token\""]).contains("names no token server"));
        assert!(pick(&https, &["Bearer realm=\"open"]).contains("WWW-Authenticate"));
        let http = endpoint("http://localhost:5000/");
        assert_eq!(
            pick(&http, &["Bearer realm=\"http://localhost:5001/t\""]),
            "http://localhost:5001/t None"
        );
    }

    #[test]
    fn scopes_are_merged() {
        let own = vec!["repository:a:pull".to_owned()];
        assert_eq!(merge_scopes(&own, ""), own);
        assert_eq!(merge_scopes(&own, "repository:a:pull"), own);
        assert_eq!(merge_scopes(&own, "repository:a:pull,push x:y:z").len(), 3);
        assert_eq!(
            merge_scopes(&own, &"a b c d e f g h i j k l m n o p q r s".repeat(2)).len(),
            16
        );
    }

    #[test]
    fn header_values() {
        let basic = Authorization::Basic { username: "u".into(), password: Secret::new("p") };
        let value = basic.value().unwrap();
        assert_eq!(value, "Basic dTpw");
        assert!(value.is_sensitive());
        assert!(!format!("{basic:?}").contains("\"p\""));
        let broken =
            Authorization::Bearer { token: Secret::new("a\nb"), scopes: vec![], fresh: true };
        assert!(broken.value().is_err());
    }
}
