//! Checkpoint policies of JAX and of PyTorch, and gradients of layers that a compiled loop runs.

use crate::random::{Spec, spec};
use meshwright::collective::{Fabric, Group};
use meshwright::cost::{Costs, Evaluation};
use meshwright::gpu::{Collective, Format};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::units::Bytes;

/// Llama 3 8B on TPUs, 8,192 tokens a chip.
fn eight() -> Spec {
    spec("llama3-8b", "tpu-v5p-1024", "jax-2025", 1024, 8192)
}

fn priced(problem: &Problem, plan: &str) -> (Plan, Evaluation) {
    let plan = parse_plan(plan, problem).unwrap();
    let evaluation = Costs::new(problem).evaluate(&plan);
    (plan, evaluation)
}

/// QKV 6,144 wide, context 4,096, gate and up 28,672, projection and input 4,096 each, two bytes an element.
#[test]
fn a_policy_keeps_the_outputs_that_it_names() {
    let problem = eight().problem();
    for (recompute, width) in [
        ("none", 6144 + 4096 + 28_672 + 8192),
        ("per-op", 6144 + 28_672 + 8192),
        ("core_attn+mlp", 6144 + 8192),
        ("full", 4096),
    ] {
        let plan = parse_plan(&format!("tp=1 pp=1 zero=3 mbs=1 recompute={recompute}"), &problem).unwrap();
        let kept = Costs::new(&problem).kept_activations(0, &plan).get();
        assert!((kept / f64::from(8192 * 2 * width) - 1.0).abs() < 1e-12, "{recompute}: {kept}");
    }
}

/// Time of what a policy does not keep: of a whole layer all but the last GEMM.
#[test]
fn a_policy_that_keeps_less_recomputes_more() {
    let again = |recompute: &str, spec: Spec| {
        let plan = format!("tp=1 pp=1 zero=3 mbs=1 recompute={recompute}");
        priced(&spec.problem(), &plan).1.step.recompute.get()
    };
    let all = ["none", "per-op", "core_attn+mlp", "full"].map(|recompute| again(recompute, eight()));
    assert!(all[0] > 0.0 && all.is_sorted_by(|less, more| less < more), "{all:?}");
    let last = |recompute: &str| {
        again(recompute, eight().set("stack.checkpoint_early_stop=false")) - again(recompute, eight())
    };
    let (of_mlp, of_layer) = (last("core_attn+mlp"), last("full"));
    assert!((of_mlp / of_layer - 1.0).abs() < 1e-9 && of_layer > 0.0, "{of_mlp} and {of_layer} s of the last GEMM");
    assert_eq!(last("per-op").to_bits(), 0.0_f64.to_bits());
}

/// Megatron-Core checkpoints core attention whatever its kernel: fused, a forward of it is added, and no score was kept before.
#[test]
fn a_checkpoint_of_core_attention_repeats_fused_kernels_where_the_stack_says_so() {
    let plan = |recompute: &str| format!("tp=2 sp=on zero=1 mbs=1 recompute={recompute}");
    let priced = |repeats: bool, recompute: &str| {
        let key = format!("stack.checkpoints_fused_attention={repeats}");
        let problem = spec("llama3-8b", "h100-512", "nemo-25", 512, 8192).set(&key).problem();
        let (plan, evaluation) = priced(&problem, &plan(recompute));
        let attention = Costs::new(&problem).layer(problem.model().last_kind(), &plan).attention;
        (evaluation.step.recompute.get(), attention.get(), evaluation.footprint.peak())
    };
    let [(none, ..), (off, _, memory)] = ["none", "core_attn"].map(|recompute| priced(false, recompute));
    let (on, attention, same) = priced(true, "core_attn");
    assert_eq!((none, off, memory), (0.0, 0.0, same));
    let passes = on / attention;
    assert!(passes >= 32.0 && (passes / 32.0).fract() < 1e-9, "{passes} passes of 32 layers");
}

