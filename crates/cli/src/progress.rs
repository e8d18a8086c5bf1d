//! What a copy shows while it runs: bars on a terminal, one line per blob elsewhere.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use portolan_core::{Descriptor, Digest};
use portolan_registry::progress::{BlobOutcome, Progress, Silent};

use crate::format::{self, size};

/// How to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Bars on a terminal, lines elsewhere
    Auto,
    /// One line per blob
    Plain,
    /// Nothing
    None,
}

/// Who listens to a copy in this mode.
pub(crate) fn listener(mode: Mode) -> Arc<dyn Progress> {
    match mode {
        Mode::None => Arc::new(Silent),
        Mode::Auto if std::io::stderr().is_terminal() => {
            Arc::new(Bars::new(ProgressDrawTarget::stderr()))
        }
        Mode::Auto | Mode::Plain => Arc::new(Lines::default()),
    }
}

fn word(outcome: BlobOutcome) -> &'static str {
    match outcome {
        BlobOutcome::Present => "present",
        BlobOutcome::Mounted => "mounted",
        BlobOutcome::Linked => "linked",
        BlobOutcome::Copied => "copied",
    }
}

/// All sizes together. They are a stranger's numbers, so they may be absurd.
fn total(blobs: &[Descriptor]) -> u64 {
    blobs.iter().fold(0, |sum, blob| sum.saturating_add(blob.size))
}

/// One bar per blob that moves, and a total at the bottom.
struct Bars {
    screen: MultiProgress,
    total: ProgressBar,
    blobs: Mutex<HashMap<Digest, ProgressBar>>,
}

impl Bars {
    fn new(target: ProgressDrawTarget) -> Self {
        let screen = MultiProgress::with_draw_target(target);
        let total = screen.add(ProgressBar::new(0));
        total.set_style(style(
            "{msg:14} {bar:32} {binary_bytes:>10} / {binary_total_bytes:10} {binary_bytes_per_sec}",
        ));
        total.set_message("total");
        Self { screen, total, blobs: Mutex::default() }
    }

    fn bar(&self, blob: &Descriptor) -> Option<ProgressBar> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner).get(&blob.digest).cloned()
    }

    /// Moves a blob's bar, and the total by as much.
    fn advance(&self, blob: &Descriptor, position: u64) {
        let Some(bar) = self.bar(blob) else { return };
        let before = bar.position();
        bar.set_position(position);
        // A transfer that had to begin again takes back what it had added.
        if position >= before {
            self.total.inc(position - before);
        } else {
            self.total.set_position(self.total.position().saturating_sub(before - position));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the template is a constant that works")
        .progress_chars("█▌░")
}

impl Progress for Bars {
    fn planned(&self, blobs: &[Descriptor]) {
        self.total.inc_length(total(blobs));
    }

    fn started(&self, blob: &Descriptor) {
        let bar = self.screen.insert_before(&self.total, ProgressBar::new(blob.size));
        bar.set_style(style("{msg:14} {bar:32} {binary_bytes:>10} / {binary_total_bytes:10}"));
        bar.set_message(blob.digest.short());
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner).insert(blob.digest, bar);
    }

    fn advanced(&self, blob: &Descriptor, position: u64) {
        self.advance(blob, position);
    }

    fn finished(&self, blob: &Descriptor, outcome: BlobOutcome) {
        self.advance(blob, blob.size);
        if let Some(bar) = self.bar(blob) {
            match outcome {
                // Nothing moved: a full bar that appears at once says nothing.
                BlobOutcome::Present => bar.finish_and_clear(),
                _ => bar.finish_with_message(format!("{} ✓", blob.digest.short())),
            }
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.total.finish_and_clear();
    }
}

/// For logs: nothing moves, each blob is told once.
#[derive(Default)]
struct Lines {
    count: Mutex<(usize, usize)>,
}

impl Progress for Lines {
    fn planned(&self, blobs: &[Descriptor]) {
        // One listener may hear of several copies; their blobs are counted together.
        self.count.lock().unwrap_or_else(PoisonError::into_inner).1 += blobs.len();
        format::tell(&format!("{} blobs, {}", blobs.len(), size(total(blobs))));
    }

    fn finished(&self, blob: &Descriptor, outcome: BlobOutcome) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.0 += 1;
        let (done, all) = *count;
        format::tell(&format!(
            "[{done}/{all}] {} {} {}",
            blob.digest.short(),
            size(blob.size),
            word(outcome)
        ));
    }

    fn stored(&self, manifest: &Descriptor) {
        format::tell(&format!("stored {} {}", manifest.digest, manifest.media_type));
    }
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;
    use portolan_core::media_type;

    use super::*;

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let huge = Descriptor::new("any", Digest::sha256(b""), u64::MAX);
        for mode in [Mode::Plain, Mode::None] {
            listener(mode).planned(&[huge.clone(), huge.clone()]);
        }
        Bars::new(ProgressDrawTarget::hidden()).planned(&[huge.clone(), huge]);
    }

    #[test]
    fn each_blob_has_a_bar_and_there_is_a_total() {
        let term = InMemoryTerm::new(20, 100);
        let bars = Bars::new(ProgressDrawTarget::term_like(Box::new(term.clone())));
        let blob = |size: usize| Descriptor::of(media_type::OCI_CONFIG, &vec![7; size]);
        let (one, two) = (blob(1024), blob(3072));
        bars.planned(&[one.clone(), two.clone()]);
        bars.started(&one);
        bars.started(&two);
        bars.advanced(&two, 1024);
        bars.finished(&one, BlobOutcome::Copied);
        let screen = term.contents();
        let line = |name: &str| {
            let found = screen.lines().find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("no line for {name} in:\n{screen}"))
        };
        assert!(line(&one.digest.short()).contains("1.00 KiB / 1.00 KiB"), "{screen}");
        assert!(line(&two.digest.short()).contains("/ 3.00 KiB"), "{screen}");
        assert!(line("total").contains("/ 4.00 KiB"), "{screen}");
        assert!(screen.lines().last().is_some_and(|last| last.starts_with("total")), "{screen}");
    }
}
