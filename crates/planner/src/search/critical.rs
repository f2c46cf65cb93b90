//! Critical paths of pipelines that were simulated: lower bounds of those that are simulated later.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::schedule::replays::SimulatorKey;
use meshwright_engine::schedule::simulator::CriticalPath;
use meshwright_engine::units::Seconds;

/// Most paths kept of one pipeline and number of micro-batches.
const MOST_PATHS: usize = 8;

/// Critical paths by pipeline and number of micro-batches, the latest last.
#[derive(Clone, Debug, Default)]
pub(super) struct CriticalPaths(BTreeMap<SimulatorKey, Vec<Arc<CriticalPath>>>);

impl CriticalPaths {
    /// Length of the longest path on these stages; zero if none is known.
    pub fn longest(&self, key: SimulatorKey, stages: &[StageTime]) -> Seconds {
        let paths = self.0.get(&key).map_or(&[][..], |paths| paths);
        paths.iter().map(|path| path.length(stages)).fold(Seconds::ZERO, Seconds::max)
    }

    /// Adds a path; the oldest of its key goes where there are too many.
    pub fn add(&mut self, key: SimulatorKey, path: Arc<CriticalPath>) {
        let paths = self.0.entry(key).or_default();
        if !paths.contains(&path) {
            paths.push(path);
            if paths.len() > MOST_PATHS {
                paths.remove(0);
            }
        }
    }

    /// Adds all paths of another.
    pub fn extend(&mut self, other: Self) {
        for (key, paths) in other.0 {
            for path in paths {
                self.add(key, path);
            }
        }
    }
}
