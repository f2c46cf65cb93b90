//! Pools of heterogeneous GPUs: against one cluster, against trying everything, and what a bad file is told.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use meshwright::catalog::{self, ClusterOrPools, Overrides};
use meshwright::cluster::pools::{Link, Pool, PooledCluster};
use meshwright::cluster::{Cluster, Level};
use meshwright::cost::{Costs, Mixed, Stager};
use meshwright::gpu::Format;
use meshwright::model::Model;
use meshwright::plan::Plan;
use meshwright::pools::replicas::Shares;
use meshwright::pools::{Pooled, Way, stages};
use meshwright::problem::{HbmProfile, Problem, ProblemError};
use meshwright::refine::{self, refine};
use meshwright::search::{Goal, SearchOptions, WhatIfs};
use meshwright::space::{Restrictions, parse_plan};
use meshwright::stages::{Stage, StagedPlan};
use meshwright::units::Seconds;
use meshwright::workload::{Adaptation, Half, Optimizer, Workload, recipe};

const SOURCE: &str = "dgx-superpod-h100";

fn cluster(name: &str, gpus: u32) -> Cluster {
    catalog::cluster(name, &Overrides::default()).unwrap().resized(gpus)
}

/// A leaf of `gpus` GPUs at 400 Gb/s, and nothing above it.
fn leaf(name: &str, gpus: u32) -> Cluster {
    let mut cluster = cluster(name, gpus);
    cluster.levels = vec![level("leaf", gpus)];
    cluster.check().unwrap();
    cluster
}

fn level(name: &str, gpus: u32) -> Level {
    let mut level = cluster("dgx-h100-1k", 1024).levels[0].clone();
    (level.name, level.gpus) = (name.into(), gpus);
    level
}

fn link(between: &[&str], bandwidth: &str) -> Link {
    let mut like = level("link", 0).bandwidth;
    like.value = bandwidth.parse().unwrap();
    Link {
        between: between.iter().map(|name| (*name).to_owned()).collect(),
        bandwidth: like,
        latency: None,
        trunk: None,
        oversubscription: 1.0,
        efficiency: 0.85,
    }
}

fn pools(clusters: Vec<Cluster>, bandwidth: &str) -> PooledCluster {
    let names: Vec<String> = (0..clusters.len()).map(|at| format!("pool-{at}")).collect();
    let between: Vec<&str> = names.iter().map(String::as_str).collect();
    let links = vec![link(&between, bandwidth)];
    let pools = clusters.into_iter().zip(&names);
    let pools = pools.map(|(cluster, name)| Pool { name: name.clone(), cluster, price: None }).collect();
    let pooled = PooledCluster { name: "test".into(), pools, links, source: SOURCE.into() };
    pooled.check().unwrap();
    pooled
}

fn problem(model: &str, cluster: Cluster, global_batch: u32) -> Result<Problem, ProblemError> {
    problem_of(catalog::model(model, &Overrides::default()).unwrap(), cluster, global_batch)
}

fn problem_of(model: Model, cluster: Cluster, global_batch: u32) -> Result<Problem, ProblemError> {
    let none = Overrides::default();
    let stack = catalog::stack("nemo-25", &none).unwrap();
    let workload = Workload {
        global_batch,
        seq_len: 4096,
        format: Format::Bf16,
        half: Half::default(),
        recipe: recipe(stack.usual_recipe()).unwrap(),
        optimizer: Optimizer::Elementwise,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: false,
    };
    Problem::new(model, cluster, workload, stack, HbmProfile::Normal)
}

fn pooled(model: &str, clusters: Vec<Cluster>, bandwidth: &str, global_batch: u32) -> Pooled {
    Pooled::new(pools(clusters, bandwidth), |cluster| problem(model, cluster, global_batch)).unwrap()
}

