//! The dynamic programs of refinement against HiGHS: `cargo test --features highs --test programs oracle`.
//!
//! HiGHS is given another formulation: one binary for each layer, stage and recomputation, with no intervals and no frontiers.
//! The value of HiGHS' solution is recomputed from its binaries.

use crate::random::{SplitMix, spec};
use good_lp::{Expression, ResolutionError, Solution, SolverModel, Variable, constraint, highs, variable, variables};
use meshwright::cost::by_stage::LayerOption;
use meshwright::cost::data::TableParameters;
use meshwright::cost::{Costs, Stager};
use meshwright::plan::{Modules, Offload, Recompute};
use meshwright::refine::Freedom;
use meshwright::refine::exact::minima;
use meshwright::schedule::paths::Path;
use meshwright::schedule::replay::StageTime;
use meshwright::space::parse_plan;
use meshwright::stages::kinds_in_order;

/// Options of one kind of layer of which none is as slow and as large as another: what HiGHS chooses among.
fn options(stager: &Stager, kind: usize) -> Vec<LayerOption> {
    let on = |bits: u32, bit: u32| bits >> bit & 1 == 1;
    let selective = (1_u32..64).map(|bits| {
        Recompute::Selective(Modules {
            core_attn: on(bits, 0),
            layernorm: on(bits, 1),
            act: on(bits, 2),
            mla_up_proj: on(bits, 3),
            mlp: on(bits, 4),
            moe: on(bits, 5),
        })
    });
    let all = [Recompute::None, Recompute::Full].into_iter().chain(selective);
    let all: Vec<LayerOption> = all.map(|recompute| stager.layer(kind, recompute, 0.0)).collect();
    let covers = |a: &LayerOption, b: &LayerOption| {
        a.time.backward <= b.time.backward && a.kept <= b.kept && a.working_set <= b.working_set
    };
    let mut kept: Vec<LayerOption> = Vec::new();
    for option in all {
        if !kept.iter().any(|known| covers(known, &option)) {
            kept.retain(|known| !covers(&option, known));
            kept.push(option);
        }
    }
    kept
}

/// Quantity to minimise.
enum Measure<'a> {
    /// Time of the slowest rank.
    Slowest,
    /// Length of a dependency path.
    PathLength(&'a Path),
}

/// One plan as assignments of layers to stages.
struct Assignment<'a> {
    stager: &'a Stager<'a>,
    items: Vec<usize>,
    options: Vec<Vec<LayerOption>>,
    stages: usize,
}

impl<'a> Assignment<'a> {
    fn new(stager: &'a Stager<'a>) -> Self {
        let model = stager.costs().problem.model();
        let options = (0..model.kinds.len()).map(|kind| options(stager, kind)).collect();
        Self { stager, items: kinds_in_order(model), options, stages: stager.plan().layout.pp as usize }
    }

    /// Time of a stage without its layers.
    fn ends(&self, stage: usize) -> Vec<StageTime> {
        let mut ends = vec![self.stager.maxima()];
        ends.extend((stage == 0).then(|| self.stager.embedding()));
        ends.extend((stage + 1 == self.stages).then(|| self.stager.loss()));
        ends
    }

    /// Contribution of a pass of these times to a measure of a stage, seconds.
    fn weigh(measure: &Measure, stage: usize, time: &StageTime) -> f64 {
        match measure {
            Measure::Slowest => (time.forward + time.backward).get(),
            Measure::PathLength(path) => {
                path.forward[stage] * time.forward.get()
                    + path.backward[stage] * time.backward.get()
                    + path.wgrad[stage] * time.wgrad.get()
            }
        }
    }

    fn state(&self, item: usize) -> f64 {
        let state = |held| self.stager.state_bytes(&held, Offload::NONE).get();
        let mtp = item >= self.stager.costs().problem.model().layers() as usize;
        state(self.stager.layer_parameters(self.items[item]))
            + if mtp { state(self.stager.mtp_parameters()) } else { 0.0 }
    }

