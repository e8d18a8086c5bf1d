//! `[api]`, `[mirror]` and `[report]`: who may ask the agent, and whom it tells.

use std::net::SocketAddr;
use std::path::PathBuf;

use portolan_registry::serving::TlsFiles;
use serde::{Deserialize, Serialize};

use super::Span;

/// The permission bits of the socket, as chmod takes them: `"0660"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(pub u32);

impl TryFrom<String> for Mode {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "a mode is three or four octal digits such as \"0660\"";
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(&text, 8).ok().filter(|_| digits).ok_or(WRONG)?;
        if mode > 0o777 { Err(WRONG) } else { Ok(Self(mode)) }
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        format!("{:04o}", mode.0)
    }
}

/// Who may use the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// The socket's permission bits: `"0600"`, for its owner alone. With `"0660"` for its group, too.
    pub socket_mode: Mode,
    /// Also listen on this address; not set: only on the socket. Needs all three files below.
    pub listen: Option<SocketAddr>,
    /// The certificate, followed by those that vouch for it. Read again when it changes.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Clients must have a certificate that one of these vouches for.
    pub client_ca: Option<PathBuf>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            socket_mode: Mode(0o600),
            listen: None,
            certificate: None,
            key: None,
            client_ca: None,
        }
    }
}

impl ApiConfig {
    /// Address and files of the listener on the network.
    pub fn network(&self) -> Option<(SocketAddr, TlsFiles)> {
        let files = TlsFiles {
            client_ca: Some(self.client_ca.clone()?),
            ..TlsFiles::new(self.certificate.clone()?, self.key.clone()?)
        };
        Some((self.listen?, files))
    }

    fn contradiction(&self) -> Option<&'static str> {
        let files = [&self.certificate, &self.key, &self.client_ca];
        let given = files.iter().filter(|file| file.is_some()).count();
        match (self.listen, given) {
            (Some(_), 3) | (None, 0) => None,
            (Some(_), _) => Some(
                "api.listen needs api.certificate, api.key and api.client_ca: the API is offered on the network only with certificates on both sides",
            ),
            (None, _) => Some("api.certificate, api.key and api.client_ca need api.listen"),
        }
    }
}

/// Whether other hosts may read the verified cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorConfig {
    /// Listen on this address; not set: no mirror.
    pub listen: Option<SocketAddr>,
    /// Serve HTTPS with this certificate; not set: HTTP. Clients verify every byte by its digest.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Let in only clients with a certificate that one of these vouches for.
    pub client_ca: Option<PathBuf>,
}

impl MirrorConfig {
    /// The files of HTTPS.
    pub fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            client_ca: self.client_ca.clone(),
            ..TlsFiles::new(self.certificate.clone()?, self.key.clone()?)
        })
    }

    fn contradiction(&self) -> Option<&'static str> {
        match (&self.listen, &self.certificate, &self.key, &self.client_ca) {
            (Some(_), Some(_), Some(_), _) | (_, None, None, None) => None,
            (None, ..) => {
                Some("mirror.certificate, mirror.key and mirror.client_ca need mirror.listen")
            }
            _ => Some("mirror.certificate and mirror.key go together, mirror.client_ca needs both"),
        }
    }
}

/// Whom the agent tells how it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// What this host is called; not set: `NODE_NAME` of the environment, else the host name.
    pub name: Option<String>,
    /// How often at least; a change is told at once: `"1m"`.
    pub interval: Span,
    /// POST the status report here; not set: to nobody. `https`, or `http` to this machine.
    pub url: Option<String>,
    /// A file with a bearer token for it. Read for every report.
    pub token_file: Option<PathBuf>,
    /// Trust only these certificates; not set: those of the system.
    pub ca_file: Option<PathBuf>,
    /// `[report.node]`: keep conditions of this Kubernetes node; not set: no.
    pub node: Option<NodeConfig>,
}

/// The Kubernetes node whose conditions are kept, and the API server that it is at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// The API server; not set: as a pod finds it (`KUBERNETES_SERVICE_HOST`).
    pub server: Option<String>,
    /// The token; not set: the service account's. Read for every report.
    pub token_file: Option<PathBuf>,
    /// The certificate that vouches for the API server; not set: the service account's.
    pub ca_file: Option<PathBuf>,
    /// Keep new pods away while the image cache has no room, by the taint
    /// `portolan.dev/image-cache-pressure:NoSchedule`: false.
    pub taint: bool,
    /// Publish what this machine is as labels of the node, those of `portolan host facts --node-labels`: false.
    pub labels: bool,
}

