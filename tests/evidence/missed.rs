//! Targets that are missed, row by row: what each run adds to the excess, and the cause of its error.
//!
//! A run that enters a list needs a cause in `tests/published/causes.csv`; without one the test fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use meshwright::report::{Sheet, markdown};
use meshwright::runs::Row;
use meshwright::units::percent;
use meshwright::validate::metrics::PredictedPair;
use meshwright::validate::sample::{PredictedRun, outcome};
use meshwright::validate::{Report, choice, memory_pair, time_pair};

/// Fewest runs that a list of step times names.
const FEWEST: usize = 10;

/// Causes of runs that are predicted badly.
pub struct Causes {
    all: Vec<Cause>,
    missing: RefCell<Vec<String>>,
}

struct Cause {
    /// A run, or the beginning of the names of many: `nanotron-*`.
    run: String,
    /// Quantity that is wrong: `time`, `memory`, `fits` or `choice`.
    of: String,
    kind: Kind,
    words: String,
}

/// Evidence of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Other runs contradict it, whatever is predicted.
    Contradicted,
    /// Its source's cells are wrong or leave out what decides it.
    Cell,
    /// A mechanism that is known and not priced.
    Unpriced,
    /// Not understood; at most a hypothesis.
    Open,
}

impl Kind {
    const ALL: [(&'static str, Self, &'static str); 4] = [
        ("contradicted", Self::Contradicted, "other runs contradict it, whatever is predicted"),
        ("cell", Self::Cell, "its source is wrong, or leaves out what decides it"),
        ("unpriced", Self::Unpriced, "a known mechanism that is not priced"),
        ("open", Self::Open, "not understood"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind, _)| *kind == self).unwrap().0
    }
}

impl Causes {
    /// Reads them; every one must name a run that there is.
    pub fn read(path: &Path, rows: &[Row]) -> Self {
        let mut all = Vec::new();
        for record in csv::Reader::from_path(path).unwrap().records() {
            let record = record.unwrap();
            let [run, of, kind, words] = [0, 1, 2, 3].map(|at| record[at].to_owned());
            let known = Kind::ALL.iter().find(|(name, ..)| *name == kind);
            let &(_, kind, _) = known.unwrap_or_else(|| panic!("causes.csv: {run}: no kind {kind}"));
            let cause = Cause { run, of, kind, words };
            let there = rows.iter().any(|row| cause.is_of(row.id.as_deref().unwrap_or_default()));
            assert!(there, "causes.csv: there is no run {}", cause.run);
            all.push(cause);
        }
        Self { all, missing: RefCell::default() }
    }

    fn find(&self, run: &str, of: &str) -> Option<&Cause> {
        let named = |cause: &&Cause| cause.of == of && cause.run == run;
        self.all.iter().find(named).or_else(|| self.all.iter().find(|cause| cause.of == of && cause.is_of(run)))
    }

    /// Cause of the error of a run's step time.
    pub fn of_time(&self, run: &str) -> Option<&str> {
        self.find(run, "time").map(|cause| cause.words.as_str())
    }

    /// Kind and words of a cause that a list needs; one that is not there is remembered.
    fn needed(&self, run: &str, of: &str) -> (Kind, String) {
        if let Some(cause) = self.find(run, of) {
            return (cause.kind, cause.words.clone());
        }
        self.missing.borrow_mut().push(format!("{run},{of}"));
        (Kind::Open, String::new())
    }
}

impl Cause {
    fn is_of(&self, run: &str) -> bool {
        self.run.strip_suffix('*').map_or(self.run == run, |start| run.starts_with(start))
    }
}

/// A bar on a mean error.
struct Bar {
    title: &'static str,
    of: &'static str,
    at: f64,
    unit: &'static str,
    pair: fn(&PredictedRun) -> Option<PredictedPair>,
    counts: fn(&PredictedRun) -> bool,
}

const BARS: [Bar; 7] = [
    Bar { title: "Step time, Megatron-Core dense", at: 0.055, counts: |s| s.is_megatron_core() && !s.is_moe(), ..TIME },
    Bar { title: "Step time, MoE", at: 0.08, counts: |s| s.is_moe(), ..TIME },
    Bar { title: "Step time, FSDP sets", at: 0.08, counts: |s| s.is_fsdp(), ..TIME },
    TIME,
    Bar { title: "Peak memory, allocated", at: 0.02, counts: |s| s.memory_kind() == "allocated", ..MEMORY },
    Bar { title: "Peak memory, reserved", at: 0.05, counts: |s| s.memory_kind() == "reserved", ..MEMORY },
    MEMORY,
];

