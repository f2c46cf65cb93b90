//! Groups of recomputations that take about as long: one lower bound of time and memory excludes all of a group.

use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::incremental::Layers;
use meshwright_engine::plan::Recompute;

/// Largest number of recomputations of a group: smaller groups exclude no more, larger ones have looser bounds. A
/// setting of speed, swept in `benches/runs/2026-11-26-2-cores.txt`.
const SIZE: usize = 5;

/// Recomputations in groups, with a lower bound of the layers of each.
///
/// ```text
/// T(r) + E(M(r))  ≥  T(G) + E(M(G))        for r ∈ G:  T, M = time of the flow and memory, E = ends of a step that fit beside M
/// ```
///
/// T and M do not fall with the passes and bytes of a layer, and those of G are the least of its recomputations, term by term.
pub(super) struct Groups {
    /// Group of each recomputation; none of those of first layers, which have layers of two kinds.
    of: Vec<Option<usize>>,
    floors: Vec<Layers>,
}

impl Groups {
    /// Groups recomputations, given with their layers, by the time of a micro-batch in those.
    pub fn new<'l>(all: impl Iterator<Item = (Recompute, &'l Layers)>) -> Self {
        let all: Vec<(Recompute, &Layers)> = all.collect();
        let is_whole = |index: &usize| !matches!(all[*index].0, Recompute::FirstLayers(_));
        let mut indices: Vec<usize> = (0..all.len()).filter(is_whole).collect();
        let time = |index: usize| all[index].1.time().get();
        sort_by_numbers(&mut indices, |index| [time(*index)]);
        let mut groups = Self { of: vec![None; all.len()], floors: Vec::new() };
        for members in indices.chunks(SIZE) {
            for &index in members {
                groups.of[index] = Some(groups.floors.len());
            }
            let layers = |index: &usize| all[*index].1;
            let first = layers(&members[0]).clone();
            groups.floors.push(members[1..].iter().map(layers).fold(first, Layers::lesser));
        }
        groups
    }

    /// Group of a recomputation.
    pub fn group_of(&self, index: usize) -> Option<usize> {
        self.of[index]
    }

    /// Number of groups.
    pub const fn len(&self) -> usize {
        self.floors.len()
    }

    /// Layers that take no longer and need no more memory than under any recomputation of a group.
    pub fn floor(&self, group: usize) -> &Layers {
        &self.floors[group]
    }
}
