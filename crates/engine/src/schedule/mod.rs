//! Pipeline schedules: bubble, activations in flight, and the operations of each rank.

mod bidirectional;
pub mod closed;
pub mod in_flight;
pub mod ops;
pub mod paths;
pub(crate) mod peaks;
mod rank_bytes;
pub mod replay;
pub mod replays;
mod shape;
pub mod simulator;
pub mod slot;
mod table;

pub use rank_bytes::RankBytes;
pub use shape::PipelineShape;
pub use table::{BackwardRun, Schedule};

/// Stage times for tests: numbers from `least` to `least + 1`, the same from the same seed (Knuth's MMIX generator).
#[cfg(test)]
fn random(mut seed: u64, least: f64) -> impl FnMut() -> f64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (seed >> 40) as f64 / (1_u64 << 24) as f64
    }
}

/// Every schedule, for tests, with two chunks per rank; interleaving with three too.
#[cfg(test)]
pub(crate) fn every_for_tests() -> impl Iterator<Item = Schedule> + Clone {
    Schedule::every(2).into_iter().chain([Schedule::Interleaved { virtual_stages: 3 }])
}
