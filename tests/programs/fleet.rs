//! Choice of a fleet: the integer program against enumeration, and the sweeps of the repository.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::random::SplitMix;
use meshwright::sweep::Shard;
use meshwright::sweep::fleet::{self, Fleet, FleetProof, NoFleet};
use meshwright::sweep::record::{OptionStatus, Record};
use meshwright::sweep::run;
use meshwright::sweep::store::Done;
use meshwright::sweep::{Sweep, insight};

fn records(sweep: &Sweep) -> Vec<Record> {
    let kept = Mutex::new(Vec::new());
    let keep = |record: &Record| {
        kept.lock().unwrap().push(record.clone());
        Ok(())
    };
    run::run(sweep, Shard::default(), &Done::default(), &keep, &|_| {}, &|_, _| ControlFlow::Continue(())).unwrap();
    let mut records = kept.into_inner().unwrap();
    records.sort_by_key(|record| record.option);
    records
}

const JOBS: &str = r#"
name = "jobs"
[[workload]]
name = "job"
model = "llama3-8b"
tokens = "20 B"
runs = 7
global_batch = 128
[options]
gpu = ["h100-sxm", "h200-sxm"]
gpus = [8, 16, 32]
terms = ["contract", "spot"]
"#;

fn bought(records: &[Record], table: &str) -> Fleet {
    let sweep = Sweep::parse(&format!("{JOBS}[buy]\n{table}"), "test").unwrap();
    fleet::buy(&sweep, sweep.wanted.as_ref().unwrap(), records).unwrap()
}

/// With no limit but an end date, every run goes to the cheapest option that is in time, which needs no integer program.
#[test]
fn without_other_limits_every_run_takes_the_cheapest_option_in_time() {
    let sweep = Sweep::parse(JOBS, "test").unwrap();
    let records = records(&sweep);
    assert!(records.iter().all(|record| record.status == OptionStatus::Ok));
    for days in [3.0, 6.0, 12.0, 100.0] {
        let cheapest = records
            .iter()
            .map(|record| &record.jobs[0])
            .filter(|job| job.days <= days)
            .map(|job| job.cost_usd)
            .fold(f64::INFINITY, f64::min);
        if cheapest.is_infinite() {
            continue;
        }
        let fleet = bought(&records, &format!("finish_by = \"{days} d\""));
        assert!((fleet.cost_usd / (7.0 * cheapest) - 1.0).abs() < 1e-6, "{days} d: {} {cheapest}", fleet.cost_usd);
        assert!(fleet.days <= days && fleet.proof == FleetProof::Optimal, "{fleet:?}");
        assert_eq!(
            fleet.lines.iter().flat_map(|line| line.runs.iter().map(|of| of.runs * line.clusters)).sum::<u32>(),
            7
        );
    }

    // Power for one cluster of the smallest draw: as many runs, one after the other, as there is time for.
    let fleet = bought(&records, "finish_by = \"200 d\"\npower = \"0.02 MW\"");
    assert!(fleet.peak_mw <= 0.02 && fleet.lines.len() == 1, "{fleet:?}");
    let free = bought(&records, "finish_by = \"200 d\"");
    assert!(fleet.cost_usd >= free.cost_usd * (1.0 - 1e-9));

    // Spot only from day 50 on, and 16 of them: a fleet that waits costs less than one that does not.
    let late = "[[buy.offer]]\ngpu = \"h100-sxm\"\nterms = \"contract\"\n[[buy.offer]]\ngpu = \"h100-sxm\"\nterms \
    = \"spot\"\nfrom = \"50 d\"\nmost = 16\n";
    let waits = bought(&records, &format!("finish_by = \"300 d\"\n{late}"));
    let hurries = bought(&records, &format!("finish_by = \"45 d\"\n{late}"));
    assert!(waits.cost_usd < hurries.cost_usd && waits.lines.iter().any(|line| line.from_day >= 50.0), "{waits:?}");
    assert!(hurries.lines.iter().all(|line| line.from_day < 45.0 && line.label.contains("contract")));
    let spot: u32 =
        waits.lines.iter().filter(|line| line.label.contains("spot")).map(|line| line.gpus * line.clusters).sum();
    assert!(spot <= 16, "{waits:?}");
}

