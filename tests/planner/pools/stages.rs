//! Stages on pools against one cluster and against all splits.

use super::{leaf, pooled, pools, problem, problem_of};
use meshwright::catalog::{self, Overrides};
use meshwright::cost::{Costs, HeterogeneousStager, Stager};
use meshwright::plan::Plan;
use meshwright::pools::{Distribution, Pooled, stages};
use meshwright::refine::{self, refine};
use meshwright::space::parse_plan;
use meshwright::stages::{Stage, StagedPlan};

/// Options of a refinement that chooses layers only.
fn layers_only() -> refine::Options {
    let freedom = refine::Freedom { recompute: false, ..refine::Freedom::default() };
    refine::Options { freedom, ..refine::Options::default() }
}

/// The pools of each rank: `first` of pool 0, then `second` of pool 1.
fn in_order(first: usize, second: usize) -> Vec<usize> {
    [vec![0; first], vec![1; second]].concat()
}

/// Stages on two halves of one cluster take what they do on the whole, each at its best layers.
#[test]
fn stages_on_identical_pools_are_those_of_one_cluster() {
    let whole = problem("llama3-8b", leaf("dgx-h100-1k", 64), 128).unwrap();
    let halves = pooled("llama3-8b", vec![leaf("dgx-h100-1k", 32), leaf("dgx-h100-1k", 32)], "400 Gb/s", 128);
    let costs = Costs::new(&whole);
    for text in [
        "tp=4 pp=4 dp=4 sp=on schedule=1f1b zero=1",
        "tp=2 pp=8 dp=4 sp=on schedule=1f1b zero=1 mbs=2",
        "tp=4 pp=8 dp=2 sp=on schedule=gpipe zero=0",
        "tp=8 pp=4 dp=2 sp=on schedule=zb-h1 zero=1",
        "tp=4 pp=4 dp=4 sp=on schedule=interleaved vpp=2 zero=1",
        "tp=8 pp=2 dp=4 sp=on schedule=interleaved vpp=4 zero=1",
    ] {
        let plan = parse_plan(text, &whole).unwrap();
        let one = refine(&costs, &plan, &refine::Options::default()).unwrap();
        let half = plan.layout.pp as usize / 2;
        let two = stages::of_plan(&halves, &plan, &in_order(half, half), &refine::Options::default())
            .unwrap_or_else(|| panic!("{text}"));
        let Distribution::Stages { refined, .. } = &two.distribution else { panic!("stages were asked for") };
        let most = one.proof.gap().max(refined.proof.gap()).max(1e-9);
        let (one, two) = (one.step(), two.step.total());
        assert!((one / two - 1.0).abs() <= most, "{text}: {one} on one cluster, {two} on its halves");
    }
}

/// The best stages on pools are those of trying every split, each rank under its own memory, over a slow link too.
#[test]
fn stages_on_pools_are_those_of_trying_all() {
    let kinds = [("dgx-h100-1k", "hgx-b200-512"), ("h200-1k", "dgx-h100-1k")];
    let (mut fitting, mut refused) = (0, 0);
    for ((first, second), bandwidth, text, shape) in itertools::iproduct!(
        kinds,
        ["400 Gb/s", "2 Gb/s"],
        [
            "tp=4 dp=2 sp=on schedule=1f1b zero=1 recompute=none",
            "tp=8 dp=1 sp=on schedule=gpipe zero=1 recompute=none",
            "tp=2 dp=4 sp=on schedule=zb-h1 zero=0 recompute=full",
        ],
        [(1, 2), (2, 2), (3, 1)]
    ) {
        let clusters = vec![leaf(first, 8 * shape.0), leaf(second, 8 * shape.1)];
        let pooled = pooled("llama3-8b", clusters, bandwidth, 16);
        let text = format!("{text} pp={}", shape.0 + shape.1);
        let plan = parse_plan(&text, &pooled.joined()[0]).unwrap();
        let of_rank = in_order(shape.0 as usize, shape.1 as usize);
        let least = least_of_all_splits(&pooled, &plan, &of_rank);
        let found = stages::of_plan(&pooled, &plan, &of_rank, &layers_only());
        match (least, &found) {
            (None, None) => refused += 1,
            (Some(least), Some(found)) => {
                let Distribution::Stages { refined, .. } = &found.distribution else { panic!("stages were asked for") };
                let step = found.step.total().get();
                let gap = refined.proof.gap();
                assert!(step * (1.0 - gap) <= least * (1.0 + 1e-9), "{text}: {step} less {gap} is over {least}");
                assert!(
                    step <= least * (1.0 + 1e-9),
                    "{text}, {first} + {second}, {bandwidth}: {step}, the best is {least}"
                );
                assert!(step >= least * (1.0 - 1e-9), "{text}: {step} is none of the splits: the best is {least}");
                fitting += 1;
            }
            _ => panic!(
                "{text}, {first} + {second}: trying all finds {least:?}, the program {:?}",
                found.map(|f| f.step)
            ),
        }
    }
    assert!(fitting >= 12, "{fitting} fit, {refused} do not");
}

