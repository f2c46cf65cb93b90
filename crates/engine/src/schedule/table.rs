//! Table of schedules: a row of facts for each.

use serde::{Deserialize, Serialize};

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
    #[serde(rename = "gpipe", alias = "g-pipe")]
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
    #[serde(rename = "dualpipe", alias = "dual-pipe")]
    DualPipe,
    /// V-shaped half of `DualPipe`: two chunks per rank, one copy.
    #[serde(rename = "dualpipe-v", alias = "dual-pipe-v")]
    DualPipeV,
    /// Breadth-first schedule over looped chunks.
    LoopedBfs {
        /// Number of chunks per rank.
        virtual_stages: u32,
    },
}

/// Ranks of the chunks of the model, in model order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// Round-robin.
    Loop,
    /// Down the ranks and up again, in a V.
    Fold,
    /// Round-robin, and a copy of each chunk on the mirror image of its rank.
    Mirrored,
}

/// Number of micro-batches whose backward passes through one chunk follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardRun {
    /// One.
    One,
    /// As many as there are ranks.
    Ranks,
    /// All of the step.
    Step,
}

/// Facts of a schedule that do not depend on the number of ranks. Specification §4.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// Name on the command line, without the number of chunks.
    pub name: &'static str,
    /// Number of chunks per rank (v).
    pub chunks: u32,
    /// Whether that number is a choice.
    pub takes_chunks: bool,
    /// Ranks of the chunks.
    pub placement: Placement,
    /// Whether all weight gradients are separate passes.
    pub splits_backward: bool,
    /// Whether micro-batches flow in both directions through each rank.
    pub is_bidirectional: bool,
    /// Backward passes that follow each other.
    pub backward_run: BackwardRun,
    /// Whether memory of a rank depends on which of its chunks hold its layers.
    pub peaks_by_chunk: bool,
    /// Whether a search tries the schedule.
    pub is_searched: bool,
}

/// Facts of 1F1B, from which the other rows differ.
const ONE_F_ONE_B: Facts = Facts {
    name: "1f1b",
    chunks: 1,
    takes_chunks: false,
    placement: Placement::Loop,
    splits_backward: false,
    is_bidirectional: false,
    backward_run: BackwardRun::One,
    peaks_by_chunk: false,
    is_searched: true,
};

impl Schedule {
    /// Row of the table.
    pub(super) const fn facts(self) -> Facts {
        match self {
            // No framework has it.
            Self::Naive => Facts { name: "naive", is_searched: false, ..ONE_F_ONE_B },
            Self::GPipe => Facts { name: "gpipe", backward_run: BackwardRun::Step, ..ONE_F_ONE_B },
            Self::OneFOneB => ONE_F_ONE_B,
            Self::Interleaved { virtual_stages } => Facts {
                name: "interleaved",
                chunks: virtual_stages,
                takes_chunks: true,
                backward_run: BackwardRun::Ranks,
                peaks_by_chunk: true,
                ..ONE_F_ONE_B
            },
            Self::ZbH1 => Facts { name: "zb-h1", splits_backward: true, ..ONE_F_ONE_B },
            Self::ZbH2 => Facts { name: "zb-h2", splits_backward: true, ..ONE_F_ONE_B },
            Self::ZbV => Facts {
                name: "zb-v",
                chunks: 2,
                placement: Placement::Fold,
                splits_backward: true,
                peaks_by_chunk: true,
                ..ONE_F_ONE_B
            },
            Self::DualPipe => Facts {
                name: "dualpipe",
                placement: Placement::Mirrored,
                is_bidirectional: true,
                peaks_by_chunk: true,
                ..ONE_F_ONE_B
            },
            Self::DualPipeV => Facts {
                name: "dualpipe-v",
                chunks: 2,
                placement: Placement::Fold,
                is_bidirectional: true,
                peaks_by_chunk: true,
                ..ONE_F_ONE_B
            },
            Self::LoopedBfs { virtual_stages } => Facts {
                name: "looped-bfs",
                chunks: virtual_stages,
                takes_chunks: true,
                backward_run: BackwardRun::Step,
                ..ONE_F_ONE_B
            },
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::Error;

    /// Answers in JSON have the names of `--fix` and of plans; those written with the former spelling are still read.
    #[test]
    fn documents_name_schedules_as_plans_do() {
        let read = |name: &str| Schedule::deserialize(IntoDeserializer::<Error>::into_deserializer(name));
        for schedule in Schedule::every(1).into_iter().filter(|schedule| !schedule.takes_chunks()) {
            assert_eq!(read(schedule.name()), Ok(schedule));
        }
        for (former, schedule) in
            [("g-pipe", Schedule::GPipe), ("dual-pipe", Schedule::DualPipe), ("dual-pipe-v", Schedule::DualPipeV)]
        {
            assert_eq!(read(former), Ok(schedule));
        }
    }
}
