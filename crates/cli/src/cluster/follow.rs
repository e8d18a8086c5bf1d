//! Following a run to its end: rows for its parts, lines of its pods, and one answer.
//!
//! The cluster is asked again and again instead of being listened to: that survives every broken
//! connection, and two short questions in a second are nothing to it.

use std::collections::HashSet;
use std::time::Duration;

use portolan_api::ResourceExt as _;
use portolan_api::build::BuildRun;
use portolan_build::request::progress::{self, Outcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cluster::logs::{self, Line, Place};
use crate::cluster::screen::Screen;
use crate::cluster::{Cluster, screen};
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::Format;
use crate::progress::Mode;

/// How often the cluster is asked.
const EVERY: Duration = Duration::from_millis(500);
/// So many questions in a row may go unanswered.
const PATIENCE: u32 = 10;
/// How long logs may take to come to their end once the run has.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Follows a run and says how it ended. Where a document was asked for, its last state is printed.
pub(crate) async fn follow(
    cluster: &Cluster,
    run: &BuildRun,
    mode: Mode,
    format: Format,
) -> Result<Exit, Failure> {
    let lines = match format {
        Format::Table => screen::Lines::Stdout,
        Format::Json | Format::Yaml => screen::Lines::Stderr,
    };
    let name = run.name_any();
    let mut following = Following::new(cluster, &name, Screen::new(mode, lines));
    let asked = context::asked_to_end()?;
    let ended = tokio::select! {
        ended = following.until_it_ends() => ended?,
        () = asked.cancelled() => {
            following.screen.tell(&format!(
                "BuildRun {name:?} goes on; to stop it: portolan buildrun cancel {name} -n {}",
                cluster.namespace
            ));
            return Ok(Exit::Interrupted);
        }
    };
    if format != Format::Table {
        crate::cluster::created::print(&ended, format, "")?;
    }
    Ok(tell(&name, &progress::outcome(&ended), &following.screen))
}

/// Says how a run ended.
fn tell(name: &str, outcome: &Outcome, screen: &Screen) -> Exit {
    match outcome {
        Outcome::Succeeded(digest) => {
            let digest = digest.as_ref().map(|digest| format!(": {digest}")).unwrap_or_default();
            screen.tell(&format!("BuildRun {name:?} has succeeded{digest}"));
            Exit::Ok
        }
        Outcome::Failed(why) => {
            screen.tell(&format!("BuildRun {name:?} has failed: {why}"));
            Exit::No
        }
        Outcome::Canceled(why) => {
            screen.tell(&format!("BuildRun {name:?} has been canceled: {why}"));
            Exit::No
        }
        Outcome::Going => Exit::CannotTell,
    }
}

struct Following<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    screen: Screen,
    seen: HashSet<Place>,
    readers: JoinSet<Result<(), Failure>>,
    send: mpsc::Sender<Line>,
    receive: mpsc::Receiver<Line>,
}

impl<'a> Following<'a> {
    fn new(cluster: &'a Cluster, name: &'a str, screen: Screen) -> Self {
        let (send, receive) = mpsc::channel(1024);
        let (seen, readers) = (HashSet::new(), JoinSet::new());
        Self { cluster, name, screen, seen, readers, send, receive }
    }

    async fn until_it_ends(&mut self) -> Result<BuildRun, Failure> {
        let mut unanswered = 0;
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(line) = self.receive.recv() => self.screen.line(&line.label, &line.text)?,
                _ = tick.tick() => match self.look().await {
                    Ok(Some(run)) => {
                        self.last_words().await?;
                        return Ok(run);
                    }
                    Ok(None) => unanswered = 0,
                    Err(failure) if failure.exit == Exit::Transport && unanswered < PATIENCE => {
                        unanswered += 1;
                    }
                    Err(failure) => return Err(failure),
                },
            }
        }
    }

    /// Looks once. Returns the run when it has ended.
    async fn look(&mut self) -> Result<Option<BuildRun>, Failure> {
        let run: BuildRun = self.cluster.get(&self.cluster.here(), self.name).await?;
        let pods = logs::pods(self.cluster, &run).await?;
        self.screen.show(&progress::rows(&run, &pods));
        for place in logs::begun(&pods) {
            if self.seen.insert(place.clone()) {
                let (cluster, send) = (self.cluster.clone(), self.send.clone());
                self.readers.spawn(logs::read(cluster, place, true, send));
            }
        }
        Ok((progress::outcome(&run) != Outcome::Going).then_some(run))
    }

    /// What pods wrote last may come after the run's own end.
    async fn last_words(&mut self) -> Result<(), Failure> {
        let late = tokio::time::sleep(LAST_WORDS);
        tokio::pin!(late);
        loop {
            tokio::select! {
                Some(line) = self.receive.recv() => self.screen.line(&line.label, &line.text)?,
                read = self.readers.join_next() => match read {
                    // A log that is gone is no reason to forget how the run ended.
                    Some(Ok(Err(failure))) => {
                        self.screen.tell(&format!("note: {:#}", failure.error));
                    }
                    Some(_) => {}
                    None => break,
                },
                () = &mut late => break,
            }
        }
        while let Ok(line) = self.receive.try_recv() {
            self.screen.line(&line.label, &line.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_run_ended_is_the_exit_code() {
        let screen = Screen::new(Mode::None, screen::Lines::Stderr);
        for (outcome, exit) in [
            (Outcome::Succeeded(None), Exit::Ok),
            (Outcome::Failed("linux/arm64".to_owned()), Exit::No),
            (Outcome::Canceled(String::new()), Exit::No),
        ] {
            assert_eq!(tell("r", &outcome, &screen), exit, "{outcome:?}");
        }
    }
}
