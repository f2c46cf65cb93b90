//! Picks of the planner beside each published layout of 512 GPUs and more:
//! `cargo bench --bench published_layouts` writes `docs/published-layouts.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::ops::ControlFlow;

use meshwright::advice::{Prudence, prudent};
use meshwright::cost::{Costs, Evaluation};
use meshwright::frameworks::launchable;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::runs;
use meshwright::search::{SearchOptions, TIE};
use meshwright::space::{Restrictions, Space, check};
use meshwright::units::Seconds;
use meshwright::validate::sample::measured;

/// Fewest GPUs of a run that is looked at.
const LEAST: f64 = 512.0;

const HEAD: &str = "# Published layouts, and what the planner would have picked\n\n\
    Written by `cargo bench --bench published_layouts` from `tests/published/runs.csv`: every run on 512 GPUs or more \
    that maps to a \
    problem. *In the space* tells whether the search could have found the published plan (`-` where the model says that it does \
    not run, with the rule). *Picked* is the fastest plan that the stack's framework can launch, without mechanisms \
    that no published run has shown and \
    with a risk of running out of memory of at most 5 %, both predicted by the model; a gain within 3.3 %, by which \
    repeated runs of one plan differ, is flagged `=`, and one within the ±12 % of the model's own \
    error `~`. A larger predicted gain is a hypothesis to time, not a promise: the model knows nothing of why a team chose its \
    layout.\n\n\
    | run | model | GPUs | published plan | in the space | measured | predicted | picked | predicted | gain |\n\
    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";

const EXPLAINED: &str = "\n## Gains over 8 %\n\n\
    *Error* is that of the prediction of the published plan: where it is positive, so much of the gain is the model's own. *Left* \
    is the measured time of the published plan over the predicted time of the picked one, minus 1. *Wins by* names the term that \
    shrinks most, in percent of the published plan's step. Reasons: `benches/published-layouts.toml`.\n\n\
    | run | gain | error | left | wins by | reason |\n\
    | --- | --- | --- | --- | --- | --- |\n";

const BY_SOURCE: &str = "\n## Gains by source\n\n\
    *Tuned on GPUs* are the sources whose layouts a vendor chose for speed on its own stack: DGX Cloud's and \
    Megatron-Bridge's recipes, MLPerf's submissions, NeMo's \
    documentation. The others' layouts are points of sweeps (nanotron, vtrainm), of scaling tables (megatronlm, \
    internevo), or were chosen for TPUs without gradient accumulation (maxtextdoc).\n\n\
    | source | runs | median | mean | over 8 % |\n\
    | --- | --- | --- | --- | --- |\n";

/// Sources whose layouts a vendor tuned on GPUs.
const TUNED: [&str; 4] = ["dgxc", "mbridge", "mlperf", "nemodocs"];

/// Gain from which on a row has a reason.
const WORTH_A_REASON: f64 = 0.08;

/// Reason for the gains of some runs.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    /// Runs by id, or a group of them by the prefix before `*`.
    runs: Vec<String>,
    why: String,
}

