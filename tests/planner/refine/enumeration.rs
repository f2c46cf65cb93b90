//! Refined stages of small models against enumeration.

use super::check;
use crate::random::{SplitMix, spec};
use meshwright::cost::{Costs, Footprint, Stager};
use meshwright::plan::{Modules, Plan, Recompute};
use meshwright::problem::Problem;
use meshwright::refine::{Infeasible, Options, Proof, refine};
use meshwright::space::parse_plan;
use meshwright::stages::{Mix, Stage, StagedPlan, kinds_in_order};
use meshwright::units::Bytes;

/// Every recomputation of one layer.
fn recomputes() -> Vec<Recompute> {
    let mut list = vec![Recompute::None, Recompute::Full];
    for bits in 1_u32..64 {
        let on = |bit: u32| bits >> bit & 1 == 1;
        list.push(Recompute::Selective(Modules {
            core_attn: on(0),
            layernorm: on(1),
            act: on(2),
            mla_up_proj: on(3),
            mlp: on(4),
            moe: on(5),
        }));
    }
    list
}

/// Those of which none is as slow and as large as another.
fn undominated(stager: &Stager, kind: usize) -> Vec<Recompute> {
    let key = |r: &Recompute| {
        let option = stager.layer(kind, *r, 0.0);
        (option.time.backward.get(), option.kept.get(), option.working_set.get())
    };
    let mut kept: Vec<Recompute> = Vec::new();
    for recompute in recomputes() {
        let own = key(&recompute);
        let no_worse = |a: (f64, f64, f64), b: (f64, f64, f64)| a.0 <= b.0 && a.1 <= b.1 && a.2 <= b.2;
        if kept.iter().any(|known| no_worse(key(known), own)) {
            continue;
        }
        kept.retain(|known| !no_worse(own, key(known)));
        kept.push(recompute);
    }
    kept
}

/// Every way to mix the options of these layers.
fn mixes(kinds: &[usize], options: &[Vec<Recompute>]) -> Vec<Vec<Mix>> {
    let mut all: Vec<Vec<Mix>> = vec![Vec::new()];
    for &kind in kinds {
        let mut next: Vec<Vec<Mix>> = Vec::new();
        for mix in &all {
            for &recompute in &options[kind] {
                let mut more = mix.clone();
                match more.iter_mut().find(|m| m.kind == kind && m.recompute == recompute) {
                    Some(m) => m.layers += 1,
                    None => more.push(Mix { kind, recompute, layers: 1 }),
                }
                more.sort();
                next.push(more);
            }
        }
        next.sort();
        next.dedup();
        all = next;
    }
    all
}

/// All cuts of `n` items into `chunks` stages, those without an end of the model not empty.
fn all_cuts(n: usize, chunks: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![0]];
    for chunk in 0..chunks {
        let last = chunk + 1 == chunks;
        let mut next = Vec::new();
        for cuts in &all {
            let from = cuts[cuts.len() - 1];
            let least = if chunk == 0 || last { from } else { from + 1 };
            for to in least..=n {
                if !last || to == n {
                    next.push(cuts.iter().copied().chain([to]).collect::<Vec<usize>>());
                }
            }
        }
        all = next;
    }
    all
}

