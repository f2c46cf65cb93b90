//! State of a search: its incumbents, its counts and its critical paths.

use super::certificate::Counts;
use super::critical::CriticalPaths;
use super::incumbents::Incumbents;

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

    pub fn merge(mut self, other: Self) -> Self {
        self.counts.add(other.counts);
        self.paths.extend(other.paths);
        Self { best: self.best.merge(other.best), ..self }
    }
}
