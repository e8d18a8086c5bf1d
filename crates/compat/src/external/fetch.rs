//! Fetching a plugin from where a spec says that it is, without becoming the spec's errand boy:
//! public addresses only, https only, no other host, no login, no proxy, a bound on size and time.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::net::{Network, may_connect};
use super::policy::Policy;
use super::program::MAX_PROGRAM;

/// A download server and its mirror, no longer chain.
const MAX_REDIRECTS: usize = 4;
/// For all of it.
const DEADLINE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// A bundle of certificates is no larger.
const MAX_PEM: u64 = 1024 * 1024;

/// Why a plugin could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The client could not be made.
    #[error("cannot prepare the connection")]
    Prepare(#[source] reqwest::Error),
    /// A certificate of the policy.
    #[error("cannot use the certificates in {}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// Not public, and not in the policy.
    #[error(
        "{host} has no address that may be connected to; list its network in `http.privateNetworks` of the policy if it should"
    )]
    Address {
        /// As in the source.
        host: String,
    },
    /// No answer.
    #[error("cannot ask {host}")]
    Request {
        /// Who.
        host: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// Not "here it is".
    #[error("{host} answered {status}")]
    Status {
        /// Who.
        host: String,
        /// The answer.
        status: u16,
    },
    /// Somewhere it may not lead.
    #[error("{from} redirects to {to}, which {why}")]
    Redirect {
        /// From where.
        from: String,
        /// Where to.
        to: String,
        /// Why not.
        why: &'static str,
    },
    /// Too much.
    #[error("{host} sends more than {MAX_PROGRAM} bytes")]
    TooLarge {
        /// Who.
        host: String,
    },
    /// Too slow.
    #[error("it took more than {} s", DEADLINE.as_secs())]
    Deadline,
    /// A registry's trouble.
    #[error("cannot read it from {place}")]
    Registry {
        /// Which repository.
        place: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A registry that a spec may not send us to.
    #[error("{repository} is not in `http.registries` of the policy")]
    Unlisted {
        /// As in the source.
        repository: String,
    },
    /// An artifact without the plugin.
    #[error("{place} holds no plugin {name:?} for {platform}")]
    NoLayer {
        /// Which artifact.
        place: String,
        /// The plugin.
        name: String,
        /// This machine's.
        platform: String,
    },
}

/// How a file is had from an address. The one that is used is [`Https`].
pub trait Fetch: Send + Sync {
    /// The bytes at `url`, whatever they are: who asked compares their digest.
    fn fetch<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, FetchError>>;
}

/// Fetches as a policy allows. Certificates are read when the first plugin is fetched.
#[derive(Debug)]
pub struct Https {
    client: OnceLock<reqwest::Client>,
    certificates: Vec<PathBuf>,
    redirect_hosts: Vec<String>,
    private_networks: Arc<[Network]>,
}

impl Https {
    /// As `policy` allows.
    pub fn new(policy: &Policy) -> Self {
        Self {
            client: OnceLock::new(),
            certificates: policy.http().certificates.clone(),
            redirect_hosts: policy.http().redirect_hosts.clone(),
            private_networks: policy.http().private_networks.clone().into(),
        }
    }

    fn client(&self) -> Result<&reqwest::Client, FetchError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut builder = reqwest::Client::builder()
            .http1_only()
            .https_only(true)
            .user_agent(concat!("portolan/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT)
            .dns_resolver(Filtered(self.private_networks.clone()));
        let extra = certificates(&self.certificates)?;
        if !extra.is_empty() {
            builder = builder.tls_certs_merge(extra);
        }
        let client = builder.build().map_err(FetchError::Prepare)?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn follow(&self, start: &Url) -> Result<Vec<u8>, FetchError> {
        let mut url = start.clone();
        for _ in 0..=MAX_REDIRECTS {
            let host = authority(&url);
            self.check_literal(&url)?;
            let asked = self.client()?.get(url.clone()).send().await;
            let response = asked.map_err(|error| request_failed(&host, error))?;
            let status = response.status().as_u16();
            match status {
                200 => return body(response, host).await,
                301 | 302 | 303 | 307 | 308 => {
                    let location = response.headers().get("location");
                    let location = location.and_then(|value| value.to_str().ok());
                    url = next_hop(start, &url, location, &self.redirect_hosts)?;
                }
                _ => return Err(FetchError::Status { host, status }),
            }
        }
        let (from, to) = (authority(start), authority(&url));
        Err(FetchError::Redirect { from, to, why: "is one redirect too many" })
    }

    /// An address that is written as such is asked of no resolver.
    fn check_literal(&self, url: &Url) -> Result<(), FetchError> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            _ => return Ok(()),
        };
        if may_connect(address, &self.private_networks) {
            return Ok(());
        }
        Err(FetchError::Address { host: authority(url) })
    }
}

impl Fetch for Https {
    fn fetch<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        Box::pin(async move {
            let whole = tokio::time::timeout(DEADLINE, self.follow(url));
            whole.await.unwrap_or(Err(FetchError::Deadline))
        })
    }
}

