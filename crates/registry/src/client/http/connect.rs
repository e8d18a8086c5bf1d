//! Connections: one pool per set of TLS settings, made when first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan_core::Host;
use reqwest::{Certificate, Identity};
use url::Url;
use zeroize::Zeroizing;

use super::authority;
use crate::client::error::Failure;
use crate::client::settings::{ClientCertificate, HostSettings, Settings};

/// The most bytes of a certificate file that are read.
const MAX_PEM: u64 = 1024 * 1024;
/// The host that serves the API of Docker Hub.
const HUB_API: &str = "registry-1.docker.io";

/// Connections by kind. TLS settings belong to the host they are written for: after a redirect,
/// another host sees neither our certificate nor our leniency.
#[derive(Debug)]
pub(in crate::client) struct Connections {
    settings: Arc<Settings>,
    pools: Mutex<HashMap<Pool, reqwest::Client>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Pool {
    /// https with the system's trust.
    Tls,
    /// http, through the proxy of the environment if there is one.
    Plain,
    /// This machine: never through a proxy.
    Loopback { tls: bool },
    /// A host with settings of its own.
    Own { host: Host, tls: bool },
}

/// Where the API of a registry is.
pub(in crate::client) fn api_url(
    host: &Host,
    settings: &HostSettings,
) -> Result<Url, url::ParseError> {
    let scheme = if settings.speaks_plain_http(host) { "http" } else { "https" };
    let name = if host.is_docker_hub() { HUB_API } else { host.as_str() };
    Url::parse(&format!("{scheme}://{name}/"))
}

impl Connections {
    pub(in crate::client) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, pools: Mutex::default() }
    }

    /// The client to use for a URL.
    pub(super) fn client(&self, url: &Url) -> Result<reqwest::Client, Failure> {
        let tls = url.scheme() == "https";
        let host = authority(url).parse::<Host>().ok();
        let own = host.as_ref().filter(|host| self.settings.has_section(host));
        let loopback = host.as_ref().is_some_and(Host::is_loopback);
        let pool = match own {
            Some(host) => Pool::Own { host: host.clone(), tls },
            None if loopback => Pool::Loopback { tls },
            None if tls => Pool::Tls,
            None => Pool::Plain,
        };
        let mut pools = self.pools.lock().expect("no panic while the lock is held");
        if let Some(client) = pools.get(&pool) {
            return Ok(client.clone());
        }
        let settings = host
            .as_ref()
            .map_or_else(HostSettings::default, |host| self.settings.host(host).clone());
        let client = build(&settings, tls, loopback)?;
        if settings.insecure_skip_verify && tls {
            tracing::warn!(host = %authority(url), "insecure_skip_verify is set: certificates of this registry are not checked");
        }
        pools.insert(pool, client.clone());
        Ok(client)
    }
}

fn build(settings: &HostSettings, tls: bool, loopback: bool) -> Result<reqwest::Client, Failure> {
    // HTTP/1.1 on purpose: blobs flow in parallel, each on its own connection, and one window of
    // a shared HTTP/2 connection would make them wait for each other.
    let mut builder = reqwest::Client::builder()
        .http1_only()
        .user_agent(concat!("portolan/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(settings.limits.connect_timeout)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_idle_timeout(Duration::from_secs(30))
        .referer(false);
    if loopback {
        builder = builder.no_proxy();
    }
    if !tls {
        // No TLS, no need for the system's certificates, which may not even be installed.
        return builder.tls_certs_only([]).build().map_err(Failure::Tls);
    }
    let mut extra = Vec::new();
    for path in &settings.ca {
        let failed = |source| Failure::CertificateFile { path: path.clone(), source };
        let pem = read_pem(path).map_err(|error| failed(error.into()))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).map_err(|error| failed(error.into()))?;
        if certificates.is_empty() {
            return Err(failed("it holds no certificate".into()));
        }
        extra.extend(certificates);
    }
    if !extra.is_empty() {
        builder = builder.tls_certs_merge(extra);
    }
    if let Some(ClientCertificate { certificate, key }) = &settings.client_certificate {
        let failed = |source| Failure::CertificateFile { path: certificate.clone(), source };
        let mut pem = read_pem(certificate).map_err(|error| failed(error.into()))?;
        pem.push(b'\n');
        let key_pem = read_pem(key).map_err(|error| Failure::CertificateFile {
            path: key.clone(),
            source: error.into(),
        })?;
        pem.extend_from_slice(&key_pem);
        builder = builder.identity(Identity::from_pem(&pem).map_err(|error| failed(error.into()))?);
    }
    builder
        .tls_danger_accept_invalid_certs(settings.insecure_skip_verify)
        .build()
        .map_err(Failure::Tls)
}

fn read_pem(path: &std::path::Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    use std::io::Read as _;
    let mut bytes = Zeroizing::new(Vec::new());
    std::fs::File::open(path)?.take(MAX_PEM).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_api_is() {
        for (host, expected) in [
            ("docker.io", "https://registry-1.docker.io/"),
            ("index.docker.io", "https://registry-1.docker.io/"),
            ("ghcr.io", "https://ghcr.io/"),
            ("localhost:5000", "http://localhost:5000/"),
            ("127.0.0.1:5000", "http://127.0.0.1:5000/"),
            ("[::1]:5000", "http://[::1]:5000/"),
            ("r.example:444", "https://r.example:444/"),
        ] {
            let host: Host = host.parse().unwrap();
            assert_eq!(api_url(&host, &HostSettings::default()).unwrap().as_str(), expected);
        }
        let plain = HostSettings { plain_http: Some(true), ..HostSettings::default() };
        assert_eq!(
            api_url(&"r.example".parse().unwrap(), &plain).unwrap().as_str(),
            "http://r.example/"
        );
    }

    #[test]
    fn a_bad_certificate_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        for content in [None, Some("no certificate here")] {
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            let settings = HostSettings { ca: vec![path.clone()], ..HostSettings::default() };
            let error = build(&settings, true, false).unwrap_err();
            assert!(error.to_string().contains("ca.pem"), "{error}");
        }
    }
}
