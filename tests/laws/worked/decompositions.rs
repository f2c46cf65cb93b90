//! §10.2: four published runs, worked by hand.
//!
//! Tolerance 0.5 %, or half of the last printed digit where that is more.

use meshwright::cluster::Cluster;
use meshwright::collective::{Fabric, Group};
use meshwright::cost::layer::LayerCost;
use meshwright::cost::work::Work;
use meshwright::cost::{Costs, StepTime};
use meshwright::gpu::{AttentionKernel, Collective, Format};
use meshwright::model::flops::AttentionConvention;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::units::{Bytes, Seconds};

use super::{close, gpt, in_format, model, one_zero_cluster, one_zero_stack, problem};

/// Asserts that `ours` is the printed number to 0.5 %, or to half of its last digit `unit`.
#[track_caller]
fn worked(what: &str, ours: f64, printed: f64, unit: f64) {
    let off = (ours - printed).abs();
    assert!(off <= (0.005 * printed).max(0.500_000_1 * unit), "{what}: {ours} against {printed}");
}

/// A plan's price as the decompositions print it.
struct Priced {
    layer: LayerCost,
    ranks: Vec<Work>,
    step: StepTime,
}

impl Priced {
    fn new(problem: &Problem, plan: &str) -> Self {
        let plan = parse_plan(plan, problem).unwrap();
        let costs = Costs::new(problem);
        let shape = costs.shape(&plan);
        let layer = shape.layers[problem.model().last_kind()];
        Self { layer, ranks: costs.rank_works(&plan, &shape), step: costs.evaluate(&plan).step }
    }

    /// Asserts milliseconds of a layer: name, ours, printed.
    #[track_caller]
    fn layer_prints(rows: &[(&str, Seconds, f64)]) {
        for (what, ours, printed) in rows {
            worked(what, ours.get() * 1e3, *printed, 0.01);
        }
    }

    fn busiest(&self) -> Work {
        let both = |work: &Work| work.forward() + work.backward();
        self.ranks.iter().copied().reduce(|a, b| if both(&b) > both(&a) { b } else { a }).unwrap()
    }

    /// Work of all micro-batches, without bubble.
    fn ideal(&self) -> f64 {
        let StepTime { compute, recompute, tp_comm, cp_comm, ep_comm, .. } = self.step;
        (compute + recompute + tp_comm + cp_comm + ep_comm).get()
    }

    /// Mean over the ranks, in ms.
    fn mean(&self, part: impl Fn(&Work) -> Seconds) -> f64 {
        self.ranks.iter().map(part).sum::<Seconds>().get() * 1e3 / self.ranks.len() as f64
    }
}

/// Gradients in one message, as version 1.0 had it: its latency, 10 us + 24 us·log2 k, is below 0.2 ms a collective.
fn without_buckets(mut cluster: Cluster) -> Cluster {
    for level in &mut cluster.levels {
        level.hop_latency = 0.0;
    }
    cluster
}

fn a100(gpus: u32) -> Cluster {
    without_buckets(one_zero_cluster("dgx-a100-1k", "a100-80-sxm", gpus))
}

#[test]
fn section_10_2_the_sc21_run_of_145_6b_takes_24_13_s() {
    let stack = one_zero_stack("megatron-2021", 1.35, 1.0);
    let problem = problem(gpt(80, 12_288, 96), a100(1536), stack, 2304, 2048);
    let plan = "tp=8 sp=off pp=8 schedule=interleaved vpp=2 zero=0 mbs=2 recompute=full";
    let priced = Priced::new(&problem, plan);
    let LayerCost { forward, dgrad, wgrad, tp, recompute, .. } = priced.layer;
    Priced::layer_prints(&[
        ("f", forward, 9.76),
        ("d", dgrad, 10.47),
        ("w", wgrad, 8.55),
        ("tp forward", tp.forward, 1.84),
        ("tp backward", tp.backward, 1.84),
        ("recompute", recompute, 11.60),
    ]);
    let busiest = priced.busiest();
    worked("F", busiest.forward().get() * 1e3, 120.0, 0.1);
    worked("B", busiest.backward().get() * 1e3, 330.9, 0.1);
    worked("ideal", priced.ideal(), 21.64, 0.01);
    worked("bubble", priced.step.pipeline_bubble.get(), 1.54, 0.01);
    worked("sends", priced.step.pp_comm.get(), 0.25, 0.01);
    worked("gradients", priced.step.dp_comm.get(), 0.44, 0.01);
    worked("update", priced.step.optimizer.get(), 0.06, 0.01);
    worked("step", priced.step.total().get(), 24.13, 0.01);
}

