//! The loop that makes it so, one for each instance that needs it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::decide::{Have, Step, Want, decide};
use super::disks::{NoRootDisk, RootDisk};
use super::{Entry, Inner, Record, blocking, folder, load, state};
use crate::api::Phase;
use crate::reason::Reason;
use crate::spec::{DesiredState, WorkloadSpec};
use crate::vmm::files::EndReport;
use crate::vmm::{Found, Launch, LaunchError, Machine, files, look, remove};
use portolan_core::causes::chain;

/// How often a doubt is looked into again, and a removal that failed is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Whether a machine is wanted that has not run its course.
pub(super) fn wants_machine(record: &Record) -> bool {
    !record.deleting
        && record.broken.is_none()
        && record.spec.desired_state == DesiredState::Running
        && record.state.settled.as_deref() != Some(state::fingerprint(&record.spec).as_str())
}

/// Starts the loop for an instance unless it runs.
pub(super) fn ensure(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    let mut record = entry.record();
    if !std::mem::replace(&mut record.working, true) {
        let worker = Worker { inner: Arc::clone(inner), entry: Arc::clone(entry), have: None };
        tokio::spawn(worker.run());
    }
}

struct Worker {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    /// Looked up where it is not known.
    have: Option<Known>,
}

enum Known {
    Nothing,
    Machine(Machine),
    Unsure,
}

