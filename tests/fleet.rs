//! What to buy: the program against plain reckoning, and the ready sweeps.

use std::path::PathBuf;
use std::sync::Mutex;

use meshwright::sweep::fleet::{self, Fleet, Proof};
use meshwright::sweep::record::{Record, Status};
use meshwright::sweep::run::{self, Shard};
use meshwright::sweep::store::Done;
use meshwright::sweep::{Sweep, insight};

fn records(sweep: &Sweep) -> Vec<Record> {
    let kept = Mutex::new(Vec::new());
    let keep = |record: &Record| {
        kept.lock().unwrap().push(record.clone());
        Ok(())
    };
    run::run(sweep, Shard::default(), &Done::default(), &keep, &|_| {}).unwrap();
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

/// Without limits but an end, every run goes to the cheapest option that is in time; so one can be reckoned by hand.
#[test]
fn fewest_dollars_are_those_of_a_plain_reckoning() {
    let sweep = Sweep::parse(JOBS, "test").unwrap();
    let records = records(&sweep);
    assert!(records.iter().all(|record| record.status == Status::Ok));
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
        assert!(fleet.days <= days && fleet.proof == Proof::Optimal, "{fleet:?}");
        assert_eq!(
            fleet.lines.iter().flat_map(|line| line.runs.iter().map(|(_, n)| n * line.clusters)).sum::<u32>(),
            7
        );
    }

    // Power for one cluster of the smallest draw: as many runs, one after the other, as there is time for.
    let fleet = bought(&records, "finish_by = \"200 d\"\npower = \"0.02 MW\"");
    assert!(fleet.peak_mw <= 0.02 && fleet.lines.len() == 1, "{fleet:?}");
    let free = bought(&records, "finish_by = \"200 d\"");
    assert!(fleet.cost_usd >= free.cost_usd * (1.0 - 1e-9));

    // Spot only from day 50 on, and 16 of them: a fleet that waits costs less than one that does not.
    let late = "[[buy.offer]]\ngpu = \"h100-sxm\"\nterms = \"contract\"\n[[buy.offer]]\ngpu = \"h100-sxm\"\nterms = \"spot\"\nfrom = \"50 d\"\nmost = 16\n";
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
        assert!(records.iter().any(|record| record.status == Status::Ok), "{name}: {:?}", records[0].reason);
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
