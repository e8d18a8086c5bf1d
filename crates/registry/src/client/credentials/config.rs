//! Docker's `config.json` and containers' `auth.json`, which share their form: reading.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_core::{Host, Repository};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::{Credential, CredentialError};
use crate::client::Secret;

/// A configuration of a few kilobytes is normal.
pub(super) const MAX_FILE: u64 = 4 * 1024 * 1024;
/// What docker calls Docker Hub in its files and before its helpers.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// The parts that tell about logins.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigFile {
    #[serde(default, deserialize_with = "null_is_empty")]
    auths: BTreeMap<String, Entry>,
    #[serde(default, deserialize_with = "null_is_empty")]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
struct Entry {
    #[serde(default)]
    auth: Option<Text>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<Text>,
    #[serde(default)]
    identitytoken: Option<Text>,
    #[serde(default)]
    registrytoken: Option<Text>,
}

/// A secret in a file.
struct Text(Secret);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Secret::new(text)))
    }
}

/// Go programs write an empty map as null.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl ConfigFile {
    /// Reads a file; none when there is none, or nothing is in it.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, CredentialError> {
        match read_bounded(path)? {
            Some(bytes) if !bytes.trim_ascii().is_empty() => Self::parse(&bytes, path).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, CredentialError> {
        let malformed = |error| malformed(path, &error);
        // A list of nothing would be taken for a file without logins.
        serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(bytes).map_err(malformed)?;
        serde_json::from_slice(bytes).map_err(malformed)
    }

    /// The form before `auths`: the entries are the file.
    pub(super) fn parse_entries(bytes: &[u8], path: &Path) -> Result<Self, CredentialError> {
        let auths = serde_json::from_slice(bytes).map_err(|error| malformed(path, &error))?;
        Ok(Self { auths, ..Self::default() })
    }

    /// The helper to ask for this host: its own, else the general one.
    pub(super) fn helper(&self, host: &Host) -> Option<&str> {
        let own = self.cred_helpers.iter().find(|(key, _)| normal_key(key) == host.as_str());
        own.map(|(_, name)| name)
            .or(self.creds_store.as_ref())
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// Every helper that it names, once.
    pub(super) fn helpers(&self) -> BTreeSet<&str> {
        let named = self.cred_helpers.values().chain(&self.creds_store).map(String::as_str);
        named.filter(|name| !name.is_empty()).collect()
    }

    /// Whom the file itself has entries for.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.auths.keys().map(String::as_str)
    }

    /// What the file itself holds for this host, or closest to this repository.
    pub(super) fn entry(
        &self,
        path: &Path,
        host: &Host,
        repository: Option<&Repository>,
    ) -> Result<Option<Credential>, CredentialError> {
        let asked = match repository {
            Some(repository) => format!("{}/{}", host.as_str(), repository.as_str()),
            None => host.as_str().to_owned(),
        };
        let closest = self
            .auths
            .iter()
            .map(|(key, entry)| (normal_key(key), key, entry))
            .filter(|(normal, _, _)| covers(normal, &asked))
            // Of two spellings of one key the one with something in it counts.
            .max_by_key(|(normal, _, entry)| (normal.len(), !entry.is_empty()));
        match closest {
            Some((_, key, entry)) => {
                entry.credential().map_err(|NotBase64| CredentialError::Auth {
                    path: path.to_owned(),
                    key: key.chars().take(256).collect(),
                })
            }
            None => Ok(None),
        }
    }
}

struct NotBase64;

impl Entry {
    fn is_empty(&self) -> bool {
        let none = |text: &Option<Text>| text.as_ref().is_none_or(|t| t.0.is_empty());
        none(&self.auth)
            && none(&self.password)
            && none(&self.identitytoken)
            && none(&self.registrytoken)
    }

    /// Docker's order: tokens before passwords, `auth` before the two plain fields.
    fn credential(&self) -> Result<Option<Credential>, NotBase64> {
        let given =
            |text: &Option<Text>| text.as_ref().map(|t| &t.0).filter(|s| !s.is_empty()).cloned();
        if let Some(token) = given(&self.registrytoken) {
            return Ok(Some(Credential::RegistryToken(token)));
        }
        if let Some(token) = given(&self.identitytoken) {
            return Ok(Some(Credential::IdentityToken(token)));
        }
        if let Some(auth) = given(&self.auth) {
            return decode(&auth).map(Some).ok_or(NotBase64);
        }
        let password = given(&self.password);
        Ok(self
            .username
            .clone()
            .zip(password)
            .map(|(username, password)| Credential::Basic { username, password }))
    }
}

