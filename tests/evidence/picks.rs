//! Plans that the planner picks for models of the catalogue, against the published layout that is nearest: `docs/picks.md`.
//!
//! `cargo test --test evidence write_picks -- --ignored` writes it.

use std::fmt::Write;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;

use meshwright::advice::{Prudence, prudent};
use meshwright::catalog::{self, Overrides};
use meshwright::cost::{Costs, Evaluation, StepTime};
use meshwright::frameworks::graphs::fastest_launchable;
use meshwright::frameworks::launchable;
use meshwright::gpu::Format;
use meshwright::plan::{Layout, Plan};
use meshwright::problem::{HbmProfile, Problem};
use meshwright::runs::{self, Row};
use meshwright::search::SearchOptions;
use meshwright::space::{Unproven, check};
use meshwright::units::percent;
use meshwright::workload::{Adaptation, Workload};

/// Clusters of the comparison, with the stack of each.
const CLUSTERS: [(&str, &str); 4] = [
    ("h100-512", "nemo-25"),
    ("gb200-nvl72-1152", "nemo-25"),
    ("gb300-nvl72-1152", "nemo-26"),
    ("dgx-a100-1k", "megatron-2022"),
];
/// GPUs of each comparison.
const GPUS: u32 = 512;
/// Gain above which a pick names the term by which it wins.
const CLAIM: f64 = 0.03;

const HEAD: &str = "# Picks against published layouts\n\n\
    Written by `cargo test --test evidence write_picks -- --ignored`; do not edit. For each model of the catalogue that a \
    published run trains on the GPU of a cluster: the fastest plan that the framework of the stack can express on 512 GPUs in \
    bf16, within the accepted risk of running out of memory and with no mechanism that no published run has shown, and the \
    degrees of the published run whose number of GPUs is nearest (its data parallelism scaled to 512), both priced with the \
    sequence length and as many sequences per GPU as in that run. Beside a gain above 3 % stands the term that shrinks most.\n\n\
    | model | cluster | nearest run | batch | published layout | s | pick | s | gain | wins by |\n\
    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Name of a model without what catalogue and runs spell differently.
fn key(name: &str) -> String {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    letters.to_lowercase().replace("llama31405b", "llama3405b").replace("llama318b", "llama38b")
}

/// A model on 512 GPUs of a cluster with the workload of a published run, whose batch is scaled to as many sequences a GPU.
fn problem(model: &str, cluster: &str, stack: &str, published: &Problem) -> Option<Problem> {
    let sets = Overrides::parse([format!("cluster.gpus={GPUS}")]).ok()?;
    let (model, mut stack) = (catalog::model(model, &sets).ok()?, catalog::stack(stack, &sets).ok()?);
    let cluster = catalog::cluster(cluster, &sets).ok()?;
    let replays = catalog::defaults::replays(&model, &cluster, &stack, published.workload().adaptation, &sets);
    stack.cuda_graphs |= replays;
    let asked = published.workload();
    let batch = u64::from(asked.global_batch) * u64::from(GPUS) / u64::from(published.cluster().gpus);
    let workload = Workload { global_batch: u32::try_from(batch).ok()?, ..asked.clone() };
    let problem = Problem::new(model, cluster, workload, stack, HbmProfile::Normal).ok()?;
    Some(fastest_launchable(problem, replays, Prudence::default(), &|_, _| ControlFlow::Continue(())).0)
}

/// The published run of a model on the GPU of a cluster whose number of GPUs is nearest, with the problem at its batch and its
/// plan there.
fn nearest(rows: &[Row], model: &str, (cluster, stack): (&str, &str)) -> Option<(String, Problem, Evaluation)> {
    let gpu = catalog::cluster(cluster, &Overrides::default()).ok()?.gpu.name;
    let of_row = |row: &Row| {
        let (published, plan) = runs::problem_of(row).ok()?;
        let same = key(row.model_name.as_deref()?) == key(model)
            && published.cluster().gpu.name == gpu
            && published.workload().format == Format::Bf16
            && published.workload().adaptation == Adaptation::Full;
        let Layout { tp, cp, pp, .. } = plan.layout;
        let dp = GPUS / (tp * cp * pp);
        if !same || dp == 0 || dp * tp * cp * pp != GPUS {
            return None;
        }
        let problem = problem(model, cluster, stack, &published)?;
        let plan = Plan { layout: Layout { dp, ..plan.layout }, shard_group: None, ..plan };
        let apart = (row.gpus_total? / f64::from(GPUS)).ln().abs();
        let costs = Costs::new(&problem);
        let priced = check(&costs, &plan).is_empty().then(|| costs.evaluate_simulated(&plan))?;
        Some((apart, row.id.clone().unwrap_or_default(), problem, priced))
    };
    let all = rows.iter().filter_map(of_row);
    all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, id, problem, priced)| (id, problem, priced))
}

/// Term that shrinks the most from one step to another, and by how much.
fn winning_term(published: &StepTime, pick: &StepTime) -> String {
    let pairs = published.terms().into_iter().zip(pick.terms());
    let shrunk = pairs.map(|((term, before), (_, after))| (before.get() - after.get(), term));
    let (saved, term) = shrunk.max_by(|a, b| a.0.total_cmp(&b.0)).expect("a step has terms");
    format!("{term} {:+.1} %", -100.0 * saved / published.total().get())
}

fn line(rows: &[Row], model: &str, (cluster, stack): (&str, &str)) -> Option<(String, f64)> {
    let (id, problem, published) = nearest(rows, model, (cluster, stack))?;
    let options = SearchOptions { top: 1, restrictions: launchable(&problem) };
    let (ranking, _) = prudent(&problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
    let pick = ranking.evaluations.into_iter().next()?;
    let gain = published.step.total() / pick.step.total() - 1.0;
    let term = if gain > CLAIM { winning_term(&published.step, &pick.step) } else { String::new() };
    assert!(Unproven::in_plan(&problem, &pick.plan).is_empty(), "the page says that no pick has one: {}", pick.plan);
    let (was, is) = (published.step.total().get(), pick.step.total().get());
    let text = format!(
        "| {model} | {cluster} | {id} | {} | {} | {was:.2} | {} | {is:.2} | {} | {term} |",
        problem.workload().global_batch,
        published.plan,
        pick.plan,
        percent(gain)
    );
    Some((text, gain))
}

#[test]
#[ignore = "searches for a minute; writes docs/picks.md"]
fn write_picks() {
    let rows = runs::read(File::open(path("tests/published/runs.csv")).unwrap()).unwrap();
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.outcome.as_deref() == Some("ok")).collect();
    let mut text = HEAD.to_owned();
    let mut gains = Vec::new();
    for (model, at) in itertools::iproduct!(catalog::model_names(), CLUSTERS) {
        if let Some((line, gain)) = line(&rows, model, at) {
            let _ = writeln!(text, "{line}");
            gains.push(gain);
        }
    }
    gains.sort_by(f64::total_cmp);
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    let _ = writeln!(
        text,
        "\n{} comparisons: median gain {}, mean {}.",
        gains.len(),
        percent(gains[gains.len() / 2]),
        percent(mean)
    );
    std::fs::write(path("docs/picks.md"), text).unwrap();
}