impl Default for ReportConfig {
    fn default() -> Self {
        Self {
            name: None,
            interval: Span::seconds(60),
            url: None,
            token_file: None,
            ca_file: None,
            node: None,
        }
    }
}

impl ReportConfig {
    fn contradiction(&self) -> Option<&'static str> {
        if self.interval < Span::seconds(1) {
            return Some("report.interval is at least 1s");
        }
        if self.url.is_none() && (self.token_file.is_some() || self.ca_file.is_some()) {
            return Some("report.token_file and report.ca_file need report.url");
        }
        let urls = [self.url.as_deref(), self.node.as_ref().and_then(|n| n.server.as_deref())];
        urls.into_iter().flatten().find_map(url_problem)
    }
}

/// Reports carry a token and what runs here; neither crosses a network in the clear.
fn url_problem(text: &str) -> Option<&'static str> {
    let Ok(url) = url::Url::parse(text) else {
        return Some("report.url and report.node.server are URLs such as https://host/path");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Some("report.url and report.node.server hold no password; use a token_file");
    }
    let loopback = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => None,
        "http" if loopback => None,
        _ => Some("report.url and report.node.server are https, or http to this machine"),
    }
}

/// What does not go together in any of the three.
pub(super) fn contradiction(
    api: &ApiConfig,
    mirror: &MirrorConfig,
    report: &ReportConfig,
) -> Option<&'static str> {
    api.contradiction().or_else(|| mirror.contradiction()).or_else(|| report.contradiction())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, ConfigError};

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("agent.toml"))
    }

    #[test]
    fn the_network_is_offered_only_with_certificates_on_both_sides() {
        let three = "certificate = \"c\"\nkey = \"k\"\nclient_ca = \"a\"";
        let whole = format!("[api]\nlisten = \"127.0.0.1:0\"\n{three}");
        assert!(parse(&whole).unwrap().api.network().is_some());
        for text in [
            "[api]\nlisten = \"0.0.0.0:7443\"".to_owned(),
            "[api]\nlisten = \"0.0.0.0:7443\"\ncertificate = \"c\"\nkey = \"k\"".to_owned(),
            format!("[api]\n{three}"),
        ] {
            assert!(matches!(parse(&text), Err(ConfigError::Contradiction { .. })), "{text}");
        }
        assert!(parse("").unwrap().api.network().is_none());
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse("[api]\nsocket_mode = \"0600\"").unwrap().api.socket_mode.0, 0o600);
        for bad in ["0688", "1777", "66", "+660", "rw-rw----"] {
            assert!(parse(&format!("[api]\nsocket_mode = \"{bad}\"")).is_err(), "{bad}");
        }
    }

    #[test]
    fn reports_go_over_https_or_stay_here() {
        for good in ["https://control.example/report", "http://127.0.0.1:1/", "http://localhost/"] {
            assert!(parse(&format!("[report]\nurl = \"{good}\"")).is_ok(), "{good}");
        }
        for bad in ["http://control.example/", "control.example", "ftp://x/", "https://u:p@x/"] {
            assert!(parse(&format!("[report]\nurl = \"{bad}\"")).is_err(), "{bad}");
        }
        assert!(parse("[report]\ntoken_file = \"t\"").is_err());
        assert!(parse("[report]\ninterval = 0").is_err());
        assert!(parse("[report.node]\nserver = \"http://10.0.0.1\"").is_err());
        assert!(parse("[report.node]").unwrap().report.node.is_some());
    }

    #[test]
    fn a_mirror_has_a_whole_certificate_or_none() {
        assert!(parse("[mirror]\nlisten = \"0.0.0.0:5000\"").unwrap().mirror.tls().is_none());
        for bad in
            ["certificate = \"c\"", "listen = \"0.0.0.0:1\"\nclient_ca = \"a\"", "key = \"k\""]
        {
            assert!(parse(&format!("[mirror]\n{bad}")).is_err(), "{bad}");
        }
    }
}