    /// Minimum of a measure by HiGHS, recomputed from its solution. `None` where no split fits.
    ///
    /// ```text
    /// x_iso  0 or 1: item i lies on stage s and recomputes o         g_s: the largest working set of stage s
    ///
    /// s.t.   Σ_so x_iso = 1                                           every item lies somewhere
    ///        Σ_(s ≤ S) Σ_o x_(i+1)so ≤ Σ_(s ≤ S) Σ_o x_iso            no item lies before the one it follows
    ///        Σ_io x_iso ≥ 1                                           no stage between the ends is empty
    ///        Σ_io (states_i + f_s·kept_o)·x_iso + g_s ≤ room_s        every rank fits, f_s micro-batches in flight
    ///        workset_o·x_iso ≤ g_s
    /// ```
    fn solve(&self, measure: &Measure) -> Option<f64> {
        let (stager, stages) = (self.stager, self.stages);
        let whole: f64 = (0..stages)
            .flat_map(|stage| {
                let layers = (stage == 0).then(|| self.items.iter().map(|&kind| self.options[kind][0].time));
                self.ends(stage).into_iter().chain(layers.into_iter().flatten())
            })
            .map(|time| (time.forward + time.backward).get())
            .sum();
        let mut vars = variables!();
        let taken: Vec<Vec<Vec<Variable>>> = self
            .items
            .iter()
            .map(|&kind| {
                (0..stages)
                    .map(|_| self.options[kind].iter().map(|_| vars.add(variable().binary())).collect())
                    .collect()
            })
            .collect();
        let working_set: Vec<Variable> = (0..stages).map(|_| vars.add(variable().min(0.0))).collect();
        let slowest = vars.add(variable().min(0.0));
        let on = |item: usize, stage: usize| -> Expression { taken[item][stage].iter().sum() };
        let up_to = |item: usize, stage: usize| -> Expression { (0..=stage).map(|s| on(item, s)).sum() };
        let each = |stage: usize| {
            let items = self.items.iter().enumerate();
            items.flat_map(|(item, &kind)| self.options[kind].iter().zip(&taken[item][stage])).collect::<Vec<_>>()
        };
        let measured = |stage: usize| -> Expression {
            let ends: f64 = self.ends(stage).iter().map(|time| Self::weigh(measure, stage, time)).sum();
            let layers: Expression =
                each(stage).into_iter().map(|(o, x)| Self::weigh(measure, stage, &o.time) / whole * *x).sum();
            layers + ends / whole
        };
        let mut rows = Vec::new();
        for item in 0..self.items.len() {
            rows.push(constraint!(up_to(item, stages - 1) == 1.0));
            for stage in (0..stages).filter(|_| item > 0) {
                rows.push(constraint!(up_to(item, stage) <= up_to(item - 1, stage)));
            }
        }
        let TableParameters { embedding, head } = stager.table_parameters();
        let state = |held| stager.state_bytes(&held, Offload::NONE).get();
        for stage in 0..stages {
            if stage > 0 && stage + 1 < stages {
                let held: Expression = (0..self.items.len()).map(|item| on(item, stage)).sum();
                rows.push(constraint!(held >= 1.0));
            }
            let mut room = (stager.costs().tensor_room(stager.plan()) - stager.fixed_bytes(stage as u32)).get();
            room -= if stage == 0 { state(embedding) } else { 0.0 };
            room -= if stage + 1 == stages { state(head) } else { 0.0 };
            let scale = room.abs().max(1.0);
            for moment in &stager.peak_moments()[stage] {
                let held: Expression = (0..self.items.len())
                    .flat_map(|item| {
                        let options = self.options[self.items[item]].iter().zip(&taken[item][stage]);
                        let states = self.state(item);
                        options.map(move |(o, x)| (states + o.kept.get() * moment[0]) / scale * *x)
                    })
                    .sum();
                rows.push(constraint!(held + working_set[stage] <= room / scale));
            }
            for (option, x) in each(stage) {
                rows.push(constraint!(option.working_set.get() / scale * *x <= working_set[stage]));
            }
            if matches!(measure, Measure::Slowest) {
                rows.push(constraint!(measured(stage) <= slowest));
            }
        }
        let goal: Expression = match measure {
            Measure::Slowest => slowest.into(),
            Measure::PathLength(_) => (0..stages).map(measured).sum(),
        };
        let model = vars.minimise(goal).using(highs).set_mip_rel_gap(0.0).unwrap();
        let model = rows.into_iter().fold(model, SolverModel::with);
        let solution = match model.solve() {
            Ok(solution) => solution,
            Err(ResolutionError::Infeasible) => return None,
            Err(other) => panic!("HiGHS: {other}"),
        };
        let of_stage = |stage: usize| -> f64 {
            let ends: f64 = self.ends(stage).iter().map(|time| Self::weigh(measure, stage, time)).sum();
            let chosen = each(stage).into_iter().filter(|(_, x)| solution.value(**x) > 0.5);
            ends + chosen.map(|(o, _)| Self::weigh(measure, stage, &o.time)).sum::<f64>()
        };
        Some(match measure {
            Measure::Slowest => (0..stages).map(of_stage).fold(0.0, f64::max),
            Measure::PathLength(_) => (0..stages).map(of_stage).sum(),
        })
    }
}

