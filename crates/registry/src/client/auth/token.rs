//! Tokens: asking a token server for one, and knowing when it is too old.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE};
use portolan_core::{Host, Repository};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use super::{Authorization, Slot};
use crate::client::credentials::Credential;
use crate::client::error::Failure;
use crate::client::http::{Access, Answer, Call, Endpoint, Payload, authority};
use crate::client::{Secret, Shared};

/// What the specification says a token without `expires_in` lives.
const DEFAULT_LIFE: Duration = Duration::from_secs(60);
/// No token is trusted longer, whatever it says about itself.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A token is renewed so long before its end that a request sent now still arrives in time.
const MARGIN: Duration = Duration::from_secs(10);
/// The most bytes of a token server's answer that are read.
const MAX_ANSWER: usize = 512 * 1024;
/// When so many tokens are remembered, the old ones are dropped.
const MANY: usize = 1024;
/// How we call ourselves before OAuth2 servers.
const CLIENT_ID: &str = "portolan";

/// What a token was given for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    pub(super) host: Host,
    /// Credentials may differ by repository, so tokens do.
    pub(super) repository: Option<Repository>,
    pub(super) realm: Url,
    pub(super) service: Option<String>,
    pub(super) scopes: Vec<String>,
}

/// A token and when it ends.
#[derive(Debug)]
pub(super) struct Token {
    secret: Secret,
    good_until: Option<Instant>,
}

impl Token {
    pub(super) fn forever(secret: Secret) -> Self {
        Self { secret, good_until: None }
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) fn is_good(&self) -> bool {
        self.good_until.is_none_or(|until| Instant::now() < until)
    }
}

/// The place of a token; one caller fills it while the others wait at its lock.
pub(super) fn slot(tokens: &mut HashMap<TokenKey, Slot>, key: &TokenKey) -> Slot {
    if tokens.len() >= MANY {
        // A slot that is locked or shared is in use.
        tokens.retain(|_, slot| {
            std::sync::Arc::strong_count(slot) > 1
                || slot.try_lock().map_or(true, |token| token.as_ref().is_some_and(Token::is_good))
        });
    }
    tokens.entry(key.clone()).or_default().clone()
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    expires_in: Option<f64>,
}

/// Reads a token server's answer: `token` or, in the OAuth2 form, `access_token`.
fn parse(body: &[u8], realm: &Url, now: Instant) -> Result<Token, Failure> {
    let none = || Failure::NoToken { realm: authority(realm) };
    // The parser's own error could quote the token.
    let wire: Wire = serde_json::from_slice(body).map_err(|_| none())?;
    let text = [wire.token, wire.access_token].into_iter().flatten().find(|text| !text.is_empty());
    let secret = Secret::new(text.ok_or_else(none)?);
    let life = match wire.expires_in {
        Some(seconds) if seconds >= 1.0 => {
            Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_LIFE)
        }
        _ => DEFAULT_LIFE,
    };
    let life = life.min(LONGEST_LIFE);
    Ok(Token { secret, good_until: Some(now + life.saturating_sub(MARGIN.min(life / 2))) })
}

/// The URL of the GET form: what the realm has, then service, scopes and account.
fn get_url(key: &TokenKey, account: Option<&str>) -> Url {
    let mut url = key.realm.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &key.service {
            query.append_pair("service", service);
        }
        for scope in &key.scopes {
            query.append_pair("scope", scope);
        }
        if let Some(account) = account {
            query.append_pair("account", account);
        }
        query.append_pair("client_id", CLIENT_ID);
    }
    url
}

/// The body of the OAuth2 form.
fn post_body(key: &TokenKey, credential: &Credential) -> String {
    let mut form = Serializer::new(String::new());
    match credential {
        Credential::IdentityToken(token) => {
            form.append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token.expose());
        }
        Credential::Basic { username, password } => {
            form.append_pair("grant_type", "password")
                .append_pair("username", username)
                .append_pair("password", password.expose());
        }
        Credential::Anonymous | Credential::RegistryToken(_) => {}
    }
    form.append_pair("service", key.service.as_deref().unwrap_or_default());
    form.append_pair("client_id", CLIENT_ID);
    if !key.scopes.is_empty() {
        form.append_pair("scope", &key.scopes.join(" "));
    }
    form.finish()
}

