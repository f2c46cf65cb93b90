//! Local search over cuts: descent by single layers, on the simulated pipeline.

use std::collections::BTreeSet;

use super::annealing;
use super::memory::{FittingMixes, fastest, fastest_beside, loads};
use super::rechoice::rechoose;
use crate::refine::cuts::{legal, neighbours};
use crate::refine::options::{Options, Technique};
use crate::refine::paths::{dependency_paths, length, stage_times};
use crate::refine::program::StageProgram;
use crate::refine::split::{Incumbent, Solution, StageLoad, StagedSplit};
use meshwright_engine::schedule::paths::Path;

/// Limit on the work of all descents of a plan, in stages of dependency paths: the same on every machine, as a time would not be.
const MOST_WORK: usize = 60_000_000;
/// Share by which a neighbour must be faster to be taken: less is rounding.
const FASTER: f64 = 1e-9;

/// Local search with its incumbent.
pub struct LocalSearch<'a> {
    program: &'a StageProgram<'a>,
    options: &'a Options,
    /// Step time of a split, by the evaluator.
    step: &'a mut dyn FnMut(&StagedSplit) -> f64,
    /// Dependency paths of the schedule: no pipeline is shorter than one of them.
    pub paths: Vec<Path>,
    /// Incumbent: its step time and its split.
    pub best: Option<Incumbent>,
    /// Whether a limit ended a search.
    pub cut_short: bool,
    /// Number of splits that were evaluated.
    evaluated: usize,
    /// Work of the descents so far, as [`MOST_WORK`] counts it.
    work: usize,
    /// Cuts that a descent has passed.
    seen: BTreeSet<Vec<usize>>,
    /// Mixes of recomputation with which a rank fits, as found so far.
    mixes: FittingMixes,
}

impl<'a> LocalSearch<'a> {
    /// Search without an incumbent yet.
    pub fn new(
        program: &'a StageProgram<'a>,
        options: &'a Options,
        step: &'a mut dyn FnMut(&StagedSplit) -> f64,
    ) -> Self {
        Self {
            program,
            options,
            step,
            paths: dependency_paths(program),
            best: None,
            cut_short: false,
            evaluated: 0,
            work: 0,
            seen: BTreeSet::new(),
            mixes: FittingMixes::new(),
        }
    }

    /// Step time of the incumbent; infinite before there is one.
    pub fn incumbent(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |incumbent| incumbent.step)
    }

    /// Incumbent and what was done for it, with a lower bound.
    pub fn into_solution(self, bound: f64) -> Solution {
        Solution { best: self.best, bound, evaluated: self.evaluated, cut_short: self.cut_short }
    }

    /// Evaluates a split, which becomes the incumbent if it is faster.
    fn evaluate(&mut self, split: StagedSplit) {
        if self.evaluated >= self.options.most_evaluations {
            self.cut_short = true;
            return;
        }
        self.evaluated += 1;
        let time = (self.step)(&split);
        if time < self.incumbent() {
            self.best = Some(Incumbent { step: time, split });
        }
    }

    /// Descends from cuts that branch and bound met; the step time of the incumbent after it.
    pub fn offer(&mut self, cuts: Vec<usize>) -> f64 {
        self.descend(cuts);
        self.incumbent()
    }

    /// Anneals from the incumbent, `longer` times the usual length, and descends from the fastest cuts met.
    pub fn anneal(&mut self, longer: usize, programs: usize) {
        if !self.options.uses(Technique::Annealing) {
            return;
        }
        let Some(Incumbent { split, .. }) = &self.best else { return };
        let start = split.cuts.clone();
        if let Some(cuts) = annealing::anneal(self.program, &self.paths, start, &mut self.mixes, longer, programs) {
            self.descend(cuts);
        }
    }

    /// Optimises the recomputation of the incumbent by the simulated pipeline.
    pub fn choose_recomputation(&mut self) {
        if self.options.uses(Technique::Rechoice)
            && let Some(Incumbent { split, .. }) = &self.best
            && let Some(simulator) = self.program.simulator()
        {
            let mut split = split.clone();
            rechoose(self.program, simulator, &split.cuts, &mut split.loads);
            self.evaluate(split);
        }
    }

    /// Moves single layers between stages while that shortens the pipeline, and evaluates where it ends.
    pub fn descend(&mut self, start: Vec<usize>) {
        let program = self.program;
        if !legal(program, &start) || !self.seen.insert(start.clone()) {
            return;
        }
        let Some(first) = loads(program, &start, &mut self.mixes) else { return };
        let mut here = StagedSplit { cuts: start, loads: first };
        let mut time = self.pipeline(&here);
        while self.options.uses(Technique::Descent)
            && let Some((less, better)) = self.better_neighbour(&here, time)
        {
            (time, here) = (less, better);
            if !self.seen.insert(here.cuts.clone()) {
                return; // descended from before
            }
        }
        self.evaluate(here);
    }

    /// First neighbour whose pipeline is shorter than `limit`, with its pipeline's time.
    fn better_neighbour(&mut self, here: &StagedSplit, limit: f64) -> Option<(f64, StagedSplit)> {
        let limit = limit * (1.0 - FASTER);
        let own = fastest(self.program, &here.cuts);
        let mut last_long = 0;
        for cuts in neighbours(self.program, &here.cuts) {
            if self.work >= MOST_WORK {
                self.cut_short = true;
                return None;
            }
            self.work += self.program.chunks * self.paths.len();
            let near = fastest_beside(self.program, &cuts, &here.cuts, &own);
            // The path that was too long for one neighbour is for most of the others.
            let mut from_last = (last_long..self.paths.len()).chain(0..last_long);
            if let Some(long) = from_last.find(|&path| length(&self.paths[path], &near) >= limit) {
                last_long = long;
                continue;
            }
            let Some(loads) = loads(self.program, &cuts, &mut self.mixes) else { continue };
            let split = StagedSplit { cuts, loads };
            let time = self.pipeline(&split);
            if time < limit {
                return Some((time, split));
            }
        }
        None
    }

    /// Lower bound on the pipeline of these stages: its longest dependency path.
    fn longest_path(&self, loads: &[StageLoad]) -> f64 {
        self.paths.iter().map(|path| length(path, loads)).fold(0.0, f64::max)
    }

    /// Time of a split's pipeline: simulated, or its longest dependency path where the schedule has no list of operations.
    fn pipeline(&self, split: &StagedSplit) -> f64 {
        match self.program.simulator() {
            Some(simulator) => {
                simulator.makespan(&stage_times(self.program.stager.pairs().pairing(), &split.loads)).get()
            }
            None => self.longest_path(&split.loads),
        }
    }
}