const TIME: Bar = Bar { title: "Step time, all", of: "time", at: 0.075, unit: "s", pair: time_pair, counts: |_| true };
const MEMORY: Bar =
    Bar { title: "Peak memory, all", of: "memory", at: 0.06, unit: "GiB", pair: memory_pair, counts: |_| true };

/// A plan as its row states it.
fn plan(row: &Row) -> String {
    let degrees = [("tp", row.tp), ("pp", row.pp), ("vpp", row.vpp), ("dp", row.dp), ("cp", row.cp), ("ep", row.ep)];
    let mut words: Vec<String> = degrees
        .into_iter()
        .filter_map(|(name, degree)| degree.filter(|degree| *degree > 1.0).map(|degree| format!("{name} {degree}")))
        .collect();
    words.extend(row.micro_batch.map(|size| format!("mbs {size}")));
    words.extend(row.zero_stage.filter(|stage| *stage > 1.0).map(|stage| format!("zero {stage}")));
    words.extend(row.recompute.as_ref().filter(|what| *what != "none").map(|what| format!("recompute {what}")));
    words.join(" ")
}

fn what(row: &Row) -> String {
    let gpus = row.gpus_total.unwrap_or_default();
    let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
    format!("{} on {gpus} {} {}", text(&row.model_name), text(&row.gpu), text(&row.dtype))
}

/// The list of one bar; empty where it is met.
fn missed(bar: &Bar, ran: &[PredictedRun], causes: &Causes) -> String {
    let mut pairs: Vec<(&PredictedRun, PredictedPair)> = ran
        .iter()
        .filter(|sample| (bar.counts)(sample))
        .filter_map(|sample| Some((sample, (bar.pair)(sample)?)))
        .collect();
    let weight: f64 = pairs.iter().map(|(_, pair)| pair.weight).sum();
    let sum: f64 = pairs.iter().map(|(_, pair)| pair.weight * pair.error().abs()).sum();
    if sum <= bar.at * weight {
        return String::new();
    }
    pairs.sort_by(|(_, a), (_, b)| b.error().abs().total_cmp(&a.error().abs()));
    let (mut rest, mut left, mut enough) = (sum, weight, 0);
    for (_, pair) in &pairs {
        if rest <= bar.at * left {
            break;
        }
        rest -= pair.weight * pair.error().abs();
        left -= pair.weight;
        enough += 1;
    }
    let excess = sum - bar.at * weight;
    let columns = ["run", "what", "plan", bar.unit, "predicted", "error", "of the excess", "kind", "cause"];
    let mut sheet = Sheet::new("", &columns);
    let mut kinds: BTreeMap<Kind, (usize, f64)> = BTreeMap::new();
    let shown = enough.max(FEWEST).min(pairs.len());
    for (sample, pair) in &pairs[..shown] {
        let id = sample.prediction.id.as_str();
        let (kind, words) = causes.needed(id, bar.of);
        let share = pair.weight * (pair.error().abs() - bar.at) / excess;
        let of_kind = kinds.entry(kind).or_default();
        *of_kind = (of_kind.0 + 1, of_kind.1 + share);
        sheet.push([
            id.to_owned(),
            what(sample.row),
            plan(sample.row),
            format!("{:.3}", pair.measured),
            format!("{:.3}", pair.predicted),
            percent(pair.error()),
            percent(share),
            kind.name().to_owned(),
            words,
        ]);
    }
    let by_kind: Vec<String> = kinds
        .iter()
        .map(|(kind, (runs, share))| format!("{} {runs} ({} of the excess)", kind.name(), percent(*share)))
        .collect();
    let mut out = format!(
        "\n### {}: {}, target {}\n\n{} runs, {weight:.0} measurements. Without the {enough} of largest error, {} of the \
         runs, the rest are at {}. Of the {shown} shown: {}. Shares of the excess are of what lies over the bar less what \
         other runs leave under it, so they sum to more than 100 %.\n\n",
        bar.title,
        percent(sum / weight),
        percent(bar.at),
        pairs.len(),
        percent(enough as f64 / pairs.len() as f64),
        percent(rest / left),
        by_kind.join(", "),
    );
    out += markdown::render(&sheet).trim_start();
    out
}

