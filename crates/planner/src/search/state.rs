//! State of a search: its incumbents, its counts and its critical paths.

use super::certificate::Counts;
use super::critical::CriticalPaths;
use super::incumbents::Incumbents;
use meshwright_engine::cost::incremental::Price;
use meshwright_engine::plan::Layout;
use meshwright_engine::units::{Bytes, Seconds};

/// Incumbents, counts and critical paths of a search, or of a part of it.
#[derive(Clone, Debug)]
pub(super) struct SearchState {
    pub best: Incumbents,
    pub counts: Counts,
    pub paths: CriticalPaths,
}

impl SearchState {
    pub fn new(best: Incumbents) -> Self {
        Self { best, counts: Counts::default(), paths: CriticalPaths::default() }
    }

    /// Whether no plan of this layout that takes at least `time` can enter the answer.
    pub fn is_hopeless(&self, layout: &Layout, time: Seconds) -> bool {
        self.best.is_hopeless(layout, Price { time, memory: Bytes::ZERO })
    }

    /// This state with the incumbents and critical paths of a preliminary search, whose plans are counted when they are searched
    /// again.
    pub fn led_by(mut self, leader: Self) -> Self {
        self.counts.simulated += leader.counts.simulated;
        self.paths.extend(leader.paths);
        Self { best: self.best.merge(leader.best), ..self }
    }

    /// This state with the incumbents, counts and critical paths of another part of the search.
    pub fn merge(mut self, other: Self) -> Self {
        self.counts.add(other.counts);
        self.paths.extend(other.paths);
        Self { best: self.best.merge(other.best), ..self }
    }
}