/// `user:password`, base64; some writers pad the text with NUL.
fn decode(auth: &Secret) -> Option<Credential> {
    let bytes = Zeroizing::new(STANDARD.decode(auth.expose().trim()).ok()?);
    let text = std::str::from_utf8(&bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    let password = Secret::new(password.trim_end_matches('\0'));
    Some(Credential::Basic { username: username.to_owned(), password })
}

/// The inverse of [`decode`].
pub(super) fn encode(username: &str, password: &Secret) -> Secret {
    let text = Zeroizing::new(format!("{username}:{}", password.expose()));
    Secret::new(STANDARD.encode(text.as_bytes()))
}

/// The name under which docker keeps a host and asks helpers for it.
pub(super) fn server_key(host: &Host) -> String {
    if host.is_docker_hub() { HUB_KEY.to_owned() } else { host.as_str().to_owned() }
}

/// A key of a file in one spelling: no scheme, no API version, Docker Hub as `docker.io`.
pub(super) fn normal_key(key: &str) -> String {
    let bare =
        key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let host = host
        .parse::<Host>()
        .map_or_else(|_| host.to_ascii_lowercase(), |host| host.as_str().to_owned());
    match path {
        "" | "v1" | "v2" => host,
        path => format!("{host}/{path}"),
    }
}

/// Whether an entry for `key` speaks of `asked`: itself or anything below it.
fn covers(key: &str, asked: &str) -> bool {
    asked.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn read_bounded(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, CredentialError> {
    let failed = |source| CredentialError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(CredentialError::TooLarge { path: path.to_owned() });
    }
    Ok(Some(bytes))
}

pub(super) fn malformed(path: &Path, error: &serde_json::Error) -> CredentialError {
    CredentialError::Malformed { path: path.to_owned(), line: error.line(), column: error.column() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        name.parse().unwrap()
    }

    fn shown(credential: Option<Credential>) -> String {
        match credential {
            None => "none".to_owned(),
            Some(Credential::Anonymous) => "anonymous".to_owned(),
            Some(Credential::Basic { username, password }) => {
                format!("{username}:{}", password.expose())
            }
            Some(Credential::IdentityToken(token)) => format!("identity {}", token.expose()),
            Some(Credential::RegistryToken(token)) => format!("registry {}", token.expose()),
        }
    }

    const FILE: &str = r#"{
        "auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "a.example": {"username": "u", "password": "p"},
            "https://b.example/v2/": {"auth": "YjpwOndpdGg6Y29sb25z"},
            "http://c.example:5000": {"identitytoken": "id", "auth": "MDA6"},
            "d.example": {"registrytoken": "rt"},
            "e.example": {},
            "q.example": {"auth": "cTpob3N0"},
            "q.example/org": {"auth": "cTpvcmc="},
            "q.example/org/repo": {"auth": "cTpyZXBv"},
            "bad.example": {"auth": "%%%"},
            "nul.example": {"auth": "dTpwAAA="}
        },
        "credHelpers": {"gcr.example": "gcr", "docker.io": "hub"},
        "HttpHeaders": {"x": "y"}
    }"#;

    #[test]
    fn entries() {
        let file = ConfigFile::parse(FILE.as_bytes(), Path::new("c")).unwrap();
        for (name, repository, expected) in [
            ("docker.io", Some("library/alpine"), "hub:pw"),
            ("registry-1.docker.io", None, "hub:pw"),
            ("a.example", None, "u:p"),
            ("b.example", None, "b:p:with:colons"),
            ("c.example:5000", None, "identity id"),
            ("c.example", None, "none"),
            ("d.example", None, "registry rt"),
            ("e.example", None, "none"),
            ("q.example", None, "q:host"),
            ("q.example", Some("other"), "q:host"),
            ("q.example", Some("organ/x"), "q:host"),
            ("q.example", Some("org/x"), "q:org"),
            ("q.example", Some("org/repo"), "q:repo"),
            ("q.example", Some("org/repo/deep"), "q:repo"),
            ("nul.example", None, "u:p"),
            ("unknown.example", None, "none"),
        ] {
            let repository = repository.map(|r| r.parse().unwrap());
            let found = file.entry(Path::new("c"), &host(name), repository.as_ref()).unwrap();
            assert_eq!(shown(found), expected, "{name} {repository:?}");
        }
        let error = file.entry(Path::new("c"), &host("bad.example"), None).unwrap_err();
        assert!(error.to_string().contains("bad.example"), "{error}");
    }

    #[test]
    fn helpers() {
        let file = ConfigFile::parse(FILE.as_bytes(), Path::new("c")).unwrap();
        assert_eq!(file.helper(&host("gcr.example")), Some("gcr"));
        assert_eq!(file.helper(&host("index.docker.io")), Some("hub"));
        assert_eq!(file.helper(&host("a.example")), None);
        let file = ConfigFile::parse(
            br#"{"credsStore":"pass","credHelpers":{"x.example":"own"},"auths":null}"#,
            Path::new("c"),
        )
        .unwrap();
        assert_eq!(file.helper(&host("a.example")), Some("pass"));
        assert_eq!(file.helper(&host("x.example")), Some("own"));
    }

    #[test]
    fn a_broken_file_is_told_without_its_content() {
        let Err(error) = ConfigFile::parse(
            br#"{"auths": {"a": {"auth": "c2VjcmV0", "password": 12"#,
            Path::new("c.json"),
        ) else {
            panic!("broken");
        };
        let text = format!("{error} {error:?}");
        assert!(text.contains("c.json") && text.contains("line 1"), "{text}");
        assert!(!text.contains("c2VjcmV0"), "{text}");
        assert!(std::error::Error::source(&error).is_none());
    }

    #[test]
    fn encode_and_decode() {
        let found = decode(&encode("me", &Secret::new("p:w"))).unwrap();
        assert_eq!(shown(Some(found)), "me:p:w");
        assert!(decode(&Secret::new("bm9jb2xvbg==")).is_none());
    }
}
