//! `portolan agent logs ID`

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use portolan_agent::id::InstanceId;

use super::{Agent, failure};
use crate::exit::{Exit, Failure};
use crate::format::printable;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan agent logs web-1 --tail 20\n  portolan agent logs web-1 -f | grep error\n\nOn a terminal, what would move the cursor or colour the text is shown and not done; --raw does it."
)]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// The instance's name
    id: InstanceId,
    /// Go on until the instance stops
    #[arg(short, long)]
    follow: bool,
    /// Only this many lines from the end
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Every byte as it is, also on a terminal
    #[arg(long)]
    raw: bool,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let client = args.agent.client();
    let console = client.console(&args.id, args.tail, args.follow).await;
    let mut console = console.map_err(failure)?;
    let mut out = std::io::stdout().lock();
    let mut filter = (out.is_terminal() && !args.raw).then(Filter::default);
    while let Some(bytes) = console.next().await {
        let bytes = bytes.map_err(failure)?;
        let written = match &mut filter {
            None => out.write_all(&bytes),
            Some(filter) => out.write_all(filter.push(&bytes).as_bytes()),
        };
        match written.and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader has had enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            Err(error) => {
                let error = anyhow::Error::new(error).context("write to stdout");
                return Err(Failure::new(Exit::Transport, error));
            }
        }
    }
    let rest = filter.map(|filter| filter.pending).unwrap_or_default();
    let rest = String::from_utf8_lossy(&rest);
    out.write_all(rest.as_bytes())
        .context("write to stdout")
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    Ok(Exit::Ok)
}

/// A guest's bytes as a terminal may show them. A character may come in two pieces.
#[derive(Debug, Default)]
struct Filter {
    pending: Vec<u8>,
}

impl Filter {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.pending) {
            // Only a piece of a character at the very end is waited for.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.pending.len(),
        };
        let rest = self.pending.split_off(whole);
        let text = String::from_utf8_lossy(&self.pending).replace("\r\n", "\n");
        self.pending = rest;
        printable(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_in_pieces_are_shown_whole_and_tricks_are_shown_as_text() {
        let mut filter = Filter::default();
        assert_eq!(filter.push(b"caf\xc3"), "caf");
        assert_eq!(filter.push(b"\xa9\r\n"), "é\n");
        assert_eq!(filter.push(b"\x1b[2Jx"), "\\u{1b}[2Jx");
        assert_eq!(filter.push(b"\xff!"), "\u{fffd}!");
    }
}
