//! Combinations of switches that `validate_args` and `TransformerConfig` refuse; degrees are checked by `space::legal`.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py`, main of
//! 2026-08-22.

use super::arguments::Arguments;
use crate::import::finding::Finding;
use meshwright_engine::plan::Plan;

/// Flag that is refused without another.
struct Needs {
    flag: &'static str,
    /// Flags of which it needs one.
    one_of: &'static [&'static str],
    why: &'static str,
}

/// Two flags, and the reason why one limits or excludes the other.
struct Pair {
    flag: &'static str,
    other: &'static str,
    why: &'static str,
}

/// Flags that `validate_args` of Megatron's own programs refuses without another.
const NEEDS_OF_PARSER: &[Needs] = &[
    Needs { flag: "--overlap-param-gather", one_of: &["--overlap-grad-reduce"], why: "Megatron asserts both" },
    Needs { flag: "--tp-comm-overlap", one_of: &["--sequence-parallel"], why: "Megatron asserts both" },
    Needs {
        flag: "--fp8-param-gather",
        one_of: &["--use-distributed-optimizer", "--use-megatron-fsdp", "--use-torch-fsdp2"],
        why: "FP8 weights are gathered by a sharded optimizer",
    },
    Needs { flag: "--save", one_of: &["--save-interval"], why: "Megatron asserts both" },
    Needs { flag: "--fp16-lm-cross-entropy", one_of: &["--fp16"], why: "Megatron asserts both" },
    Needs { flag: "--fp32-residual-connection", one_of: &["--bf16", "--fp16"], why: "Megatron asserts one of them" },
    Needs { flag: "--distribute-saved-activations", one_of: &["--recompute-method"], why: "Megatron asserts both" },
];

/// Flags that need another flag, whoever reads them.
const NEEDS: &[Needs] = &[
    Needs {
        flag: "--overlap-param-gather",
        one_of: &["--use-distributed-optimizer", "--use-megatron-fsdp"],
        why: "it gathers what the distributed optimizer or Megatron FSDP has sharded",
    },
    Needs {
        flag: "--overlap-param-gather-with-optimizer-step",
        one_of: &["--overlap-param-gather"],
        why: "Megatron asserts both",
    },
    Needs { flag: "--fp8-param-gather", one_of: &["--fp8-format"], why: "FP8 weights need FP8 GEMMs" },
    Needs {
        flag: "--reuse-grad-buf-for-mxfp8-param-ag",
        one_of: &["--fp8-param-gather"],
        why: "Megatron asserts both",
    },
    Needs { flag: "--fp4-param-gather", one_of: &["--fp4-format"], why: "FP4 weights need FP4 GEMMs" },
    Needs { flag: "--fp8-recipe", one_of: &["--fp8-format"], why: "a recipe without a format does nothing" },
    Needs {
        flag: "--use-precision-aware-optimizer",
        one_of: &["--use-distributed-optimizer", "--use-megatron-fsdp"],
        why: "Megatron asserts it",
    },
    Needs { flag: "--moe-ffn-hidden-size", one_of: &["--num-experts"], why: "it is the width of an expert" },
    Needs {
        flag: "--num-query-groups",
        one_of: &["--group-query-attention"],
        why: "without it Megatron keeps one group per head",
    },
    Needs {
        flag: "--moe-flex-dispatcher-backend",
        one_of: &["--moe-token-dispatcher-type"],
        why: "it belongs to the `flex` dispatcher",
    },
    Needs {
        flag: "--moe-pad-expert-input-to-capacity",
        one_of: &["--moe-expert-capacity-factor"],
        why: "there is no capacity to pad to",
    },
    Needs { flag: "--kv-lora-rank", one_of: &["--multi-latent-attention"], why: "latent attention is off without it" },
];

