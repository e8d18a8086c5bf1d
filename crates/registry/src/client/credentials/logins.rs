//! Logins that came in another way than as a file of this machine: the pull secrets of a cluster.
//!
//! Only what is written in them counts. They are strangers' words, so the helpers that they name
//! are never run.

use std::fmt;
use std::path::{Path, PathBuf};

use portolan_core::{Host, Repository};

use super::config::{ConfigFile, MAX_FILE};
use super::{Credential, CredentialError};

/// How logins are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginsForm {
    /// Docker's `config.json`: `{"auths": {HOST: ENTRY}}`.
    DockerConfigJson,
    /// What docker wrote before: `{HOST: ENTRY}`.
    DockerCfg,
}

impl LoginsForm {
    /// How a Secret of a cluster holds logins, by its type, and under which key; none where it is of another type.
    pub fn of_secret(kind: Option<&str>) -> Option<(Self, &'static str)> {
        match kind? {
            "kubernetes.io/dockerconfigjson" => Some((Self::DockerConfigJson, ".dockerconfigjson")),
            "kubernetes.io/dockercfg" => Some((Self::DockerCfg, ".dockercfg")),
            _ => None,
        }
    }
}

/// Logins, as they were given.
pub struct Logins {
    file: ConfigFile,
    place: PathBuf,
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Logins").field(&self.place).finish()
    }
}

impl Logins {
    /// Reads them; `place` is where they came from, for messages.
    pub fn parse(bytes: &[u8], form: LoginsForm, place: &Path) -> Result<Self, CredentialError> {
        if bytes.len() as u64 > MAX_FILE {
            return Err(CredentialError::TooLarge { path: place.to_owned() });
        }
        let file = match form {
            LoginsForm::DockerConfigJson => ConfigFile::parse(bytes, place)?,
            LoginsForm::DockerCfg => ConfigFile::parse_entries(bytes, place)?,
        };
        Ok(Self { file, place: place.to_owned() })
    }

    /// What they hold for this registry, or closest to this repository.
    pub fn credential(
        &self,
        host: &Host,
        repository: &Repository,
    ) -> Result<Option<Credential>, CredentialError> {
        self.file.entry(&self.place, host, Some(repository))
    }

    /// Whom it has logins for, as it writes them, shortened and at most twenty.
    pub fn hosts(&self) -> Vec<String> {
        self.file.keys().take(20).map(|key| key.chars().take(256).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str, form: LoginsForm, host: &str) -> Option<String> {
        let logins = Logins::parse(text.as_bytes(), form, Path::new("secret a/b")).unwrap();
        let found = logins.credential(&host.parse().unwrap(), &"team/app".parse().unwrap());
        match found.unwrap()? {
            Credential::Basic { username, .. } => Some(username),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_forms_are_read_and_helpers_are_not() {
        let entry = r#""r.example": {"username": "u", "password": "p", "email": "x"}"#;
        let json = format!(r#"{{"auths": {{{entry}}}, "credsStore": "evil"}}"#);
        for (text, form) in
            [(json, LoginsForm::DockerConfigJson), (format!("{{{entry}}}"), LoginsForm::DockerCfg)]
        {
            assert_eq!(user(&text, form, "r.example").as_deref(), Some("u"));
            assert_eq!(user(&text, form, "other.example"), None);
        }
        let helped = r#"{"credHelpers": {"r.example": "evil"}, "credsStore": "evil"}"#;
        assert_eq!(user(helped, LoginsForm::DockerConfigJson, "r.example"), None);
    }

    #[test]
    fn what_is_no_list_of_logins_is_told_by_its_place_and_without_its_words() {
        for text in ["", "[]", r#"{"auths": {"r": {"auth": 7, "x": "hunter2"}}}"#] {
            let form = LoginsForm::DockerConfigJson;
            let error = Logins::parse(text.as_bytes(), form, Path::new("secret a/b")).unwrap_err();
            let told = error.to_string();
            assert!(told.contains("secret a/b") && !told.contains("hunter2"), "{told}");
        }
        let large = vec![b' '; usize::try_from(MAX_FILE).unwrap() + 1];
        let error = Logins::parse(&large, LoginsForm::DockerCfg, Path::new("s")).unwrap_err();
        assert!(matches!(error, CredentialError::TooLarge { .. }));
    }
}
