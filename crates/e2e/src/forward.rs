//! A service's port on the host: what kube-proxy does for pods, of which the testbed has none.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::Testbed;

/// Connections to `listen` reach a ready pod of the service, until the test program ends. While the
/// service has no pod they are closed.
#[derive(Debug)]
pub struct Forward {
    namespace: &'static str,
    service: &'static str,
    port: u16,
}

impl Forward {
    /// `port` is that of the pods.
    pub fn start(
        listen: IpAddr,
        namespace: &'static str,
        service: &'static str,
        port: u16,
    ) -> Result<()> {
        let listener = TcpListener::bind((listen, port))
            .with_context(|| format!("listen on {listen}:{port} for the service {service}"))?;
        let forward = Self { namespace, service, port };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Dropped, and so closed, where there is nobody.
                if let Ok(pod) = forward.connect() {
                    join(client, pod);
                }
            }
        });
        Ok(())
    }

    /// Which pod it is may change from one connection to the next.
    fn connect(&self) -> Result<TcpStream> {
        let slices = Testbed::get().kubectl_json(&[
            "get",
            "endpointslices",
            "--namespace",
            self.namespace,
            "--selector",
            &format!("kubernetes.io/service-name={}", self.service),
        ])?;
        let slices = slices["items"].as_array().context("a list")?.iter();
        let endpoints = slices.filter_map(|slice| slice["endpoints"].as_array()).flatten();
        let ready = endpoints
            .filter(|endpoint| endpoint["conditions"]["ready"] == true)
            .find_map(|endpoint| endpoint["addresses"][0].as_str()?.parse::<IpAddr>().ok())
            .context("no pod is ready")?;
        let address = SocketAddr::new(ready, self.port);
        TcpStream::connect_timeout(&address, Duration::from_secs(2))
            .with_context(|| format!("connect to {address}"))
    }
}

/// Copies both ways until one side has enough.
fn join(client: TcpStream, pod: TcpStream) {
    let halves = client.try_clone().and_then(|from| Ok([(from, pod.try_clone()?), (pod, client)]));
    for (mut from, mut to) in halves.into_iter().flatten() {
        std::thread::spawn(move || {
            // However it ends, the other direction ends with it.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
