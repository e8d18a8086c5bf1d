//! Where the API server of this node's cluster is, and by which account it is asked.
//!
//! No client of clusters is linked in: an agent asks for its node and for Releases, and that is a handful of requests.

use std::path::PathBuf;

use url::Url;

use crate::config::NodeConfig;
use crate::endpoint::Endpoint;

/// Where a pod finds what it needs.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Nothing says where the API server is.
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing says where the API server is; set report.node.server, or run as a pod with a service account"
)]
pub struct NoServer;

/// An API server.
#[derive(Debug, Clone)]
pub struct ApiServer {
    /// Without a slash at its end.
    base: String,
    token_file: PathBuf,
    ca_file: PathBuf,
}

impl ApiServer {
    /// The configured one, or the one a pod finds in its environment.
    pub fn new(
        config: &NodeConfig,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, NoServer> {
        let base = match &config.server {
            Some(server) => server.trim_end_matches('/').to_owned(),
            None => in_cluster(variable).ok_or(NoServer)?,
        };
        let account = |file: &str| PathBuf::from(SERVICE_ACCOUNT).join(file);
        let server = Self {
            base,
            token_file: config.token_file.clone().unwrap_or_else(|| account("token")),
            ca_file: config.ca_file.clone().unwrap_or_else(|| account("ca.crt")),
        };
        server.url("/").map(|_| server)
    }

    /// A path of it.
    pub(crate) fn url(&self, path: &str) -> Result<Url, NoServer> {
        format!("{}{path}", self.base).parse().map_err(|_| NoServer)
    }

    /// Connections to it, by the account.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(Some(self.token_file.clone()), Some(self.ca_file.clone()))
    }
}

fn in_cluster(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    // An IPv6 address needs its brackets in a URL.
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_its_api_server_and_outside_of_one_it_has_to_be_named() {
        let pod = |host: &'static str| {
            move |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| host.to_owned())
        };
        let none = NodeConfig::default();
        for (host, expected) in [
            ("10.0.0.1", "https://10.0.0.1/api/v1/nodes/node-1"),
            ("fd00::1", "https://[fd00::1]/api/v1/nodes/node-1"),
        ] {
            let server = ApiServer::new(&none, pod(host)).unwrap();
            assert_eq!(server.url("/api/v1/nodes/node-1").unwrap().as_str(), expected);
        }
        ApiServer::new(&none, |_| None).unwrap_err();
        let named = NodeConfig { server: Some("https://api.example/".to_owned()), ..none };
        let server = ApiServer::new(&named, pod("10.0.0.1")).unwrap();
        assert_eq!(server.url("/api").unwrap().as_str(), "https://api.example/api");
    }
}