#[test]
fn most_tokens_spend_the_budget_on_the_cheapest_token() {
    let sweep = Sweep::parse(JOBS, "test").unwrap();
    let records = records(&sweep);
    let fleet = bought(&records, "goal = \"tokens\"\nfinish_by = \"30 d\"\nbudget = \"20 k$\"");
    let best = records.iter().map(|record| 20e9 / record.jobs[0].cost_usd).fold(0.0, f64::max);
    assert!(fleet.cost_usd <= 20e3 * 1.000_001);
    assert!(
        fleet.tokens <= best * 20e3 * 1.000_001 && fleet.tokens >= 0.95 * best * 20e3,
        "{} {}",
        fleet.tokens,
        best * 20e3
    );
    let powered = bought(&records, "goal = \"tokens\"\nfinish_by = \"30 d\"\nbudget = \"20 k$\"\npower = \"20 kW\"");
    assert!(powered.peak_mw <= 0.02 * 1.000_001 && powered.tokens <= fleet.tokens * 1.000_001);
}

#[test]
fn break_even_prices_make_costs_even() {
    let sweep = Sweep::parse(JOBS, "test").unwrap();
    let records = records(&sweep);
    let points = insight::break_even(&records);
    assert_eq!(points.len(), 4, "two GPUs, two terms");
    for point in &points {
        let of = |gpu: &str| {
            let own =
                records.iter().filter(|record| record.choice["gpu"] == gpu && record.choice["terms"] == point.terms);
            own.filter_map(|record| record.totals.as_ref()).min_by(|a, b| a.cost_usd.total_cmp(&b.cost_usd)).unwrap()
        };
        let at_even = point.usd_per_gpu_hour * of(&point.gpu).gpu_hours;
        assert!((at_even / of(&point.against).cost_usd - 1.0).abs() < 1e-9, "{point:?}");
        assert_eq!(point.wins, point.now_usd_per_gpu_hour < point.usd_per_gpu_hour);
    }
}

fn ready(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clusters/sweeps").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The ready sweeps expand to what they say, and each runs, cut down to a machine or two.
#[test]
fn ready_sweeps_run() {
    type Cut<'a> = (&'a str, &'a str);
    let sweeps: [(&str, u64, &[Cut]); 4] = [
        (
            "llama3-405b.toml",
            30,
            &[
                ("[\"h100-sxm\", \"h200-sxm\", \"b200-sxm\", \"gb200\", \"mi300x\"]", "[\"h200-sxm\", \"gb200\"]"),
                ("[8192, 16384, 24576]", "1152"),
                ("3072", "1152"),
            ],
        ),
        (
            "fine-tuning-70b.toml",
            48,
            &[("[64, 128, 256, 512]", "64"), ("runs = 60", "runs = 6"), ("runs = 240", "runs = 24")],
        ),
        (
            "deepseek-v3.toml",
            6,
            &[("[\"h800-sxm\", \"h100-sxm\", \"h200-sxm\"]", "\"h200-sxm\""), ("2048", "256"), ("15360", "256")],
        ),
        ("network.toml", 12, &[("16384", "1024"), ("[1, 2, 4, 7]", "[1, 7]"), ("2048", "1024")]),
    ];
    for (name, options, cuts) in sweeps {
        let mut text = ready(name);
        assert_eq!(Sweep::parse(&text, name).unwrap().options(), options, "{name}");
        for (from, to) in cuts {
            assert!(text.contains(from), "{name}: {from}");
            text = text.replace(from, to);
        }
        let sweep = Sweep::parse(&text, name).unwrap();
        let records = records(&sweep);
        assert!(records.iter().any(|record| record.status == OptionStatus::Ok), "{name}: {:?}", records[0].reason);
        if let Some(wanted) = &sweep.wanted {
            let fleet = fleet::buy(&sweep, wanted, &records).unwrap();
            assert!(fleet.cost_usd <= 2e6 && fleet.days <= 180.0, "{name}: {fleet:?}");
        }
        if name == "network.toml" {
            let steps = insight::marginals(&sweep, &records);
            let slower: Vec<_> = steps.iter().filter(|step| step.axis == "nic").collect();
            assert_eq!(slower.len(), 2);
            assert!(slower.iter().all(|step| step.days <= 1e-9), "faster NICs never take longer: {slower:?}");
            assert!(
                steps.iter().filter(|step| step.axis == "oversubscription").all(|step| step.days >= -1e-9),
                "{steps:?}"
            );
        }
    }
}

/// Random number from `least` to `most`.
fn between(numbers: &mut SplitMix, least: f64, most: f64) -> f64 {
    least + (most - least) * numbers.uniform()
}

/// One cluster of an enumerated fleet.
#[derive(Clone, Copy)]
struct Cluster<'r> {
    record: &'r Record,
    from: f64,
    runs: u32,
}