/// Replicas on two halves of one cluster cost what they do on the whole: every link is the same.
#[test]
fn two_identical_pools_are_one_cluster() {
    let mut whole = cluster("dgx-h100-1k", 512);
    whole.levels = vec![level("leaf", 256), level("spine", 512)];
    let whole = problem("llama3-8b", whole, 1024).unwrap();
    let halves = pooled("llama3-8b", vec![leaf("dgx-h100-1k", 256), leaf("dgx-h100-1k", 256)], "400 Gb/s", 1024);
    for text in [
        "tp=1 pp=1 dp=512 zero=1",
        "tp=4 pp=1 dp=128 sp=on zero=1 mbs=2",
        "tp=2 cp=2 pp=2 dp=64 sp=on zero=1 order=tp-cp-ep-pp-dp",
        "tp=1 pp=8 dp=64 schedule=1f1b zero=0 recompute=full order=tp-cp-ep-pp-dp",
        "tp=2 pp=4 dp=64 sp=on schedule=interleaved vpp=2 zero=1 recompute=full order=tp-cp-ep-pp-dp",
    ] {
        let plan = parse_plan(text, &whole).unwrap();
        let one = Costs::new(&whole).evaluate_simulated(&plan);
        let equal = plan.micro_batches(1024) as u32;
        let two = Shares::new(&halves, &plan).price(&[equal, equal]).unwrap_or_else(|| panic!("{text}"));
        let (one, two) = (one.step.total(), two.step.total());
        assert!((one / two - 1.0).abs() < 1e-12, "{text}: {one} on one cluster, {two} on its halves");
    }
}

/// Experts with a pipeline inside each replica: their groups lie inside a pool, and what joins their copies crosses the link as
/// on the whole.
#[test]
fn experts_behind_a_pipeline_are_those_of_one_cluster() {
    let mut whole = cluster("dgx-h100-1k", 512);
    whole.levels = vec![level("leaf", 256), level("spine", 512)];
    let whole = problem("mixtral-8x7b", whole, 1024).unwrap();
    let halves = pooled("mixtral-8x7b", vec![leaf("dgx-h100-1k", 256), leaf("dgx-h100-1k", 256)], "400 Gb/s", 1024);
    for text in [
        "tp=8 pp=4 dp=16 ep=8 sp=on schedule=1f1b zero=1 recompute=full order=tp-cp-ep-pp-dp",
        "tp=4 pp=4 dp=32 ep=4 etp=1 sp=on schedule=interleaved vpp=2 zero=1 recompute=full order=tp-cp-ep-pp-dp",
    ] {
        let plan = parse_plan(text, &whole).unwrap();
        assert!(plan.layout.expert_replicas() > 1);
        let one = Costs::new(&whole).evaluate_simulated(&plan);
        let found = halves.ways(&plan);
        let replicas = found.iter().filter(|mixture| matches!(mixture.way, Way::Replicas { .. }));
        let two = replicas.map(|mixture| mixture.step.total()).reduce(Seconds::min).unwrap_or_else(|| panic!("{text}"));
        let one = one.step.total();
        assert!((one / two - 1.0).abs() < 1e-12, "{text}: {one} on one cluster, {two} on its halves");
    }
}

/// The best shares are those of trying every one.
#[test]
fn shares_are_those_of_trying_all() {
    let slow_b200 = vec![leaf("hgx-b200-512", 16), leaf("dgx-h100-1k", 16)];
    let three = vec![leaf("dgx-h100-1k", 8), leaf("h200-1k", 16), leaf("hgx-b200-512", 8)];
    let mut tried = 0;
    for (clusters, batch) in [(slow_b200.clone(), 96), (slow_b200, 50), (three, 48)] {
        let sizes: Vec<u32> = clusters.iter().map(|cluster| cluster.gpus).collect();
        let pooled = pooled("llama3-8b", clusters, "100 Gb/s", batch);
        for text in [
            "tp=8 pp=1 sp=on zero=1",
            "tp=4 pp=2 sp=on zero=1 schedule=1f1b order=tp-cp-ep-pp-dp",
            "tp=4 pp=2 sp=on zero=1 schedule=interleaved vpp=2 order=tp-cp-ep-pp-dp",
            "tp=2 pp=4 sp=on zero=0 schedule=1f1b recompute=full order=tp-cp-ep-pp-dp",
        ] {
            let plan = parse_plan(text, &pooled.joined()[0]).unwrap();
            let replicas: Vec<u32> = sizes.iter().map(|gpus| gpus / 8).collect();
            let mut shares = Shares::new(&pooled, &plan);
            let mut least: Option<f64> = None;
            let mut all = vec![(Vec::new(), batch)];
            for &count in &replicas {
                all = all
                    .into_iter()
                    .flat_map(|(taken, left)| {
                        (1..=left / count).map(move |n| {
                            let mut taken: Vec<u32> = taken.clone();
                            taken.push(n);
                            (taken, left - n * count)
                        })
                    })
                    .collect();
            }
            for (taken, _) in all.into_iter().filter(|(_, left)| *left == 0) {
                if let Some(mixture) = shares.price(&taken) {
                    let step = mixture.step.total().get();
                    least = Some(least.map_or(step, |known: f64| known.min(step)));
                }
            }
            let best = Shares::new(&pooled, &plan).best(batch).map(|best| best.step.total().get());
            assert_eq!(best, least, "{text}, batch {batch}");
            tried += usize::from(best.is_some());
        }
    }
    assert!(tried >= 6, "only {tried} cases run at all");
}