/// Where a redirect leads, if it may.
fn next_hop(
    start: &Url,
    from: &Url,
    location: Option<&str>,
    listed: &[String],
) -> Result<Url, FetchError> {
    let refuse = |to: &str, why| FetchError::Redirect {
        from: authority(from),
        to: to.chars().take(200).collect(),
        why,
    };
    let location = location.ok_or_else(|| refuse("nowhere", "is no address"))?;
    let mut to = from.join(location).map_err(|_| refuse(location, "is no address"))?;
    to.set_fragment(None);
    let host = authority(&to);
    if to.scheme() != "https" {
        return Err(refuse(&host, "is not https"));
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err(refuse(&host, "holds a user or password"));
    }
    if host != authority(start) && !listed.contains(&host) {
        return Err(refuse(&host, "is not in `http.redirectHosts` of the policy"));
    }
    Ok(to)
}

async fn body(response: reqwest::Response, host: String) -> Result<Vec<u8>, FetchError> {
    if response.content_length().is_some_and(|length| length > MAX_PROGRAM) {
        return Err(FetchError::TooLarge { host });
    }
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|source| FetchError::Request { host: host.clone(), source })?;
        if bytes.len() as u64 + chunk.len() as u64 > MAX_PROGRAM {
            return Err(FetchError::TooLarge { host });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn request_failed(host: &str, error: reqwest::Error) -> FetchError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(one) = cause {
        if one.is::<NoAddress>() {
            return FetchError::Address { host: host.to_owned() };
        }
        cause = one.source();
    }
    FetchError::Request { host: host.to_owned(), source: error }
}

/// `host` or `host:port`.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn certificates(files: &[PathBuf]) -> Result<Vec<reqwest::Certificate>, FetchError> {
    let mut all = Vec::new();
    for path in files {
        let failed = |source| FetchError::Certificates { path: path.clone(), source };
        let pem = portolan_registry::durable::read_bounded(path, MAX_PEM)
            .map_err(|error| failed(error.into()))?
            .ok_or_else(|| failed("it is not there".into()))?;
        let found =
            reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| failed(error.into()))?;
        if found.is_empty() {
            return Err(failed("it holds no certificate".into()));
        }
        all.extend(found);
    }
    Ok(all)
}

/// Resolves names, and forgets every address that may not be connected to. Here and not before:
/// what was looked up earlier need not be what is connected to.
#[derive(Debug)]
struct Filtered(Arc<[Network]>);

/// A name whose addresses are all out of bounds.
#[derive(Debug)]
struct NoAddress;

impl fmt::Display for NoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none of its addresses may be connected to")
    }
}

impl StdError for NoAddress {}

impl Resolve for Filtered {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let good: Vec<SocketAddr> =
                found.filter(|address| may_connect(address.ip(), &allowed)).collect();
            if good.is_empty() {
                return Err(NoAddress.into());
            }
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_at_its_host_or_goes_to_a_listed_one() {
        let start = Url::parse("https://h.example/p").unwrap();
        let here = Url::parse("https://h.example/a/b").unwrap();
        let listed = ["cdn.example".to_owned(), "h.example:444".to_owned()];
        for (location, expected) in [
            (Some("/c"), "https://h.example/c"),
            (Some("d#sha256:x"), "https://h.example/a/d"),
            (Some("https://cdn.example/x"), "https://cdn.example/x"),
            (Some("https://h.example:444/x"), "https://h.example:444/x"),
            (Some("https://h.example:445/x"), "not in `http.redirectHosts`"),
            (Some("https://evil.example/x"), "not in `http.redirectHosts`"),
            (Some("https://cdn.example.evil.example/x"), "not in `http.redirectHosts`"),
            (Some("http://h.example/x"), "is not https"),
            (Some("file:///etc/passwd"), "is not https"),
            (Some("https://u:p@h.example/"), "user or password"),
            (Some("https://[::"), "is no address"),
            (None, "is no address"),
        ] {
            let got = match next_hop(&start, &here, location, &listed) {
                Ok(url) => url.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(got.contains(expected), "{location:?}: {got}");
        }
    }
}
