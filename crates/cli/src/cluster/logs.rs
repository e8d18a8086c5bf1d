//! What the pods of a run have written.

use futures_util::AsyncReadExt as _;
use kube::api::LogParams;
use portolan_api::build::BuildRun;
use portolan_api::k8s_openapi::api::core::v1::Pod;
use portolan_api::{ResourceExt as _, keys};
use portolan_build::request::pods::{self, PodView, Progress};
use tokio::sync::mpsc;

use crate::cluster::Cluster;
use crate::cluster::screen::Screen;
use crate::exit::Failure;

/// A line that is longer is cut: nobody reads it, and it may never end.
const MAX_LINE: usize = 64 * 1024;

/// One step of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) pod: String,
    pub(crate) container: String,
    /// What its lines begin with: `linux/arm64:build`.
    pub(crate) label: String,
}

/// A line, and where it is from.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) text: String,
}

/// The steps that have something to say, in the order in which they come.
pub(crate) fn begun(pods: &[PodView]) -> Vec<Place> {
    let of = |pod: &PodView| {
        let (name, label) = (pod.name.clone(), pod.part.label().to_owned());
        let begun = pod.containers.iter().filter(|c| !matches!(c.progress, Progress::Waiting(_)));
        let places = begun.map(move |container| Place {
            pod: name.clone(),
            container: container.name.clone(),
            label: format!("{label}:{}", container.step()),
        });
        places.collect::<Vec<_>>()
    };
    pods.iter().flat_map(of).collect()
}

/// The pods of a run.
pub(crate) async fn pods(cluster: &Cluster, run: &BuildRun) -> Result<Vec<PodView>, Failure> {
    let selector = format!("{}={}", keys::BUILD_RUN_NAME, run.name_any());
    let found: Vec<Pod> = cluster.list(&cluster.here(), Some(&selector)).await?;
    Ok(pods::view(run, &found))
}

/// Prints all that was written so far. Returns how many steps had something to say.
pub(crate) async fn print(
    cluster: &Cluster,
    run: &BuildRun,
    screen: &Screen,
) -> Result<usize, Failure> {
    let places = begun(&pods(cluster, run).await?);
    for place in &places {
        let (send, mut receive) = mpsc::channel(256);
        let read = read(cluster.clone(), place.clone(), false, send);
        let show = async {
            while let Some(Line { label, text }) = receive.recv().await {
                screen.line(&label, &text)?;
            }
            Ok::<(), Failure>(())
        };
        let (read, shown) = tokio::join!(read, show);
        read?;
        shown?;
    }
    Ok(places.len())
}

/// Reads the log of one step to its end, and on while it is written if it is followed.
pub(crate) async fn read(
    cluster: Cluster,
    place: Place,
    follow: bool,
    to: mpsc::Sender<Line>,
) -> Result<(), Failure> {
    let api = cluster.here::<Pod>();
    let container = Some(place.container.clone());
    let params = LogParams { container, follow, ..LogParams::default() };
    let what = format!("read the log of {} in {}", place.container, place.pod);
    let mut log = cluster.ask(&what, api.log_stream(&place.pod, &params)).await?;
    let mut splitter = Splitter::default();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = log.read(&mut buffer).await.map_err(|error| {
            let error = anyhow::Error::new(error).context(format!("cannot {what} to its end"));
            Failure::new(crate::exit::Exit::Transport, error)
        })?;
        let lines = match read {
            0 => splitter.rest(),
            read => splitter.push(&buffer[..read]),
        };
        for text in lines {
            let line = Line { label: place.label.clone(), text };
            if to.send(line).await.is_err() {
                return Ok(());
            }
        }
        if read == 0 {
            return Ok(());
        }
    }
}

/// Bytes as they come, to lines.
#[derive(Debug, Default)]
struct Splitter {
    line: Vec<u8>,
    /// Whether the rest of a line that is too long is passed over.
    cut: bool,
}

impl Splitter {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            if !self.cut {
                let room = MAX_LINE - self.line.len();
                self.line.extend(&text[..text.len().min(room)]);
                self.cut = text.len() > room;
            }
            if ended {
                lines.push(self.take());
            }
        }
        lines
    }

    fn take(&mut self) -> String {
        let cut = std::mem::take(&mut self.cut);
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let mut text = String::from_utf8_lossy(line).into_owned();
        if cut {
            text.push_str(" …");
        }
        text
    }

    fn rest(&mut self) -> Vec<String> {
        if self.line.is_empty() && !self.cut { Vec::new() } else { vec![self.take()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_their_bytes_come() {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for piece in ["on", "e\r\ntw", "o\n\nthr", "ee"] {
            lines.extend(splitter.push(piece.as_bytes()));
        }
        lines.extend(splitter.rest());
        assert_eq!(lines, ["one", "two", "", "three"]);
        assert_eq!(splitter.rest(), [""; 0]);
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut splitter = Splitter::default();
        for _ in 0..100 {
            assert_eq!(splitter.push(&[b'x'; 4096]), [""; 0]);
            assert!(splitter.line.len() <= MAX_LINE);
        }
        let lines = splitter.push(b"x\nnext\n");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with(" …") && lines[0].len() < MAX_LINE + 8);
        assert_eq!(lines[1], "next");
    }
}