/// PyTorch's list has no grouped GEMMs: a layer of Qwen3-30B-A3B keeps queries, values, attention's output with its sums, the layer's
/// input and, from 2026 on, the eight copies of each token that it sends and gets back.
#[test]
fn checkpointing_by_operator_runs_experts_again() {
    let spec = |stack: &'static str| spec("qwen3-30b-a3b", "h200-1k", stack, 8, 64).gpus(8);
    let plan = "tp=1 pp=1 zero=3 ep=8 mbs=1 recompute=per-op";
    let kept = |spec: Spec| {
        let problem = spec.problem();
        let plan = parse_plan(plan, &problem).unwrap();
        Costs::new(&problem).kept_activations(0, &plan).get() / f64::from(problem.workload().seq_len)
    };
    let beside_experts = 2.0 * (4096.0 + 512.0 + 4096.0 + 2048.0) + 4.0 * 32.0;
    let copies = 2.0 * 2048.0 * 16.0;
    let without = "stack.memory.keeps_exchanged_tokens=false";
    for (spec, bytes) in [
        (spec("torchtitan-2026").set(without), beside_experts),
        (spec("torchtitan-2026"), beside_experts + copies),
        (spec("torchtitan-eager"), beside_experts + 2.0 * 512.0),
    ] {
        assert!((kept(spec) / bytes - 1.0).abs() < 1e-9, "{bytes}");
    }
    let again = |sets: &str| priced(&spec("torchtitan-2026").set(sets).problem(), plan).1.step.recompute.get();
    let half = again("stack.memory.recomputes_experts=false");
    assert!(again(without) > again("stack.memory.keeps_exchanged_tokens=true") && again(without) > 1.5 * half);
}

/// Release 0.2 compiles the modules of a layer with experts one by one: the layer keeps its input, attention's output with its sums and, with
/// two tensor-parallel ranks, what they reduce of attention and of experts that they split. All else runs again.
#[test]
fn a_layer_whose_matmuls_are_hidden_keeps_attention_alone() {
    let spec = spec("qwen3-30b-a3b", "h200-1k", "torchtitan-2025-10", 8, 64).gpus(8);
    let whole = 2.0 * (4096.0 + 2048.0) + 4.0 * 32.0;
    for (plan, bytes) in [
        ("tp=1 pp=1 zero=3 ep=8 mbs=1 recompute=per-op", whole),
        ("tp=2 pp=1 zero=3 ep=8 etp=1 mbs=1 recompute=per-op", f64::midpoint(whole, 2.0 * 2048.0)),
        ("tp=2 pp=1 zero=3 ep=4 etp=2 mbs=1 recompute=per-op", f64::midpoint(whole, 4.0 * 2048.0)),
    ] {
        let problem = spec.problem();
        let kept = Costs::new(&problem).kept_activations(0, &parse_plan(plan, &problem).unwrap()).get();
        assert!((kept / f64::from(problem.workload().seq_len) / bytes - 1.0).abs() < 1e-9, "{plan}: {bytes}");
    }
    let layer = |hidden: bool| {
        let problem = spec.set(format!("stack.memory.hides_expert_layers={hidden}")).problem();
        let plan = parse_plan("tp=1 pp=1 zero=3 ep=8 mbs=1 recompute=per-op", &problem).unwrap();
        Costs::new(&problem).layer(0, &plan)
    };
    let (hidden, listed) = (layer(true), layer(false));
    let more = (hidden.recompute - listed.recompute).get();
    let half = (listed.forward - listed.attention - listed.routed).get() / 2.0;
    assert!(half > 0.0 && (more / half - 1.0).abs() < 1e-9, "{more} s more, {half} s expected");
}

/// A layer under tensor parallelism takes no less than its sharded operators take to dispatch: 95 launches of 6 us eagerly, 35 of them once more
/// under full recomputation, and half as many where experts take the place of an MLP.
#[test]
fn sharded_tensors_wait_for_their_host() {
    let pass = |model: &'static str, plan: &str, weight: f64| {
        let sets = ["launches.expert_layer=0".to_owned(), format!("launches.sharded_layer={weight}")];
        let spec = sets.iter().fold(spec(model, "h200-1k", "torchtitan-eager", 4, 64).gpus(8), |spec, set| {
            spec.set(format!("stack.{set}"))
        });
        let problem = spec.problem();
        let layers = f64::from(problem.model().layers());
        priced(&problem, plan).1.step.host.get() / layers
    };
    for (model, plan, launches) in [
        ("llama3-8b", "tp=4 pp=1 dp=2 zero=3 mbs=1 recompute=none", 95.0),
        ("llama3-8b", "tp=4 pp=1 dp=2 zero=3 mbs=1 recompute=full", 130.0),
        ("qwen3-30b-a3b", "tp=4 pp=1 dp=2 ep=2 etp=4 zero=3 mbs=1 recompute=none", 47.5),
        ("llama3-8b", "tp=1 pp=1 dp=8 zero=3 mbs=1 recompute=none", 0.0),
    ] {
        let micro_batches = if plan.contains("dp=2") { 2.0 } else { 1.0 };
        let more = pass(model, plan, 60.0) - pass(model, plan, 50.0);
        let expected = 10.0 * launches * 6e-6 * micro_batches;
        assert!((more - expected).abs() < 1e-9, "{plan}: {more} s a layer, {expected} s expected");
    }
}

