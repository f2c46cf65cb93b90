//! What a step pays around its pipeline: gradients, parameters and updates, as refinement bounds them.

use super::program::Program;
use meshwright_engine::cost::Stager;
use meshwright_engine::cost::data::RankParameters;
use meshwright_engine::units::Seconds;

/// What the edges of a step can be at their best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edges {
    /// Dense parameters of the heaviest rank, at least.
    pub dense: f64,
    /// Experts of it, at least.
    pub experts: f64,
    /// Forward of a rank, at most.
    pub forward: f64,
    /// Backward of a rank, at most.
    pub backward: f64,
}

impl Edges {
    /// The bound as a line over the pipeline's time, which takes `sends` more: its value at none, and its slope.
    pub fn line(&self, program: &Program, sends: f64) -> (f64, f64) {
        let base = self.lift(program, sends);
        (base, self.lift(program, sends + 1.0) - base)
    }

    /// The bound on a step whose pipeline takes at least `pipe`, on the device where it is the least.
    pub fn lift(&self, program: &Program, pipe: f64) -> f64 {
        let s = Seconds::new;
        let held = RankParameters { dense: self.dense, experts: self.experts };
        let on = |stager: &Stager| {
            stager.bound(s(pipe), held, (s(self.forward), s(self.backward)), program.freedom.offload).get()
        };
        program.stagers.iter().map(on).fold(f64::INFINITY, f64::min)
    }

    /// What the edges of a step are at their best, whatever the split: parameters shared out evenly; nothing is known of the
    /// windows but that the whole model is no longer.
    pub fn least(program: &Program) -> Self {
        let n = program.len();
        let (mut all, mut forward, mut backward) = ([0.0; 2], 0.0, 0.0);
        for chunk in 0..program.chunks {
            let items = if chunk == 0 { n } else { 0 };
            let [dense, experts] = program.parameters(chunk, 0, items);
            all = [all[0] + dense, all[1] + experts];
            let [own, back, ..] = program.longest(chunk, 0, items);
            (forward, backward) = (forward + own / program.share, backward + back / program.share);
        }
        let ranks = program.ranks as f64;
        let mean = (all[0] + all[1]) / ranks;
        // Of a mixture, the heaviest rank may hold few experts or little else: nothing is said of either.
        let dense = if all[1] > 0.0 { 0.0 } else { mean };
        Self { dense, experts: 0.0, forward, backward }
    }
}
