//! What the planner would have picked instead of each published layout of 512 GPUs and more:
//! `cargo bench --bench published_layouts` writes `docs/published-layouts.md`.

use std::fmt::Write;
use std::fs::File;
use std::ops::ControlFlow;

use meshwright::advice::{Prudence, prudent};
use meshwright::cost::Costs;
use meshwright::frameworks::launchable;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::runs;
use meshwright::search::{SearchOptions, TIE};
use meshwright::space::{Restrictions, Space, check};

/// Fewest GPUs of a run that is looked at.
const LEAST: f64 = 512.0;

const HEAD: &str = "# Published layouts, and what the planner would have picked\n\n\
    Written by `cargo bench --bench published_layouts` from `tests/published/runs.csv`: every run on 512 GPUs or more that maps to a \
    problem. *In the space* tells whether the search could have found the published plan (`-` where the model says that it does \
    not run, with the rule). *Picked* is the fastest plan that the stack's framework can launch, without mechanisms that no published run has shown and \
    with a risk of running out of memory of at most 5 %, both predicted by the model; a gain within 3.3 %, by which repeated runs of one plan differ, is flagged `=`, and one within the ±12 % of the model's own \
    error `~`. A larger predicted gain is a hypothesis to time, not a promise: the model knows nothing of why a team chose its \
    layout.\n\n\
    | run | model | GPUs | published plan | in the space | predicted | picked | predicted | gain |\n\
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";

/// Error of the model on runs that it was not fitted to. Source: specification §10.9.
const MODEL_ERROR: f64 = 0.12;

/// The problem of a run under the memory profile that plans are made with; runs themselves are judged by the device's whole
/// memory.
fn as_asked(run: &Problem) -> Problem {
    let (model, cluster) = (run.model().clone(), run.cluster().clone());
    let (workload, stack) = (run.workload().clone(), run.stack().clone());
    Problem::new(model, cluster, workload, stack, HbmProfile::Normal).expect("legal under another profile")
}

fn main() {
    let root = env!("CARGO_MANIFEST_DIR");
    let file = File::open(format!("{root}/tests/published/runs.csv")).expect("the published runs");
    let mut text = HEAD.to_owned();
    let (mut shown, mut inside, mut unmapped, mut tied, mut within) = (0, 0, 0, 0, 0);
    for row in runs::read(file).expect("readable runs") {
        if row.gpus_total.is_none_or(|gpus| gpus < LEAST) {
            continue;
        }
        let Ok((problem, plan)) = runs::problem_of(&row) else {
            unmapped += 1;
            continue;
        };
        let problem = as_asked(&problem);
        let costs = Costs::new(&problem);
        let restrictions = Restrictions::default();
        let rejections = check(&costs, &plan);
        let is_inside = Space::new(&costs, &restrictions).allows(&plan);
        let place = match (is_inside, rejections.first()) {
            (true, None) => "yes".to_owned(),
            (true, Some(rule)) => format!("- ({})", rule.rule()),
            (false, Some(rule)) => format!("no ({})", rule.rule()),
            (false, None) => "no".to_owned(),
        };
        let priced = rejections.iter().all(|rule| rule.rule() == "out-of-memory");
        let published = priced.then(|| costs.evaluate_simulated(&plan).step.total());
        let options = SearchOptions { top: 1, restrictions: launchable(&problem) };
        let ranking = prudent(&problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
        let picked = ranking.evaluations.first();
        let gain = published.zip(picked).map(|(mine, best)| mine / best.step.total() - 1.0);
        let flag = match gain {
            Some(gain) if gain.abs() <= TIE => " =",
            Some(gain) if gain.abs() <= MODEL_ERROR => " ~",
            Some(_) | None => "",
        };
        shown += 1;
        inside += u32::from(is_inside);
        tied += u32::from(flag == " =");
        within += u32::from(flag == " ~");
        let time = |time: Option<meshwright::units::Seconds>| time.map_or_else(String::new, |time| time.to_string());
        let _ = writeln!(
            text,
            "| {} | {} | {} | {plan} | {place} | {} | {} | {} | {} |",
            row.id.clone().unwrap_or_default(),
            problem.model().name,
            problem.cluster().gpus,
            time(published),
            picked.map_or_else(|| "nothing fits".to_owned(), |best| best.plan.to_string()),
            time(picked.map(|best| best.step.total())),
            gain.map_or_else(String::new, |gain| format!("{:+.1} %{flag}", gain * 100.0)),
        );
    }
    let _ = writeln!(
        text,
        "\n{shown} runs; {inside} published plans lie in the space; {tied} gains are within 3.3 %, {within} more within 12 %; \
         {unmapped} runs of that size say too little to be mapped (`docs/runs.md`)."
    );
    std::fs::write(format!("{root}/docs/published-layouts.md"), text).expect("docs can be written");
    println!(
        "{shown} runs, {inside} in the space, {tied} tied, {within} within the model's error, {unmapped} unmapped"
    );
}
