//! Steps of one rank of torchtitan's runs against the H200 that ran them (`checks/ranks`, `tests/silicon/`): its own
//! trainer with the shards of 8 to 256 GPUs, without links.

use serde_json::Value;

use crate::random::spec;
use crate::silicon::{H200, RANKED_H200, calibration, samples, text};
use meshwright::cluster::Cluster;
use meshwright::cost::{Costs, StepTime};
use meshwright::model::Model;
use meshwright::plan::{Plan, Recompute};
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::units::{BytesPerSec, Seconds};

/// A rank that was measured.
struct Rank {
    record: Value,
    /// Device whose kernels were timed alone.
    device: &'static str,
    /// Plan and the files of the catalogue that are its run.
    plan: String,
    problem: Problem,
}

impl Rank {
    /// The rank of a record; `None` where the record has no times.
    fn of(device: &'static str, record: Value) -> Option<Self> {
        let number = |key: &str| record[key].as_u64().map_or(1, |value| value as u32);
        let model = match record["flavor"].as_str().unwrap() {
            "8B" => "llama3-8b",
            "70B" => "llama3-70b",
            "30B-A3B" => "qwen3-30b-a3b",
            "16B" => "tests/hf/deepseek-v2-lite.json",
            other => unreachable!("{other}"),
        };
        record["times_us"].as_array()?;
        let [gpus, tp, pp, ep, etp, batch] = ["gpus", "tp", "pp", "ep", "etp", "batch"].map(number);
        let dp = gpus / tp / pp;
        let stack = if record["compiled"].as_bool().unwrap() { "torchtitan-2025-10" } else { "torchtitan-eager" };
        let base = spec(model, "h200-1k", stack, batch * dp, number("sequence")).gpus(gpus);
        // Attention of release 0.2.2 is cuDNN's whether it compiles or not.
        let whole = base.set("stack.attention=cudnn").problem();
        let mut model = whole.model().clone();
        model.order.truncate(number("layers") as usize);
        let problem = with(&whole, model, whole.cluster().clone());
        let recompute = match record["recompute"].as_str().unwrap() {
            "selective" => "per-op",
            other => other,
        };
        // Micro-batches of a pipeline have one sequence, and its weights stay gathered.
        let (micro_batch, reshard) = if pp > 1 { (1, " reshard=off") } else { (batch, "") };
        let plan = format!(
            "tp={tp} pp={pp} dp={dp} ep={ep} etp={etp} zero=3{reshard} mbs={micro_batch} recompute={recompute}"
        );
        Some(Self { record, device, plan, problem })
    }

    /// Its problem by the catalogue, and with the curves of an H200 that was measured alone.
    fn problems(&self) -> [Problem; 2] {
        let base = &self.problem;
        let alone = spec("llama3-8b", "h200-1k", "torchtitan-2025", 1, 8192).gpus(1).problem();
        let (mut single, mut stack) = (alone.cluster().clone(), base.stack().clone());
        calibration(&alone, &samples(self.device)).apply(&single.gpu.name.clone(), &mut single, &mut stack).unwrap();
        let mut cluster = base.cluster().clone();
        cluster.gpu = single.gpu;
        [base.clone(), with(base, base.model().clone(), cluster)]
    }

    /// Seconds of forward and backward passes where collectives of tensor and expert parallelism are copies on the device, and no less than
    /// the host needs where links are instant.
    fn passes_s(&self, problem: &Problem) -> f64 {
        let (costs, plan) = (Costs::new(problem), parse_plan(&self.plan, problem).unwrap());
        let kernels = |step: StepTime| step.compute + step.recompute;
        let copied = self.copied(&costs, &plan) / costs.device.streaming_bandwidth().get();
        let busy = kernels(costs.evaluate(&plan).step).get() + copied;
        let mut cluster = problem.cluster().clone();
        for curve in cluster.gpu.collectives.values_mut().flatten() {
            (curve.latency, curve.bandwidth) = (Seconds::ZERO, BytesPerSec::new(1e14));
        }
        let instant = Costs::new(&with(problem, problem.model().clone(), cluster)).evaluate(&plan).step;
        busy.max((kernels(instant) + instant.host).get())
    }

