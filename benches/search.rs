//! How fast plans are priced and spaces searched: `cargo bench --bench search`, results in `benches/runs/`.
//!
//! A harness of its own: each case runs until a second is over, and the best and the median of its runs are printed.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use meshwright::catalog::{self, Overrides};
use meshwright::cost::Costs;
use meshwright::cost::incremental::{Block, Loaded, Parameters, Pipeline, Sharding, Stages};
use meshwright::gpu::Format;
use meshwright::plan::Plan;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::schedule::Schedule;
use meshwright::search::{Goal, SearchOptions, WhatIfs, search_for};
use meshwright::space::{Restrictions, Space};
use meshwright::workload::{Adaptation, Half, Optimizer, Workload, recipe};

fn problem(model: &str, cluster: &str, gpus: u32, stack: &str, global_batch: u32, seq_len: u32) -> Problem {
    let sets = Overrides::default();
    let workload = Workload {
        global_batch,
        seq_len,
        document_len: None,
        format: Format::Bf16,
        half: Half::Bf16,
        recipe: recipe("megatron-bf16-grads").expect("a named recipe"),
        optimizer: Optimizer::Elementwise,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: false,
    };
    let cluster = catalog::cluster(cluster, &sets).expect("a built-in cluster").resized(gpus);
    let model = catalog::model(model, &sets).expect("a built-in model");
    let stack = catalog::stack(stack, &sets).expect("a built-in stack");
    Problem::new(model, cluster, workload, stack, HbmProfile::Normal).expect("a legal problem")
}

