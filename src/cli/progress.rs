//! A bar on stderr, when there is a terminal and the work takes long enough.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

/// Work shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar that appears late or never.
pub struct Progress {
    start: Instant,
    is_seen: bool,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    /// Starts the clock.
    pub fn new() -> Self {
        Self { start: Instant::now(), is_seen: std::io::stderr().is_terminal(), bar: OnceLock::new() }
    }

    /// Takes note of `done` of `all`.
    pub fn at(&self, done: u64, all: u64) {
        if self.is_seen && self.start.elapsed() > PATIENCE {
            self.bar.get_or_init(|| ProgressBar::new(all)).set_position(done);
        }
    }

    /// Wipes the bar.
    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
