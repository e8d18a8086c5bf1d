//! The distribution client: one thin layer over HTTP that never lets an unchecked byte through.
//!
//! A [`Client`] holds connections, settings, credentials and tokens; a [`Remote`] is one repository
//! and has all calls. Reading asks the mirrors of `registries.toml` first; writing never does.
//!
//! | call | request | checked |
//! |---|---|---|
//! | [`Remote::resolve`], [`Remote::manifest`] | HEAD, GET manifest | 4 MiB at most; the digest asked for, or announced |
//! | [`Remote::blob`] | GET blob, Range after a cut | size and digest while it flows |
//! | [`Remote::push_blob`] | HEAD, POST, PUT or PATCH | the registry's digest check; size of the source |
//! | [`Remote::push_manifest`] | PUT manifest | digest announced; referrers list where the registry keeps none |
//! | [`Client::file`] | GET any URL, Range after a cut | how long it may be |
//! | [`Remote::tags`], [`Remote::referrers`] | GET, all pages | pages bounded and of the same origin |

mod answer;
mod auth;
pub(crate) mod blobs;
mod credentials;
mod download;
mod error;
mod failure;
mod fallback;
mod file;
mod http;
mod login;
mod manifests;
mod pages;
mod referrers;
mod retry;
mod room;
mod secret;
mod settings;
mod source;
mod step;
mod upload;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use portolan_core::{Descriptor, Digest, Document, Host, Repository, Target};
use tokio::sync::Semaphore;

use self::auth::AuthState;
use self::http::{Connections, Endpoint, api_url};
pub(crate) use self::room::Taken;

pub use answer::ErrorBody;
pub use credentials::{
    Credential, CredentialError, CredentialStore, Erased, HelperError, Logins, LoginsForm, Stored,
};
pub use download::BlobStream;
pub use error::{ClientError, Failure};
pub use file::{FileDownload, FilePiece};
pub use login::LoginCheck;
pub use retry::jitter;
pub use room::Room;
pub use secret::Secret;
pub use settings::{
    ClientCertificate, HostSettings, Limits, Mirror, MirrorPull, ReferrersIn, Settings,
    SettingsError,
};
pub use source::{BlobSource, BytesSource, FileSource, RemoteSource, SourceStream};
pub use step::Step;
pub use upload::Upload;

/// Connections, settings, credentials and tokens, shared by all repositories. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

/// One repository of one registry. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    upstream: Endpoint,
    repository: Repository,
}

/// A manifest or index as it was read. The bytes decide: the descriptor describes exactly them, so
/// a caller that goes on by its digest is not touched when the tag moves.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Of these bytes.
    pub descriptor: Descriptor,
    /// As they came.
    pub bytes: Bytes,
    /// What they say.
    pub document: Document,
}

/// A manifest that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// What the registry now has.
    pub descriptor: Descriptor,
}

/// Is told of every request that was put on the wire: whom it went to, and the status of the answer,
/// if there was one.
pub type Observer = Arc<dyn Fn(&str, Option<u16>) + Send + Sync>;

struct Shared {
    settings: Arc<Settings>,
    observer: Option<Observer>,
    connections: Arc<Connections>,
    auth: AuthState,
    gates: Arc<Mutex<HashMap<Host, Arc<Gates>>>>,
    /// Who does in this process what is done once, takes turns with others who do it.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// How many blobs may flow at once. Two gates, because an upload may wait for a download from the
/// same host, and with one gate all of them could wait for each other.
struct Gates {
    downloads: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
}

impl Client {
    /// A client for all registries. Connections are made, and certificates read, when first needed.
    pub fn new(settings: Settings, credentials: CredentialStore) -> Result<Self, ClientError> {
        Self::observed(settings, credentials, None)
    }

    /// The same, with somebody who is told of every request.
    pub fn observed(
        settings: Settings,
        credentials: CredentialStore,
        observer: Option<Observer>,
    ) -> Result<Self, ClientError> {
        let settings = Arc::new(settings);
        Ok(Self(Arc::new(Shared {
            connections: Arc::new(Connections::new(settings.clone())),
            settings,
            observer,
            auth: AuthState::new(credentials),
            gates: Arc::default(),
            turns: Mutex::default(),
        })))
    }

    /// The same registries as somebody else: settings, connections and their bounds are shared,
    /// credentials and the tokens that were had for them are not.
    #[must_use]
    pub fn with_credentials(&self, credentials: CredentialStore) -> Self {
        Self(Arc::new(Shared {
            settings: Arc::clone(&self.0.settings),
            observer: self.0.observer.clone(),
            connections: Arc::clone(&self.0.connections),
            auth: AuthState::new(credentials),
            gates: Arc::clone(&self.0.gates),
            turns: Mutex::default(),
        }))
    }

