//! A verifier that answers: until it is told to end, or until a part of it ended by itself.
//!
//! A part that ended unseen would leave half a verifier: one that is healthy and answers nobody, or
//! one that goes by a policy, by nodes or by a certificate that nobody looks at any more. So the rest
//! ends with it, and whoever started the program starts it again.

use std::net::SocketAddr;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A verifier that answers.
#[derive(Debug)]
pub struct Running {
    /// Where Gatekeeper asks.
    pub provider: SocketAddr,
    /// Where API servers ask.
    pub admission: SocketAddr,
    /// Health, readiness and metrics.
    pub health: Option<SocketAddr>,
    pub(super) servers: JoinSet<()>,
    /// What looks at files and at the cluster, for ever.
    pub(super) watches: JoinSet<()>,
    pub(super) ending: CancellationToken,
}

/// A part ended that nobody had told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part} ended by itself, and the verifier with it; start it again, and report what the log says"
)]
pub struct Broken {
    part: &'static str,
}

impl Running {
    /// Waits until what was under way when it was told to end is done.
    pub async fn wait(mut self) -> Result<(), Broken> {
        let broken = tokio::select! {
            biased;
            () = self.ending.cancelled() => None,
            _ = self.servers.join_next() => Some("a server"),
            Some(_) = self.watches.join_next() => Some("the watch of policy, nodes or certificate"),
        };
        self.ending.cancel();
        while self.servers.join_next().await.is_some() {}
        self.watches.shutdown().await;
        broken.map_or(Ok(()), |part| Err(Broken { part }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// With a server that ends as they do, and a watch that does not.
    fn running() -> Running {
        let (mut servers, mut watches) = (JoinSet::new(), JoinSet::new());
        let ending = CancellationToken::new();
        let told = ending.clone();
        servers.spawn(async move { told.cancelled().await });
        watches.spawn(std::future::pending());
        let address = "127.0.0.1:1".parse().unwrap();
        Running { provider: address, admission: address, health: None, servers, watches, ending }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_ends_by_itself_ends_all_of_it() {
        let told = running();
        told.ending.cancel();
        assert_eq!(told.wait().await, Ok(()));

        let mut server = running();
        server.servers.spawn(async { panic!("of a test") });
        assert_eq!(server.wait().await, Err(Broken { part: "a server" }));

        let mut watch = running();
        watch.watches.spawn(async {});
        let ended = watch.wait().await.unwrap_err().to_string();
        assert!(ended.contains("watch of policy"), "{ended}");

        let healthy = running().wait();
        assert!(tokio::time::timeout(Duration::from_secs(3600), healthy).await.is_err());
    }
}
