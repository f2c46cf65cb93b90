//! The closed form of goodput against a simulated job, and published runs.

use crate::random::SplitMix;
use meshwright::catalog::{self, Overrides};
use meshwright::cluster::Cluster;
use meshwright::cost::Costs;
use meshwright::goodput::{checkpoint, spares, useful};
use meshwright::money::{self, Market, Prices};
use meshwright::problem::{HbmProfile, Problem};
use meshwright::space::parse_plan;
use meshwright::units::{Seconds, Tokens, UsdPerHour};
use meshwright::workload::{Workload, recipe};

/// Random time until the next failure, where the mean is `mean`.
fn failure(numbers: &mut SplitMix, mean: f64) -> f64 {
    -mean * (1.0 - numbers.uniform()).ln()
}

/// Job whose failures are simulated; all times in seconds.
struct Job {
    /// Work between two snapshots.
    interval: f64,
    /// Time that the job waits for a snapshot to be taken.
    pause: f64,
    /// Time until a snapshot that was taken can be restored.
    drain: f64,
    /// Time from a failure until the job works again.
    restart: f64,
    /// Mean time between two failures.
    between_failures: f64,
}

impl Job {
    /// Useful share of its time after so many failures. A snapshot can be restored once it has drained; a failure goes back
    /// to the last such, and may strike during a restart too.
    fn useful_share(&self, numbers: &mut SplitMix, failures: u32) -> f64 {
        let Self { interval, pause, drain, restart, between_failures } = *self;
        // `ready`: when the job works again; a failure before that starts the restart over.
        let (mut ready, mut work, mut safe, mut draining) = (0.0, 0.0, 0.0, None);
        let mut failed = failure(numbers, between_failures);
        for _ in 0..failures {
            while ready + interval + pause < failed {
                ready += interval + pause;
                work += interval;
                if let Some((_, of)) = draining.replace((ready + drain, work)) {
                    safe = of; // the drain is never longer than the interval
                }
            }
            match draining.take() {
                Some((at, of)) if at <= failed => safe = of,
                Some(_) | None => {}
            }
            work = safe;
            ready = failed + restart;
            failed += failure(numbers, between_failures);
        }
        safe / ready
    }
}

/// Failures of one simulation: one standard error is about a third of a percent of what is lost.
const FAILURES: u32 = 100_000;

#[test]
fn the_closed_form_is_what_a_simulated_job_does() {
    let mut numbers = SplitMix::new(20_240_731);
    for (mean, pause, restart) in
        [(11_124.0, 30.0, 180.0), (11_124.0, 5.0, 600.0), (3600.0, 60.0, 900.0), (400_000.0, 5.0, 190.0)]
    {
        let best = checkpoint::best_interval(Seconds::new(pause), Seconds::new(mean)).get();
        for (interval, drain) in [(best * 0.4, 0.0), (best, 0.0), (best * 3.0, 0.0), (best, best * 0.3), (best, best)] {
            let closed =
                useful(Seconds::new(interval), Seconds::new(pause), Seconds::new(restart + drain), Seconds::new(mean));
            let simulated =
                Job { interval, pause, drain, restart, between_failures: mean }.useful_share(&mut numbers, FAILURES);
            // Without a drain the form is exact; a drain enters it to first order of drain/M.
            let tolerance = if drain > 0.0 { 0.01 } else { 0.004 };
            assert!(
                (closed / simulated - 1.0).abs() < tolerance,
                "M {mean}, pause {pause}, restart {restart}, drain {drain}, every {interval}: {closed} against {simulated}"
            );
        }
    }
}

/// A pool of spares, breakages at random, repairs of one length: how long a breakage waits for a node.
#[test]
fn spares_run_out_as_often_as_the_closed_form_says() {
    let mut numbers = SplitMix::new(7);
    for (under_repair, spares) in [(0.5_f64, 0_u32), (0.5, 1), (2.0, 2), (8.0, 10)] {
        let (repair, gap) = (1.0, 1.0 / under_repair);
        let mut back: Vec<f64> = Vec::new(); // when each broken node is back
        let (mut clock, mut short) = (0.0, 0.0);
        for _ in 0..FAILURES {
            clock += failure(&mut numbers, gap);
            back.retain(|at| *at > clock);
            if back.len() >= spares as usize {
                short += 1.0;
            }
            back.push(clock + repair);
        }
        let (closed, simulated) = (spares::exhausted(spares, under_repair), short / f64::from(FAILURES));
        assert!((closed - simulated).abs() < 0.01, "{under_repair} {spares}: {closed} against {simulated}");
    }
}

