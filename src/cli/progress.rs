//! Progress bar on stderr, if it is a terminal and the work takes long enough.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

/// Duration of work below which no bar appears.
const PATIENCE: Duration = Duration::from_millis(500);

/// Progress bar that appears after a delay.
pub struct Progress {
    start: Instant,
    /// Whether stderr is a terminal.
    is_seen: bool,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    /// Starts the clock.
    pub fn new() -> Self {
        Self { start: Instant::now(), is_seen: std::io::stderr().is_terminal(), bar: OnceLock::new() }
    }

    /// Sets the progress to `done` of `all`.
    pub fn at(&self, done: u64, all: u64) {
        if self.is_seen && self.start.elapsed() > PATIENCE {
            self.bar.get_or_init(|| ProgressBar::new(all)).set_position(done);
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