/// Random models of one to three kinds of layer on random counts of stages, with ceilings from ample to too small.
#[test]
fn dynamic_programs_equal_highs() {
    let mut numbers = SplitMix::new(11);
    let (mut equal, mut none, mut recomputed) = (0, 0, 0);
    for round in 0..60 {
        let (model, kinds) =
            [("llama3-8b", "d"), ("gemma3-27b", "lg"), ("deepseek-v2", "dm"), ("llama4-maverick", "cdg")][round % 4];
        let schedule = ["1f1b", "gpipe", "zb-h1", "zb-h2", "naive"][numbers.below(5)];
        let stages = 2 + numbers.below(3);
        let count = stages + 1 + numbers.below(5);
        let letters: Vec<String> = (0..count)
            .map(|_| {
                let at = numbers.below(kinds.len());
                kinds[at..=at].to_owned()
            })
            .collect();
        let text = format!("tp=1 pp={stages} mbs=1 schedule={schedule}");
        let of = |hbm: f64| {
            spec(model, "dgx-h100-64", "nemo-25", 4 * stages as u32, 16384)
                .gpus(stages as u32)
                .set(format!("model.layers={}", letters.join(" ")))
                .set(format!("gpu.hbm={hbm:.3} GB"))
                .problem()
        };
        let ample = of(9000.0);
        let needed = Costs::new(&ample).evaluate(&parse_plan(&text, &ample).unwrap()).footprint.peak();
        let problem = of(needed.get() / 1e9 * (0.7 + 0.05 * numbers.below(12) as f64));
        let plan = parse_plan(&text, &problem).unwrap();
        let costs = Costs::new(&problem);
        let stager = Stager::new(&costs, &plan);
        let assignment = Assignment::new(&stager);
        let name = format!("{model} {} {plan}", letters.join(" "));
        let ours = minima(&stager, Freedom::default()).unwrap();
        let theirs = assignment.solve(&Measure::Slowest);
        let (Some(ours), Some(theirs)) = (&ours, theirs) else {
            assert_eq!(ours.is_some(), theirs.is_some(), "{name}: only one of them finds a split that fits");
            none += 1;
            continue;
        };
        let same = |ours: f64, theirs: f64| (ours - theirs).abs() <= 1e-6 * theirs;
        assert!(same(ours.slowest.get(), theirs), "{name}: slowest {} against HiGHS' {theirs}", ours.slowest);
        // Two paths of each: a solution of HiGHS takes a while.
        for (path, length) in [ours.paths.first(), ours.paths.last()].into_iter().flatten() {
            let theirs = assignment.solve(&Measure::PathLength(path)).unwrap();
            assert!(same(length.get(), theirs), "{name}: path {length} against HiGHS' {theirs}");
        }
        equal += 1;
        let fastest = minima(&stager, Freedom { recompute: false, ..Freedom::default() }).unwrap();
        recomputed += usize::from(fastest.is_none_or(|fastest| fastest.slowest > ours.slowest));
    }
    println!("{equal} equal, {recomputed} of them recompute, {none} fit for neither");
    assert!(equal >= 30 && recomputed >= 8 && none >= 3, "{equal} equal, {recomputed} recompute, {none} do not fit");
}
