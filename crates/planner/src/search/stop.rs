//! Early end of a search inside a batch of shapes.

use super::options::Control;
use std::sync::atomic::{AtomicBool, Ordering};

/// Decision to end a search, which all threads of a batch share: once taken, it stays.
pub(super) struct Stop<'c> {
    done: u64,
    all: u64,
    control: &'c Control<'c>,
    set: AtomicBool,
}

impl<'c> Stop<'c> {
    /// Decision of a batch that begins after `done` of `all` shapes.
    pub const fn new(done: u64, all: u64, control: &'c Control<'c>) -> Self {
        Self { done, all, control, set: AtomicBool::new(false) }
    }

    /// Asks the control whether to stop now.
    pub fn asks(&self) -> bool {
        if !self.is_set() && (self.control)(self.done, self.all).is_break() {
            self.set.store(true, Ordering::Relaxed);
        }
        self.is_set()
    }

    /// Whether any thread has stopped.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }
}