fn market() -> Market {
    catalog::market(catalog::defaults::MARKET, &Overrides::default()).unwrap()
}

/// The failure rates of the catalogue give back the run that they are from: 419 interruptions in 54 days.
#[test]
fn llama3_is_interrupted_419_times_in_54_days() {
    let cluster = catalog::cluster("h100-24576", &Overrides::default()).unwrap().resized(16_384);
    let between = market().conditions.failures.mean_time_to_interruption(&cluster, None);
    let expected = 54.0 / 419.0;
    assert!((between.as_days() / expected - 1.0).abs() < 0.01, "{} h", between.as_hours());
}

fn problem(model: &str, cluster: &str, stack: &str, gpus: u32, workload: Workload) -> Problem {
    let none = Overrides::default();
    let cluster = catalog::cluster(cluster, &none).unwrap().resized(gpus);
    let (model, stack) = (catalog::model(model, &none).unwrap(), catalog::stack(stack, &none).unwrap());
    Problem::new(model, cluster, workload, stack, HbmProfile::Tight).unwrap()
}

fn workload(batch: u32, seq_len: u32, format: meshwright::gpu::Format, bytes: &str) -> Workload {
    Workload { recipe: recipe(bytes).unwrap(), ..crate::random::workload(batch, seq_len, format) }
}

/// Meta's own plan and stack, 15.6 T tokens. Published: 30.84 M GPU-hours ([llama3-model-card]) and more than 90 % of the time
/// effective ([llama3-infrastructure]; its 54 days are a window of the run, not the run). Here every token is trained at the final
/// batch and 8,192 tokens; the smaller batches at the start and the long context at the end, which were slower, are not in it.
#[test]
fn llama3_405b_takes_a_little_less_than_31_million_gpu_hours() {
    let work = workload(2048, 8192, meshwright::gpu::Format::Bf16, "megatron");
    let problem = problem("llama3-405b", "h100-24576", "meta-llama3", 16_384, work);
    let plan = parse_plan("tp=8 cp=1 pp=16 dp=128 vpp=8 schedule=interleaved mbs=1 zero=1", &problem).unwrap();
    let step = Costs::new(&problem).evaluate(&plan).step;
    let market = market();
    let goodput = market.conditions.goodput(&problem);
    assert!(goodput.effective > 0.90 && goodput.effective < 0.98, "{goodput:?}");
    let time = money::time_to_train(&problem, step.total(), &goodput, Tokens::new(15.6e12));
    let gpu_hours = time.as_hours() * 16_384.0;
    eprintln!(
        "Llama 3 405B: {:.1} days, {:.2} M GPU-hours, {:.1} % effective",
        time.as_days(),
        gpu_hours / 1e6,
        goodput.effective * 100.0
    );
    assert!(
        (0.85..=1.0).contains(&(gpu_hours / 30.84e6)),
        "{:.2} M GPU-hours, {} days",
        gpu_hours / 1e6,
        time.as_days()
    );
}

/// A device without a price is no bill: which price is missing is said, by the terms.
#[test]
fn a_device_without_prices_has_no_rate() {
    let market = market();
    let mut cluster = catalog::cluster("dgx-h100-8", &Overrides::default()).unwrap();
    let rate = |cluster: &Cluster, terms: &str, price: Option<UsdPerHour>| {
        money::rate(&market, &market.terms[terms], cluster, price).map_err(|why| why.to_string())
    };
    assert!(rate(&cluster, "contract", None).is_ok() && rate(&cluster, "own", None).is_ok());
    cluster.gpu.price = None;
    assert!(rate(&cluster, "contract", None).unwrap_err().contains("has no [price]"));
    assert!(rate(&cluster, "own", None).unwrap_err().contains("has no purchase price"));
    let named = UsdPerHour::new(2.0);
    assert_eq!(rate(&cluster, "contract", Some(named)).map(|rate| rate.usual), Ok(named));
}