impl Cluster<'_> {
    fn to(&self) -> f64 {
        self.from + self.record.jobs[0].days * f64::from(self.runs)
    }
}

/// Limits of a random problem.
#[derive(Debug, Default)]
struct Limits {
    finish: f64,
    budget: Option<f64>,
    /// Power until the middle of the time, and after it.
    power: Option<[f64; 2]>,
    /// Dollars until the middle of the time, and after it.
    spending: Option<[f64; 2]>,
    racks: Option<f64>,
    /// H100 at any time, and from when they can be had.
    most_h100: Option<(f64, f64)>,
}

impl Limits {
    fn random(numbers: &mut SplitMix) -> Self {
        let mut limits = Self { finish: between(numbers, 10.0, 60.0).round(), ..Self::default() };
        if numbers.below(3) == 0 {
            limits.budget = Some(between(numbers, 500.0, 6000.0).round());
        }
        if numbers.below(2) == 0 {
            limits.power = Some([0, 1].map(|_| (between(numbers, 0.01, 0.08) * 1e6).round() / 1e6));
        }
        if numbers.below(3) == 0 {
            limits.spending = Some([0, 1].map(|_| between(numbers, 100.0, 3000.0).round()));
        }
        if numbers.below(3) == 0 {
            limits.racks = Some(numbers.below(4) as f64 + 1.0);
        }
        if numbers.below(2) == 0 {
            let from = if numbers.below(2) == 0 { 0.0 } else { (limits.finish / 2.0).round() };
            limits.most_h100 = Some((8.0 * (numbers.below(6) + 1) as f64, from));
        }
        limits
    }

    /// The middle, where a period ends, in days.
    fn middle(&self) -> f64 {
        (self.finish / 2.0).round()
    }

    const fn has_periods(&self) -> bool {
        self.power.is_some() || self.spending.is_some()
    }

    /// Dollars of a cluster before the middle and after it, paid evenly.
    fn spent(&self, cluster: &Cluster) -> [f64; 2] {
        let before = ((self.middle() - cluster.from) / (cluster.to() - cluster.from)).clamp(0.0, 1.0);
        [before, 1.0 - before].map(|share| share * dollars(cluster))
    }

    fn table(&self) -> String {
        let mut text = format!("finish_by = \"{} d\"\n", self.finish);
        if let Some(budget) = self.budget {
            writeln!(text, "budget = \"{budget} $\"").expect("a String takes any text");
        }
        if let Some(racks) = self.racks {
            writeln!(text, "racks = {racks}").expect("a String takes any text");
        }
        if let Some((most, from)) = self.most_h100 {
            text += "[[buy.offer]]\ngpu = \"h200-sxm\"\n";
            writeln!(text, "[[buy.offer]]\ngpu = \"h100-sxm\"\nfrom = \"{from} d\"\nmost = {most}")
                .expect("a String takes any text");
        }
        if self.has_periods() {
            for (period, until) in [self.middle(), self.finish].into_iter().enumerate() {
                writeln!(text, "[[buy.period]]\nuntil = \"{until} d\"").expect("a String takes any text");
                if let Some(power) = self.power {
                    writeln!(text, "power = \"{} MW\"", power[period]).expect("a String takes any text");
                }
                if let Some(spending) = self.spending {
                    writeln!(text, "budget = \"{} $\"", spending[period]).expect("a String takes any text");
                }
            }
        }
        text
    }

    /// When clusters may start: at the start of all, of a period, and when H100 can be had.
    fn starts(&self) -> Vec<f64> {
        let mut starts = vec![0.0];
        if self.has_periods() || self.most_h100.is_some_and(|(_, from)| from > 0.0) {
            starts.push(self.middle());
        }
        starts
    }

