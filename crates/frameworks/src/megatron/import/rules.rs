//! Combinations of switches that `validate_args` and `TransformerConfig` refuse; degrees are checked by `space::legal`.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py`, main of
//! 2026-08-22.

use super::arguments::Arguments;
use crate::import::finding::Finding;
use meshwright_engine::plan::Plan;

/// A flag, the flags of which it needs one, and why.
type Needs = (&'static str, &'static [&'static str], &'static str);

/// Flags that `validate_args` of Megatron's own programs refuses without another.
const NEEDS_OF_PARSER: &[Needs] = &[
    ("--overlap-param-gather", &["--overlap-grad-reduce"], "Megatron asserts both"),
    ("--tp-comm-overlap", &["--sequence-parallel"], "Megatron asserts both"),
    (
        "--fp8-param-gather",
        &["--use-distributed-optimizer", "--use-megatron-fsdp", "--use-torch-fsdp2"],
        "FP8 weights are gathered by a sharded optimizer",
    ),
    ("--save", &["--save-interval"], "Megatron asserts both"),
    ("--fp16-lm-cross-entropy", &["--fp16"], "Megatron asserts both"),
    ("--fp32-residual-connection", &["--bf16", "--fp16"], "Megatron asserts one of them"),
    ("--distribute-saved-activations", &["--recompute-method"], "Megatron asserts both"),
];

/// Flags that need another flag, whoever reads them.
const NEEDS: &[Needs] = &[
    (
        "--overlap-param-gather",
        &["--use-distributed-optimizer", "--use-megatron-fsdp"],
        "it gathers what the distributed optimizer or Megatron FSDP has sharded",
    ),
    ("--overlap-param-gather-with-optimizer-step", &["--overlap-param-gather"], "Megatron asserts both"),
    ("--fp8-param-gather", &["--fp8-format"], "FP8 weights need FP8 GEMMs"),
    ("--reuse-grad-buf-for-mxfp8-param-ag", &["--fp8-param-gather"], "Megatron asserts both"),
    ("--fp4-param-gather", &["--fp4-format"], "FP4 weights need FP4 GEMMs"),
    ("--fp8-recipe", &["--fp8-format"], "a recipe without a format does nothing"),
    ("--use-precision-aware-optimizer", &["--use-distributed-optimizer", "--use-megatron-fsdp"], "Megatron asserts it"),
    ("--moe-ffn-hidden-size", &["--num-experts"], "it is the width of an expert"),
    ("--num-query-groups", &["--group-query-attention"], "without it Megatron keeps one group per head"),
    ("--moe-flex-dispatcher-backend", &["--moe-token-dispatcher-type"], "it belongs to the `flex` dispatcher"),
    ("--moe-pad-expert-input-to-capacity", &["--moe-expert-capacity-factor"], "there is no capacity to pad to"),
    ("--kv-lora-rank", &["--multi-latent-attention"], "latent attention is off without it"),
];

/// Flags that cannot stand together.
const APART: &[(&str, &str, &str)] = &[
    ("--use-torch-fsdp2", "--use-distributed-optimizer", "FSDP2 shards the optimizer itself"),
    ("--use-torch-fsdp2", "--fp16", "FSDP2 does not support fp16 yet"),
    ("--moe-shared-expert-overlap", "--overlap-moe-expert-parallel-comm", "they hide behind the same GEMMs"),
    ("--enable-cuda-graph", "--external-cuda-graph", "one or the other"),
    ("--train-iters", "--train-samples", "training counts iterations or samples"),
    ("--lr-warmup-fraction", "--lr-warmup-iters", "one or the other"),
    ("--lr-warmup-fraction", "--lr-warmup-samples", "one or the other"),
    ("--train-iters", "--lr-decay-samples", "training and its schedule count the same"),
    ("--train-iters", "--lr-warmup-samples", "training and its schedule count the same"),
    ("--train-samples", "--lr-decay-iters", "training and its schedule count the same"),
    ("--train-samples", "--lr-warmup-iters", "training and its schedule count the same"),
];

/// Flags of older releases, and what stands in their place.
const GONE: &[(&str, &str)] = &[
    ("--model-parallel-size", "--tensor-model-parallel-size"),
    ("--batch-size", "--micro-batch-size"),
    ("--checkpoint-activations", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
    (
        "--activations-checkpoint-method",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    ),
    ("--activations-checkpoint-num-layers", "--recompute-num-layers"),
    ("--DDP-impl", "nothing: there is one implementation"),
    ("--fp8-hybrid", "--fp8-format hybrid"),
    ("--fp8-e4m3", "--fp8-format e4m3"),
    ("--external-cuda-graph", "--cuda-graph-impl transformer_engine"),
    ("--enable-cuda-graph", "--cuda-graph-impl local"),
    ("--moe-enable-deepep", "--moe-flex-dispatcher-backend deepep"),
    ("--use-custom-fsdp", "--use-megatron-fsdp"),
];

/// Records findings on flags that contradict each other or the plan. `deepspeed`: the arguments are Megatron-DeepSpeed's, to which
/// older flags and another split of the layers belong.
pub fn contradictions(list: &mut Arguments, plan: &Plan, deepspeed: bool) {
    lacking(list);
    exclusive(list);
    if !deepspeed {
        deprecated(list);
    }
    without_effect(list, plan);
    refused_with_pipeline(list, plan);
    if !deepspeed {
        layers_per_stage(list, plan);
    }
}

/// Flags that lack all of those of which they need one.
fn lacking(list: &mut Arguments) {
    let by_parser = NEEDS_OF_PARSER.iter().filter(|_| list.by_parser);
    for (flag, others, why) in NEEDS.iter().chain(by_parser).collect::<Vec<_>>() {
        if list.place(flag).is_some() && others.iter().all(|other| list.place(other).is_none()) {
            let finding = Finding::error("contradiction", format!("`{flag}` without {}: {why}", others.join(" or ")));
            list.report_lacking(flag, finding.expected(format!("add {}", others[0])));
        }
    }
}

/// Pairs of flags that exclude each other; a warm-up of 0 is none.
fn exclusive(list: &mut Arguments) {
    for (one, other, why) in APART {
        let both = list.place(one).is_some() && list.place(other).is_some();
        if both && [one, other].iter().all(|flag| !list.says(flag, "0")) {
            let finding = Finding::error("contradiction", format!("`{one}` and `{other}` stand together: {why}"));
            list.report(other, finding.expected("remove one"));
        }
    }
}

/// Flags of older releases, with those that stand in their place.
fn deprecated(list: &mut Arguments) {
    for (flag, instead) in GONE {
        if list.has(flag) {
            let finding = Finding::warning("deprecated", format!("`{flag}` is deprecated or gone"));
            list.report(flag, finding.expected(*instead));
        }
    }
}

/// Flags that Megatron turns off, or that do not reach what they are for.
fn without_effect(list: &mut Arguments, plan: &Plan) {
    if list.place("--sequence-parallel").is_some() && plan.layout.tp == 1 {
        let message = "--sequence-parallel with a tensor-parallel size of 1 is turned off";
        list.report("--sequence-parallel", Finding::note("without-effect", message));
    }
    let fp32 = "--accumulate-allreduce-grads-in-fp32";
    let is_read = list.by_parser && list.place(fp32).is_some();
    let has_own = list.place("--megatron-fsdp-main-grads-dtype").is_some();
    if is_read && list.place("--use-megatron-fsdp").is_some() && !has_own {
        let message = format!("{fp32} does not reach Megatron FSDP from core 0.17.1 on");
        let finding = Finding::warning("without-effect", message);
        list.report(fp32, finding.expected("--megatron-fsdp-main-grads-dtype fp32"));
    }
}

/// Flags that Megatron refuses with a pipeline.
fn refused_with_pipeline(list: &mut Arguments, plan: &Plan) {
    if plan.layout.pp > 1 && list.has("--use-torch-fsdp2") {
        let finding = Finding::error("contradiction", "--use-torch-fsdp2 with pipeline parallelism");
        list.report("--use-torch-fsdp2", finding.expected("--use-megatron-fsdp, or a pipeline size of 1"));
    }
    if list.has("--cpu-offloading-num-layers") && plan.layout.pp > 1 {
        let finding = Finding::error("contradiction", "--cpu-offloading-num-layers with pipeline parallelism");
        list.report("--cpu-offloading-num-layers", finding.expected("a pipeline size of 1"));
    }
}

/// Error where the stages do not divide the layers, and no other split is given.
fn layers_per_stage(list: &mut Arguments, plan: &Plan) {
    let other = [
        "--pipeline-model-parallel-layout",
        "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers",
        "--num-virtual-stages-per-pipeline-rank",
        "--num-layers-per-virtual-pipeline-stage",
    ];
    if other.iter().any(|flag| list.place(flag).is_some()) {
        return;
    }
    let Some(layers) = list.size("--num-layers") else { return };
    let spare = ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"];
    let counted = layers + spare.into_iter().filter(|flag| list.has(flag)).count() as u32;
    let pp = plan.layout.pp;
    if !counted.is_multiple_of(pp) {
        let finding =
            Finding::error("does-not-divide", format!("a pipeline size of {pp} does not divide the {counted} layers"));
        let expected =
            "a divisor, --account-for-embedding-in-pipeline-split and …-loss-…, or --pipeline-model-parallel-layout";
        list.report("--pipeline-model-parallel-size", finding.expected(expected));
    }
}

/// Flags without which training stops at its start, any of each row, and why.
const NEEDED: &[(&[&str], &str)] = &[
    (&["--lr"], "the scheduler of the learning rate compares it with others"),
    (&["--tokenizer-type", "--vocab-file"], "the tokenizer is built before the model"),
    (&["--max-position-embeddings"], "Megatron requires it, with rotary embedding too"),
    (&["--train-iters", "--train-samples", "--skip-train"], "training has no length"),
];

/// Flags whose number must not be above that of another, and why.
const NOT_ABOVE: &[(&str, &str, &str)] = &[
    ("--min-lr", "--lr", "Megatron asserts it"),
    ("--seq-length", "--max-position-embeddings", "Megatron asserts it"),
];

/// Notes flags that training cannot start without; a script of Megatron-LM's own flags alone is judged.
pub fn needed(list: &mut Arguments) {
    if list.place("--use-checkpoint-args").is_some() || list.place("--yaml-cfg").is_some() {
        return; // what is missing is in the checkpoint, or in the file
    }
    for (flags, why) in NEEDED {
        if flags.iter().all(|flag| list.place(flag).is_none()) {
            let finding = Finding::error("missing-flag", format!("no {}: {why}", flags[0]));
            list.findings.push(finding.expected(format!("{} in the script", flags[0])));
        }
    }
    for (flag, most, why) in NOT_ABOVE {
        let (Some(number), Some(limit)) = (list.peek_number(flag), list.peek_number(most)) else { continue };
        if number > limit {
            let finding =
                Finding::error("contradiction", format!("`{flag} {number}` is above `{most} {limit}`: {why}"));
            list.report(flag, finding.expected(format!("{limit} at most")));
        }
    }
}

/// `CUDA_DEVICE_MAX_CONNECTIONS`: 1 with tensor or context parallelism before Blackwell, more with FSDP.
pub fn connections(list: &mut Arguments, plan: &Plan, value: Option<&str>, in_script: bool, deepspeed: bool) {
    // With DeepSpeed no gradient is reduced beside the GEMMs, and only sequence parallelism asks for one queue
    // (`megatron/arguments.py` of Microsoft's fork).
    if deepspeed && !list.has("--sequence-parallel") {
        return;
    }
    let fsdp = list.has("--use-torch-fsdp2") || list.has("--use-megatron-fsdp");
    if fsdp && value == Some("1") {
        let finding = Finding::error("contradiction", "CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP");
        list.findings.push(finding.expected("8 or more, or not set: with 1 its gathers wait for the GEMMs"));
    } else if in_script
        && !fsdp
        && value != Some("1")
        && plan.layout.tp.max(plan.layout.cp) > 1
        && !list.has("--overlap-moe-expert-parallel-comm")
    {
        let read = value.map_or_else(|| "is not set".into(), |value| format!("is {value}"));
        let message = format!("CUDA_DEVICE_MAX_CONNECTIONS {read}, with tensor or context parallelism");
        let finding = Finding::warning("connections", message);
        list.findings.push(finding.expected("1 on GPUs before Blackwell: Megatron refuses to start else"));
    }
}