/// DeepSeek-V3: 2.664 M GPU-hours for 14.8 T tokens, 5.3 M$ at 2 $ an hour ([deepseek-v3]).
#[test]
fn deepseek_v3_takes_about_2_66_million_gpu_hours() {
    let work = workload(15_360, 4096, meshwright::gpu::Format::Fp8Block, "deepseek-v3");
    let problem = problem("deepseek-v3", "h800-2048", "deepseek-v3", 2048, work);
    let plan = parse_plan(
        "tp=1 cp=1 pp=16 dp=128 ep=64 schedule=dualpipe mbs=1 zero=1 recompute=layernorm+mla_up_proj",
        &problem,
    )
    .unwrap();
    let step = Costs::new(&problem).evaluate(&plan).step;
    let market = market();
    let goodput = market.conditions.goodput(&problem);
    let terms = &market.terms["contract"];
    let rate = money::rate(&market, terms, problem.cluster(), None).unwrap();
    let bill = money::bill(&problem, Prices { market: &market, terms, rate }, &step, &goodput, Tokens::new(14.8e12));
    eprintln!(
        "DeepSeek-V3: {:.3} M GPU-hours, {}, {:.1} % effective, {:.0} MWh",
        bill.gpu_hours / 1e6,
        bill.total,
        goodput.effective * 100.0,
        bill.energy.as_mwh()
    );
    assert!((bill.gpu_hours / 2.664e6 - 1.0).abs() < 0.08, "{:.3} M GPU-hours", bill.gpu_hours / 1e6);
    assert!((bill.total.get() / 5.3e6 - 1.0).abs() < 0.08, "{}", bill.total);
}

#[test]
fn more_of_anything_bad_is_never_better() {
    let work = workload(2048, 8192, meshwright::gpu::Format::Bf16, "megatron");
    let problem = problem("llama3-70b", "dgx-h100-1k", "nemo-25", 1024, work);
    let base = market().conditions;
    let usual = base.goodput(&problem).effective;
    let changed = |change: &dyn Fn(&mut meshwright::goodput::Conditions)| {
        let mut conditions = base.clone();
        change(&mut conditions);
        conditions.goodput(&problem).effective
    };
    assert!(changed(&|c| c.failures.gpu.value = c.failures.gpu.value / 10.0) < usual);
    assert!(changed(&|c| c.failures.restart.value = c.failures.restart.value * 10.0) < usual);
    assert!(changed(&|c| c.checkpoints.storage = Some(meshwright::units::BytesPerSec::gbytes(0.1))) < usual);
    assert!(changed(&|c| c.checkpoints.mode = meshwright::goodput::Mode::Sync) < usual);
    assert!(changed(&|c| c.spares = Some(0)) < usual);
    assert!(changed(&|c| c.straggler = 0.4) < usual / 1.39);
    assert!(changed(&|c| c.checkpoints.interval = Some(Seconds::hours(24.0))) < usual);
    assert!(changed(&|c| c.failures.gpu.value = Seconds::new(1.0)) < 1e-6, "a job that never gets anywhere");
}

/// A tree of three levels of full bisection has both ends of two links a GPU beside its own; a top of 4:1 has a quarter of those there.
#[test]
fn ports_of_a_network_follow_its_levels() {
    let sets = Overrides::default();
    let mut tree = catalog::cluster("dgx-h100-16k", &sets).unwrap();
    let levels = tree.levels.len() as f64;
    for level in &mut tree.levels {
        (level.oversubscription, level.bandwidth) = (1.0, tree.gpu.nic.clone());
    }
    assert!((money::ports_per_gpu(&tree) - (1.0 + 2.0 * (levels - 1.0))).abs() < 1e-12 && levels > 1.0);
    tree.levels.last_mut().unwrap().oversubscription = 4.0;
    assert!((money::ports_per_gpu(&tree) - (1.0 + 2.0 * (levels - 2.0) + 0.5)).abs() < 1e-12);
    tree.levels.clear();
    assert!(money::ports_per_gpu(&tree).abs() < 1e-12, "one scale-up domain has no network");
}