/// A layer without experts takes no less than its 62 launches of 6 us by the weight, 22 of them once more under full recomputation, half as
/// many where it has one part only, whatever tensor parallelism leaves of its kernels; 0.12 of it under CUDA graphs, and nothing where
/// kernels take longer.
#[test]
fn plain_layers_wait_for_their_host() {
    let host = |model: &'static str, plan: &str, tokens: u32, weight: f64, graphs: bool| {
        let sets = [format!("launches.plain_layer={weight}"), format!("cuda_graphs={graphs}")];
        let spec = sets
            .iter()
            .fold(spec(model, "h200-1k", "nemo-25", 8, tokens).gpus(8), |spec, set| spec.set(format!("stack.{set}")));
        priced(&spec.problem(), plan).1.step.host.get()
    };
    let more = |model, plan: &str, tokens, graphs| {
        host(model, plan, tokens, 60.0, graphs) - host(model, plan, tokens, 50.0, graphs)
    };
    let plain = "tp=1 pp=1 dp=8 zero=1 mbs=1";
    for (what, found, launches) in [
        ("no recomputation", more("llama3-8b", plain, 128, false), 32.0 * 62.0),
        ("full recomputation", more("llama3-8b", &format!("{plain} recompute=full"), 128, false), 32.0 * 84.0),
        ("tensor parallelism", more("llama3-8b", "tp=8 pp=1 dp=1 mbs=8", 128, false), 32.0 * 62.0),
        ("one part", more("nemotron-h-56b", "tp=8 pp=1 dp=1 mbs=8", 128, false), 118.0 * 31.0),
        ("graphs", more("llama3-8b", plain, 128, true), 32.0 * 62.0 * 0.12),
    ] {
        let expected = 10.0 * launches * 6e-6;
        assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found} s more, {expected} s expected");
    }
    let long = |weight| host("llama3-70b", "tp=8 pp=1 dp=1 mbs=1 recompute=full", 8192, weight, false);
    assert_eq!(long(7.7).total_cmp(&long(0.0)), std::cmp::Ordering::Equal, "kernels take longer");
}

/// Checkpointing by operator sees no GEMM in NVFP4, so that a dense layer keeps its input and attention's output with its sums.
#[test]
fn layers_in_nvfp4_keep_attention_alone() {
    let kept = |format: Format, stack: &'static str| {
        let spec = Spec { format, ..spec("llama3-8b", "gb200-nvl72-1152", stack, 8, 4096).gpus(4) };
        let problem = spec.problem();
        let plan = parse_plan("tp=1 pp=1 zero=3 mbs=1 recompute=per-op", &problem).unwrap();
        Costs::new(&problem).kept_activations(0, &plan).get() / f64::from(problem.workload().seq_len)
    };
    let attention_alone = 2.0 * (4096.0 + 4096.0) + 4.0 * 32.0;
    assert!((kept(Format::Nvfp4, "torchtitan-2026") - attention_alone).abs() < 1e-6);
    assert!(kept(Format::Bf16, "torchtitan-2026") > 2.0 * attention_alone);
    assert!(kept(Format::Nvfp4, "torchtitan-2025-10") > 2.0 * attention_alone);
}

/// A compiled loss moves its counted bytes, half of them in each pass, where separate kernels move 22 and 8 a logit; ranks that split the
/// vocabulary have a loss of their own.
#[test]
fn a_compiled_loss_moves_its_counted_bytes() {
    let head = |plan: &str, set: &str| {
        let spec = spec("llama3-8b", "h200-1k", "torchtitan-2024", 8, 4096).gpus(8);
        let problem = if set.is_empty() { spec } else { spec.set(set.to_owned()) }.problem();
        let ends = Costs::new(&problem).ends(&parse_plan(plan, &problem).unwrap());
        (ends.head.forward.get(), ends.head.backward.get())
    };
    let replicas = "tp=1 pp=1 zero=3 mbs=1 recompute=none";
    let (separate, less, least) =
        (head(replicas, ""), head(replicas, "stack.loss_traffic=12"), head(replicas, "stack.loss_traffic=8"));
    let byte = (less.0 - least.0) / 2.0; // time of one byte a logit
    assert!(byte > 0.0 && ((less.1 - least.1) / byte / 2.0 - 1.0).abs() < 1e-9, "{byte}");
    let gaps = 6.0 * 3e-6;
    assert!(((separate.0 - least.0) / byte - 18.0).abs() < gaps / byte, "{separate:?} {least:?}");
    assert!(((separate.1 - least.1) / byte - 4.0).abs() < gaps / byte, "{separate:?} {least:?}");
    let split = "tp=2 pp=1 zero=3 mbs=1 recompute=none";
    assert_eq!(head(split, ""), head(split, "stack.loss_traffic=8"));
}

