//! Pipeline schedules: bubble, activations in flight, and the operations of each rank.

mod bidirectional;
pub mod closed;
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

pub use shape::PipelineShape;

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
        match self {
            Self::Interleaved { virtual_stages } | Self::LoopedBfs { virtual_stages } => virtual_stages,
            Self::ZbV | Self::DualPipeV => 2,
            Self::Naive | Self::GPipe | Self::OneFOneB | Self::ZbH1 | Self::ZbH2 | Self::DualPipe => 1,
        }
    }

    /// Whether the schedule runs all weight gradients as separate passes.
    pub const fn splits_backward(self) -> bool {
        matches!(self, Self::ZbH1 | Self::ZbH2 | Self::ZbV)
    }

    /// Whether micro-batches flow in both directions through each rank, with forwards hiding the traffic of backwards.
    pub const fn is_bidirectional(self) -> bool {
        matches!(self, Self::DualPipe | Self::DualPipeV)
    }

    /// Whether backward passes of several micro-batches through one virtual stage follow each other.
    pub(crate) const fn repeats_stages(self) -> bool {
        matches!(self, Self::GPipe | Self::Interleaved { .. } | Self::LoopedBfs { .. })
    }

    /// Copies of the weights on each rank.
    pub const fn weight_copies(self) -> u32 {
        match self {
            Self::DualPipe => 2,
            Self::Naive
            | Self::GPipe
            | Self::OneFOneB
            | Self::Interleaved { .. }
            | Self::ZbH1
            | Self::ZbH2
            | Self::ZbV
            | Self::DualPipeV
            | Self::LoopedBfs { .. } => 1,
        }
    }

    /// Name without the number of chunks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::GPipe => "gpipe",
            Self::OneFOneB => "1f1b",
            Self::Interleaved { .. } => "interleaved",
            Self::ZbH1 => "zb-h1",
            Self::ZbH2 => "zb-h2",
            Self::ZbV => "zb-v",
            Self::DualPipe => "dualpipe",
            Self::DualPipeV => "dualpipe-v",
            Self::LoopedBfs { .. } => "looped-bfs",
        }
    }

    /// All names of schedules, for hints.
    pub const NAMES: [&'static str; 10] =
        ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v", "looped-bfs"];

    /// Schedule by name, with `virtual_stages` chunks if it takes them.
    pub fn named(name: &str, virtual_stages: u32) -> Option<Self> {
        Some(match name {
            "naive" => Self::Naive,
            "gpipe" => Self::GPipe,
            "1f1b" if virtual_stages > 1 => Self::Interleaved { virtual_stages },
            "1f1b" => Self::OneFOneB,
            "interleaved" => Self::Interleaved { virtual_stages },
            "zb-h1" => Self::ZbH1,
            "zb-h2" => Self::ZbH2,
            "zb-v" => Self::ZbV,
            "dualpipe" => Self::DualPipe,
            "dualpipe-v" => Self::DualPipeV,
            "looped-bfs" => Self::LoopedBfs { virtual_stages },
            _ => return None,
        })
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Interleaved { virtual_stages } | Self::LoopedBfs { virtual_stages } => {
                write!(f, "{} x{virtual_stages}", self.name())
            }
            Self::Naive
            | Self::GPipe
            | Self::OneFOneB
            | Self::ZbH1
            | Self::ZbH2
            | Self::ZbV
            | Self::DualPipe
            | Self::DualPipeV => f.write_str(self.name()),
        }
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

/// Every kind of schedule, for tests.
#[cfg(test)]
pub(crate) const EVERY: [Schedule; 11] = [
    Schedule::Naive,
    Schedule::GPipe,
    Schedule::OneFOneB,
    Schedule::Interleaved { virtual_stages: 2 },
    Schedule::Interleaved { virtual_stages: 3 },
    Schedule::ZbH1,
    Schedule::ZbH2,
    Schedule::ZbV,
    Schedule::DualPipe,
    Schedule::DualPipeV,
    Schedule::LoopedBfs { virtual_stages: 2 },
];