/// A search that is ended at any question answers with mixtures of the whole search or slower ones, and says so.
#[test]
fn a_search_that_is_ended_is_partial() {
    let halves = pooled("llama3-8b", vec![leaf("dgx-h100-64", 32), leaf("dgx-h100-64", 32)], "400 Gb/s", 1024);
    let options = SearchOptions { top: 3, restrictions: Restrictions::default() };
    let questions = AtomicU64::new(0);
    let whole = halves.answer(&options, &|_, _| {
        questions.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    assert!(!whole.is_partial);
    let best = whole.mixtures[0].step.total();
    let all = questions.into_inner();
    assert!(all > 10, "asked {all} times");
    for most in [0, 1, all / 4, all / 2] {
        let left = AtomicU64::new(most);
        let partial = halves.answer(&options, &|_, _| {
            let take = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            take.map_or(ControlFlow::Break(()), |_| ControlFlow::Continue(()))
        });
        assert!(partial.is_partial, "ended after {most} of {all} questions");
        assert!(partial.mixtures.iter().all(|mixture| mixture.step.total() >= best * (1.0 - 1e-12)));
        if most == 0 {
            assert!(partial.mixtures.is_empty() && partial.priced == 0, "{} mixtures", partial.priced);
        }
    }
}

/// A pool that is about twice as fast takes about twice the micro-batches, and the framework of the stack, which takes equal
/// ones, is told what that would gain.
#[test]
fn the_faster_pool_takes_more() {
    let clusters = vec![leaf("hgx-b200-512", 64), leaf("dgx-h100-1k", 64)];
    let pooled = pooled("llama3-8b", clusters, "400 Gb/s", 1024);
    let mut restrictions = Restrictions::default();
    restrictions.fix("zero=1").unwrap();
    restrictions.fix("pp=1").unwrap();
    let answer = pooled.answer(&SearchOptions { top: 3, restrictions }, &|_, _| ControlFlow::Continue(()));
    let best = answer.mixtures.first().expect("a plan");
    let Way::Replicas { shares } = &best.way else { panic!("one stage needs no pipeline") };
    assert_eq!(shares[0].micro_batches, shares[1].micro_batches, "Megatron-Core takes equal numbers");
    let beyond = answer.beyond.expect("unequal shares are faster");
    let Way::Replicas { shares } = &beyond.way else { panic!("only shares are beyond a framework") };
    let ratio = f64::from(shares[0].micro_batches) / f64::from(shares[1].micro_batches);
    assert!((1.6..3.0).contains(&ratio), "{shares:?}");
    let taken: u32 = shares.iter().map(|share| share.replicas * share.micro_batches).sum();
    assert_eq!(taken * beyond.plan.micro_batch, 1024);
    assert!(beyond.step.total() < best.step.total());
}

/// A search under a ceiling finds what it finds without one, but for what is over it.
#[test]
fn a_ceiling_leaves_out_what_is_over_it() {
    let problem = problem("llama3-8b", leaf("dgx-h100-1k", 64), 128).unwrap();
    let costs = Costs::new(&problem);
    let options = SearchOptions { top: 12, restrictions: Restrictions::default() };
    let all = WhatIfs::new(&costs).ask(&options, Goal::Fastest).evaluations;
    for at in [0, 4, 11] {
        let ceiling = all[at].step.total();
        let within = WhatIfs::new(&costs).fastest_within(&options, ceiling).evaluations;
        let expected: Vec<_> = all.iter().filter(|known| known.step.total() <= ceiling).cloned().collect();
        assert_eq!(within, expected);
    }
    let none = WhatIfs::new(&costs).fastest_within(&options, all[0].step.total() * 0.999).evaluations;
    assert_eq!(none, []);
}

/// The pool with less memory sets what its replicas may hold.
#[test]
fn every_pool_has_its_own_ceiling() {
    let clusters = vec![leaf("dgx-h100-1k", 8), leaf("h200-1k", 8)];
    let both = pooled("llama3-8b", clusters, "400 Gb/s", 128);
    let fits = |pool: usize, plan: &Plan| {
        both.joined()[pool].hbm_budget() >= Costs::new(&both.joined()[pool]).fullest(plan).device()
    };
    let plans = [1, 2, 4, 8]
        .map(|mbs| parse_plan(&format!("tp=1 pp=1 dp=16 zero=1 mbs={mbs} recompute=none"), &both.joined()[0]).unwrap());
    let only_large = plans.iter().find(|plan| !fits(0, plan) && fits(1, plan)).expect("one that needs over 80 GB");
    let only_large_shares = Shares::new(&both, only_large).price(&[1, 1]);
    assert!(only_large_shares.is_none(), "half of its ranks are too small");
    let small = plans.iter().find(|plan| fits(0, plan)).expect("one that fits in 80 GB");
    assert!(Shares::new(&both, small).price(&[1, 1]).is_some());
}

fn read(text: &str) -> Result<ClusterOrPools, String> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("pools-{}.toml", FILES.fetch_add(1, Ordering::Relaxed));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    catalog::machine(path.to_str().unwrap(), &Overrides::default()).map_err(|error| error.to_string())
}

const POOLS: &str = r#"
name = "two"
source = "meshwright-estimates"
[[pool]]
name = "h100"
cluster = "h100-512"
[[pool]]
name = "h200"
cluster = "h200-1k"
gpus = 256
price = "2.6 $/h"
[[link]]
between = ["h100", "h200"]
bandwidth = { value = "100 Gb/s", source = "meshwright-estimates" }
efficiency = 0.75
"#;

#[test]
fn a_file_of_pools_is_read() {
    let ClusterOrPools::Pools(pooled) = read(POOLS).unwrap() else { panic!("it has two pools") };
    assert_eq!(pooled.gpus(), 768);
    assert_eq!(pooled.pools[1].cluster.gpu.name, "H200 SXM 141GB");
    let joined = pooled.joined(0);
    assert_eq!((joined.gpus, joined.levels.last().unwrap().gpus), (768, 768));
    assert!(joined.levels.iter().rev().skip(1).all(|level| level.gpus <= 512));
    joined.check().unwrap();
}

/// One pool is a cluster: the one that its own file would be.
#[test]
fn one_pool_is_a_cluster() {
    let own = "name = \"x\"\ngpu = \"h100-sxm\"\ngpus = 8\ngpus_per_node = 8\nhost = \"x86\"\nsource = \"meshwright-estimates\"\n";
    let pool = "name = \"x\"\nsource = \"meshwright-estimates\"\n[[pool]]\nname = \"a\"\ngpu = \"h100-sxm\"\ngpus = 8\n\
                gpus_per_node = 8\nhost = \"x86\"\n";
    assert_eq!(read(own).unwrap(), read(pool).unwrap());
    assert!(matches!(read(own).unwrap(), ClusterOrPools::Cluster(_)));
}

#[test]
fn bad_files_are_told_what_is_wrong() {
    let without_link = POOLS.split("[[link]]").next().unwrap();
    let cases = [
        (POOLS.replace("cluster = \"h100-512\"", "clustr = \"h100-512\""), "did you mean `cluster`"),
        (POOLS.replace("gpus = 256", "gpus = 0"), "`gpus` is 0, and must be from 1"),
        (POOLS.replace("name = \"h200\"", "name = \"h100\""), "two pools are named `h100`"),
        (without_link.to_owned(), "nothing joins pools `h100` and `h200`"),
        (POOLS.replace("\"h100\", \"h200\"", "\"h100\", \"h20\""), "did you mean `h200`"),
        (POOLS.replace("\"h100\", \"h200\"", "\"h100\""), "joins two pools or more"),
        (POOLS.replace("100 Gb/s", "0 Gb/s"), "`bandwidth` is 0 GB/s, and must be"),
        (POOLS.replace("efficiency = 0.75", "efficiency = 1.75"), "`efficiency` is 1.75, and must be"),
        (POOLS.replace("efficiency", "effciency"), "did you mean `efficiency`"),
        (POOLS.replace("cluster = \"h100-512\"", "cluster = \"h100-513\""), "there is no cluster `h100-513`"),
        (POOLS.replace("gpus = 256", "gpus = 256\ngpu = \"h200-sxm\""), "`cluster` and `gpu`"),
        (POOLS.replace("cluster = \"h100-512\"", "gpu = \"h100-sxm\""), "needs `gpus`"),
        (POOLS.replace("cluster = \"h100-512\"", "cluster = \"mi300x-512\""), "no collective library"),
        (format!("{POOLS}\n[[link]]{}", POOLS.split("[[link]]").nth(1).unwrap()), "2 links join"),
        ("name = \"x\"\nsource = \"y\"\npool = []\n".to_owned(), "no pool"),
    ];
    for (text, words) in cases {
        let error = read(&text).expect_err(words);
        assert!(error.contains(words), "`{words}` is not in: {error}");
    }
    let error = catalog::cluster("tests", &Overrides::default()).unwrap_err().to_string();
    assert!(error.contains("there is no cluster"), "{error}");
}

/// Only layers are chosen.
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
        let Way::Stages { refined, .. } = &two.way else { panic!("stages were asked for") };
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
        let costs: Vec<Costs> = pooled.joined().iter().map(Costs::new).collect();
        let stagers: Vec<Stager> = costs.iter().map(|costs| Stager::new(costs, &plan)).collect();
        let mixed = Mixed::new(&stagers, &of_rank, |a, b| stages::across(&pooled, &plan, a, b));
        let model = pooled.joined()[0].model();
        let mut least: Option<f64> = None;
        for counts in splits(model.layers(), shape.0 + shape.1) {
            let price = mixed.evaluate(&StagedPlan::uniform(model, &plan, &counts)).unwrap();
            if refine::pools::over(&stagers, &of_rank, &price).is_none() {
                let step = price.evaluation.step.total().get();
                least = Some(least.map_or(step, |known: f64| known.min(step)));
            }
        }
        let found = stages::of_plan(&pooled, &plan, &of_rank, &layers_only());
        match (least, &found) {
            (None, None) => refused += 1,
            (Some(least), Some(found)) => {
                let Way::Stages { refined, .. } = &found.way else { panic!("stages were asked for") };
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
        let costs: Vec<Costs> = pooled.joined().iter().map(Costs::new).collect();
        let stagers: Vec<Stager> = costs.iter().map(|costs| Stager::new(costs, &plan)).collect();
        let mixed = Mixed::new(&stagers, &of_rank, |a, b| stages::across(&pooled, &plan, a, b));
        let mut least: Option<f64> = None;
        for counts in splits(model.layers(), plan.layout.pp * plan.schedule.virtual_stages()) {
            let price = mixed.evaluate(&StagedPlan::uniform(&model, &plan, &counts)).unwrap();
            if refine::pools::over(&stagers, &of_rank, &price).is_none() {
                let step = price.evaluation.step.total().get();
                least = Some(least.map_or(step, |known: f64| known.min(step)));
            }
        }
        let least = least.unwrap_or_else(|| panic!("{text} does not fit"));
        for enumerate in [true, false] {
            let options = refine::Options { enumerate, ..layers_only() };
            let found = stages::of_plan(&pooled, &plan, &of_rank, &options).expect("it fits");
            let Way::Stages { refined, .. } = &found.way else { panic!("stages were asked for") };
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

/// All ways to give `stages` stages so many layers, those without an end of the model one or more.
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

/// Layers of each pool in the best split of a plan over two pools of so many GPUs.
fn layers_of(model: &str, pools: [&str; 2], gpus: u32, batch: u32, text: &str) -> [u32; 2] {
    let pooled = pooled(model, pools.map(|name| leaf(name, gpus)).to_vec(), "400 Gb/s", batch);
    let plan = parse_plan(text, &pooled.joined()[0]).unwrap();
    let half = plan.layout.pp as usize / 2;
    let found = stages::of_plan(&pooled, &plan, &in_order(half, half), &layers_only()).expect("it fits");
    let Way::Stages { refined, .. } = &found.way else { panic!("stages were asked for") };
    for (pool, problem) in pooled.joined().iter().enumerate() {
        assert!(found.footprints[pool].device() <= problem.hbm_budget());
    }
    let held = |stages: &[Stage]| stages.iter().map(|stage| stage.layers).sum();
    [held(&refined.staged.stages[..half]), held(&refined.staged.stages[half..])]
}

/// The stages of a pool that is about twice as fast hold about twice the layers; those of one with more memory hold more where
/// memory binds.
#[test]
fn layers_go_where_speed_and_memory_are() {
    let plain = "tp=4 pp=4 dp=2 sp=on schedule=1f1b zero=1 recompute=none";
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
