//! Table of schedules: a row of facts for each.

use super::Schedule;

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
}