/// Ranks with several stages equal an exhaustive search; where only the bound is asked, no split is faster than it.
#[test]
fn several_stages_a_rank_on_pools_are_those_of_trying_all() {
    let mut compared = 0;
    for ((first, second), bandwidth, (text, shape)) in itertools::iproduct!(
        [("dgx-h100-1k", "hgx-b200-512"), ("h200-1k", "dgx-h100-1k")],
        ["400 Gb/s", "2 Gb/s"],
        [
            ("tp=8 dp=1 pp=2 sp=on schedule=interleaved vpp=2 zero=1 recompute=none", (1, 1)),
            ("tp=4 dp=2 pp=3 sp=on schedule=interleaved vpp=2 zero=1 recompute=none", (2, 1)),
            ("tp=4 dp=2 pp=3 sp=on schedule=looped-bfs vpp=2 zero=0 recompute=full", (1, 2)),
            ("tp=8 dp=1 pp=2 sp=on schedule=zb-v zero=1 recompute=none", (1, 1)),
        ]
    ) {
        let layers = Overrides::parse(["model.layers=d*9"]).unwrap();
        let model = catalog::model("llama3-8b", &layers).unwrap();
        let clusters = pools(vec![leaf(first, 8 * shape.0), leaf(second, 8 * shape.1)], bandwidth);
        let pooled = Pooled::new(clusters, |cluster| problem_of(model.clone(), cluster, 12)).unwrap();
        let plan = parse_plan(text, &pooled.joined()[0]).unwrap();
        let of_rank = in_order(shape.0 as usize, shape.1 as usize);
        let least = least_of_all_splits(&pooled, &plan, &of_rank).unwrap_or_else(|| panic!("{text} does not fit"));
        for enumerate in [true, false] {
            let options = refine::Options { enumerate, ..layers_only() };
            let found = stages::of_plan(&pooled, &plan, &of_rank, &options).expect("it fits");
            let Distribution::Stages { refined, .. } = &found.distribution else { panic!("stages were asked for") };
            let (step, proof) = (found.step.total().get(), refined.proof);
            let what = format!("{text}, {first} + {second}, {bandwidth}: {step}, the best is {least}, {proof}");
            assert!(step >= least * (1.0 - 1e-9), "{what}");
            assert!(refined.bound.get() <= least * (1.0 + 1e-9), "{what}, bound {}", refined.bound);
            assert!(!enumerate || step <= least * (1.0 + 1e-9), "{what}");
        }
        compared += 1;
    }
    assert_eq!(compared, 16);
}

/// A bidirectional pipeline is refused: its ranks hold a stage of each half.
#[test]
fn bidirectional_stages_on_pools_are_refused() {
    let pooled = pooled("llama3-8b", vec![leaf("dgx-h100-1k", 16), leaf("hgx-b200-512", 16)], "400 Gb/s", 16);
    let plan = parse_plan("tp=4 dp=2 pp=4 sp=on schedule=dualpipe-v zero=1", &pooled.joined()[0]).unwrap();
    assert!(stages::of_plan(&pooled, &plan, &in_order(2, 2), &layers_only()).is_none());
    let costs = Costs::new(&pooled.joined()[0]);
    assert_eq!(refine::pools::runs(&Stager::new(&costs, &plan)), Err(refine::pools::ONE_WAY));
}

