//! The search with its bounds, batches and threads gives what a plain loop over the whole space gives.

mod random;

use std::collections::BTreeMap;

use meshwright::cost::{Costs, Evaluation};
use meshwright::plan::{Layout, Plan};
use meshwright::problem::Problem;
use meshwright::search::{Options, Ranking, search};
use meshwright::space::{self, Restrictions, Space};
use random::{Spec, spec};

/// Plans returned, each of another layout.
const TOP: usize = 5;

/// Problems of 8 to 64 GPUs: dense, tied, mixtures of experts, latent attention; megatron, FSDP, one that runs all schedules.
/// Of mixtures, which have the most plans, only those that a plain loop ends in a second or two.
fn problems() -> Vec<Spec> {
    let mut problems = Vec::new();
    for gpus in [8, 12, 16, 24, 32, 64] {
        for (model, stack, layers) in [
            ("llama3-8b", "nemo-25", None),
            ("qwen2.5-7b", "torchtitan-2024", None),
            ("llama2-13b", "deepspeed-zero3-2022", None),
            ("gpt3-175b", "megatron-2022", Some("d*8")),
            ("qwen3-30b-a3b", "megatron-lm-2024", Some("m*12")),
            ("deepseek-v2", "deepseek-v3", Some("d*1 m*5")),
            ("mixtral-8x7b", "fsdp-eager-2023", Some("m*8")),
        ] {
            let most = match model {
                "deepseek-v2" => 12,
                "qwen3-30b-a3b" | "mixtral-8x7b" => 16,
                "qwen2.5-7b" => 32,
                _ => 64,
            };
            if gpus > most {
                continue;
            }
            let stack = if model == "deepseek-v2" && gpus > 8 { "nemo-25" } else { stack };
            let seq_len = if model == "gpt3-175b" { 2048 } else { 4096 };
            let mut problem = spec(model, "dgx-h100-64", stack, gpus * 2, seq_len).gpus(gpus);
            if let Some(layers) = layers {
                problem = problem.set(format!("model.layers={layers}"));
            }
            problems.push(problem);
        }
    }
    problems
}

/// Every plan of the space that runs, priced on its own: no bound, no shared shape, no early rejection, no thread.
fn by_hand(problem: &Problem, restrictions: &Restrictions) -> (Vec<Evaluation>, u64, u64) {
    let costs = Costs::new(problem);
    let space = Space::new(&costs, restrictions);
    let (mut considered, mut priced) = (0, 0);
    let mut best: BTreeMap<Layout, Evaluation> = BTreeMap::new();
    for shape in space.shapes() {
        for layout in space.layouts(&shape) {
            for schedule in space.schedules(layout.pp) {
                for zero in space.zero_stages(layout.pp) {
                    for order in space::orders(layout.pp, layout.dp) {
                        let plan = Plan { layout, schedule, zero, order, ..shape };
                        considered += 1;
                        if !space.allows(&plan) || !space::check(&costs, &plan).is_empty() {
                            continue;
                        }
                        priced += 1;
                        let evaluation = costs.evaluate(&plan);
                        let key = |e: &Evaluation| (e.step.total(), e.footprint.device());
                        match best.get(&layout) {
                            Some(known) if key(known) <= key(&evaluation) => {}
                            Some(_) | None => {
                                best.insert(layout, evaluation);
                            }
                        }
                    }
                }
            }
        }
    }
    let mut ranked: Vec<Evaluation> = best.into_values().collect();
    ranked.sort_by(|a, b| a.step.total().get().total_cmp(&b.step.total().get()));
    ranked.truncate(TOP);
    (ranked, considered, priced)
}

fn options(restrictions: Restrictions) -> Options {
    Options { top: TOP, restrictions }
}

fn bits(evaluations: &[Evaluation]) -> Vec<u64> {
    evaluations.iter().map(|evaluation| evaluation.step.total().get().to_bits()).collect()
}

fn agree(spec: &Spec, found: &Ranking, by_hand: &(Vec<Evaluation>, u64, u64)) {
    let (ranked, considered, priced) = by_hand;
    assert_eq!(bits(&found.evaluations), bits(ranked), "{spec:?}: {:?} instead of {ranked:?}", found.evaluations);
    assert_eq!(found.considered, *considered, "{spec:?}: plans of the space");
    assert!(found.priced <= *priced && *priced <= found.priced + found.cut_by_bound, "{spec:?}: plans priced");
    let rejected: u64 = found.rejections.iter().map(|rule| rule.count).sum();
    assert_eq!(found.priced + found.cut_by_bound + rejected, found.considered, "{spec:?}: every plan is counted once");
}

/// Every second problem, from `first`: two tests, for two cores.
fn as_by_hand(first: usize) {
    let problems = problems();
    assert!(problems.len() >= 30, "only {}", problems.len());
    let mut cut = 0;
    for spec in problems.into_iter().skip(first).step_by(2) {
        let problem = spec.problem();
        let plain = by_hand(&problem, &Restrictions::default());
        let found = search(&problem, &options(Restrictions::default()), &|_, _| ());
        agree(&spec, &found, &plain);
        assert!(!found.evaluations.is_empty(), "{spec:?}: no plan fits");
        cut += found.cut_by_bound;
    }
    assert!(cut > 0, "the bound was never used");
}

#[test]
fn the_search_finds_what_a_plain_loop_finds() {
    as_by_hand(0);
}

#[test]
fn the_search_finds_what_a_plain_loop_finds_in_the_other_half() {
    as_by_hand(1);
}

#[test]
fn and_under_restrictions() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["tp=2..8"], &["zero=3"]),
        (&["pp=2", "recompute=full"], &[]),
        (&["schedule=interleaved", "vpp=2..4"], &[]),
        (&["sp=off", "mbs=1,2"], &["order=tp-cp-ep-pp-dp"]),
    ];
    for (fixed, forbidden) in cases {
        let mut restrictions = Restrictions::default();
        for item in fixed {
            restrictions.fix(item).unwrap();
        }
        for item in forbidden {
            restrictions.forbid(item).unwrap();
        }
        let spec = spec("llama3-8b", "dgx-h100-64", "nemo-25", 64, 8192).gpus(32);
        let problem = spec.problem();
        let plain = by_hand(&problem, &restrictions);
        assert!(!plain.0.is_empty(), "{fixed:?} {forbidden:?}: nothing is left");
        agree(&spec, &search(&problem, &options(restrictions), &|_, _| ()), &plain);
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for spec in problems().into_iter().step_by(5) {
        let problem = spec.problem();
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| search(&problem, &options(Restrictions::default()), &|_, _| ()))
        };
        let one = on(1);
        for threads in [2, 3, 8] {
            assert_eq!(one, on(threads), "{spec:?} on {threads} threads");
        }
    }
}
