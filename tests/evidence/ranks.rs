//! Steps of one rank of torchtitan's runs against the H200 that ran them (`checks/ranks`, `tests/silicon/`): its own
//! trainer with the shards of 8 to 256 GPUs, without links.

use serde_json::Value;

use crate::random::spec;
use crate::silicon::{H200, calibration, samples, text};
use meshwright::cost::{Costs, Evaluation, StepTime};
use meshwright::problem::Problem;
use meshwright::space::parse_plan;

/// A rank that was measured.
struct Rank {
    record: Value,
    /// Plan and the files of the catalogue that are its run.
    plan: String,
    problem: Problem,
}

impl Rank {
    /// The rank of a record; `None` where the record has no times.
    fn of(record: Value) -> Option<Self> {
        let number = |key: &str| record[key].as_u64().map_or(1, |value| value as u32);
        let model = match record["flavor"].as_str().unwrap() {
            "8B" => "llama3-8b",
            "70B" => "llama3-70b",
            "30B-A3B" => "qwen3-30b-a3b",
            "16B" => "tests/hf/deepseek-v2-lite.json",
            other => unreachable!("{other}"),
        };
        record["times_us"].as_array()?;
        let [gpus, tp, pp, ep, batch] = ["gpus", "tp", "pp", "ep", "batch"].map(number);
        let dp = gpus / tp / pp;
        let stack = if record["compiled"].as_bool().unwrap() { "torchtitan-2026" } else { "torchtitan-eager" };
        let base = spec(model, "h200-1k", stack, batch * dp, number("sequence")).gpus(gpus);
        // Release 0.2.2 takes the loss of all tokens at once, and its attention is cuDNN's whether it compiles or not.
        let problem = base.set("stack.memory.loss_chunks=1").set("stack.attention=cudnn").problem();
        let recompute = match record["recompute"].as_str().unwrap() {
            "selective" => "per-op",
            other => other,
        };
        // Micro-batches of a pipeline have one sequence, and its weights stay gathered.
        let (micro_batch, reshard) = if pp > 1 { (1, " reshard=off") } else { (batch, "") };
        let plan = format!("tp={tp} pp={pp} dp={dp} ep={ep} zero=3{reshard} mbs={micro_batch} recompute={recompute}");
        Some(Self { record, plan, problem })
    }

    /// Its price by the catalogue, and with the curves of another H200 that was measured alone.
    fn priced(&self) -> [Evaluation; 2] {
        let base = &self.problem;
        let evaluate = |problem: &Problem| Costs::new(problem).evaluate(&parse_plan(&self.plan, problem).unwrap());
        let alone = spec("llama3-8b", "h200-1k", "torchtitan-2025", 1, 8192).gpus(1).problem();
        let (mut single, mut stack) = (alone.cluster().clone(), base.stack().clone());
        calibration(&alone, &samples(H200)).apply(&single.gpu.name.clone(), &mut single, &mut stack).unwrap();
        let mut cluster = base.cluster().clone();
        cluster.gpu = single.gpu;
        let calibrated =
            Problem::new(base.model().clone(), cluster, base.workload().clone(), stack, base.hbm_profile()).unwrap();
        [evaluate(base), evaluate(&calibrated)]
    }

    fn median_s(&self, key: &str) -> f64 {
        let mut times: Vec<f64> = self.record[key].as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e-6
    }
}

fn ranks() -> Vec<Rank> {
    let parsed = text("tests/silicon/h200-2026-11-28/ranks.jsonl");
    parsed.lines().filter_map(|line| Rank::of(serde_json::from_str(line).unwrap())).collect()
}

/// Forward and backward passes of ranks without tensor parallelism. Those with it ran on tokens of all parts of the
/// vocabulary, whose embeddings are zeros on the rank where nothing is summed, so that their kernels drew less power
/// and ran faster than in a run.
///
/// A dense model is within 8 % of the calibrated price. A layer with experts waits for its host:
/// `stack.torchtitan-2026.launches.expert_layer` is set to the 23.8 ms of Qwen3's, and DeepSeek-V2-Lite, to which
/// nothing is set, is 13 % too fast.
#[test]
fn passes_of_a_rank_take_what_is_predicted() {
    let mut count = 0;
    for rank in ranks().iter().filter(|rank| rank.record["tp"].is_null()) {
        let measured = rank.median_s("passes_us");
        let [catalogue, calibrated] = rank.priced().map(|evaluation| {
            // The exchange of experts fills a part of what the host needs anyway.
            let StepTime { compute, recompute, host, ep_comm, .. } = evaluation.step;
            (compute + recompute + host + ep_comm).get() / measured - 1.0
        });
        println!(
            "{} {}: {measured:.3} s, {catalogue:+.3}, calibrated {calibrated:+.3}",
            rank.record["flavor"], rank.plan
        );
        let most = if rank.record["flavor"] == "16B" { 0.14 } else { 0.08 };
        assert!(calibrated.abs() < most && catalogue.abs() < 0.20, "{}: {catalogue}, {calibrated}", rank.plan);
        count += 1;
    }
    assert_eq!(count, 6);
}

/// Peaks of tensors that a rank allocates, and of what the allocator reserves with expandable segments.
#[test]
fn peaks_of_a_rank_are_what_is_predicted() {
    let (mut count, mut total) = (0, [0.0; 2]);
    for rank in &ranks() {
        let [catalogue, _] = rank.priced();
        let bytes = |key: &str| rank.record[key].as_f64().unwrap();
        let allocated = catalogue.footprint.allocated().get() / bytes("peak_bytes") - 1.0;
        let reserved = catalogue.footprint.reserved().get() / bytes("reserved_bytes") - 1.0;
        println!("{} {}: allocated {allocated:+.3}, reserved {reserved:+.3}", rank.record["flavor"], rank.plan);
        assert!(allocated.abs() < 0.07 && reserved.abs() < 0.20, "{}: {allocated}, {reserved}", rank.plan);
        total[0] += allocated.abs();
        total[1] += reserved.abs();
        count += 1;
    }
    let [allocated, reserved] = total.map(|sum| sum / f64::from(count));
    println!("mean of {count}: allocated {allocated:.3}, reserved {reserved:.3}");
    assert!(count == 10 && allocated < 0.02 && reserved < 0.08, "{count}: {allocated}, {reserved}");
}
