//! Ablation of stage refinement: cost of leaving out each method, in optimality gap and in time.
//!
//! `cargo test --release --test planner ablation -- --ignored --nocapture`

use std::fmt::Write;

use super::refine::document::{SHOWN, ShownPlan};
use crate::random::{SplitMix, spec};
use meshwright::cost::Costs;
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::refine::{Options, Technique, refine};
use meshwright::space::parse_plan;

/// The methods that may be left out.
const METHODS: [Technique; 7] = [
    Technique::Bisection,
    Technique::ShortestPaths,
    Technique::Descent,
    Technique::Annealing,
    Technique::Rechoice,
    Technique::BranchAndBound,
    Technique::Enumeration,
];

fn shown() -> Vec<(Problem, Plan)> {
    SHOWN.iter().map(ShownPlan::parsed).collect()
}

/// Models of one to three kinds of layer in random order on two to four ranks, with memory from scarce to ample.
fn random_plans(count: usize) -> Vec<(Problem, Plan)> {
    let models = [
        ("llama3-8b", "d"),
        ("gemma3-27b", "lg"),
        ("deepseek-v2", "dm"),
        ("llama4-maverick", "cdg"),
        ("nemotron-h-56b", "maf"),
    ];
    let schedules = ["1f1b", "zb-h1", "interleaved vpp=2", "interleaved vpp=3", "zb-v", "dualpipe-v"];
    let mut numbers = SplitMix::new(23);
    let mut pick = |bound: usize| numbers.below(bound);
    let mut plans = Vec::new();
    while plans.len() < count {
        let (model, kinds) = models[pick(models.len())];
        let (schedule, ranks) = (schedules[pick(schedules.len())], [2, 4][pick(2)]);
        let layers = (0..6 + pick(5)).map(|_| pick(kinds.len())).map(|at| kinds[at..=at].to_owned());
        let layers = layers.collect::<Vec<String>>().join(" ");
        let of = |hbm: f64| {
            spec(model, "dgx-h100-64", "nemo-25", 8, 8192)
                .gpus(ranks)
                .set(format!("model.layers={layers}"))
                .set(format!("gpu.hbm={hbm:.3} GB"))
                .problem()
        };
        let ample = of(9000.0);
        let text = format!("tp=1 pp={ranks} mbs=1 schedule={schedule}");
        let needed = Costs::new(&ample).evaluate(&parse_plan(&text, &ample).unwrap()).footprint.peak();
        let problem = of(needed.get() / 1e9 * (0.6 + 0.05 * pick(12) as f64));
        let plan = parse_plan(&text, &problem).unwrap();
        plans.push((problem, plan));
    }
    plans
}

/// Processor time of this process so far, in seconds: the machine may be shared, so wall time says little.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux counts the ticks of a process");
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap());
    ticks.sum::<f64>() / 100.0
}

/// Result of one refinement.
#[derive(Clone, Copy)]
struct Solved {
    /// Step time in seconds.
    step: f64,
    /// Optimality gap, as a share.
    gap: f64,
    /// Processor time of the refinement in seconds.
    cpu: f64,
}

/// Refinement of a plan, but for one method; none where no stages fit.
fn solved(problem: &Problem, plan: &Plan, without: Option<Technique>) -> Option<Solved> {
    let start = cpu_seconds();
    let refined = refine(&Costs::new(problem), plan, &Options { without, ..Options::default() }).ok()?;
    Some(Solved { step: refined.step().get(), gap: refined.proof.gap(), cpu: cpu_seconds() - start })
}

/// Row of one method over these plans: steps that are slower, gaps that are wider, time without it over time with it.
fn row(plans: &[(Problem, Plan)], with: &[Option<Solved>], method: Technique) -> String {
    let mut text = String::new();
    let (mut slower, mut wider, mut count, mut worse) = (0.0_f64, 0.0_f64, 0.0, 0);
    let (mut most_slower, mut most_wider, mut times) = (0.0_f64, 0.0_f64, [0.0; 2]);
    for ((problem, plan), with) in plans.iter().zip(with) {
        let without = solved(problem, plan, Some(method));
        let (Some(with), Some(without)) = (with, without) else {
            worse += usize::from(with.is_some());
            continue;
        };
        let (step, gap) = (without.step / with.step - 1.0, without.gap - with.gap);
        (slower, wider, count) = (slower + step, wider + gap, count + 1.0);
        (most_slower, most_wider) = (most_slower.max(step), most_wider.max(gap));
        times = [times[0] + with.cpu, times[1] + without.cpu];
    }
    write!(
        text,
        "{:.2} / {:.2} | {:.2} / {:.2} | {:.2} | {worse}",
        slower / count * 100.0,
        most_slower * 100.0,
        wider / count * 100.0,
        most_wider * 100.0,
        times[1] / times[0],
    )
    .unwrap();
    text
}

#[test]
#[ignore = "takes minutes; prints the table of docs/refine.md"]
fn ablation() {
    for (name, plans) in [("docs/refine.md", shown()), ("random", random_plans(500))] {
        let with: Vec<Option<Solved>> = plans.iter().map(|(problem, plan)| solved(problem, plan, None)).collect();
        let fit = with.iter().flatten().count();
        let time: f64 = with.iter().flatten().map(|own| own.cpu).sum();
        let gap: f64 = with.iter().flatten().map(|own| own.gap).sum::<f64>() / fit as f64;
        println!("{name}: {} plans, {fit} fit, {time:.2} s, mean gap {:.3} %", plans.len(), gap * 100.0);
        for method in METHODS {
            println!("| {method:?} | {} |", row(&plans, &with, method));
        }
    }
}