    /// One repository of one registry. Nothing is sent yet.
    pub fn repository(&self, registry: &Host, repository: &Repository) -> Remote {
        let upstream = self.0.endpoint(registry, Some(repository.clone()));
        Remote { shared: self.0.clone(), upstream, repository: repository.clone() }
    }
}

impl Remote {
    /// The turn of who does `what` with this digest in this repository.
    fn turn(&self, what: &str, digest: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let (host, repository) = (self.upstream.host.as_str(), self.repository.as_str());
        let mut turns = self.shared.turns.lock().expect("no panic while the lock is held");
        // Those that nobody has or waits for are not worth keeping.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(format!("{what} {host}/{repository} {digest}")).or_default().clone()
    }
}

impl Shared {
    fn endpoint(&self, host: &Host, repository: Option<Repository>) -> Endpoint {
        let (base, fault) = match api_url(host, self.settings.host(host)) {
            Ok(base) => (base, None),
            // Such as 1.2.3.4.5, which is a host name by its letters and an address to URLs.
            Err(fault) => (url::Url::parse("https://invalid/").expect("a URL"), Some(fault)),
        };
        Endpoint { host: host.clone(), base, repository, fault }
    }

    fn gates(&self, host: &Host) -> Arc<Gates> {
        let mut gates = self.gates.lock().expect("no panic while the lock is held");
        let new = || {
            let limit = self.settings.host(host).limits.max_concurrency.max(1);
            Arc::new(Gates {
                downloads: Arc::new(Semaphore::new(limit)),
                uploads: Arc::new(Semaphore::new(limit)),
            })
        };
        gates.entry(host.clone()).or_insert_with(new).clone()
    }
}

impl Remote {
    /// The registry this repository is in.
    pub fn registry(&self) -> &Host {
        &self.upstream.host
    }

    /// Takes room for a blob that is to be read whole.
    pub(crate) async fn room_for(&self, descriptor: &Descriptor) -> Result<Taken, ClientError> {
        let Some(room) = self.shared.settings.room() else { return Ok(Taken::default()) };
        let step = Step::ReadBlob(descriptor.digest);
        room.wait(descriptor.size).await.map_err(|failure| self.upstream.error(&step, failure))
    }

    /// Its name there.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    fn mirrors(&self, wanted: impl Fn(&Mirror) -> bool) -> Vec<Endpoint> {
        let mirrors = &self.shared.settings.host(&self.upstream.host).mirrors;
        let named = mirrors.iter().filter(|mirror| wanted(mirror)).filter_map(|mirror| {
            let name = match &mirror.prefix {
                Some(prefix) => format!("{}/{}", prefix.as_str(), self.repository.as_str()),
                None => self.repository.as_str().to_owned(),
            };
            // A name that grows too long by its prefix cannot be on that mirror.
            let name = name.parse().ok()?;
            Some(self.shared.endpoint(&mirror.host, Some(name)))
        });
        named.collect()
    }

    /// Who to ask for a manifest before the registry itself.
    fn manifest_mirrors(&self, target: &Target) -> Vec<Endpoint> {
        self.mirrors(|mirror| mirror.pull.allows(target))
    }

    /// Who to ask for a blob, the registry itself last. Its digest is checked, so every mirror may serve it.
    fn blob_sources(&self) -> Vec<Endpoint> {
        let mut sources = self.mirrors(|_| true);
        sources.push(self.upstream.clone());
        sources
    }

    /// Who to ask for lists before the registry itself.
    fn list_mirrors(&self) -> Vec<Endpoint> {
        self.mirrors(|mirror| mirror.discovery)
    }
}

impl Endpoint {
    /// `/v2/NAME/` and what follows. Names, tags and digests hold only characters that a path may hold.
    fn url(&self, rest: &str) -> url::Url {
        let mut url = self.base.clone();
        match &self.repository {
            Some(name) => url.set_path(&format!("/v2/{}/{rest}", name.as_str())),
            None => url.set_path(&format!("/v2/{rest}")),
        }
        url
    }

    fn error(&self, step: &Step, failure: Failure) -> ClientError {
        ClientError::new(step.clone(), &self.host, self.repository.as_ref(), failure)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}/{})", self.upstream.host.as_str(), self.repository.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every call can be spawned on a runtime of many threads: checked by the compiler alone.
    #[allow(dead_code)]
    fn calls_are_send(
        remote: &Remote,
        descriptor: &Descriptor,
        source: &dyn BlobSource,
        target: &Target,
    ) {
        fn send<T: Send>(_: T) {}
        send(remote.resolve(target));
        send(remote.manifest(target));
        send(remote.push_manifest(target, "", b""));
        send(remote.blob(descriptor));
        send(remote.blob_exists(&descriptor.digest));
        send(remote.push_blob(descriptor, source));
        send(remote.mount_blob(&descriptor.digest, &remote.repository));
        send(remote.tags());
        send(remote.referrers(&descriptor.digest, None));
        send(remote.delete_manifest(&descriptor.digest));
        send(remote.delete_blob(&descriptor.digest));
    }
}