impl Worker {
    async fn run(mut self) {
        loop {
            if self.have.is_none() {
                self.have = Some(self.find().await);
            }
            let (spec, changed, step) = self.next();
            match step {
                Step::Rest => {
                    let mut record = self.entry.record();
                    if changed.is_cancelled() {
                        continue;
                    }
                    record.working = false;
                    return;
                }
                Step::Start => self.have = self.start(&spec, &changed).await,
                Step::Watch => self.watch(&changed).await,
                Step::Stop => self.stop().await,
                Step::Settle => {
                    self.settle().await;
                    let mut record = self.entry.record();
                    if !changed.is_cancelled() {
                        record.working = false;
                        return;
                    }
                }
                Step::Remove => {
                    if self.remove().await {
                        return;
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Step::LookAgain => {
                    tokio::select! {
                        () = tokio::time::sleep(LOOK_AGAIN) => {}
                        () = changed.cancelled() => {}
                    }
                    self.have = None;
                }
            }
        }
    }

    /// One consistent look at what is wanted, and what is to be done for it.
    fn next(&self) -> (Arc<WorkloadSpec>, CancellationToken, Step) {
        let record = self.entry.record();
        let fingerprint = state::fingerprint(&record.spec);
        let want = match (&record.broken, record.deleting, record.spec.desired_state) {
            (_, true, _) => Want::Deleted,
            (Some(_), ..) => Want::Unknown,
            (.., DesiredState::Running) => Want::Running(&fingerprint),
            (.., DesiredState::Stopped) => Want::Stopped,
        };
        let settled = record.state.settled.as_deref();
        let have = match &self.have {
            Some(Known::Nothing) => Have::Nothing { settled },
            Some(Known::Machine(_)) => {
                Have::Machine(record.state.started.as_deref().unwrap_or_default())
            }
            Some(Known::Unsure) | None => Have::Unsure,
        };
        (Arc::clone(&record.spec), record.changed.clone(), decide(want, have))
    }

    /// Looks for a machine that an earlier agent started, or that a start which was given up left.
    async fn find(&self) -> Known {
        if !load::may_have_machine(&self.entry.dir) {
            return Known::Nothing;
        }
        match look(&self.entry.dir).await {
            Ok(Found::Nothing(end)) => {
                self.missed(end).await;
                Known::Nothing
            }
            Ok(Found::Running(machine)) => self.adopt(machine).await,
            Ok(Found::Unsure(why)) => {
                self.doubt(why).await;
                Known::Unsure
            }
            Err(error) => {
                self.doubt(format!("cannot tell whether its machine runs: {error}")).await;
                Known::Unsure
            }
        }
    }

    /// The machine ended while nobody watched. One that the host took along when it went down is
    /// started again; any other has run its course.
    async fn missed(&self, end: Option<EndReport>) {
        let host_went_down = {
            let record = self.entry.record();
            record.state.boot.as_deref() != Some(self.inner.boot.as_str())
        };
        let ran = matches!(self.entry.record().state.phase, Phase::Running);
        match end {
            Some(end) => self.ended(Some(end)).await,
            None if ran && !host_went_down => self.ended(None).await,
            // It was on its way up, or went down with the host: begin again.
            None => self.clear_run().await,
        }
    }

    async fn adopt(&self, machine: Machine) -> Known {
        let changed = self.entry.record().changed.clone();
        match self.inner.vmm.adopt(machine, &changed).await {
            Ok(machine) => {
                tracing::info!(instance_id = %self.entry.id, "a running machine was taken over");
                self.set(|state| state.phase = Phase::Running).await;
                Known::Machine(machine)
            }
            Err(error) => {
                tracing::info!(
                    instance_id = %self.entry.id, error = %chain(&error),
                    "a machine that was not up yet was ended"
                );
                self.clear_run().await;
                Known::Nothing
            }
        }
    }

    async fn doubt(&self, why: String) {
        tracing::error!(instance_id = %self.entry.id, why, "nothing is started for this instance");
        self.set(|state| state.fail(Reason::StartFailed, why)).await;
    }

    async fn start(&self, spec: &WorkloadSpec, changed: &CancellationToken) -> Option<Known> {
        let fingerprint = state::fingerprint(spec);
        self.set(|state| state.begin(&fingerprint)).await;
        // Again: the file may have been changed by hand since it was put.
        let image = match spec.check() {
            Ok(image) => image,
            Err(error) => return self.failed(error.reason(), chain(&error)).await,
        };
        let digest = image.resolved_digest;
        tracing::info!(instance_id = %self.entry.id, resolved_digest = %digest, "starts");
        let disk = match self.inner.disks.acquire(&self.entry.id, &image, changed).await {
            Ok(disk) => disk,
            Err(NoRootDisk::Cancelled) => return Some(Known::Nothing),
            Err(NoRootDisk::Failed { reason, message }) => {
                if changed.is_cancelled() {
                    return Some(Known::Nothing);
                }
                return self.failed(reason, message).await;
            }
        };
        self.starting(&disk).await;
        let launch = Launch {
            id: &self.entry.id,
            dir: &self.entry.dir,
            spec,
            image: &disk.config,
            root_disk: &disk.path,
            cancel: changed,
        };
        match self.inner.vmm.launch(launch).await {
            Ok(machine) => {
                tracing::info!(instance_id = %self.entry.id, resolved_digest = %digest, "runs");
                self.set(|state| {
                    state.to(Phase::Running);
                    state.started_at = Some(Timestamp::now());
                })
                .await;
                Some(Known::Machine(machine))
            }
            // Somebody knows better: look.
            Err(LaunchError::Runs) => None,
            Err(LaunchError::Cancelled) => {
                self.clear_run().await;
                Some(Known::Nothing)
            }
            Err(error) => {
                let reason = if error.is_full() { Reason::DiskFull } else { Reason::StartFailed };
                self.failed(reason, chain(&error)).await
            }
        }
    }

    async fn starting(&self, disk: &RootDisk) {
        let boot = self.inner.boot.clone();
        self.set(|state| {
            state.to(Phase::Starting);
            state.rootdisk_key = Some(disk.key.clone());
            state.cached = Some(disk.cached);
            state.boot = Some(boot);
        })
        .await;
    }

    /// It did not work and is not tried again by itself.
    async fn failed(&self, reason: Reason, message: String) -> Option<Known> {
        tracing::warn!(
            instance_id = %self.entry.id, resolved_digest = self.digest(), %reason, message, "failed"
        );
        self.inner.metrics.instance_failed(reason);
        self.set(|state| {
            state.settled.clone_from(&state.started);
            state.fail(reason, message);
        })
        .await;
        self.release().await;
        self.clear_run().await;
        Some(Known::Nothing)
    }

    async fn watch(&mut self, changed: &CancellationToken) {
        let Some(Known::Machine(machine)) = &self.have else { return };
        let end = tokio::select! {
            end = machine.ended() => end,
            () = changed.cancelled() => return,
        };
        self.ended(end).await;
        self.have = Some(Known::Nothing);
    }

    /// Notes how a machine ended by itself, then lets go of what it needed.
    async fn ended(&self, end: Option<EndReport>) {
        self.set(|state| state.end(end.as_ref(), Timestamp::now())).await;
        let (phase, reason, message) = {
            let state = &self.entry.record().state;
            (state.phase, state.reason, state.message.clone())
        };
        tracing::info!(
            instance_id = %self.entry.id, resolved_digest = self.digest(), %phase, message, "ended"
        );
        if let Some(reason) = reason {
            self.inner.metrics.instance_failed(reason);
        }
        self.release().await;
        self.clear_run().await;
    }

    /// Ends the machine because it is not wanted.
    async fn stop(&mut self) {
        let Some(Known::Machine(machine)) = &self.have else { return };
        tracing::info!(instance_id = %self.entry.id, resolved_digest = self.digest(), "stops");
        match self.inner.vmm.stop(machine).await {
            Ok(end) => {
                self.set(|state| {
                    state.end(end.as_ref(), Timestamp::now());
                    state.settled = None;
                    state.to(Phase::Stopped);
                })
                .await;
                self.release().await;
                self.clear_run().await;
                self.have = Some(Known::Nothing);
            }
            Err(error) => {
                self.doubt(format!("its machine cannot be ended: {error}")).await;
                self.have = Some(Known::Unsure);
            }
        }
    }

    /// Nothing runs and nothing should.
    async fn settle(&self) {
        self.release().await;
        self.change(|record| {
            record.state.settled = None;
            // Wanted running again meanwhile, it waits for that and has not stopped.
            if !wants_machine(record) {
                record.state.to(Phase::Stopped);
            }
        })
        .await;
    }

    /// Removes every trace; false where it must be tried again. The pin goes before the folder: as
    /// long as the folder is there, the deletion is resumed by whoever finds it.
    async fn remove(&self) -> bool {
        if !self.release().await {
            return false;
        }
        let dir = self.entry.dir.clone();
        match blocking(move || folder::remove(&dir)).await {
            Ok(true) => {
                tracing::info!(instance_id = %self.entry.id, "deleted");
                self.inner.count(Some(self.entry.record().state.phase), None);
                self.inner.forget(&self.entry.id);
                self.inner.changed();
                self.entry.gone.send_replace(true);
                true
            }
            Ok(false) => {
                self.doubt("its machine's lock is held although no machine was found".to_owned())
                    .await;
                false
            }
            Err(error) => {
                self.doubt(format!("its folder cannot be removed: {error}")).await;
                false
            }
        }
    }

    /// Gives the root disk back; false where that must be tried again. A pin too many costs room,
    /// never an instance.
    async fn release(&self) -> bool {
        match self.inner.disks.release(&self.entry.id).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(instance_id = %self.entry.id, error, "a root disk stays held");
                false
            }
        }
    }