    /// Bytes that answered collectives of tensor and expert parallelism read and write.
    fn copied(&self, costs: &Costs, plan: &Plan) -> f64 {
        let (model, layout) = (self.problem.model(), plan.layout);
        let again = match plan.recompute {
            Recompute::Full => 1.0,
            Recompute::PerOp => 0.5,
            _ => 0.0,
        };
        let size = 2.0 * f64::from(model.hidden) * f64::from(model.layers());
        // Two gathers and two scatters a pass, of which a rank reads or writes its share where it does not hold the whole.
        let sharded = if layout.tp > 1 { 2.0 * costs.tokens(plan) * (1.0 + 5.0 / f64::from(layout.tp)) } else { 0.0 };
        let copies = match model.kinds[0].moe().filter(|_| layout.ep > 1) {
            Some(moe) => 4.0 * costs.owned_tokens(plan) * f64::from(moe.top_k),
            None => 0.0,
        };
        size * (sharded * (2.0 + again) + copies * (2.0 + f64::ceil(again)))
    }

    fn median_s(&self, key: &str) -> f64 {
        let mut times: Vec<f64> = self.record[key].as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e-6
    }
}

/// A problem with another model and cluster.
fn with(problem: &Problem, model: Model, cluster: Cluster) -> Problem {
    Problem::new(model, cluster, problem.workload().clone(), problem.stack().clone(), problem.hbm_profile()).unwrap()
}

fn ranks() -> Vec<Rank> {
    let read = |(folder, device)| {
        let records = text(&format!("tests/silicon/{folder}/ranks.jsonl"));
        records.lines().filter_map(|line| Rank::of(device, serde_json::from_str(line).unwrap())).collect::<Vec<_>>()
    };
    [("h200-2026-11-28", H200), ("h200-2026-11-28-b", RANKED_H200)].into_iter().flat_map(read).collect()
}

/// Forward and backward passes of ranks. The first four with tensor parallelism are left out: they ran on tokens of all parts of the
/// vocabulary, whose embeddings are zeros on the rank where nothing is summed, so that their kernels drew less power and ran faster than in a
/// run. All four ran again.
///
/// Three kinds of layer wait for their host, and `stack.launches` was set by one rank each: experts, compiled and eager, and tensor parallelism, compiled
/// and eager. The rank with both in eager mode, DeepSeek-V2-Lite and those with selective checkpointing set no time.
#[test]
fn passes_of_a_rank_take_what_is_predicted() {
    let (mut count, mut total) = (0, [0.0; 2]);
    for rank in ranks().iter().filter(|rank| rank.device != H200 || rank.record["tp"].is_null()) {
        let measured = rank.median_s("passes_us");
        let [catalogue, calibrated] = rank.problems().map(|problem| rank.passes_s(&problem) / measured - 1.0);
        println!(
            "{} {}: {measured:.3} s, {catalogue:+.3}, calibrated {calibrated:+.3}",
            rank.record["flavor"], rank.plan
        );
        assert!(calibrated.abs() < 0.10 && catalogue.abs() < 0.20, "{}: {catalogue}, {calibrated}", rank.plan);
        (count, total) = (count + 1, [total[0] + catalogue.abs(), total[1] + calibrated.abs()]);
    }
    let [catalogue, calibrated] = total.map(|sum| sum / f64::from(count));
    println!("mean of {count}: catalogue {catalogue:.3}, calibrated {calibrated:.3}");
    assert!(count == 17 && catalogue < 0.07 && calibrated < 0.05, "{count}: {catalogue}, {calibrated}");
}

/// Peaks of tensors that a rank allocates, and of what the allocator reserves with expandable segments.
#[test]
fn peaks_of_a_rank_are_what_is_predicted() {
    let (mut count, mut total) = (0, [0.0; 2]);
    for rank in &ranks() {
        let plan = parse_plan(&rank.plan, &rank.problem).unwrap();
        let footprint = Costs::new(&rank.problem).evaluate(&plan).footprint;
        let bytes = |key: &str| rank.record[key].as_f64().unwrap();
        let allocated = footprint.allocated().get() / bytes("peak_bytes") - 1.0;
        let reserved = footprint.reserved().get() / bytes("reserved_bytes") - 1.0;
        println!("{} {}: allocated {allocated:+.3}, reserved {reserved:+.3}", rank.record["flavor"], rank.plan);
        assert!(allocated.abs() < 0.07 && reserved.abs() < 0.20, "{}: {allocated}, {reserved}", rank.plan);
        total[0] += allocated.abs();
        total[1] += reserved.abs();
        count += 1;
    }
    let [allocated, reserved] = total.map(|sum| sum / f64::from(count));
    println!("mean of {count}: allocated {allocated:.3}, reserved {reserved:.3}");
    assert!(count == 21 && allocated < 0.02 && reserved < 0.08, "{count}: {allocated}, {reserved}");
}
