//! The lease that one of all copies holds. kube has no leader election; this is the small part of
//! it that is needed (docs/decisions/0013-one-acts-from-caches.md).

pub mod state;

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use portolan_core::causes::chain;
use tokio::time::{sleep, timeout};

use self::state::{Candidate, PAUSE, RENEW_DEADLINE, Step};
use crate::write::MANAGER;

/// What it is called.
pub const NAME: &str = "portolan-controller";

/// One copy and the lease.
pub(crate) struct Keeper {
    api: Api<Lease>,
    candidate: Candidate,
    namespace: String,
}

impl Keeper {
    pub(crate) fn new(client: Client, namespace: &str, me: String) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, candidate: Candidate::new(me), namespace: namespace.to_owned() }
    }

    /// Waits until this copy leads. Since when it does is from before the write: others may count
    /// from any moment after.
    pub(crate) async fn acquire(&mut self) -> Instant {
        let mut told = false;
        loop {
            let began = Instant::now();
            match self.try_once().await {
                Ok(true) => return began,
                Ok(false) if !told => {
                    told = true;
                    tracing::info!(lease = NAME, "another copy acts; standing by");
                }
                Ok(false) => {}
                Err(error) => {
                    let (error, namespace) = (chain(&error), &self.namespace);
                    tracing::warn!(error, lease = NAME, namespace, "the lease cannot be had");
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Renews it until it is lost. Whatever is done as the one that leads is done beside this.
    pub(crate) async fn hold(&mut self, since: Instant) {
        let mut renewed = since;
        loop {
            sleep(PAUSE.min(RENEW_DEADLINE.saturating_sub(renewed.elapsed()))).await;
            let began = Instant::now();
            let left = RENEW_DEADLINE.saturating_sub(began.duration_since(renewed));
            match timeout(left, self.try_once()).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = chain(&error),
                        lease = NAME,
                        "the lease cannot be renewed"
                    );
                }
                Err(_) => {}
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return;
            }
        }
    }

    /// Gives it back, so that another copy need not wait.
    pub(crate) async fn release(&mut self) {
        let given = async {
            let Some(mut lease) = self.api.get_opt(NAME).await? else { return Ok(()) };
            let spec = lease.spec.take().unwrap_or_default();
            if let Some(free) = self.candidate.release(&spec, Timestamp::now()) {
                lease.spec = Some(free);
                self.api.replace(NAME, &params(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        if let Ok(Err(error)) = timeout(PAUSE, given).await {
            tracing::warn!(error = chain(&error), "the lease was not given back; it runs out");
        }
    }

    /// Whether this copy leads now. Whoever writes over a version that was replaced meanwhile is told
    /// so by the server: of two that try at once one leads.
    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let found = self.api.get_opt(NAME).await?;
        let spec: Option<&LeaseSpec> = found.as_ref().and_then(|lease| lease.spec.as_ref());
        let step = self.candidate.step(spec, Instant::now(), Timestamp::now());
        let Step::Take(spec) = step else { return Ok(false) };
        let written = match found {
            None => {
                let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(*spec) };
                self.api.create(&params(), &lease).await
            }
            Some(found) => {
                let lease = Lease { spec: Some(*spec), ..found };
                self.api.replace(NAME, &params(), &lease).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(told)) if told.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Answer, client};

    #[tokio::test]
    async fn a_lease_counts_from_before_its_last_write_and_not_a_moment_longer() {
        let (client, _) = client(|_| Answer::Silence);
        let mut keeper = Keeper::new(client, "team", "one".to_owned());
        let rest = Duration::from_millis(300);
        let begin = Instant::now();
        let since = begin.checked_sub(RENEW_DEADLINE).unwrap() + rest;
        timeout(PAUSE, keeper.hold(since)).await.expect("it was lost earlier");
        assert!(begin.elapsed() >= rest, "it counts that long");
    }

    #[tokio::test]
    async fn who_takes_a_lease_leads_since_before_it_was_written() {
        let answered = Duration::from_millis(200);
        let (client, _) = client(move |asked| match asked.starts_with("GET") {
            true => Answer::NoObject,
            false => {
                std::thread::sleep(answered);
                Answer::Is(serde_json::json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": NAME, "namespace": "team"},
                }))
            }
        });
        let mut keeper = Keeper::new(client, "team", "one".to_owned());
        let since = keeper.acquire().await;
        assert!(since.elapsed() >= answered);
    }
}
