//! Pools of unlike GPUs: against one cluster, against trying everything, and what a bad file is told.

use meshwright::catalog::{self, Machine, Overrides};
use meshwright::cluster::pools::{Link, Pool, PooledCluster};
use meshwright::cluster::{Cluster, Level};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::plan::Plan;
use meshwright::pools::replicas::Shares;
use meshwright::pools::{Pooled, Way};
use meshwright::problem::{HbmProfile, Problem, ProblemError};
use meshwright::search::Options;
use meshwright::space::{Restrictions, parse_plan};
use meshwright::workload::{Adaptation, Optimizer, Workload, recipe};

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
    let none = Overrides::default();
    let model = catalog::model(model, &none).unwrap();
    let stack = catalog::stack("nemo-25", &none).unwrap();
    let workload = Workload {
        global_batch,
        seq_len: 4096,
        format: Format::Bf16,
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
fn two_alike_pools_are_one_cluster() {
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
        let one = Costs::new(&whole).evaluate_played(&plan);
        let alike = plan.micro_batches(1024) as u32;
        let two = Shares::new(&halves, &plan).price(&[alike, alike]).unwrap_or_else(|| panic!("{text}"));
        let (one, two) = (one.step.total(), two.step.total());
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

/// A pool that is about twice as fast takes about twice the micro-batches, and the framework of the stack, which takes alike
/// ones, is told what that would gain.
#[test]
fn the_faster_pool_takes_more() {
    let clusters = vec![leaf("hgx-b200-512", 64), leaf("dgx-h100-1k", 64)];
    let pooled = pooled("llama3-8b", clusters, "400 Gb/s", 1024);
    let mut restrictions = Restrictions::default();
    restrictions.fix("zero=1").unwrap();
    let answer = pooled.answer(&Options { top: 3, restrictions });
    let best = answer.mixtures.first().expect("a plan");
    let Way::Replicas { shares } = &best.way;
    assert_eq!(shares[0].micro_batches, shares[1].micro_batches, "Megatron-Core takes alike numbers");
    let beyond = answer.beyond.expect("unlike shares are faster");
    let Way::Replicas { shares } = &beyond.way;
    let ratio = f64::from(shares[0].micro_batches) / f64::from(shares[1].micro_batches);
    assert!((1.6..3.0).contains(&ratio), "{shares:?}");
    let taken: u32 = shares.iter().map(|share| share.replicas * share.micro_batches).sum();
    assert_eq!(taken * beyond.plan.micro_batch, 1024);
    assert!(beyond.step.total() < best.step.total());
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

fn read(text: &str) -> Result<Machine, String> {
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
    let Machine::Pools(pooled) = read(POOLS).unwrap() else { panic!("it has two pools") };
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
    assert!(matches!(read(own).unwrap(), Machine::Cluster(_)));
}

#[test]
fn bad_files_are_told_what_is_wrong() {
    let without_link = POOLS.split("[[link]]").next().unwrap();
    let cases = [
        (POOLS.replace("cluster = \"h100-512\"", "clustr = \"h100-512\""), "did you mean `cluster`"),
        (POOLS.replace("gpus = 256", "gpus = 0"), "a cluster of 0 GPUs"),
        (POOLS.replace("name = \"h200\"", "name = \"h100\""), "two pools are named `h100`"),
        (without_link.to_owned(), "nothing joins pools `h100` and `h200`"),
        (POOLS.replace("\"h100\", \"h200\"", "\"h100\", \"h20\""), "did you mean `h200`"),
        (POOLS.replace("\"h100\", \"h200\"", "\"h100\""), "joins two pools or more"),
        (POOLS.replace("100 Gb/s", "0 Gb/s"), "a bandwidth above 0"),
        (POOLS.replace("efficiency = 0.75", "efficiency = 1.75"), "an efficiency above 0"),
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
