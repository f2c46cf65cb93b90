//! Layers that each stage may hold, by their number of each kind.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::refine::program::StageProgram;

/// Layers of one stage regardless of their order, on one kind of device.
#[derive(Clone, Debug)]
pub struct StageShape {
    /// Some items of this shape.
    pub items: Range<usize>,
    /// Layers by kind.
    pub counts: Vec<u32>,
}

/// Stage that holds items `a..b`, an arc of the graph of cuts.
#[derive(Clone, Copy, Debug)]
struct Arc {
    a: usize,
    b: usize,
    /// Index of its shape.
    shape: usize,
}

/// Stages that lie on a path over cuts, among them every stage of every split under a ceiling.
pub struct StageShapes {
    shapes: Vec<StageShape>,
    stages: Vec<Vec<Arc>>,
}

impl StageShapes {
    /// Stages whose fastest time is within `ceiling` and that fit their rank alone.
    pub fn new(program: &StageProgram, ceiling: f64) -> Self {
        let n = program.len();
        let last = program.chunks - 1;
        let mut shapes = Vec::new();
        let mut shape_of: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let mut stages: Vec<Vec<Arc>> = Vec::with_capacity(program.chunks);
        let mut reached = vec![false; n + 1];
        reached[0] = true;
        for chunk in 0..program.chunks {
            let behind = (last - chunk).saturating_sub(1);
            let ceiling = ceiling - program.least_beside(chunk);
            let mut arcs = Vec::new();
            let mut next = vec![false; n + 1];
            for a in (0..=n.saturating_sub(behind)).filter(|&a| reached[a]) {
                for (b, reached) in next.iter_mut().enumerate().take(n.saturating_sub(behind) + 1).skip(a) {
                    if (chunk == last && b < n) || !program.may_hold(chunk, a, b) {
                        continue;
                    }
                    if program.fastest(chunk, a, b).busy > ceiling || program.least_excess(chunk, a, b) > 0.0 {
                        if chunk == last {
                            continue;
                        }
                        break;
                    }
                    let depth = |at: usize| at.saturating_sub(program.decoder_layers) as u32;
                    let key: Vec<u32> = program
                        .counts_between(a, b)
                        .chain([depth(b) - depth(a), program.device_of(chunk) as u32])
                        .collect();
                    let shape = *shape_of.entry(key).or_insert_with(|| {
                        shapes.push(StageShape { items: a..b, counts: program.counts_between(a, b).collect() });
                        shapes.len() - 1
                    });
                    *reached = true;
                    arcs.push(Arc { a, b, shape });
                }
            }
            reached = next;
            stages.push(arcs);
        }
        retain_completable(&mut stages, n);
        Self { shapes, stages }
    }

    /// Shapes of all stages; multi-token-prediction layers are a shape of their own.
    pub fn shapes(&self) -> &[StageShape] {
        &self.shapes
    }

    /// Indices of the shapes that a stage may have.
    pub fn shapes_of(&self, chunk: usize) -> Vec<usize> {
        let mut shapes: Vec<usize> = self.stages[chunk].iter().map(|arc| arc.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// Whether no split is under the ceiling.
    pub fn is_empty(&self) -> bool {
        self.stages.iter().any(Vec::is_empty)
    }
}

/// Drops the arcs of each stage from which the stages behind it cannot hold all other of `n` items.
fn retain_completable(stages: &mut [Vec<Arc>], n: usize) {
    let mut can_start = vec![false; n + 1];
    can_start[n] = true;
    for arcs in stages.iter_mut().rev() {
        arcs.retain(|arc| can_start[arc.b]);
        can_start = vec![false; n + 1];
        for arc in arcs.iter() {
            can_start[arc.a] = true;
        }
    }
}