/// Step time in seconds and fullest rank of every split and mix, by the evaluator alone. Neither depends on the memory
/// of the device.
pub(super) fn every_split(problem: &Problem, plan: &Plan) -> Vec<(f64, Bytes)> {
    let costs = Costs::new(problem);
    let stager = Stager::new(&costs, plan);
    let model = problem.model();
    let items = kinds_in_order(model);
    let options: Vec<Vec<Recompute>> = (0..model.kinds.len()).map(|kind| undominated(&stager, kind)).collect();
    let chunks = plan.pipeline().chunks() as usize;
    let decoders = model.layers() as usize;
    let mut all = Vec::new();
    for cuts in all_cuts(items.len(), chunks) {
        let choices: Vec<Vec<Vec<Mix>>> =
            (0..chunks).map(|chunk| mixes(&items[cuts[chunk]..cuts[chunk + 1]], &options)).collect();
        let mut at = vec![0; chunks];
        loop {
            let stages = (0..chunks)
                .map(|chunk| {
                    let (a, b) = (cuts[chunk], cuts[chunk + 1]);
                    let layers = b.min(decoders).saturating_sub(a);
                    Stage {
                        from: a as u32,
                        layers: layers as u32,
                        mtp: (b - a - layers) as u32,
                        embedding: chunk == 0,
                        loss: chunk + 1 == chunks,
                        mixes: choices[chunk][at[chunk]].clone(),
                    }
                })
                .collect();
            let staged =
                StagedPlan { plan: plan.clone(), stages, offload: vec![plan.offload; plan.layout.pp as usize] };
            let price = stager.evaluate(&staged);
            let fullest = price.footprints.iter().map(Footprint::peak).max_by(|a, b| a.get().total_cmp(&b.get()));
            all.push((price.evaluation.step.total().get(), fullest.unwrap()));
            let Some(next) = (0..chunks).find(|&chunk| at[chunk] + 1 < choices[chunk].len()) else { break };
            at[..next].fill(0);
            at[next] += 1;
        }
    }
    all
}

/// Step time of the fastest of these that fit.
pub(super) fn brute_force(all: &[(f64, Bytes)], problem: &Problem) -> Option<f64> {
    let fit = all.iter().filter(|(_, device)| *device <= problem.hbm_budget());
    fit.map(|(step, _)| *step).min_by(f64::total_cmp)
}

const SCHEDULES: [&str; 10] = [
    "schedule=1f1b",
    "schedule=gpipe",
    "schedule=naive",
    "schedule=zb-h1",
    "schedule=zb-h2",
    "schedule=interleaved vpp=2",
    "schedule=looped-bfs vpp=2",
    "schedule=zb-v",
    "schedule=dualpipe-v",
    "schedule=dualpipe",
];

/// Small models of one to three kinds of layer, with ceilings from ample to too small: what brute force finds is found, and
/// "optimal" is.
#[test]
fn small_cases_equal_brute_force() {
    let mut numbers = SplitMix::new(5);
    let (mut feasible, mut infeasible, mut optimal, mut found_alone, mut worst) = (0, 0, 0, 0, 0.0_f64);
    for (model, layers, gpus) in
        [("llama3-8b", "d*5", 2), ("llama3-8b", "d*4", 4), ("gemma3-27b", "l*2 g l", 2), ("deepseek-v2", "d m*3", 2)]
    {
        for schedule in SCHEDULES {
            let pp = if schedule.contains("vpp") || schedule.ends_with("-v") { 2 } else { gpus };
            let mbs = if gpus > pp { 2 } else { 1 };
            let base = spec(model, "dgx-h100-64", "nemo-25", 8, 4096).gpus(gpus).set(format!("model.layers={layers}"));
            let plan = parse_plan(&format!("tp=1 pp={pp} mbs={mbs} {schedule}"), &base.problem()).unwrap();
            let all = every_split(&base.problem(), &plan);
            for hbm in [400, 90, 60, 40] {
                let hbm = hbm + numbers.below(12);
                let problem = base.set(format!("gpu.hbm={hbm} GB")).problem();
                let by_hand = brute_force(&all, &problem);
                let found = refine(&Costs::new(&problem), &plan, &Options::default());
                match (by_hand, found) {
                    (Some(best), Ok(refined)) => {
                        check(&problem, &plan, &refined);
                        let step = refined.step().get();
                        assert!(refined.bound.get() <= best * (1.0 + 1e-9), "{model} {plan} {hbm}: bound over {best}");
                        assert!(step >= best * (1.0 - 1e-9), "{model} {plan} {hbm}: {step} beats brute force {best}");
                        if refined.proof == Proof::Optimal {
                            assert!(step <= best * (1.0 + 1e-9), "{model} {plan} {hbm}: {step} is not optimal: {best}");
                            optimal += 1;
                        }
                        if step > best * (1.0 + 1e-9) {
                            println!("{model} {plan} {hbm}: {step} against {best}, {}", refined.proof);
                        }
                        worst = worst.max(step / best - 1.0);
                        feasible += 1;
                        let unaided = Options { enumerate: false, ..Options::default() };
                        let alone = refine(&Costs::new(&problem), &plan, &unaided).unwrap();
                        check(&problem, &plan, &alone);
                        assert!(alone.bound.get() <= best * (1.0 + 1e-9), "{model} {plan} {hbm}: bound over {best}");
                        assert!(alone.step().get() >= best * (1.0 - 1e-9), "{model} {plan} {hbm}: beats brute force");
                        assert!(
                            alone.step().get() * (1.0 - alone.proof.gap()) <= best * (1.0 + 1e-9),
                            "{model} {plan} {hbm}: {} is not as near as {} says",
                            alone.step(),
                            alone.proof
                        );
                        found_alone += usize::from(alone.step().get() <= best * (1.0 + 1e-9));
                    }
                    (None, Err(why)) => {
                        assert!(matches!(why, Infeasible::Memory { .. } | Infeasible::TooFewLayers { .. }), "{why}");
                        infeasible += 1;
                    }
                    (by_hand, found) => panic!("{model} {plan} {hbm}: brute force {by_hand:?}, found {found:?}"),
                }
            }
        }
    }
    println!(
        "{feasible} feasible ({optimal} proved optimal, {found_alone} without enumeration), {infeasible} not, worst {worst}"
    );
    assert!(feasible > 50 && infeasible > 5, "{feasible} feasible, {infeasible} not");
    assert!(worst <= 1e-9, "{worst}");
}