/// Flags that exclude each other.
const APART: &[Pair] = &[
    Pair { flag: "--use-torch-fsdp2", other: "--use-distributed-optimizer", why: "FSDP2 shards the optimizer itself" },
    Pair { flag: "--use-torch-fsdp2", other: "--fp16", why: "FSDP2 does not support fp16 yet" },
    Pair {
        flag: "--moe-shared-expert-overlap",
        other: "--overlap-moe-expert-parallel-comm",
        why: "they hide behind the same GEMMs",
    },
    Pair {
        flag: "--moe-shared-expert-overlap",
        other: "--moe-latent-size",
        why: "shared experts do not overlap latent projections in training",
    },
    Pair { flag: "--enable-cuda-graph", other: "--external-cuda-graph", why: "one or the other" },
    Pair { flag: "--train-iters", other: "--train-samples", why: "training counts iterations or samples" },
    Pair { flag: "--lr-warmup-fraction", other: "--lr-warmup-iters", why: "one or the other" },
    Pair { flag: "--lr-warmup-fraction", other: "--lr-warmup-samples", why: "one or the other" },
    Pair { flag: "--train-iters", other: "--lr-decay-samples", why: "training and its schedule count the same" },
    Pair { flag: "--train-iters", other: "--lr-warmup-samples", why: "training and its schedule count the same" },
    Pair { flag: "--train-samples", other: "--lr-decay-iters", why: "training and its schedule count the same" },
    Pair { flag: "--train-samples", other: "--lr-warmup-iters", why: "training and its schedule count the same" },
];

/// Flags of older releases, and those that replaced them.
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
    for Needs { flag, one_of: others, why } in NEEDS.iter().chain(by_parser).collect::<Vec<_>>() {
        if list.place(flag).is_some() && others.iter().all(|other| list.place(other).is_none()) {
            let finding = Finding::error("contradiction", format!("`{flag}` without {}: {why}", others.join(" or ")));
            list.report_lacking(flag, finding.expected(format!("add {}", others[0])));
        }
    }
}

/// Pairs of flags that exclude each other; a warm-up of 0 is none.
fn exclusive(list: &mut Arguments) {
    for Pair { flag: one, other, why } in APART {
        let both = list.place(one).is_some() && list.place(other).is_some();
        if both && [one, other].iter().all(|flag| !list.says(flag, "0")) {
            let finding = Finding::error("contradiction", format!("`{one}` and `{other}` stand together: {why}"));
            list.report(other, finding.expected("remove one"));
        }
    }
}

/// Flags of older releases, with those that replaced them.
fn deprecated(list: &mut Arguments) {
    for (flag, instead) in GONE {
        if list.has(flag) {
            let finding = Finding::warning("deprecated", format!("`{flag}` is deprecated or gone"));
            list.report(flag, finding.expected(*instead));
        }
    }
}

/// Flags that Megatron turns off, or that have no effect.
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
const NOT_ABOVE: &[Pair] = &[
    Pair { flag: "--min-lr", other: "--lr", why: "Megatron asserts it" },
    Pair { flag: "--seq-length", other: "--max-position-embeddings", why: "Megatron asserts it" },
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
    for Pair { flag, other: most, why } in NOT_ABOVE {
        let (Some(number), Some(limit)) = (list.peek_number(flag), list.peek_number(most)) else { continue };
        if number > limit {
            let finding =
                Finding::error("contradiction", format!("`{flag} {number}` is above `{most} {limit}`: {why}"));
            list.report(flag, finding.expected(format!("{limit} at most")));
        }
    }
}

/// Warns of an attention mask that the data loader makes for every sequence, though causal attention makes its own. No warning where
/// documents of a sequence are kept apart, whose mask is not causal, or where a file or another dataset decides.
pub fn unread_masks(list: &mut Arguments) {
    let without = "--no-create-attention-mask-in-dataloader";
    let excusing = [without, "--reset-attention-mask", "--sft", "--yaml-cfg"];
    let length = list.peek_number("--seq-length").filter(|length| *length >= 1.0);
    let Some(length) = length.filter(|_| excusing.iter().all(|flag| list.place(flag).is_none())) else { return };
    let mask = length * length / f64::from(1 << 20);
    let message =
        format!("the data loader makes a mask of {mask:.0} MiB for each sequence, and attention makes its own");
    let finding = Finding::warning("attention-mask", message).expected(without);
    list.report("--seq-length", finding);
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