#[test]
fn section_10_2_the_175b_run_with_selective_recomputation_takes_13_33_s() {
    let stack = one_zero_stack("megatron-2022", 1.35, 1.0);
    let problem = problem(gpt(96, 12_288, 96), a100(64), stack, 64, 2048);
    let plan = "tp=8 sp=on pp=8 schedule=interleaved vpp=3 zero=0 mbs=1 recompute=core_attn";
    let priced = Priced::new(&problem, plan);
    let LayerCost { forward, attention, dgrad, wgrad, tp, recompute, .. } = priced.layer;
    Priced::layer_prints(&[
        ("f", forward, 4.53),
        ("attention", attention, 0.58),
        ("d", dgrad, 4.83),
        ("w", wgrad, 3.80),
        ("tp forward", tp.forward, 1.13),
        ("tp backward", tp.backward, 1.13),
        ("recompute", recompute, 0.58),
    ]);
    let each = |work: &Work| (work.forward() + work.backward()).get() * 1e3;
    worked("least", priced.ranks.iter().map(each).fold(f64::INFINITY, f64::min), 192.0, 1.0);
    worked("most", priced.ranks.iter().map(each).fold(0.0, f64::max), 197.0, 1.0);
    worked("ideal", priced.ideal(), 12.60, 0.01);
    worked("bubble", priced.step.pipeline_bubble.get(), 0.45, 0.01);
    worked("sends", priced.step.pp_comm.get(), 0.13, 0.01);
    worked("tied embedding", priced.step.dp_comm.get(), 0.015, 0.001);
    worked("step", priced.step.total().get(), 13.33, 0.01);
    // The printed update leaves out the learned positions, which every rank keeps whole (25 M, 0.6 ms).
    let mut rotary = problem.model().clone();
    rotary.learned_positions = 0;
    let problem = super::problem(rotary, a100(64), problem.stack().clone(), 64, 2048);
    worked("update", Priced::new(&problem, plan).step.optimizer.get(), 0.076, 0.001);
}

#[test]
fn section_10_2_a_layer_of_the_22b_model_is_as_in_the_sequence_parallelism_paper() {
    let stack = one_zero_stack("megatron-2022", 1.35, 1.0);
    let problem = problem(gpt(48, 6144, 64), a100(8), stack, 4, 2048);
    let with = Priced::new(&problem, "tp=8 sp=on zero=0 mbs=4").layer;
    let without = Priced::new(&problem, "tp=8 sp=off zero=0 mbs=4").layer;
    Priced::layer_prints(&[
        ("f with", with.forward, 5.60),
        ("tp with", with.tp.forward, 2.03),
        ("f without", without.forward, 6.42),
        ("tp without", without.tp.forward, 1.84),
    ]);
    let backward = |layer: LayerCost| (layer.dgrad + layer.wgrad + layer.tp.backward).get() * 1e3;
    worked("backward with", backward(with), 12.1, 0.1);
    worked("backward without", backward(without), 12.9, 0.1);
}

#[test]
fn section_10_2_llama_3_405b_on_8192_gpus_takes_11_97_s() {
    let cluster = without_buckets(one_zero_cluster("dgx-h100-16k", "h100-sxm", 8192));
    let problem = problem(model("llama3-405b"), cluster, one_zero_stack("meta-llama3", 1.35, 0.8), 2048, 8192);
    let priced = Priced::new(&problem, "tp=8 pp=16 schedule=interleaved vpp=8 zero=1 mbs=1");
    let LayerCost { forward, dgrad, wgrad, tp, .. } = priced.layer;
    Priced::layer_prints(&[
        ("f", forward, 11.97),
        ("d", dgrad, 13.21),
        ("w", wgrad, 10.97),
        ("tp forward", tp.forward, 2.90),
        ("tp backward", tp.backward, 2.90),
    ]);
    let busiest = priced.busiest();
    worked("busiest", (busiest.forward() + busiest.backward()).get() * 1e3, 335.7, 0.1);
    worked("ideal", priced.ideal(), 10.74, 0.01);
    worked("bubble", priced.step.pipeline_bubble.get(), 0.62, 0.01);
    worked("sends", priced.step.pp_comm.get(), 0.20, 0.01);
    worked("update", priced.step.optimizer.get(), 0.01, 0.01);
    let step = priced.step.total().get();
    worked("step", step, 11.97, 0.01);
    let flops = problem.model().flops_per_token(8192, AttentionConvention::Causal).get() * 2048.0 * 8192.0;
    worked("TFLOP/s", flops / step / 8192.0 / 1e12, 431.7, 0.1);
}