/// Tied embeddings: one table where both ends stand on one rank without a pipeline, else one at each end, on one rank too where
/// both ends do. What the program finds is what brute force does.
#[test]
fn tied_embeddings_are_held_where_brute_force_holds_them() {
    let tied = spec("gemma3-27b", "dgx-h100-64", "nemo-25", 8, 4096).set("model.layers=l g l");
    assert!(tied.problem().model().tied_embeddings);
    let untied = tied.set("model.tied_embeddings=false");
    let (mut compared, mut told_apart) = (0, 0);
    for (gpus, text) in [
        (1, "tp=1 pp=1 mbs=1"),
        (2, "tp=1 pp=2 mbs=1 schedule=1f1b"),
        (2, "tp=1 pp=2 mbs=1 schedule=zb-v"),
        (2, "tp=1 pp=2 mbs=1 schedule=dualpipe-v"),
    ] {
        let models = [&tied, &untied].map(|model| {
            let base = model.gpus(gpus);
            let plan = parse_plan(text, &base.problem()).unwrap();
            let all = every_split(&base.problem(), &plan);
            (base, plan, all)
        });
        for hbm in (30..=90).step_by(4) {
            let found = models.each_ref().map(|(base, plan, all)| {
                let problem = base.set(format!("gpu.hbm={hbm} GB")).problem();
                let by_hand = brute_force(all, &problem);
                let found = refine(&Costs::new(&problem), plan, &Options::default()).ok();
                if let Some(refined) = &found {
                    check(&problem, plan, refined);
                }
                let found = found.map(|refined| refined.step().get());
                let same = match (by_hand, found) {
                    (Some(best), Some(found)) => (found / best - 1.0).abs() <= 1e-9,
                    (by_hand, found) => by_hand.is_none() && found.is_none(),
                };
                assert!(same, "{text} {hbm} GB: brute force {by_hand:?}, found {found:?}");
                found
            });
            compared += 1;
            told_apart += usize::from(gpus == 1 && found[0].is_some() && found[1].is_none());
            if gpus > 1 {
                assert_eq!(found[0].is_some(), found[1].is_some(), "{text} {hbm} GB: both ends hold a table");
            }
        }
    }
    assert!(told_apart > 0, "{compared} compared: no ceiling tells one table from two");
}