/// Step time in seconds of the fastest split of a plan's layers that fits, by trying each; `None` where none fits.
fn least_of_all_splits(pooled: &Pooled, plan: &Plan, of_rank: &[usize]) -> Option<f64> {
    let costs: Vec<Costs> = pooled.joined().iter().map(Costs::new).collect();
    let stagers: Vec<Stager> = costs.iter().map(|costs| Stager::new(costs, plan)).collect();
    let heterogeneous = HeterogeneousStager::new(&stagers, of_rank, |a, b| stages::send_across(pooled, plan, a, b));
    let model = pooled.joined()[0].model();
    let splits = splits(model.layers(), plan.pipeline().chunks());
    let prices = splits.iter().map(|counts| heterogeneous.evaluate(&StagedPlan::uniform(model, plan, counts)).unwrap());
    let fitting = prices.filter(|price| refine::pools::over(&stagers, of_rank, price).is_none());
    fitting.map(|price| price.evaluation.step.total().get()).reduce(f64::min)
}

/// Every split of `layers` layers over `stages` stages; stages without an end of the model have one layer or more.
fn splits(layers: u32, stages: u32) -> Vec<Vec<u32>> {
    let mut all: Vec<(Vec<u32>, u32)> = vec![(Vec::new(), layers)];
    for stage in 0..stages {
        let (first, last) = (stage == 0, stage + 1 == stages);
        let least = u32::from(!first && !last);
        all = all
            .into_iter()
            .flat_map(|(counts, left)| {
                let from = if last { left } else { least };
                (from..=left).filter(move |&n| n >= least).map(move |n| ([&counts[..], &[n]].concat(), left - n))
            })
            .collect();
    }
    all.into_iter().map(|(counts, _)| counts).collect()
}

/// Layers of each pool in the best split of a plan over two pools of `gpus` GPUs each.
fn layers_of(model: &str, pools: [&str; 2], gpus: u32, batch: u32, text: &str) -> [u32; 2] {
    let pooled = pooled(model, pools.map(|name| leaf(name, gpus)).to_vec(), "400 Gb/s", batch);
    let plan = parse_plan(text, &pooled.joined()[0]).unwrap();
    let half = plan.layout.pp as usize / 2;
    let found = stages::of_plan(&pooled, &plan, &in_order(half, half), &layers_only()).expect("it fits");
    let Distribution::Stages { refined, .. } = &found.distribution else { panic!("stages were asked for") };
    for (pool, problem) in pooled.joined().iter().enumerate() {
        assert!(found.footprints[pool].peak() <= problem.hbm_budget());
    }
    let held = |stages: &[Stage]| stages.iter().map(|stage| stage.layers).sum();
    [held(&refined.staged.stages[..half]), held(&refined.staged.stages[half..])]
}

/// The stages of a pool that is about twice as fast hold about twice the layers; those of one with more memory hold more where
/// memory binds.
#[test]
fn layers_go_where_speed_and_memory_are() {
    let plain = "tp=4 pp=4 dp=2 sp=on schedule=1f1b zero=1 mbs=2 recompute=none"; // with mbs=1 the host bounds B200
    let [b200, h100] = layers_of("llama3-8b", ["hgx-b200-512", "dgx-h100-1k"], 16, 64, plain);
    let ratio = f64::from(b200) / f64::from(h100);
    assert!((1.5..3.2).contains(&ratio), "{b200} layers on B200, {h100} on H100");
    // H200 computes as H100 does, and its stage has the loss: what it holds more is its memory's.
    let tight = "tp=8 pp=2 dp=1 sp=on schedule=1f1b zero=1 recompute=none";
    let [h100, h200] = layers_of("llama3-70b", ["dgx-h100-1k", "h200-1k"], 8, 16, tight);
    assert!(h200 > h100, "{h100} layers on H100, {h200} on H200");
    let [first, last] = layers_of("llama3-70b", ["h200-1k", "h200-1k"], 8, 16, tight);
    assert!(first >= last && h100 < first, "{first} and {last} layers where memory is ample");
}
