//! Replay of published choices: `cargo bench --bench tune`, results in `benches/runs/` and docs/tune.md.
//!
//! A choice is a model on a number of GPUs with at least eight timed layouts; those that failed are candidates too. What tune
//! knows before a choice is fitted without any run of its model: the parameters of the discrepancy model on runs of other
//! models, and the constants of the cost model without the fold of the choice, or without its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use meshwright::catalog::{Overrides, fits};
use meshwright::discrepancy::DiscrepancyTable;
use meshwright::runs::{self, Row};
use meshwright::tuning::replay::{MeasuredChoice, Replay, TrialRule, choices, replay};
use meshwright::tuning::score::table_without;
use meshwright::tuning::{Predictions, TimedPlan, timed_plans};
use meshwright::validate::sources::SourceFits;

/// Relative loss within which a plan counts as good as the fastest.
const TOLERANCE: f64 = 0.05;
/// Numbers of trials after which the loss is printed.
const TRIALS: [usize; 4] = [1, 3, 5, 8];
/// Random orders over which `random` is averaged.
const SEEDS: u64 = 100;
/// Loss of a choice before any of its trials has run.
const NOTHING_RAN: f64 = 1.0;

fn rows(name: &str) -> Vec<Row> {
    let path = format!("{}/tests/published/{name}", env!("CARGO_MANIFEST_DIR"));
    runs::read(File::open(path).expect("it is committed")).expect("it is read by tests too")
}

/// Share of choices within the tolerance, and mean loss, after `trials` trials.
fn scores(replays: &[Replay], trials: usize) -> (f64, f64) {
    let n = replays.len().max(1) as f64;
    let within = replays.iter().filter(|replay| replay.after(trials) <= TOLERANCE).count() as f64;
    let loss: f64 = replays.iter().map(|replay| replay.after(trials).min(NOTHING_RAN)).sum();
    (within / n, loss / n)
}

fn print_scores(name: &str, replays: &[Replay]) {
    let cells = TRIALS.map(|trials| {
        let (within, loss) = scores(replays, trials);
        format!("{:4.0} % {:6.1} %", 100.0 * within, 100.0 * loss)
    });
    println!("{name:28} {}", cells.join("   "));
}

/// Prints the scores of every rule on a set of choices, and the replay of each choice.
fn print_comparison(title: &str, choices: &[&MeasuredChoice], tables: &BTreeMap<&str, DiscrepancyTable>) {
    println!("\n{title}: {} choices", choices.len());
    println!("{:28} {}", "", TRIALS.map(|trials| format!("after {trials}: ≤ 5 %, mean")).join(" "));
    let replays =
        |rule: &dyn Fn(&MeasuredChoice) -> Replay| choices.iter().map(|choice| rule(choice)).collect::<Vec<Replay>>();
    let tuned = replays(&|choice| replay(choice, TrialRule::Tune(&tables[choice.model]), TOLERANCE));
    print_scores("tune", &tuned);
    print_scores("order of the model", &replays(&|choice| replay(choice, TrialRule::Model, TOLERANCE)));
    let random: Vec<Replay> =
        (0..SEEDS).flat_map(|seed| replays(&|choice| replay(choice, TrialRule::Random(seed), TOLERANCE))).collect();
    print_scores("random", &random);
    print_scores("space-filling", &replays(&|choice| replay(choice, TrialRule::SpaceFilling, TOLERANCE)));
    print_scores("NeMo AutoConfigurator", &replays(&|choice| replay(choice, TrialRule::AutoConfigurator, TOLERANCE)));
    let n = tuned.len().max(1) as f64;
    let early = tuned.iter().filter(|replay| replay.stopped.is_some_and(|trials| trials < 6)).count() as f64;
    let stopped = |replay: &&Replay| replay.after(replay.stopped.unwrap_or(usize::MAX)) <= TOLERANCE;
    let right = tuned.iter().filter(stopped).count() as f64;
    println!(
        "tune stops before 6 trials in {:.0} %, and is within 5 % where it stops in {:.0} %",
        100.0 * early / n,
        100.0 * right / n
    );
    for (choice, replay) in choices.iter().zip(&tuned) {
        let regrets: Vec<String> = replay.regrets.iter().map(|regret| format!("{regret:.3}")).collect();
        let stop = replay.stopped.map_or_else(|| "no stop".to_owned(), |trials| format!("stops after {trials}"));
        println!(
            "    {} × {:<5} {} plans: {} ({stop})",
            choice.model,
            choice.gpus,
            choice.plans.len(),
            regrets.join(" ")
        );
    }
}

/// Parameters for each model, fitted to the runs of all others.
fn without_each<'a>(plans: &'a [TimedPlan], choices: &[MeasuredChoice<'a>]) -> BTreeMap<&'a str, DiscrepancyTable> {
    let models: BTreeSet<&str> = choices.iter().map(|choice| choice.model).collect();
    models.into_iter().map(|model| (model, table_without(model, plans, fits::DEFAULT))).collect()
}

fn main() {
    let (published, sweep) = (rows("runs.csv"), rows("nanotron-sweep.csv"));
    let published: Vec<Row> =
        published.into_iter().filter(|row| !row.id.as_deref().unwrap_or_default().starts_with("nanotron-")).collect();
    let sets = Overrides::default();
    let text = std::fs::read_to_string(format!("{}/tests/published/without-source.toml", env!("CARGO_MANIFEST_DIR")));
    let fits: SourceFits = toml::from_str(&text.expect("it is committed")).expect("it is read by tests too");
    let others = timed_plans(&published, &sets, Predictions::CrossValidated);
    for (title, predictions) in [
        ("Constants without the fold of the choice", Predictions::CrossValidated),
        ("Constants without the source of the choice", Predictions::WithoutSource(&fits, "nanotron")),
        ("Constants fitted to all runs", Predictions::Default),
    ] {
        let plans: Vec<TimedPlan> =
            timed_plans(&sweep, &sets, predictions).into_iter().chain(others.iter().cloned()).collect();
        let found = choices(&plans);
        let tables = without_each(&plans, &found);
        let of_sweep: Vec<&MeasuredChoice> = found.iter().filter(|choice| choice.plans[0].set == "nanotron").collect();
        print_comparison(&format!("{title}. Sweep of nanotron"), &of_sweep, &tables);
        if matches!(predictions, Predictions::CrossValidated) {
            let rest: Vec<&MeasuredChoice> = found.iter().filter(|choice| choice.plans[0].set != "nanotron").collect();
            print_comparison(&format!("{title}. Other sources"), &rest, &tables);
        }
    }
}