/// §5.2 by hand: what `parameters` of a rank expose over 64 replicas of one rank a node, gradients in 4 bytes.
fn exposed(priced: &Priced, fabric: &Fabric, parameters: f64) -> f64 {
    let group = Group { ranks: 64, stride: 8 };
    let busiest = priced.busiest();
    let edge = |op, bytes: f64, window: Seconds| {
        let time = fabric.time(op, Bytes::new(parameters * bytes), group, 1.0);
        (time / (126.0 / 16.0) + (time * 1.06 - window).or_zero() + time.min(window) * 0.12).get()
    };
    edge(Collective::ReduceScatter, 4.0, busiest.backward()) + edge(Collective::AllGather, 2.0, busiest.forward())
}

/// The printed 0.28 s takes a rank to hold L/p layers and a table, 3.40 B parameters, as §6.8. With the layers as they are
/// split no rank holds both: the fullest has 8 layers, 3.19 B, and exposes 0.24 s.
#[test]
fn section_10_2_gradients_of_llama_3_405b_expose_0_28_s() {
    let cluster = without_buckets(one_zero_cluster("dgx-h100-16k", "h100-sxm", 8192));
    let problem = problem(model("llama3-405b"), cluster, one_zero_stack("meta-llama3", 1.35, 0.8), 2048, 8192);
    let text = "tp=8 pp=16 schedule=interleaved vpp=8 zero=1 mbs=1";
    let (costs, priced) = (Costs::new(&problem), Priced::new(&problem, text));
    worked("as printed", exposed(&priced, &costs.fabric, 3.40e9), 0.28, 0.01);
    let plan = parse_plan(text, &problem).unwrap();
    let fullest = costs.rank_parameters(&plan).into_iter().map(|rank| rank.total()).fold(0.0, f64::max);
    close(fullest, 3.19e9, 0.01);
    close(priced.step.dp_comm.get(), exposed(&priced, &costs.fabric, fullest), 1e-9);
}

/// Version 1.0 ran this with FlashAttention 3 and the multi-token prediction layer, recomputing the up-projections. It took p/2
/// micro-batches to find no partner; the list of operations has p + 1 of them.
#[test]
fn section_10_2_deepseek_v3_on_2048_h800_takes_18_88_s() {
    let mut stack = one_zero_stack("deepseek-v3", 1.1, 0.7);
    stack.attention = AttentionKernel::Fa3;
    let cluster = without_buckets(one_zero_cluster("h800-2048", "h800-sxm", 2048));
    let problem = in_format(model("deepseek-v3"), cluster, stack, (15_360, 4096), Format::Fp8Block);
    let priced = Priced::new(&problem, "tp=1 pp=16 schedule=dualpipe ep=64 zero=1 mbs=1 recompute=mla_up_proj");
    let LayerCost { forward, dgrad, wgrad, ep, recompute, .. } = priced.layer;
    Priced::layer_prints(&[
        ("f", forward, 9.58),
        ("d", dgrad, 14.15),
        ("w", wgrad, 5.48),
        ("recompute", recompute, 0.79),
        ("ep forward", ep.forward, 7.30),
        ("ep backward", ep.backward, 7.30),
    ]);
    worked("F", priced.mean(Work::forward), 38.7, 0.1);
    worked("B", priced.mean(Work::backward), 82.2, 0.1);
    // The printed mean leaves out the exchange of the multi-token prediction layer, which the last rank has too.
    let extra = ep.sum().get() * 1e3 / 16.0;
    worked("EP", priced.mean(|work| work.ep_beside) - extra, 53.0, 0.1);
    worked("bubble", priced.step.pipeline_bubble.get(), 1.32, 0.01);
    let StepTime { stragglers, dp_comm, optimizer, .. } = priced.step;
    worked("rest", (stragglers + dp_comm + optimizer).get(), 0.2, 0.1);
    let alone = priced.mean(|work| work.forward() + work.backward() + work.ep_beside) / 1e3;
    let pair = (priced.ideal() - 17.0 * alone) / 103.0;
    worked("pair", pair * 1e3, 142.5, 0.1);
    worked("pairs", pair * 120.0, 17.1, 0.1);
    worked("alone", 8.0 * (alone - pair), 0.26, 0.01);
    worked("step", priced.step.total().get(), 18.88 + 9.0 * (alone - pair), 0.01);
}
