//! What a build shows while it runs: one bar on a terminal, a line per layer elsewhere.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use portolan_rootdisk::build::{LayerInput, Phase, Watch};
use tokio_util::sync::CancellationToken;

use crate::format::{self, size};
use crate::progress::Mode;

/// Who listens to a build in this mode; `cancel` gives it up.
pub(super) fn listener(
    mode: Mode,
    layers: &[LayerInput],
    cancel: CancellationToken,
) -> Arc<dyn Watch> {
    match mode {
        Mode::None => Arc::new(Silent(cancel)),
        Mode::Auto if std::io::stderr().is_terminal() => {
            Arc::new(Bar::new(ProgressDrawTarget::stderr(), layers, cancel))
        }
        Mode::Auto | Mode::Plain => Arc::new(Lines::new(layers, cancel)),
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Layers => "layers",
        Phase::Filesystem => "file system",
        Phase::Verity => "hash tree",
        Phase::Flush => "flush",
    }
}

/// All sizes together. They are a stranger's numbers, so they may be absurd.
fn total(layers: &[LayerInput]) -> u64 {
    layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.descriptor.size))
}

struct Silent(CancellationToken);

impl Watch for Silent {
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Compressed bytes taken in, of all layers together.
struct Bar {
    bar: ProgressBar,
    files: AtomicU64,
    cancel: CancellationToken,
}

impl Bar {
    fn new(target: ProgressDrawTarget, layers: &[LayerInput], cancel: CancellationToken) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total(layers)), target);
        let template = "{prefix:12} {bar:32} {binary_bytes:>10} / {binary_total_bytes:10} {msg}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.expect("the template is a constant that works").progress_chars("█▌░"));
        Self { bar, files: AtomicU64::new(0), cancel }
    }
}

impl Watch for Bar {
    fn bytes(&self, _layer: usize, more: u64) {
        self.bar.inc(more);
    }

    fn files(&self, more: u64) {
        if more > 0 {
            let files = self.files.fetch_add(more, Ordering::Relaxed) + more;
            self.bar.set_message(format!("{files} files"));
        }
    }

    fn phase(&self, phase: Phase) {
        self.bar.set_prefix(word(phase));
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// For logs: nothing moves, each layer is told once.
struct Lines {
    layers: Vec<LayerInput>,
    done: AtomicUsize,
    cancel: CancellationToken,
}

impl Lines {
    fn new(layers: &[LayerInput], cancel: CancellationToken) -> Self {
        format::tell(&format!("{} layers, {}", layers.len(), size(total(layers))));
        Self { layers: layers.to_vec(), done: AtomicUsize::new(0), cancel }
    }
}

impl Watch for Lines {
    fn layer_done(&self, layer: usize) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let blob = &self.layers[layer].descriptor;
        let all = self.layers.len();
        format::tell(&format!("[{done}/{all}] {} {}", blob.digest.short(), size(blob.size)));
    }

    fn phase(&self, phase: Phase) {
        if phase != Phase::Layers {
            format::tell(word(phase));
        }
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;
    use portolan_core::{Descriptor, Digest};

    use super::*;

    #[test]
    fn the_bar_tells_phase_bytes_and_files() {
        let blob = Descriptor::of("any", &[7; 2048]);
        let layer = LayerInput { descriptor: blob, diff_id: Digest::sha256(b"") };
        let term = InMemoryTerm::new(5, 100);
        let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
        let bar = Bar::new(target, &[layer.clone(), layer], CancellationToken::new());
        bar.phase(Phase::Layers);
        bar.bytes(1, 1024);
        bar.files(12);
        bar.bar.force_draw();
        let screen = term.contents();
        assert!(screen.contains("1.00 KiB / 4.00 KiB"), "{screen}");
        assert!(screen.starts_with("layers") && screen.contains("12 files"), "{screen}");
        assert!(!bar.cancelled());
    }
}
