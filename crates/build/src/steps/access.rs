//! How a step reaches a registry: a secret that was mounted, and what "insecure" allows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::{Host, Reference};
use portolan_registry::client::{
    Client, Credential, CredentialStore, Failure, Logins, LoginsForm, Settings,
};
use portolan_registry::durable;

use super::StepError;

/// No secret of a cluster is larger.
const MAX_SECRET: u64 = 1024 * 1024;
/// The names under which clusters keep logins.
const NAMES: [(&str, LoginsForm); 3] = [
    (".dockerconfigjson", LoginsForm::DockerConfigJson),
    ("config.json", LoginsForm::DockerConfigJson),
    (".dockercfg", LoginsForm::DockerCfg),
];
const REASON: &str = "RegistryCredentialsNotValid";

/// How a registry is opened.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The directory that a secret is mounted at, or a file of logins.
    pub secret: Option<PathBuf>,
    /// Plain HTTP and certificates that nobody vouches for are taken too.
    pub insecure: bool,
}

/// A client for the registry of `image`.
///
/// Without `insecure` a registry is spoken to over HTTPS with a certificate that is checked; loopback,
/// which nobody else can listen on, is the exception that it is everywhere here.
pub async fn client(
    image: &Reference,
    access: &Access,
    mut settings: Settings,
) -> Result<Client, StepError> {
    let Reference::Registry(registry) = image else {
        return made(settings, CredentialStore::anonymous());
    };
    let host = &registry.registry;
    let credentials = match &access.secret {
        None => CredentialStore::from_environment(),
        Some(path) => {
            let logins = logins(path)?;
            let bad = |source| StepError::of(REASON, None, secret_at(path), source);
            let found = logins.credential(host, &registry.repository).map_err(bad)?;
            let found = found.ok_or_else(|| missing(path, host, &logins))?;
            CredentialStore::anonymous().with(host.clone(), found)
        }
    };
    if access.insecure && settings.host(host).plain_http.is_none() {
        allow_insecure(host, &mut settings).await?;
    }
    made(settings, credentials)
}

/// TLS with any certificate where the registry speaks it, and plain HTTP where it does not.
pub(crate) async fn allow_insecure(host: &Host, settings: &mut Settings) -> Result<(), StepError> {
    let section = settings.host_mut(host);
    let limits = section.limits.clone();
    (section.plain_http, section.insecure_skip_verify) = (Some(false), true);
    section.limits.retries = 0;
    section.limits.connect_timeout = Duration::from_secs(5);
    let probe = made(settings.clone(), CredentialStore::anonymous())?;
    let answer = probe.check_login(host, &Credential::Anonymous).await;
    let speaks_tls = match &answer {
        Ok(_) => true,
        Err(error) => {
            let none = matches!(
                error.failure(),
                Failure::Connection { .. } | Failure::Handshake { .. } | Failure::Tls(_)
            );
            !none
        }
    };
    let section = settings.host_mut(host);
    section.plain_http = Some(!speaks_tls);
    section.limits = limits;
    Ok(())
}

fn made(settings: Settings, credentials: CredentialStore) -> Result<Client, StepError> {
    Client::new(settings, credentials).map_err(|source| {
        StepError::of("RegistryNotUsable", Some(source.class()), "cannot open the registry", source)
    })
}

fn secret_at(path: &Path) -> String {
    format!("the secret at {} cannot be used", path.display())
}

fn logins(path: &Path) -> Result<Logins, StepError> {
    let candidates: Vec<(PathBuf, LoginsForm)> = match path.is_dir() {
        true => NAMES.iter().map(|(name, form)| (path.join(name), *form)).collect(),
        false => vec![(path.to_owned(), LoginsForm::DockerConfigJson)],
    };
    for (file, form) in candidates {
        let read = durable::read_bounded(&file, MAX_SECRET)
            .map_err(|source| StepError::local(REASON, secret_at(path), source))?;
        if let Some(bytes) = read {
            return Logins::parse(&bytes, form, &file).map_err(|source| {
                StepError::of(REASON, Some(source.class()), secret_at(path), source)
            });
        }
    }
    let names = NAMES.map(|(name, _)| name).join(", ");
    let what = format!("the secret at {} holds none of {names}", path.display());
    Err(StepError::bad(REASON, what))
}

fn missing(path: &Path, host: &Host, logins: &Logins) -> StepError {
    let known = logins.hosts();
    let known = if known.is_empty() { "nobody".to_owned() } else { known.join(", ") };
    let what = format!(
        "the secret at {} has no login for {}; it has some for {known}",
        path.display(),
        host.as_str()
    );
    StepError::bad(REASON, what)
}