    fn hold(&self, clusters: &[Cluster]) -> bool {
        let is_h100 = |cluster: &Cluster| cluster.record.choice["gpu"] == "h100-sxm";
        let in_time = clusters.iter().all(|cluster| {
            let had = self.most_h100.is_none_or(|(_, from)| !is_h100(cluster) || cluster.from >= from);
            had && cluster.to() <= self.finish + 1e-9
        });
        let cost: f64 = clusters.iter().map(dollars).sum();
        let at = |time: f64| {
            let present: Vec<&Cluster> =
                clusters.iter().filter(|cluster| cluster.from <= time && time < cluster.to() - 1e-9).collect();
            let sum = |of: &dyn Fn(&Cluster) -> f64| present.iter().map(|cluster| of(cluster)).sum::<f64>();
            let power = self.power.map(|[before, after]| if time < self.middle() { before } else { after });
            let megawatts = sum(&|cluster| cluster.record.totals.as_ref().unwrap().peak_mw);
            let racks = sum(&|cluster| f64::from(cluster.record.gpus.div_ceil(32)));
            let h100 = sum(&|cluster| if is_h100(cluster) { f64::from(cluster.record.gpus) } else { 0.0 });
            power.is_none_or(|most| megawatts <= most)
                && self.racks.is_none_or(|most| racks <= most)
                && self.most_h100.is_none_or(|(most, _)| h100 <= most)
        };
        let spent = [0, 1].map(|half| clusters.iter().map(|cluster| self.spent(cluster)[half]).sum::<f64>());
        let affordable = self.spending.is_none_or(|most| spent[0] <= most[0] && spent[1] <= most[1]);
        in_time
            && affordable
            && self.budget.is_none_or(|most| cost <= most)
            && self.starts().into_iter().chain([self.middle()]).all(at)
    }
}

fn dollars(cluster: &Cluster) -> f64 {
    cluster.record.jobs[0].cost_usd * f64::from(cluster.runs)
}

/// Least cost of `runs` runs over all fleets, by enumeration. Clusters are added in a fixed order, so that no fleet is tried twice.
fn cheapest<'r>(limits: &Limits, choices: &[Cluster<'r>], runs: u32, taken: &mut Vec<Cluster<'r>>) -> Option<f64> {
    if runs == 0 {
        return limits.hold(taken).then(|| taken.iter().map(dollars).sum());
    }
    let mut best: Option<f64> = None;
    for (at, choice) in choices.iter().enumerate().filter(|(_, choice)| choice.runs <= runs) {
        taken.push(*choice);
        let found = cheapest(limits, &choices[at..], runs - choice.runs, taken);
        taken.pop();
        best = best.into_iter().chain(found).reduce(f64::min);
    }
    best
}

/// Random costs and limits: power that changes, racks, budgets, and GPUs that arrive late and are few.
#[test]
fn the_integer_program_equals_enumeration() {
    let text = JOBS.replace("runs = 7", "runs = 4").replace("gpus = [8, 16, 32]", "gpus = [8, 32]");
    let sweep = Sweep::parse(&text, "test").unwrap();
    let real = records(&sweep);
    let mut numbers = SplitMix::new(11);
    let (mut bought, mut impossible) = (0, 0);
    for _ in 0..150 {
        let mut records = real.clone();
        for record in &mut records {
            let (time, price, power) =
                (between(&mut numbers, 0.5, 4.0), between(&mut numbers, 0.5, 2.0), between(&mut numbers, 0.5, 2.0));
            let totals = record.totals.as_mut().unwrap();
            totals.peak_mw *= power;
            record.jobs[0].days *= time;
            record.jobs[0].cost_usd *= price;
        }
        let limits = Limits::random(&mut numbers);
        let asked = Sweep::parse(&format!("{text}[buy]\n{}", limits.table()), "test").unwrap();
        let mut choices = Vec::new();
        for (record, from, runs) in itertools::iproduct!(&records, limits.starts(), 1..=4) {
            choices.push(Cluster { record, from, runs });
        }
        choices.retain(|choice| limits.hold(&[*choice]));
        let best = cheapest(&limits, &choices, 4, &mut Vec::new());
        match (fleet::buy(&asked, asked.wanted.as_ref().unwrap(), &records), best) {
            (Ok(fleet), Some(best)) => {
                assert!(
                    (fleet.cost_usd / best - 1.0).abs() < 1e-6,
                    "{} bought, {best} tried: {limits:?}",
                    fleet.cost_usd
                );
                assert!(fleet.bound <= best * (1.0 + 1e-6), "{fleet:?}");
                bought += 1;
            }
            (Err(NoFleet::Infeasible(reasons)), None) => {
                assert!(!reasons.is_empty());
                impossible += 1;
            }
            (found, best) => panic!("{found:?} and {best:?}: {limits:?}"),
        }
    }
    assert!(bought > 30 && impossible > 10, "{bought} and {impossible}");
}
