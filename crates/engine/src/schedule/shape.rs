//! Shape of a pipeline: which ranks hold which chunks of the model.

use super::table::Schedule;

/// Shape of a pipeline: a schedule on pipeline ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipelineShape {
    /// Order of the operations.
    pub schedule: Schedule,
    /// Number of pipeline ranks (p).
    pub pp: u32,
}

/// Evenly spaced chunks of one rank.
struct ChunkSpacing {
    /// First chunk.
    first: u32,
    /// Distance from one chunk to the next.
    step: u32,
    /// Number of chunks.
    number: u32,
}

impl Schedule {
    /// The schedule on `pp` pipeline ranks.
    pub const fn on(self, pp: u32) -> PipelineShape {
        PipelineShape { schedule: self, pp }
    }
}

impl PipelineShape {
    /// Number of chunks of the model: virtual stages of all ranks (v·p).
    pub const fn chunks(self) -> u32 {
        self.pp * self.schedule.virtual_stages()
    }

    /// Rank of each chunk in model order, as by [`rank_of`](Self::rank_of), without a division for each.
    pub fn ranks(self) -> impl Iterator<Item = u32> + Clone {
        let (pp, folds) = (self.pp, self.schedule.folds());
        let (mut at, mut is_back) = (0, false);
        std::iter::repeat_with(move || {
            let rank = if is_back { pp - 1 - at } else { at };
            at += 1;
            if at == pp {
                (at, is_back) = (0, folds && !is_back);
            }
            rank
        })
        .take(self.chunks() as usize)
    }

    /// Rank of a chunk: round-robin, or down and up in a V.
    pub const fn rank_of(self, chunk: u32) -> u32 {
        if !self.schedule.folds() {
            chunk % self.pp
        } else if chunk < self.pp {
            chunk
        } else {
            2 * self.pp - 1 - chunk
        }
    }

    /// Rank of the last chunk.
    pub const fn last_rank(self) -> u32 {
        self.rank_of(self.chunks() - 1)
    }

    /// Whether ranks that are mirror images hold the same two stages, as under `DualPipe`.
    const fn is_mirrored(self) -> bool {
        self.schedule.weight_copies() > 1 && self.pp > 1
    }

    /// Ranks that have a chunk: one, or two mirror images under `DualPipe`.
    pub fn holders(self, chunk: u32) -> impl Iterator<Item = u32> {
        let rank = self.rank_of(chunk);
        std::iter::once(rank).chain(self.is_mirrored().then(|| self.pp - 1 - rank))
    }

    /// Whether a rank has the last chunk.
    pub fn holds_last(self, rank: u32) -> bool {
        self.holders(self.chunks() - 1).any(|holder| holder == rank)
    }

    /// Chunks of a rank, in model order.
    pub fn chunks_of(self, rank: u32) -> impl Iterator<Item = u32> {
        let ChunkSpacing { first, step, number } = self.spacing(rank);
        (0..number).map(move |place| first + place * step)
    }

    /// The middle one of the chunks of a rank, in model order.
    pub(crate) fn middle_held(self, rank: u32) -> u32 {
        let ChunkSpacing { first, step, number } = self.spacing(rank);
        first + number / 2 * step
    }

    /// Function that counts the chunks of a rank before a chunk.
    pub(crate) fn held_before(self, rank: u32) -> impl Fn(u32) -> u32 + Copy {
        let ChunkSpacing { first, step, number } = self.spacing(rank);
        move |chunk| chunk.saturating_sub(first).div_ceil(step.max(1)).min(number)
    }

    /// Chunks of a rank.
    const fn spacing(self, rank: u32) -> ChunkSpacing {
        let (pp, number) = (self.pp, self.schedule.virtual_stages());
        if self.schedule.folds() {
            return ChunkSpacing { first: rank, step: 2 * (pp - rank) - 1, number };
        }
        if self.is_mirrored() {
            let mirror = pp - 1 - rank;
            let first = if rank < mirror { rank } else { mirror };
            return ChunkSpacing { first, step: rank.abs_diff(mirror), number: 2 };
        }
        ChunkSpacing { first: rank, step: pp, number }
    }

    /// Whether the first and the last chunk are on one of several ranks.
    pub const fn joins_ends(self) -> bool {
        self.pp > 1 && self.last_rank() == 0
    }

    /// Whether a send leads from the last rank to the first, where chunks loop over the ranks.
    pub(crate) const fn loops(self) -> bool {
        self.schedule.virtual_stages() > 1 && self.rank_of(self.pp) == 0
    }

    /// Number of ranks with different chunks: half of them under `DualPipe`.
    pub const fn distinct_ranks(self) -> u32 {
        if self.is_mirrored() { self.pp / 2 } else { self.pp }
    }

    /// Whether memory of a rank depends on which of its chunks hold its layers.
    pub(crate) const fn peaks_by_chunk(self) -> bool {
        self.pp > 1 && self.schedule.facts().peaks_by_chunk
    }
}
