//! Pipeline schedules: bubble, activations in flight, and the operations of each rank.

mod bidirectional;
pub mod closed;
mod facts;
pub mod in_flight;
pub mod ops;
pub mod paths;
pub(crate) mod peaks;
pub mod replay;
pub mod replays;
mod shape;
pub mod simulator;
pub mod slot;

use serde::{Deserialize, Serialize};

pub use facts::BackwardRun;
pub use shape::PipelineShape;

use facts::Placement;

/// Array of every variant of an enum. One that is left out, or is there twice, does not compile.
macro_rules! every {
    ($of:ident: $($variant:ident $({ $field:ident })?),+) => {{
        const _: fn($of) = |variant| match variant { $($of::$variant { .. } => ()),+ };
        [$($of::$variant $({ $field })?),+]
    }};
}

/// A pipeline schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Naive: one micro-batch at a time through all stages.
    Naive,
    /// `GPipe`: all forwards, then all backwards.
    GPipe,
    /// 1F1B: one forward, one backward (PipeDream-flush).
    #[default]
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// Interleaved 1F1B of Megatron: each rank has several chunks.
    Interleaved {
        /// Chunks per rank (`--num-virtual-stages-per-pipeline-rank`).
        virtual_stages: u32,
    },
    /// Zero-bubble H1: weight gradients fill the cool-down; memory as for 1F1B.
    ZbH1,
    /// Zero-bubble H2: longer warm-up, twice the memory.
    ZbH2,
    /// Zero-bubble V: two chunks per rank in a V shape; memory as for 1F1B.
    ZbV,
    /// `DeepSeek`'s bidirectional pipeline, with two copies of the weights.
    DualPipe,
    /// V-shaped half of `DualPipe`: two chunks per rank, one copy.
    DualPipeV,
    /// Breadth-first schedule over looped chunks.
    LoopedBfs {
        /// Number of chunks per rank.
        virtual_stages: u32,
    },
}

impl Schedule {
    /// The schedule on `pp` pipeline ranks.
    pub const fn on(self, pp: u32) -> PipelineShape {
        PipelineShape { schedule: self, pp }
    }

    /// Number of chunks per rank (v).
    pub const fn virtual_stages(self) -> u32 {
        self.facts().chunks
    }

    /// Whether the number of chunks per rank is a choice.
    pub const fn takes_chunks(self) -> bool {
        self.facts().takes_chunks
    }

    /// Whether each chunk lies on one rank, round-robin.
    pub const fn is_round_robin(self) -> bool {
        matches!(self.facts().placement, Placement::Loop)
    }

    /// Whether chunks go down the ranks and up again, in a V.
    pub const fn folds(self) -> bool {
        matches!(self.facts().placement, Placement::Fold)
    }

    /// Whether a search tries the schedule.
    pub const fn is_searched(self) -> bool {
        self.facts().is_searched
    }

    /// Whether the schedule runs all weight gradients as separate passes.
    pub const fn splits_backward(self) -> bool {
        self.facts().splits_backward
    }

    /// Whether micro-batches flow in both directions through each rank, with forwards hiding the traffic of backwards.
    pub const fn is_bidirectional(self) -> bool {
        self.facts().is_bidirectional
    }

    /// Micro-batches whose backward passes through one chunk follow each other.
    pub(crate) const fn backward_run(self) -> BackwardRun {
        self.facts().backward_run
    }

    /// Copies of the weights on each rank.
    pub const fn weight_copies(self) -> u32 {
        if matches!(self.facts().placement, Placement::Mirrored) { 2 } else { 1 }
    }

    /// Name without the number of chunks.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Every schedule, with `virtual_stages` chunks per rank where the number is a choice.
    pub const fn every(virtual_stages: u32) -> [Self; 10] {
        every!(Schedule: Naive, GPipe, OneFOneB, Interleaved { virtual_stages }, ZbH1, ZbH2, ZbV, DualPipe, DualPipeV,
            LoopedBfs { virtual_stages })
    }

    /// All names of schedules, for hints.
    pub fn names() -> Vec<&'static str> {
        Self::every(1).map(Self::name).to_vec()
    }

    /// Schedule by name, with `virtual_stages` chunks if it takes them; 1F1B with several is interleaved.
    pub fn named(name: &str, virtual_stages: u32) -> Option<Self> {
        let found = Self::every(virtual_stages).into_iter().find(|schedule| schedule.name() == name)?;
        let is_interleaved = found == Self::OneFOneB && virtual_stages > 1;
        Some(if is_interleaved { Self::Interleaved { virtual_stages } } else { found })
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())?;
        if self.takes_chunks() { write!(f, " x{}", self.virtual_stages()) } else { Ok(()) }
    }
}

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