    /// Removes what says that a machine may be there, after its end was noted. The console and the
    /// scratch disk stay until the next start: people want to look at them.
    async fn clear_run(&self) {
        let dir = self.entry.dir.clone();
        let cleared = blocking(move || {
            let names =
                [files::RUNNING, files::INITRAMFS, files::SOCKET, files::VMM_PIPE, files::ORDERS];
            names.into_iter().try_for_each(|name| remove(&dir.join(name)))
        });
        if let Err(error) = cleared.await {
            // The next look finds that nothing runs, once more.
            tracing::warn!(instance_id = %self.entry.id, %error, "files of an ended machine stay");
        }
    }

    /// Changes the state, in memory and on disk. A disk that does not take it must not keep a
    /// machine from being ended; the next agent sees the machine itself.
    async fn set(&self, change: impl FnOnce(&mut state::State)) {
        self.change(|record| change(&mut record.state)).await;
    }

    async fn change(&self, change: impl FnOnce(&mut Record)) {
        let shown = |state: &state::State| (state.phase, state.reason, state.started_at);
        let (before, state) = {
            let mut record = self.entry.record();
            let before = shown(&record.state);
            change(&mut record);
            self.inner.count(Some(before.0), Some(record.state.phase));
            (before, record.state.clone())
        };
        if before != shown(&state) {
            self.inner.changed();
        }
        let dir = self.entry.dir.clone();
        if let Err(error) = blocking(move || state::write_state(&dir, &state)).await {
            tracing::warn!(
                instance_id = %self.entry.id, error = %chain(&error), "an instance's state is not on disk"
            );
        }
    }

    fn digest(&self) -> Option<String> {
        self.entry.record().spec.image.resolved_digest.clone()
    }
}
