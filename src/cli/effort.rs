//! Limits on the time and the memory of a command.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::output::talk;
use super::ranges;
use meshwright_engine::range;
use meshwright_engine::units::Bytes;

/// Arguments that limit the effort of a command.
#[derive(Clone, Debug, clap::Args)]
pub struct EffortArgs {
    /// Stop after this many seconds, with the optimality gap
    #[arg(long, value_name = "SECONDS", value_parser = ranges::real(range::TIME_LIMIT), help_heading = "Search")]
    time_limit: Option<f64>,
    /// Stop at this much memory, such as "16 GiB" [default: 4 GiB].
    #[arg(long, value_name = "SIZE", help_heading = "Search", hide_short_help = true)]
    memory_limit: Option<Bytes>,
}

/// Memory at which a search stops where the user names none, in GiB.
const MEMORY_GIB: f64 = 4.0;

/// Time from one reading of the process's memory to the next.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Limits of one command, which begin when it starts.
pub struct EffortLimits {
    start: Instant,
    time: Option<Duration>,
    memory: Bytes,
    /// Time of the last reading of the memory, in milliseconds since the start.
    looked: AtomicU64,
    is_late: AtomicBool,
    is_large: AtomicBool,
}

impl EffortArgs {
    /// Starts the clock.
    pub fn start(&self) -> EffortLimits {
        EffortLimits::new(self.time_limit, self.memory_limit)
    }
}

impl EffortLimits {
    /// Limits that begin now: seconds, and memory of this process, of which there is always a limit.
    pub fn new(seconds: Option<f64>, memory: Option<Bytes>) -> Self {
        Self {
            start: Instant::now(),
            time: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            memory: memory.unwrap_or_else(|| Bytes::gib(MEMORY_GIB)),
            looked: AtomicU64::new(0),
            is_late: AtomicBool::new(false),
            is_large: AtomicBool::new(false),
        }
    }

    /// Whether a limit is exceeded; asked by every loop that may take long.
    pub fn is_spent(&self) -> bool {
        let passed = self.start.elapsed();
        if self.time.is_some_and(|limit| passed > limit) {
            self.is_late.store(true, Ordering::Relaxed);
        }
        let now = passed.as_millis() as u64;
        let last = self.looked.load(Ordering::Relaxed);
        let looks = now >= last + LOOK_EVERY.as_millis() as u64
            && self.looked.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if looks && memory_in_use().is_some_and(|bytes| bytes > self.memory) {
            self.is_large.store(true, Ordering::Relaxed);
        }
        self.is_late.load(Ordering::Relaxed) || self.is_large.load(Ordering::Relaxed)
    }

    /// Decision of a search.
    pub fn control(&self) -> ControlFlow<()> {
        if self.is_spent() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Reports on stderr if the memory ended the search.
    pub fn talk(&self) {
        if self.is_large.load(Ordering::Relaxed) {
            talk(&format!(
                "stopped at {} of memory, with what was found by then: narrow the question with --fix (tp=…, pp=…, vpp=1), \
                 fewer layers or a smaller --global-batch, or raise --memory-limit",
                self.memory
            ));
        }
    }
}

/// Resident memory of this process; `None` where the system does not tell.
fn memory_in_use() -> Option<Bytes> {
    memory_stats::memory_stats().map(|stats| Bytes::new(stats.physical_mem as f64))
}
