//! The verifier's own certificate: made, kept in a Secret that all copies share, renewed in time, and
//! told to who asks.
//!
//! | file | what it holds |
//! |---|---|
//! | `plan` | what to do now: a pure function |
//! | `make` | authorities and certificates |
//! | `material` | what is in the Secret, read and written |
//! | `objects` | Providers and webhooks, which say whom to trust |
//!
//! Here is the thin loop. Each look reads the objects first and the Secret after them, and writes
//! only what is still as it was read. So of two copies that act at once one wins, the other finds
//! what the winner wrote at its next look, and nobody puts an old bundle in the place of a newer one.

mod make;
mod material;
mod objects;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, GetParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use kube::{Client, Resource as _};
use portolan_core::causes::chain;
use portolan_registry::serving::{Identity, Renewer, Tls, TlsError, TlsFiles, TlsVersion};

use self::make::make;
use self::material::Kept;
use self::objects::{Named, Objects, Read};
use self::plan::{Change, Clock, Decision, Found, Wanted, decide};
use super::Cluster;
use crate::server::config::{Generate, ObjectName};

/// Who wrote the Secret.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "portolan-verifier");
/// API servers keep no larger objects.
const MAX_SECRET: usize = 4 * 1024 * 1024;
/// One look takes as many turns at most: who loses against others so often comes back later.
const MAX_TURNS: usize = 8;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The Secret cannot be read or written.
    #[error("the Secret {secret} with the verifier's certificate cannot be {step}")]
    Secret {
        /// `namespace/name`.
        secret: String,
        /// Read or written.
        step: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server answered with something else.
    #[error("the Secret {secret} cannot be read: {what}")]
    Answer {
        /// `namespace/name`.
        secret: String,
        /// What came.
        what: String,
    },
    /// It must not be made.
    #[error("there is no certificate in the Secret {secret}: {why}")]
    HandsOff {
        /// `namespace/name`.
        secret: String,
        /// Why not.
        why: String,
    },
    /// Others write all the time.
    #[error("the Secret {secret} was changed by others at every try")]
    Contended {
        /// `namespace/name`.
        secret: String,
    },
    /// No certificate can be made.
    #[error("no certificate can be made for the names in tls.generate")]
    Make(#[from] rcgen::Error),
    /// What is kept cannot be shown.
    #[error("the certificate in the Secret cannot be used")]
    Tls(#[from] TlsError),
}

/// Keeps the certificate.
pub(in crate::server) struct Keeper {
    client: Client,
    secrets: Api<Secret>,
    namespace: String,
    name: ObjectName,
    objects: Objects,
    named: Vec<Named>,
    wanted: Wanted,
    pause: Duration,
    renewers: Vec<Renewer>,
    /// What is shown now.
    shown: Option<Kept>,
    /// What was last told, so that it is told once.
    told: BTreeMap<String, String>,
}

/// A Secret as it was read.
struct Held {
    /// None: there is none.
    object: Option<Secret>,
    found: Found,
    clock: Clock,
}

impl Keeper {
    fn new(cluster: &Cluster, generate: &Generate) -> Self {
        let Cluster { client, namespace } = cluster;
        let providers = generate.providers.iter().cloned().map(Named::Provider);
        let webhooks = generate.webhooks.iter().cloned().map(Named::Webhook);
        Self {
            client: client.clone(),
            secrets: Api::namespaced(client.clone(), namespace),
            namespace: namespace.clone(),
            name: generate.secret.clone(),
            objects: Objects::new(client),
            named: providers.chain(webhooks).collect(),
            wanted: Wanted {
                names: generate.names.clone(),
                lifetime: generate.lifetime.0,
                ca_lifetime: generate.ca_lifetime.0,
            },
            pause: generate.check.0,
            renewers: Vec::new(),
            shown: None,
            told: BTreeMap::new(),
        }
    }

    /// Where the certificate is, for messages.
    fn place(&self) -> PathBuf {
        PathBuf::from(format!("Secret {}", self.secret()))
    }

    fn secret(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// With what is there, or what is made: nothing is answered before there is a certificate.
    pub(in crate::server) async fn start(
        cluster: &Cluster,
        generate: &Generate,
    ) -> Result<Self, CertificateError> {
        let mut keeper = Self::new(cluster, generate);
        keeper.shown = Some(keeper.look().await?);
        Ok(keeper)
    }

    /// TLS with the certificate, and with those that come after it.
    pub(in crate::server) fn serve(
        &mut self,
        client_ca: Option<PathBuf>,
        oldest: TlsVersion,
    ) -> Result<Tls, CertificateError> {
        let Some(shown) = &self.shown else {
            let why = "nobody looked".to_owned();
            return Err(CertificateError::HandsOff { secret: self.secret(), why });
        };
        let files = TlsFiles { client_ca, oldest, ..TlsFiles::new(self.place(), self.place()) };
        let (tls, renewer) = Tls::given(self.identity(shown)?, files)?;
        self.renewers.push(renewer);
        Ok(tls)
    }

    /// Looks every now and then, for ever.
    pub(in crate::server) async fn keep(mut self) {
        loop {
            tokio::time::sleep(self.pause).await;
            let told = match self.look().await {
                Ok(kept) => self.show(&kept).map_err(CertificateError::from),
                Err(error) => Err(error),
            };
            let trouble = told.err().map(|error| chain(&error));
            self.tell("certificate", trouble);
        }
    }

    /// Gives servers what is kept, where it is not what they have.
    fn show(&mut self, kept: &Kept) -> Result<(), TlsError> {
        if self.shown.as_ref().is_some_and(|shown| shown.leaf.certificate == kept.leaf.certificate)
        {
            return Ok(());
        }
        for renewer in &self.renewers {
            renewer.renew(self.identity(kept)?)?;
        }
        self.shown = Some(kept.clone());
        tracing::info!(until = %kept.leaf.validity.until, "a new certificate is shown");
        Ok(())
    }

    fn identity(&self, kept: &Kept) -> Result<Identity, TlsError> {
        let (chain, key) = (kept.leaf.certificate.as_bytes(), kept.leaf.key.as_bytes());
        Identity::from_pem(chain, key, &self.place())
    }

    /// Reads, decides, writes, until nothing is left to do.
    async fn look(&mut self) -> Result<Kept, CertificateError> {
        for _ in 0..MAX_TURNS {
            let (objects, trusted) = self.read_objects().await;
            let held = self.read_secret().await?;
            let (change, why) = match decide(held.clock, &held.found, &trusted, &self.wanted) {
                Decision::Write(change, why) => (change, why),
                Decision::Keep => return self.publish(&objects, held.found, None).await,
                Decision::HandsOff(why) => {
                    return self.publish(&objects, held.found, Some(why)).await;
                }
            };
            // Who lost against another copy looks at what that one wrote.
            let _lost = self.write(held, &change, &why).await?;
        }
        Err(CertificateError::Contended { secret: self.secret() })
    }

    async fn publish(
        &mut self,
        objects: &[Read],
        found: Found,
        trouble: Option<String>,
    ) -> Result<Kept, CertificateError> {
        let secret = self.secret();
        let Found::Kept(kept) = found else {
            let why = trouble.unwrap_or_default();
            return Err(CertificateError::HandsOff { secret, why });
        };
        self.tell("plan", trouble);
        let bundle = kept.bundle();
        for read in objects {
            let Some(patch) = read.patch(&bundle) else { continue };
            let written = self.objects.write(&read.named, &patch).await;
            if written.is_ok() {
                tracing::info!(object = %read.named, "it is told whom to trust");
            }
            // Another copy of the verifier, or the operator, was faster: the next look will see.
            let trouble = written.err().filter(|error| !is(error, 409));
            let key = format!("writing {}", read.named);
            self.tell(&key, trouble.map(|error| chain(&error)));
        }
        Ok(kept)
    }

    /// Those that are there and can be read, and whom all that are there trust.
    async fn read_objects(&mut self) -> (Vec<Read>, Vec<BTreeSet<Vec<u8>>>) {
        let (mut all, mut trusted) = (Vec::new(), Vec::new());
        for named in self.named.clone() {
            let trouble = match self.objects.read(&named).await {
                Ok(Some(read)) => {
                    trusted.push(read.trusted());
                    all.push(read);
                    None
                }
                // No trouble: not everybody has both a Provider and a webhook.
                Ok(None) => {
                    tracing::debug!(object = %named, "it is not there; it is told when it is");
                    None
                }
                Err(error) => {
                    // Whom it trusts is not known: nobody, as far as a next authority goes.
                    trusted.push(BTreeSet::new());
                    Some(chain(&error))
                }
            };
            self.tell(&format!("reading {named}"), trouble);
        }
        (all, trusted)
    }

    /// By hand and not by `Api::get`: the time of the API server is in a header.
    async fn read_secret(&self) -> Result<Held, CertificateError> {
        let failed = |source: kube::Error| CertificateError::Secret {
            secret: self.secret(),
            step: "read",
            source: Box::new(source),
        };
        let odd = |what: String| CertificateError::Answer { secret: self.secret(), what };
        let request = Request::new(Secret::url_path(&(), Some(&self.namespace)));
        let request = request.get(self.name.as_str(), &GetParams::default());
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        let answer = self.client.send(request.map(Body::from)).await.map_err(failed)?;
        let here = Timestamp::now();
        let (head, body) = answer.into_parts();
        let there = head.headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        let there = there.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        // An API server that does not say is one behind something that does not let it.
        let clock = Clock { here, there: there.map_or(here, |there| there.timestamp()) };
        let body = Limited::new(body, MAX_SECRET).collect().await;
        let body = body.map_err(|error| odd(error.to_string()))?.to_bytes();
        match head.status.as_u16() {
            200 => {}
            404 => return Ok(Held { object: None, found: Found::Nothing, clock }),
            status => {
                let told: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
                let told = told.as_ref().and_then(|told| told["message"].as_str());
                return Err(odd(format!("status {status}: {}", told.unwrap_or("no message"))));
            }
        }
        let object: Secret =
            serde_json::from_slice(&body).map_err(|error| odd(error.to_string()))?;
        Ok(Held { found: found(&object), object: Some(object), clock })
    }

    /// Whether it was written. It was not when somebody else wrote since it was read.
    async fn write(
        &mut self,
        held: Held,
        change: &Change,
        why: &str,
    ) -> Result<bool, CertificateError> {
        let kept = match &held.found {
            Found::Kept(kept) => Some(kept),
            Found::Nothing | Found::Foreign | Found::Broken(_) => None,
        };
        let next = make(change, kept, held.clock.here, &self.wanted)?;
        let data = next.to_data().into_iter().map(|(name, bytes)| (name, ByteString(bytes)));
        let is_new = held.object.is_none();
        let mut object = held.object.unwrap_or_default();
        object.metadata.name = Some(self.name.to_string());
        let labels = object.metadata.labels.get_or_insert_default();
        labels.insert(LABEL.0.to_owned(), LABEL.1.to_owned());
        object.data = Some(data.collect());
        let params = PostParams::default();
        let written = match is_new {
            true => self.secrets.create(&params, &object).await,
            // It carries the version that was read.
            false => self.secrets.replace(self.name.as_str(), &params, &object).await,
        };
        match written {
            Ok(_) => {
                tracing::info!(secret = self.secret(), ?change, why, "certificates were made");
                Ok(true)
            }
            Err(error) if is(&error, 409) => Ok(false),
            Err(error) => Err(CertificateError::Secret {
                secret: self.secret(),
                step: "written",
                source: Box::new(error),
            }),
        }
    }

    /// Tells trouble when it comes and when it has gone.
    fn tell(&mut self, about: &str, trouble: Option<String>) {
        match trouble {
            None => {
                if self.told.remove(about).is_some() {
                    tracing::info!(about, "that is over");
                }
            }
            Some(error) if self.told.get(about) == Some(&error) => {}
            Some(error) => {
                tracing::error!(about, error, "the certificate cannot be looked after");
                self.told.insert(about.to_owned(), error);
            }
        }
    }
}

/// Whose it is, and whether it can be used.
fn found(object: &Secret) -> Found {
    let data: BTreeMap<String, Vec<u8>> =
        object.data.iter().flatten().map(|(name, value)| (name.clone(), value.0.clone())).collect();
    // Made by the operator for the verifier to fill, so that it need not be allowed to make any.
    if data.is_empty() {
        return Found::Nothing;
    }
    let labels = object.metadata.labels.as_ref();
    if labels.and_then(|all| all.get(LABEL.0)).map(String::as_str) != Some(LABEL.1) {
        return Found::Foreign;
    }
    Kept::from_data(&data).map_or_else(Found::Broken, Found::Kept)
}

fn is(error: &kube::Error, status: u16) -> bool {
    matches!(error, kube::Error::Api(told) if told.code == status)
}
