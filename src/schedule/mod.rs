//! The order in which a stage runs its micro-batches: bubble, activations in flight, and the operations themselves.

pub mod alive;
mod bidirectional;
pub mod closed;
pub mod ops;
pub mod paths;
pub mod player;
pub mod replay;

use serde::{Deserialize, Serialize};

/// A pipeline schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One micro-batch at a time through all stages.
    Naive,
    /// All forwards, then all backwards.
    GPipe,
    /// One forward, one backward (PipeDream-flush).
    #[default]
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// Megatron's interleaved 1F1B: each rank holds several chunks.
    Interleaved {
        /// Chunks per rank (`--num-virtual-stages-per-pipeline-rank`).
        virtual_stages: u32,
    },
    /// Zero-bubble H1: weight gradients fill the cool-down; the memory of 1F1B.
    ZbH1,
    /// Zero-bubble H2: more warm-up; twice the memory.
    ZbH2,
    /// Zero-bubble V: two chunks per rank in a V; the memory of 1F1B.
    ZbV,
    /// `DeepSeek`'s bidirectional pipeline: two copies of the weights.
    DualPipe,
    /// Its V-shaped cut: two chunks per rank, one copy.
    DualPipeV,
    /// Breadth-first over looped chunks.
    LoopedBfs {
        /// Chunks per rank.
        virtual_stages: u32,
    },
}

impl Schedule {
    /// Chunks of layers that each rank holds (v).
    pub const fn virtual_stages(self) -> u32 {
        match self {
            Self::Interleaved { virtual_stages } | Self::LoopedBfs { virtual_stages } => virtual_stages,
            Self::ZbV | Self::DualPipeV => 2,
            Self::Naive | Self::GPipe | Self::OneFOneB | Self::ZbH1 | Self::ZbH2 | Self::DualPipe => 1,
        }
    }

    /// Whether all weight gradients of its list have passes of their own.
    pub const fn splits_backward(self) -> bool {
        matches!(self, Self::ZbH1 | Self::ZbH2 | Self::ZbV)
    }

    /// Whether micro-batches go both ways through each rank, forwards beside backwards that hide their traffic.
    pub const fn is_bidirectional(self) -> bool {
        matches!(self, Self::DualPipe | Self::DualPipeV)
    }

    /// Copies of its weights that each rank holds.
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

    /// The rank of each chunk in model order, as [`rank_of`](Self::rank_of) has it, without a division for each.
    pub fn ranks(self, pp: u32) -> impl Iterator<Item = u32> + Clone {
        let folds = matches!(self, Self::ZbV | Self::DualPipeV);
        let (mut at, mut is_back) = (0, false);
        std::iter::repeat_with(move || {
            let rank = if is_back { pp - 1 - at } else { at };
            at += 1;
            if at == pp {
                (at, is_back) = (0, folds && !is_back);
            }
            rank
        })
        .take((pp * self.virtual_stages()) as usize)
    }

    /// The rank that holds chunk `stage` of `pp` ranks: round and round, or down and up for the V shapes.
    pub const fn rank_of(self, stage: u32, pp: u32) -> u32 {
        match self {
            Self::ZbV | Self::DualPipeV => {
                if stage < pp {
                    stage
                } else {
                    2 * pp - 1 - stage
                }
            }
            Self::Naive
            | Self::GPipe
            | Self::OneFOneB
            | Self::Interleaved { .. }
            | Self::ZbH1
            | Self::ZbH2
            | Self::DualPipe
            | Self::LoopedBfs { .. } => stage % pp,
        }
    }

    /// Ranks that hold a stage: one, or under `DualPipe` two, which mirror each other.
    pub fn holders(self, stage: u32, pp: u32) -> impl Iterator<Item = u32> {
        let rank = self.rank_of(stage, pp);
        let mirrored = matches!(self, Self::DualPipe) && pp > 1;
        std::iter::once(rank).chain(mirrored.then(|| pp - 1 - rank))
    }

    /// Ranks that hold different stages: under `DualPipe` half of them.
    pub const fn unlike_ranks(self, pp: u32) -> u32 {
        match self {
            Self::DualPipe if pp > 1 => pp / 2,
            _ => pp,
        }
    }

    /// Name without its chunk count.
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

    /// All names, for hints.
    pub const NAMES: [&'static str; 10] =
        ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v", "looped-bfs"];

    /// The schedule of that name, with `virtual_stages` chunks where it takes them.
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