/// GEMMs of a head take 3.5 times as long on Hopper where the rows of its logits are no multiple of 16 bytes, compiled or not,
/// unless the vocabulary is padded.
#[test]
fn rows_of_logits_need_an_alignment() {
    let head = |cluster: &'static str, stack: &'static str, vocabulary: u32, without_loss: bool| {
        let spec = spec("llama3-8b", cluster, stack, 8, 4096).gpus(8).set(format!("model.vocab={vocabulary}"));
        let problem = if without_loss { spec.set("stack.loss_traffic=0") } else { spec }.problem();
        let plan = parse_plan("tp=1 pp=1 zero=3 mbs=1 recompute=none", &problem).unwrap();
        Costs::new(&problem).ends(&plan).head.sum().get()
    };
    let ratio = |cluster, stack| head(cluster, stack, 50_257, true) / head(cluster, stack, 50_264, true);
    let hopper = ratio("h200-1k", "torchtitan-eager");
    assert!(hopper > 3.4 && hopper <= 3.5, "{hopper}");
    let compiled = ratio("h200-1k", "torchtitan-2025");
    assert!(compiled > 3.4 && compiled <= 3.5, "{compiled}");
    assert!((ratio("dgx-a100-1k", "torchtitan-eager") - 1.0).abs() < 1e-9);
    assert!(head("h200-1k", "nemo-25", 50_257, false) <= head("h200-1k", "nemo-25", 50_264, false));
}

/// A layer of a small model under FSDP takes no less than its hooks, 6 ms for forward and backward and 35 of 95 more for forward again; one
/// GPU and replicas have none.
#[test]
fn small_layers_under_fsdp_wait_for_their_hooks() {
    let layer = |plan: &str, set: &str| {
        let spec =
            spec("llama3-8b", "h200-1k", "torchtitan-eager", 8, 64).gpus(8).set("model.hidden=512").set(set.to_owned());
        let problem = spec.problem();
        let step = priced(&problem, plan).1.step;
        step.total().get() / f64::from(problem.model().layers())
    };
    for (plan, least) in [
        ("tp=1 pp=1 zero=3 mbs=1 recompute=none", 6e-3),
        ("tp=1 pp=1 zero=3 mbs=1 recompute=full", 6e-3 * 130.0 / 95.0),
    ] {
        let (with, without) = (layer(plan, "stack.name=hooks"), layer(plan, "stack.launches.fsdp_layer=0 s"));
        assert!(with >= least && with < 1.5 * least, "{plan}: {with} s a layer");
        assert!(without < 0.8 * least, "{plan}: {without} s a layer without hooks");
    }
    let replicas = "tp=1 pp=1 zero=0 mbs=1 recompute=none";
    let bits = |set: &str| layer(replicas, set).to_bits();
    assert_eq!(bits("stack.name=hooks"), bits("stack.launches.fsdp_layer=0 s"));
}

/// Between slices the gradients of a shard wait for the loop over the layers to end; elsewhere all but a layer's hide.
#[test]
fn nothing_hides_the_gradients_of_scanned_layers_between_slices() {
    let plan = "tp=1 pp=1 zero=3 shard=1024 mbs=1 recompute=full";
    let slices = |scanned: bool| {
        let spec = spec("llama3-8b", "tpu-v5p-1024", "jax-2025", 2048, 8192).gpus(2048);
        spec.set(format!("stack.memory.scanned_layers={scanned}")).problem()
    };
    let exposed = |scanned: bool| priced(&slices(scanned), plan).1.step.dp_comm.get();
    let problem = slices(true);
    let shard = problem.model().parameters().total as f64 * problem.stack().reduce_bytes / 1024.0;
    let fabric = Fabric::new(problem.cluster(), problem.stack());
    let whole = fabric.time(Collective::AllReduce, Bytes::new(shard), Group { ranks: 2, stride: 1024 }, 1.0).get();
    let (ours, theirs) = (exposed(true) - exposed(false), whole * (1.0 - 1.0 / 32.0));
    assert!((ours / theirs - 1.0).abs() < 1e-3, "{ours} s more exposed, {theirs} s expected");
}
