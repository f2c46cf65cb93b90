//! Networks that nobody states, and the intervals of plans that send over them.

use crate::random::workload;
use meshwright::catalog::{self, Overrides};
use meshwright::confidence::{Confidence, table};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::plan::text::parse_plan;
use meshwright::problem::{HbmProfile, Problem};

/// Problem of Llama 3 8B on a cluster of `gpus`, with settings.
fn problem(cluster: &str, gpus: u32, sets: &[&str]) -> Problem {
    let sets = Overrides::parse(sets).unwrap();
    let model = catalog::model("llama3-8b", &sets).unwrap();
    let cluster = catalog::cluster(cluster, &sets).unwrap().resized(gpus);
    let stack = catalog::stack("nemo-25", &sets).unwrap();
    Problem::new(model, cluster, workload(64, 4096, Format::Bf16), stack, HbmProfile::Normal).unwrap()
}

fn confidence(problem: &Problem, plan: &str) -> Confidence {
    Confidence::new(problem, &Costs::new(problem).evaluate(&parse_plan(plan, problem).unwrap()))
}

const ACROSS: &str = "tp=1 pp=1 dp=64 mbs=1 zero=3";

#[test]
fn the_rates_of_networks_are_shares_of_published_sources() {
    let rates = &table().networks;
    let all: f64 = rates.iter().map(|rate| rate.share).sum();
    assert!((all - 1.0).abs() < 0.01, "{all}");
    let usual = rates.iter().max_by(|a, b| a.share.total_cmp(&b.share)).unwrap();
    assert!((usual.ratio - 1.0).abs() < 1e-9, "{rates:?}");
    assert!(rates.iter().any(|rate| rate.ratio < 1.0), "{rates:?}");
}

#[test]
fn an_assumed_network_widens_intervals_and_says_so() {
    // Eight GPUs in one domain, which the file joins by no network: 64 of them need one that is assumed.
    let (assumed, stated) = (problem("dgx-h100-8", 64, &[]), problem("dgx-h100-8", 64, &["cluster.nic=400 Gb/s"]));
    let (wide, own) = (confidence(&assumed, ACROSS), confidence(&stated, ACROSS));
    assert!(wide.step.high > own.step.high * 1.05, "{wide:?} {own:?}");
    assert!(wide.step.low <= own.step.low && wide.step.low > own.step.low * 0.9, "{wide:?} {own:?}");
    assert_eq!((wide.runs, wide.peak), (own.runs, own.peak));
    assert!(wide.class_in_words().ends_with(", network assumed"), "{}", wide.class_in_words());
    assert!(wide.doubts().unwrap().starts_with("The network is assumed, at 50.0 GB/s a GPU"), "{:?}", wide.doubts());
    assert_eq!((own.assumed_network, own.doubts()), (None, None));
}

#[test]
fn a_plan_that_sends_nothing_over_the_network_has_the_same_intervals() {
    let (assumed, stated) = (problem("dgx-h100-8", 8, &[]), problem("dgx-h100-64", 8, &[]));
    let plan = "tp=1 pp=1 dp=8 mbs=1 zero=1";
    assert_eq!(confidence(&assumed, plan).doubts(), None);
    assert_eq!(confidence(&stated, plan).doubts(), None);
}
