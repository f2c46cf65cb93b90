//! Lower bound on the parts of a step outside its pipeline: gradients, parameters and updates.

use super::program::StageProgram;
use super::split::StageParameters;
use meshwright_engine::cost::Stager;
use meshwright_engine::cost::data::RankParameters;
use meshwright_engine::cost::layer::PassTimes;
use meshwright_engine::units::Seconds;

/// Lower bound of a step as a linear function of the time of its pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLine {
    /// Seconds of a step whose pipeline takes no time.
    pub base: f64,
    /// Seconds of the step for each second of the pipeline.
    pub slope: f64,
}

impl StepLine {
    /// Lower bound, in seconds, of a step whose pipeline takes `pipeline` seconds.
    pub fn step(self, pipeline: f64) -> f64 {
        self.base + self.slope * pipeline
    }

    /// Seconds of the pipeline at which the lower bound of the step is `step` seconds.
    pub fn pipeline(self, step: f64) -> f64 {
        (step - self.base) / self.slope
    }
}

/// Bounds on the inputs of the parts of a step outside its pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edges {
    /// Dense parameters of the heaviest rank, a lower bound.
    pub dense: f64,
    /// Expert parameters of the heaviest rank, a lower bound.
    pub experts: f64,
    /// Forward of a rank, an upper bound.
    pub forward: f64,
    /// Backward of a rank, an upper bound.
    pub backward: f64,
}

impl Edges {
    /// Lower bound of the step as a function of the pipeline's time without sends, which take `sends` seconds.
    pub fn line(&self, program: &StageProgram, sends: f64) -> StepLine {
        let base = self.lift(program, sends);
        StepLine { base, slope: self.lift(program, sends + 1.0) - base }
    }

    /// Lower bound on a step whose pipeline takes at least `pipeline` seconds: the least over the kinds of device.
    pub fn lift(&self, program: &StageProgram, pipeline: f64) -> f64 {
        let s = Seconds::new;
        let hidden_by = PassTimes { forward: s(self.forward), backward: s(self.backward) };
        let held = RankParameters { dense: self.dense, experts: self.experts, tables: 0.0 };
        let bound_on = |stager: &Stager| stager.bound(s(pipeline), held, hidden_by, program.freedom.offload).get();
        program.stagers.iter().map(bound_on).fold(f64::INFINITY, f64::min)
    }

    /// Bounds that hold for every split: parameters shared out evenly, windows no longer than the whole model.
    pub fn of_any_split(program: &StageProgram) -> Self {
        let n = program.len();
        let (mut all, mut forward, mut backward) = (StageParameters::default(), 0.0, 0.0);
        for chunk in 0..program.chunks {
            let items = if chunk == 0 { n } else { 0 };
            all = all + program.parameters(chunk, 0, items);
            let longest = program.longest(chunk, 0, items);
            (forward, backward) =
                (forward + longest.forward / program.share, backward + longest.backward / program.share);
        }
        let ranks = program.ranks as f64;
        let mean = all.total() / ranks;
        // Of a mixture, the heaviest rank may hold few experts or little else: neither has a bound.
        let dense = if all.experts > 0.0 { 0.0 } else { mean };
        Self { dense, experts: 0.0, forward, backward }
    }
}