/// Runs that are predicted to fit and ran out.
fn false_fits(kept: &[PredictedRun], causes: &Causes) -> String {
    let mut sheet = Sheet::new("", &["run", "what", "plan", "predicted GiB", "kind", "cause"]);
    let ran_out: Vec<&PredictedRun> = kept.iter().filter(|sample| outcome(sample.row) == "oom").collect();
    for sample in ran_out.iter().filter(|sample| sample.prediction.fits == Some(true)) {
        let id = sample.prediction.id.as_str();
        let (kind, words) = causes.needed(id, "fits");
        let peak = sample.prediction.peak_mem_gib.unwrap_or_default();
        let kind = kind.name().to_owned();
        sheet.push([id.to_owned(), what(sample.row), plan(sample.row), format!("{peak:.1}"), kind, words]);
    }
    if sheet.rows.is_empty() {
        return String::new();
    }
    format!(
        "\n### Predicted to fit, ran out: {} of {} that ran out\n\nWith so few, a single one is over 3 %.\n\n{}",
        sheet.rows.len(),
        ran_out.len(),
        markdown::render(&sheet).trim_start()
    )
}

/// One plan: its first run, predicted and measured time in the mean of its repeats.
fn mean<'a>(repeats: &[(&'a PredictedRun<'a>, PredictedPair)]) -> (&'a PredictedRun<'a>, f64, f64) {
    let n = repeats.len() as f64;
    let of = |time: fn(&PredictedPair) -> f64| repeats.iter().map(|(_, pair)| time(pair)).sum::<f64>() / n;
    (repeats[0].0, of(|pair| pair.predicted), of(|pair| pair.measured))
}

/// Choices that cost the most.
fn regrets(report: &Report, ran: &[PredictedRun], causes: &Causes) -> String {
    const BAR: f64 = 0.05;
    let groups = &report.choice.groups;
    let sum: f64 = groups.iter().map(|group| group.regret.first).sum();
    let n = groups.len() as f64;
    if sum <= BAR * n {
        return String::new();
    }
    let mut sheet = Sheet::new("", &["choice", "chosen", "s", "best", "s", "regret", "of the sum", "kind", "cause"]);
    let dear = groups.iter().filter(|group| group.regret.first > BAR);
    for group in dear {
        let mut plans: BTreeMap<String, Vec<(&PredictedRun, PredictedPair)>> = BTreeMap::new();
        for sample in ran.iter().filter(|sample| choice::name(sample) == group.name) {
            if let Some(pair) = time_pair(sample) {
                plans.entry(choice::layout(sample)).or_default().push((sample, pair));
            }
        }
        let plans: Vec<(&PredictedRun, f64, f64)> = plans.values().map(|repeats| mean(repeats)).collect();
        let chosen = plans.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let best = plans.iter().min_by(|a, b| a.2.total_cmp(&b.2)).unwrap();
        let (kind, words) = causes.needed(&chosen.0.prediction.id, "choice");
        let shown =
            |(sample, ..): &(&PredictedRun, f64, f64)| format!("{}: {}", sample.prediction.id, plan(sample.row));
        sheet.push([
            group.name.clone(),
            shown(chosen),
            format!("{:.3}", chosen.2),
            shown(best),
            format!("{:.3}", best.2),
            percent(group.regret.first),
            percent(group.regret.first / sum),
            kind.name().to_owned(),
            words,
        ]);
    }
    format!(
        "\n### Plan regret: {}, target {}\n\n{n} choices; those that cost more than the bar:\n\n{}",
        percent(sum / n),
        percent(BAR),
        markdown::render(&sheet).trim_start()
    )
}

/// Every bar that is missed, with the runs that miss it; `kept` are those that count.
pub fn document(report: &Report, kept: &[PredictedRun], causes: &Causes) -> String {
    let ran: Vec<PredictedRun> = kept.iter().filter(|sample| outcome(sample.row) == "ok").copied().collect();
    let mut out = String::from(
        "For each bar that is missed: the fewest runs without which it would be met, ten at the least, with what each adds to \
         the miss. Nothing is tuned to them, and they stay in every figure. Kinds of cause:\n\n",
    );
    for (name, _, words) in Kind::ALL {
        let _ = writeln!(out, "* **{name}**: {words}.");
    }
    for bar in &BARS {
        out += &missed(bar, &ran, causes);
    }
    out += &false_fits(kept, causes);
    out += &regrets(report, &ran, causes);
    let missing = causes.missing.borrow();
    assert!(missing.is_empty(), "in a list of docs/accuracy.md now, without a cause in causes.csv: {missing:#?}");
    out
}