impl Reason {
    fn is_of(&self, id: &str) -> bool {
        self.runs.iter().any(|run| run.strip_suffix('*').map_or(run == id, |prefix| id.starts_with(prefix)))
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasons {
    reason: Vec<Reason>,
}

fn reasons(root: &str) -> Vec<Reason> {
    let text = std::fs::read_to_string(format!("{root}/benches/published-layouts.toml")).expect("the reasons");
    toml::from_str::<Reasons>(&text).expect("reasons").reason
}

/// Term of the step that shrinks most, with its share of the published plan's step.
fn wins_by(published: &Evaluation, picked: &Evaluation) -> String {
    let whole = published.step.total();
    let shrinks = published
        .step
        .terms()
        .into_iter()
        .zip(picked.step.terms())
        .map(|((term, mine), (_, best))| (term, (best.get() - mine.get()) / whole.get()));
    let most = shrinks.min_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or_else(String::new, |(term, change)| format!("{term} {:+.1} %", change * 100.0))
}

/// Error of the model on runs that it was not fitted to. Source: specification §10.9.
const MODEL_ERROR: f64 = 0.12;

/// The problem of a run under the memory profile that plans are made with; runs themselves are judged by the device's whole
/// memory.
fn as_asked(run: &Problem) -> Problem {
    let (model, cluster) = (run.model().clone(), run.cluster().clone());
    let (workload, stack) = (run.workload().clone(), run.stack().clone());
    Problem::new(model, cluster, workload, stack, HbmProfile::Normal).expect("legal under another profile")
}

/// Table of the gains by source, those of tuned layouts together first.
fn by_source(gains: &BTreeMap<String, Vec<f64>>) -> String {
    let mut text = BY_SOURCE.to_owned();
    let mut line = |name: &str, mut gains: Vec<f64>| {
        gains.sort_by(f64::total_cmp);
        let at = |rank: usize| gains[rank.min(gains.len() - 1)];
        let median = f64::midpoint(at((gains.len() - 1) / 2), at(gains.len() / 2));
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        let large = gains.iter().filter(|gain| **gain > WORTH_A_REASON).count();
        let _ = writeln!(
            text,
            "| {name} | {} | {:+.1} % | {:+.1} % | {large} |",
            gains.len(),
            median * 100.0,
            mean * 100.0
        );
    };
    line("tuned on GPUs", TUNED.iter().filter_map(|source| gains.get(*source)).flatten().copied().collect());
    for (source, gains) in gains {
        line(source, gains.clone());
    }
    text
}

fn main() {
    let root = env!("CARGO_MANIFEST_DIR");
    let file = File::open(format!("{root}/tests/published/runs.csv")).expect("the published runs");
    let mut text = HEAD.to_owned();
    let (reasons, mut explained) = (reasons(root), EXPLAINED.to_owned());
    let (mut explained_ids, mut unexplained) = (Vec::new(), Vec::new());
    let mut gains: BTreeMap<String, Vec<f64>> = BTreeMap::new();
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
        let evaluation = priced.then(|| costs.evaluate_simulated(&plan));
        let published = evaluation.as_ref().map(|evaluation| evaluation.step.total());
        let measured = measured(&row).map(Seconds::new);
        let options = SearchOptions { top: 1, restrictions: launchable(&problem) };
        let (ranking, _) = prudent(&problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
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
        let id = row.id.clone().unwrap_or_default();
        let time = |time: Option<Seconds>| time.map_or_else(String::new, |time| time.to_string());
        let _ = writeln!(
            text,
            "| {id} | {} | {} | {plan} | {place} | {} | {} | {} | {} | {} |",
            problem.model().name,
            problem.cluster().gpus,
            time(measured),
            time(published),
            picked.map_or_else(|| "nothing fits".to_owned(), |best| best.plan.to_string()),
            time(picked.map(|best| best.step.total())),
            gain.map_or_else(String::new, |gain| format!("{:+.1} %{flag}", gain * 100.0)),
        );
        if let Some(gain) = gain {
            gains.entry(id.split('-').next().unwrap_or_default().to_owned()).or_default().push(gain);
        }
        if let (Some(gain), Some(mine), Some(best)) = (gain.filter(|gain| *gain > WORTH_A_REASON), &evaluation, picked)
        {
            let signed =
                |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{:+.1} %", ratio * 100.0));
            let why = reasons.iter().find(|reason| reason.is_of(&id)).map(|reason| reason.why.as_str());
            unexplained.extend(why.is_none().then(|| id.clone()));
            let _ = writeln!(
                explained,
                "| {id} | {} | {} | {} | {} | {} |",
                signed(Some(gain)),
                signed(measured.map(|measured| mine.step.total() / measured - 1.0)),
                signed(measured.map(|measured| measured / best.step.total() - 1.0)),
                wins_by(mine, best),
                why.unwrap_or_default()
            );
            explained_ids.push(id);
        }
    }
    let _ = writeln!(
        text,
        "\n{shown} runs; {inside} published plans lie in the space; {tied} gains are within 3.3 %, {within} more within 12 %; \
         {unmapped} runs of that size say too little to be mapped (`docs/runs.md`)."
    );
    text.push_str(&by_source(&gains));
    text.push_str(&explained);
    std::fs::write(format!("{root}/docs/published-layouts.md"), text).expect("docs can be written");
    println!(
        "{shown} runs, {inside} in the space, {tied} tied, {within} within the model's error, {unmapped} unmapped"
    );
    let stale = reasons.iter().filter(|reason| !explained_ids.iter().any(|id| reason.is_of(id)));
    let stale: Vec<&String> = stale.flat_map(|reason| &reason.runs).collect();
    assert!(
        unexplained.is_empty(),
        "gains over 8 % without a reason in benches/published-layouts.toml: {unexplained:?}"
    );
    assert!(stale.is_empty(), "reasons without a gain over 8 %: {stale:?}");
}