/// Runs a case for about a second, twice at least; prints its name, the best and the median.
fn case(name: &str, per_run: f64, unit: &str, mut run: impl FnMut()) {
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 2 || start.elapsed() < Duration::from_secs(1) {
        let at = Instant::now();
        run();
        times.push(at.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    println!("{name:44} best {best:10.6} s   median {median:10.6} s   {:14.0} {unit}", per_run / best);
}

/// Legal shardings of one pipeline, priced flat and in stages, on one core.
fn pricing(problem: &Problem) {
    let (costs, restrictions) = (Costs::new(problem), Restrictions::default());
    let space = Space::new(&costs, &restrictions);
    let shape = space.shapes().into_iter().find(|shape| shape.layout.tp == 8 && shape.layout.cp == 2).expect("8 x 2");
    let layout = space.layouts(&shape).into_iter().find(|layout| layout.pp == 8).expect("8 stages");
    let schedule = space.schedules(8).pop().expect("a schedule");
    let plan = Plan { layout, schedule, ..shape };
    let shardings = space.shardings(&layout);
    let block = Block::of(&costs, &plan);
    let layers = block.layers(&costs, &plan);
    let stages = Stages::new(&costs, &plan, &layers.of_chunks(&costs, &plan));
    let parameters = Parameters::new(&costs, &plan, &stages);
    let priced: Vec<Sharding> =
        shardings.iter().map(|choice| Sharding::new(&costs, &choice.on(&plan), &parameters)).collect();
    let count = priced.len() as f64;
    case("evaluate, layers shared", count, "plans/s/core", || {
        let shape = costs.shape(&plan);
        for choice in &shardings {
            black_box(costs.evaluate_shaped(&choice.on(&plan), &shape));
        }
    });
    case("evaluate, all of it", 64.0, "plans/s/core", || {
        for choice in shardings.iter().take(64) {
            black_box(costs.evaluate(&choice.on(&plan)));
        }
    });
    let loaded = Loaded::new(&costs, Pipeline::new(&costs, &plan, &layers, &stages), &stages);
    let plain = Plan { schedule: Schedule::OneFOneB, ..plan.clone() };
    case("evaluate 1F1B, layers shared", count, "plans/s/core", || {
        let shape = costs.shape(&plain);
        for choice in &shardings {
            black_box(costs.evaluate_shaped(&choice.on(&plain), &shape));
        }
    });
    case("staged leaf, time and memory", count * 1000.0, "plans/s/core", || {
        for _ in 0..1000 {
            for sharding in &priced {
                black_box(loaded.price(&costs, sharding));
            }
        }
    });
    case("staged pipeline, flow alone", 10_000.0, "pipelines/s/core", || {
        for _ in 0..10_000 {
            black_box(Pipeline::new(&costs, &plan, &layers, &stages));
        }
    });
}

fn searching(name: &str, problem: &Problem, top: usize) {
    let options = SearchOptions { top, restrictions: Restrictions::default() };
    let go_on = |_, _| ControlFlow::Continue(());
    let size = search_for(problem, &options, Goal::Fastest, &go_on).certificate.size as f64;
    case(name, size, "plans of the space/s", || {
        black_box(search_for(problem, &options, Goal::Fastest, &go_on));
    });
}

/// Values that what-ifs fix or forbid.
const CHOICES: [(&str, &[&str]); 10] = [
    ("tp", &["1", "2", "4", "8"]),
    ("cp", &["1", "2", "4", "8"]),
    ("pp", &["4", "8", "16", "32"]),
    ("mbs", &["1", "2", "4"]),
    ("vpp", &["1", "2", "4", "8"]),
    ("recompute", &["none", "full", "act", "first-1"]),
    ("zero", &["1", "3"]),
    ("split", &["even", "cost-balanced"]),
    ("sp", &["on", "off"]),
    ("order", &["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]),
];

/// A thousand questions about one problem, all different: each choice fixed, each forbidden, then two of different keys fixed
/// together, then one fixed and another forbidden.
fn questions() -> Vec<Restrictions> {
    let all: Vec<(usize, String)> = CHOICES
        .iter()
        .enumerate()
        .flat_map(|(key, (name, values))| values.iter().map(move |value| (key, format!("{name}={value}"))))
        .collect();
    let pairs = |ordered: bool| {
        itertools::iproduct!(&all, &all).filter(move |(a, b)| if ordered { a.0 != b.0 } else { a.0 < b.0 })
    };
    let asked = |fixed: &[&str], forbidden: &[&str]| {
        let mut restrictions = Restrictions::default();
        for item in fixed {
            restrictions.fix(item).expect("a legal restriction");
        }
        for item in forbidden {
            restrictions.forbid(item).expect("a legal restriction");
        }
        restrictions
    };
    let fixed = all.iter().map(|(_, item)| asked(&[item], &[]));
    let forbidden = all.iter().map(|(_, item)| asked(&[], &[item]));
    let both = pairs(false).map(|(a, b)| asked(&[&a.1, &b.1], &[]));
    let one_each = pairs(true).map(|(a, b)| asked(&[&a.1], &[&b.1]));
    fixed.chain(forbidden).chain(both).chain(one_each).take(1000).collect()
}

fn what_ifs(problem: &Problem) {
    let costs = Costs::new(problem);
    let asked = questions();
    assert_eq!(asked.len(), 1000);
    let start = Instant::now();
    let what_ifs = WhatIfs::new(&costs);
    for restrictions in asked {
        black_box(what_ifs.ask(&SearchOptions { top: 1, restrictions }, Goal::Fastest));
    }
    println!("{:44} {:.3} s", "1,000 what-ifs on 405B on 24,576 H100", start.elapsed().as_secs_f64());
}

fn main() {
    println!("{} threads", rayon::current_num_threads());
    let large = problem("llama3-405b", "h100-24576", 24_576, "nemo-25", 3072, 8192);
    pricing(&large);
    let dense = |gpus, batch| problem("llama3-405b", "h100-24576", gpus, "nemo-25", batch, 8192);
    what_ifs(&large);
    searching("search 405B on 1,024 H100", &dense(1024, 1024), 5);
    searching("search 405B on 16,384 H100", &dense(16_384, 2048), 5);
    searching("search 405B on 24,576 H100", &large, 5);
    searching("search 405B on 24,576 H100, the best alone", &large, 1);
    searching("search 405B on 98,304 H100", &dense(98_304, 3072), 5);
    searching(
        "search DeepSeek-V3 on 2,048 H800",
        &problem("deepseek-v3", "h800-2048", 2048, "deepseek-v3", 15_360, 4096),
        5,
    );
    searching("search Qwen3-235B on 512 H100", &problem("qwen3-235b-a22b", "h100-512", 512, "nemo-25", 1024, 4096), 5);
    searching("search 8B on 8 H100", &problem("llama3-8b", "dgx-h100-8", 8, "nemo-25", 128, 8192), 5);
}