impl Shared {
    /// Asks the token server: an identity token by the OAuth2 form, everything else by the GET
    /// form, and a password by the OAuth2 form where there is no GET form.
    pub(super) async fn fetch_token(
        &self,
        endpoint: &Endpoint,
        key: &TokenKey,
        credential: &Credential,
    ) -> Result<Token, Failure> {
        // Credentials go to the realm and nowhere else: it is the home of these calls.
        let home = Endpoint { base: key.realm.clone(), ..endpoint.clone() };
        let answer = match credential {
            Credential::IdentityToken(_) => self.post_token(&home, key, credential).await?,
            Credential::Basic { username, password } => {
                let shown =
                    Authorization::Basic { username: username.clone(), password: password.clone() };
                let url = get_url(key, Some(username));
                match self.get_token(&home, url, Some(&shown)).await? {
                    answer if matches!(answer.status, 404 | 405) => {
                        self.post_token(&home, key, credential).await?
                    }
                    answer => answer,
                }
            }
            Credential::Anonymous | Credential::RegistryToken(_) => {
                self.get_token(&home, get_url(key, None), None).await?
            }
        };
        parse(&answer.success()?.body, &key.realm, Instant::now())
    }

    async fn get_token(
        &self,
        home: &Endpoint,
        url: Url,
        shown: Option<&Authorization>,
    ) -> Result<Answer, Failure> {
        let call = Call::new(Method::GET, url, Access::Registry).header(ACCEPT, "application/json");
        self.exchange_with(home, &call, shown, MAX_ANSWER).await
    }

    /// A redirect of this form is not followed: its body is the secret.
    async fn post_token(
        &self,
        home: &Endpoint,
        key: &TokenKey,
        credential: &Credential,
    ) -> Result<Answer, Failure> {
        let body = post_body(key, credential);
        let call = Call::new(Method::POST, key.realm.clone(), Access::Registry)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .payload(Payload::Bytes(body.into()));
        self.exchange_here(home, &call, MAX_ANSWER).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TokenKey {
        TokenKey {
            host: "r.example".parse().unwrap(),
            repository: None,
            realm: Url::parse("https://a.example/token?x=1").unwrap(),
            service: Some("r.example".into()),
            scopes: vec!["repository:a/b:pull,push".into(), "repository:c:pull".into()],
        }
    }

    #[test]
    fn the_get_form() {
        assert_eq!(
            get_url(&key(), Some("me")).as_str(),
            "https://a.example/token?x=1&service=r.example&scope=repository%3Aa%2Fb%3Apull%2Cpush&scope=repository%3Ac%3Apull&account=me&client_id=portolan"
        );
    }

    #[test]
    fn the_post_form() {
        let identity = Credential::IdentityToken(Secret::new("i&d"));
        assert_eq!(
            post_body(&key(), &identity),
            "grant_type=refresh_token&refresh_token=i%26d&service=r.example&client_id=portolan&scope=repository%3Aa%2Fb%3Apull%2Cpush+repository%3Ac%3Apull"
        );
        let basic = Credential::Basic { username: "u".into(), password: Secret::new("p") };
        assert!(
            post_body(&key(), &basic).starts_with("grant_type=password&username=u&password=p&")
        );
    }

    #[test]
    fn answers() {
        let now = Instant::now();
        let life = |body: &str| {
            let token = parse(body.as_bytes(), &key().realm, now).ok()?;
            Some((token.secret().expose().to_owned(), (token.good_until.unwrap() - now).as_secs()))
        };
        assert_eq!(life(r#"{"token":"t"}"#), Some(("t".into(), 50)));
        assert_eq!(life(r#"{"access_token":"a","expires_in":300}"#), Some(("a".into(), 290)));
        assert_eq!(
            life(r#"{"token":"t","access_token":"a","expires_in":10}"#),
            Some(("t".into(), 5))
        );
        assert_eq!(
            life(r#"{"token":"","access_token":"a","expires_in":0}"#),
            Some(("a".into(), 50))
        );
        assert_eq!(life(r#"{"token":"t","expires_in":1e300}"#), Some(("t".into(), 24 * 3600 - 10)));
        for body in ["{}", "", "[]", r#"{"token":""}"#, r#"{"token":1}"#] {
            assert_eq!(life(body), None, "{body}");
        }
    }

    #[test]
    fn old_tokens_make_room() {
        let mut tokens = HashMap::new();
        for n in 0..MANY {
            let key = TokenKey { service: Some(n.to_string()), ..key() };
            let old = Token { secret: Secret::new("t"), good_until: Some(Instant::now()) };
            *slot(&mut tokens, &key).try_lock().unwrap() = Some(old);
        }
        assert_eq!(tokens.len(), MANY);
        slot(&mut tokens, &TokenKey { service: Some("new".into()), ..key() });
        assert_eq!(tokens.len(), 1);
    }
}
