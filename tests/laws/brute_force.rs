//! The search with its bounds, its stages, dominance, batches and threads gives what a plain loop over the whole space gives.

use std::collections::BTreeMap;

use crate::beside;
use crate::random::{Spec, SplitMix, spec};
use meshwright::cost::{Costs, Evaluation};
use meshwright::frameworks::FRAMEWORKS;
use meshwright::model::{KimiDelta, Layer, Mixer, Mla};
use meshwright::plan::{Layout, Offload, Plan};
use meshwright::problem::{HbmProfile, Problem};
use meshwright::search::{Goal, Objective, Ranking, SearchOptions, SearchProof, search, search_for};
use meshwright::space::{self, Restrictions, Space};
use std::ops::ControlFlow;

/// Plans returned, each of another layout.
const TOP: usize = 5;
/// Most plans of a space that the plain loop walks through.
const MOST: u64 = 4_000;

/// Problems looked at: `MESHWRIGHT_PROBLEMS=500` for the full count.
pub fn problems_wanted() -> usize {
    std::env::var("MESHWRIGHT_PROBLEMS").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

/// Models with few layers, clusters of one to three levels, stacks of every framework.
const MODELS: [(&str, &str, u32); 9] = [
    ("llama3-8b", "d*4", 4096),
    ("llama3-70b", "d*7", 8192),
    ("qwen2.5-7b", "d*5", 4096),
    ("gpt3-175b", "d*6", 2048),
    ("qwen3-30b-a3b", "m*4", 4096),
    ("deepseek-v2", "d*1 m*3", 4096),
    ("deepseek-v3", "d*2 m*3", 4096),
    ("mixtral-8x7b", "m*6", 4096),
    ("gemma3-27b", "", 8192),
];
const CLUSTERS: [&str; 7] =
    ["dgx-h100-64", "h100-24576", "a100-pcie-8", "h200-ethernet-512", "gb200-nvl72-1152", "tpu-v5p-1024", "mi300x-512"];
const STACKS: [&str; 10] = [
    "nemo-24",
    "nemo-25",
    "megatron-2022",
    "torchtitan-2024",
    "deepseek-v3",
    "deepspeed-zero3-2022",
    "fsdp-eager-2023",
    "nanotron-2025",
    "meta-llama3",
    "internevo-2023",
];

/// A random small problem, and restrictions that leave a space to walk through.
pub fn small(numbers: &mut SplitMix) -> (Spec, Restrictions) {
    loop {
        let (model, layers, seq_len) = MODELS[numbers.below(MODELS.len())];
        let gpus = [2, 4, 6, 8, 12, 16, 24, 32][numbers.below(8)];
        let batch = gpus * [1, 2, 3, 4][numbers.below(4)];
        let cluster = CLUSTERS[numbers.below(CLUSTERS.len())];
        let stack = STACKS[numbers.below(STACKS.len())];
        let mut spec = spec(model, cluster, stack, batch, seq_len).gpus(gpus);
        if !layers.is_empty() {
            spec = spec.set(format!("model.layers={layers}"));
        }
        let mut restrictions = Restrictions::default();
        let degree = |numbers: &mut SplitMix| [1, 2, 4][numbers.below(3)];
        let narrow = |restrictions: &mut Restrictions, numbers: &mut SplitMix| {
            let item = match numbers.below(16) {
                0 => format!("tp={}", degree(numbers)),
                1 => format!("pp={}", degree(numbers)),
                2 => format!("mbs={}", degree(numbers)),
                3 => "cp=1..2".to_owned(),
                4 => format!("ep=1..{}", degree(numbers)),
                5 => "recompute=none,full,act,first-1".to_owned(),
                6 => "offload-optimizer=0,0.5".to_owned(),
                7 => "offload-activations=0,1".to_owned(),
                8 => format!("shard={}", degree(numbers)),
                9 => "split=even".to_owned(),
                10 => "zero=1,3".to_owned(),
                11 => "order=tp-cp-ep-dp-pp".to_owned(),
                12 => "zero=3".to_owned(),
                13 => "recompute=full".to_owned(),
                14 => "recompute=first-1".to_owned(),
                _ => "schedule=interleaved,zb-h1,dualpipe".to_owned(),
            };
            // A key that is fixed already stays as it is.
            let _ = restrictions.fix(&item);
        };
        if numbers.below(6) == 0 {
            restrictions.allow_idle();
        }
        let problem = spec.problem();
        if numbers.below(5) == 0 {
            let framework = FRAMEWORKS[numbers.below(FRAMEWORKS.len())];
            restrictions.for_limits(framework.limits, &problem);
        }
        let costs = Costs::new(&problem);
        for _ in 0..24 {
            let size = Space::new(&costs, &restrictions).size();
            if size == 0 {
                break;
            }
            if size <= MOST {
                return (spec, restrictions);
            }
            narrow(&mut restrictions, numbers);
        }
    }
}

/// Every plan of the space, in order.
pub fn every_plan(space: &Space) -> Vec<Plan> {
    let mut plans = Vec::new();
    for shape in space.shapes() {
        for layout in space.layouts(&shape) {
            for (schedule, split) in space.pipelines(layout.pp) {
                for &recompute in &*space.recomputes(layout.pp, schedule) {
                    for &activations in &*space.offloaded_activations(layout.pp, recompute) {
                        let offload = Offload { activations, ..Offload::NONE };
                        let plan = Plan { layout, schedule, split: split.clone(), recompute, offload, ..shape.clone() };
                        plans.extend(space.shardings(&layout).iter().map(|sharding| sharding.on(&plan)));
                    }
                }
            }
        }
    }
    plans
}

/// Every plan that runs, priced on its own: no bound, no stage, no early rejection, no thread.
pub fn by_hand(problem: &Problem, restrictions: &Restrictions) -> (Vec<Evaluation>, u64) {
    let costs = Costs::new(problem);
    let space = Space::new(&costs, restrictions);
    let plans = every_plan(&space);
    let check = if space.allows_idle() { space::check_with_idle } else { space::check };
    let runs = plans.iter().filter(|plan| check(&costs, plan).is_empty() && space.inexpressible(plan).is_none());
    let evaluations = runs.map(|plan| costs.evaluate_simulated(plan)).collect();
    (evaluations, plans.len() as u64)
}

pub fn time(evaluation: &Evaluation) -> f64 {
    evaluation.step.total().get()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

/// The best of each layout by a measure.
fn best(evaluations: &[Evaluation], measure: impl Fn(&Evaluation) -> f64) -> Vec<f64> {
    let mut best: BTreeMap<Layout, f64> = BTreeMap::new();
    for evaluation in evaluations {
        let known = best.entry(evaluation.plan.layout).or_insert(f64::INFINITY);
        *known = known.min(measure(evaluation));
    }
    let mut ranked: Vec<f64> = best.into_values().collect();
    ranked.sort_by(f64::total_cmp);
    ranked.truncate(TOP);
    ranked
}

pub fn options(restrictions: &Restrictions) -> SearchOptions {
    SearchOptions { top: TOP, restrictions: restrictions.clone() }
}

fn agree(what: &str, found: &Ranking, expected: &[f64], measure: impl Fn(&Evaluation) -> f64) {
    let ranked: Vec<f64> = found.evaluations.iter().map(measure).collect();
    assert_eq!(ranked.len(), expected.len(), "{what}: {ranked:?} instead of {expected:?}");
    for (found, expected) in ranked.iter().zip(expected) {
        assert!(close(*found, *expected), "{what}: {ranked:?} instead of {expected:?}");
    }
}

pub fn adds_up(what: &str, found: &Ranking, size: u64) {
    let certificate = &found.certificate;
    assert_eq!(certificate.size, size, "{what}: plans of the space");
    let cut: u64 = certificate.cut.iter().map(|cut| cut.count).sum();
    let sum = certificate.evaluated + certificate.rejected + certificate.dominated + cut;
    assert_eq!(sum, size, "{what}: every plan is counted once: {certificate:?}");
}

/// Plans that a plain loop prices, and what the search found, which must agree.
fn searched_both_ways(spec: &Spec, restrictions: &Restrictions) -> (Vec<Evaluation>, Ranking) {
    both_ways(&format!("{spec:?} {restrictions:?}"), &spec.problem(), restrictions)
}

pub fn both_ways(what: &str, problem: &Problem, restrictions: &Restrictions) -> (Vec<Evaluation>, Ranking) {
    let (evaluations, size) = by_hand(problem, restrictions);
    let found = search(problem, &options(restrictions), &|_, _| ());
    agree(what, &found, &best(&evaluations, time), time);
    adds_up(what, &found, size);
    (evaluations, found)
}

/// Random problems from a seed: two tests, for two cores.
fn as_by_hand(seed: u64) {
    let mut numbers = SplitMix::new(seed);
    let (mut fits, mut cut, mut idle) = (0, 0, 0);
    let wanted = problems_wanted() / 2;
    for _ in 0..wanted {
        let (spec, restrictions) = small(&mut numbers);
        let (evaluations, found) = searched_both_ways(&spec, &restrictions);
        fits += u64::from(!evaluations.is_empty());
        cut += found.cut_by_bound;
        idle += u64::from(restrictions.allows_idle());
    }
    assert!(fits > wanted as u64 / 3, "only {fits} of {wanted} problems have a plan");
    assert!(cut > 0 && idle > 0, "{cut} plans cut, {idle} problems with idle GPUs");
}

#[test]
fn the_search_finds_what_a_plain_loop_finds() {
    as_by_hand(1);
}

#[test]
fn the_search_finds_what_a_plain_loop_finds_in_other_problems() {
    as_by_hand(1_000_001);
}

/// Under ZeRO 3 the optimizer may fit on the device only where more of the activations are on the host, so more may be faster.
#[test]
fn and_where_offloaded_activations_make_room_for_the_optimizer() {
    let spec = spec("deepseek-v2", "dgx-h100-64", "torchtitan-2024", 12, 4096).gpus(12).set("model.layers=d*1 m*3");
    let mut restrictions = Restrictions::default();
    let fixed = "pp=2 tp=1 mbs=1 ep=1..2 cp=1..2 zero=3 order=tp-cp-ep-dp-pp split=even offload-optimizer=0,0.5 \
                 offload-activations=0,1 recompute=none,full,act,first-1 schedule=interleaved,zb-h1,dualpipe";
    fixed.split_whitespace().for_each(|item| restrictions.fix(item).unwrap());
    let (evaluations, _) = searched_both_ways(&spec, &restrictions);
    assert!(!evaluations.is_empty());
}

/// Layers whose mixer is of two parts, beside layers with delta attention and latent attention without positions.
#[test]
fn and_with_the_mixers_of_hybrids() {
    for (stack, set) in [("nemo-25", "pp=1..4"), ("fsdp-eager-2023", "zero=3")] {
        let spec = spec("llama3-8b", "dgx-h100-64", stack, 32, 4096).gpus(8).set("model.layers=d*4");
        let usual = spec.problem();
        let mut model = usual.model().clone();
        let like = model.kinds[0].clone();
        let delta = Mixer::KimiDelta(KimiDelta { heads: 32, head_dim: 128, conv_kernel: 4 });
        let mla = Mla {
            heads: 32,
            q_rank: 0,
            kv_rank: 512,
            nope_dim: 128,
            rope_dim: 64,
            v_dim: 128,
            rope: false,
            indexer: None,
        };
        for mixers in [vec![Mixer::AttentionMamba(beside::both())], vec![delta, Mixer::Mla(mla)]] {
            model.kinds = mixers.into_iter().map(|mixer| Layer { mixer, ..like.clone() }).collect();
            model.order = (0..4).map(|i| i % model.kinds.len()).collect();
            let (cluster, stack) = (usual.cluster().clone(), usual.stack().clone());
            let problem =
                Problem::new(model.clone(), cluster, usual.workload().clone(), stack, HbmProfile::Normal).unwrap();
            let mut restrictions = Restrictions::default();
            let fixed = "mbs=1,2 order=tp-cp-ep-dp-pp split=even recompute=none,full cp-kind=p2p tp=1,2 cp=1,2";
            fixed.split_whitespace().chain([set]).for_each(|item| restrictions.fix(item).unwrap());
            let (evaluations, _) = both_ways(&format!("{:?}", model.kinds), &problem, &restrictions);
            assert!(!evaluations.is_empty(), "{:?}", model.kinds);
        }
    }
}

/// Under ZeRO 3 in a pipeline half the head counts, which is much of the step of a model of five layers.
#[test]
fn and_where_the_head_weighs_as_much_as_layers() {
    let spec = spec("qwen2.5-7b", "h200-ethernet-512", "torchtitan-2024", 6, 4096).gpus(2).set("model.layers=d*5");
    let mut restrictions = Restrictions::default();
    restrictions.fix("tp=1").unwrap();
    let (evaluations, _) = searched_both_ways(&spec, &restrictions);
    assert!(!evaluations.is_empty());
}

/// Bounds leave out offload that hosts have no room for before it is priced.
#[test]
fn and_where_hosts_have_little_memory() {
    let mut numbers = SplitMix::new(2026);
    let (mut fits, mut refused) = (0, 0);
    for _ in 0..problems_wanted() / 5 {
        let (spec, restrictions) = small(&mut numbers);
        let host = [4, 16, 64][numbers.below(3)];
        let spec = spec.set(format!("cluster.host_memory={host} GB"));
        let (evaluations, found) = searched_both_ways(&spec, &restrictions);
        fits += usize::from(!evaluations.is_empty());
        refused += usize::from(found.rejections.iter().any(|rejected| rejected.rule == "host-memory"));
    }
    assert!(fits > 0 && refused > 0, "{fits} problems have a plan, in {refused} hosts have no room");
}

#[test]
fn and_by_other_measures() {
    let mut numbers = SplitMix::new(77);
    let go_on = |_, _| ControlFlow::Continue(());
    for _ in 0..problems_wanted() / 5 {
        let (spec, restrictions) = small(&mut numbers);
        let what = format!("{spec:?} {restrictions:?}");
        let problem = spec.problem();
        let (evaluations, size) = by_hand(&problem, &restrictions);
        let memory = |e: &Evaluation| e.footprint.peak().get();
        let gpu_time = |e: &Evaluation| time(e) * f64::from(e.plan.layout.world_size());
        let by = |goal| search_for(&problem, &options(&restrictions), goal, &go_on);
        let found = by(Goal::Best(Objective::Memory));
        agree(&what, &found, &best(&evaluations, memory), memory);
        adds_up(&what, &found, size);
        let found = by(Goal::Best(Objective::GpuTime));
        agree(&what, &found, &best(&evaluations, gpu_time), gpu_time);
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let larger = [
        (spec("llama3-70b", "dgx-h100-64", "nemo-25", 128, 8192), Goal::Fastest),
        (spec("mixtral-8x7b", "dgx-h100-64", "nemo-25", 128, 4096), Goal::Fastest),
        (spec("llama3-8b", "dgx-h100-64", "torchtitan-2024", 128, 8192).gpus(16), Goal::Pareto { tolerance: 0.0 }),
        (spec("llama3-8b", "dgx-h100-64", "torchtitan-2024", 128, 8192).gpus(16), Goal::Pareto { tolerance: 0.1 }),
    ];
    for (spec, goal) in larger {
        let problem = spec.problem();
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let go_on = |_, _| ControlFlow::Continue(());
            pool.install(|| search_for(&problem, &options(&Restrictions::default()), goal, &go_on))
        };
        let one = on(1);
        assert!(!one.evaluations.is_empty());
        for threads in [2, 8] {
            assert_eq!(one, on(threads), "{spec:?} on {threads} threads");
        }
    }
}

#[test]
fn a_search_that_is_stopped_says_how_far_it_can_be_off() {
    let problem = spec("llama3-70b", "h100-512", "nemo-25", 512, 8192).problem();
    let options = options(&Restrictions::default());
    let after_one_batch = |done, _| if done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let stopped = search_for(&problem, &options, Goal::Fastest, &after_one_batch);
    let whole = search(&problem, &options, &|_, _| ());
    let (first, best) = (time(&stopped.evaluations[0]), time(&whole.evaluations[0]));
    let gap = stopped.certificate.gap(stopped.evaluations[0].step.total());
    assert!(gap > 0.0 && first * (1.0 - gap) <= best, "{first} is at most {gap} over {best}");
    assert!(whole.certificate.gap(whole.evaluations[0].step.total()) <= 0.0);
    let at_once = search_for(&problem, &options, Goal::Fastest, &|_, _| ControlFlow::Break(()));
    assert!(at_once.evaluations.is_empty(), "a search stops inside its first batch too");
    assert!(matches!(at_once.certificate.proof, SearchProof::Stopped { bound } if bound.get() <= best));
}

#[test]
fn lighter_ends_of_a_pipeline_are_in_the_space_and_win_where_they_balance() {
    let best = |model, fixed: &[&str]| {
        let problem = spec(model, "dgx-h100-64", "nemo-25", 128, 4096).problem();
        let mut restrictions = Restrictions::default();
        for item in ["pp=8", "vpp=1"].iter().chain(fixed) {
            restrictions.fix(item).unwrap();
        }
        let ranking = search(&problem, &options(&restrictions), &|_, _| ());
        let costs = Costs::new(&problem);
        let winner = ranking.evaluations[0].clone();
        assert!(Space::new(&costs, &restrictions).allows(&winner.plan), "{}", winner.plan);
        winner
    };
    let mut lighter = 0;
    let small = ["qwen2.5-7b", "qwen3-32b", "gemma2-27b"];
    let large = ["qwen3-235b-a22b", "llama3-70b", "mixtral-8x22b", "glm-4.5", "qwen2.5-72b"];
    for model in small.into_iter().chain(large) {
        let (any, uniform) = (best(model, &[]), best(model, &["split=even,cost-balanced"]));
        assert!(time(&any) <= time(&uniform) * (1.0 + 1e-12), "{model}: {} and {}", any.plan, uniform.plan);
        lighter += usize::from(time(&any) < time(&uniform) && any.plan.split.is_spelled_out());
    }
    assert!(lighter > 0);
}
