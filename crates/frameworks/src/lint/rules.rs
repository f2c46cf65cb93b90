//! Rules of `lint`, each with its requirement and its source.

use meshwright_planner::space::Rejection;

/// Rule of `lint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LintRule {
    /// Name in findings.
    pub name: &'static str,
    /// Statement that a correct file meets.
    pub says: &'static str,
    /// Source of the rule.
    pub source: &'static str,
}

const fn rule(name: &'static str, says: &'static str, source: &'static str) -> LintRule {
    LintRule { name, says, source }
}

const ARGUMENTS: &str = "Megatron-LM, megatron/training/arguments.py, validate_args";
const CONFIG: &str = "Megatron-LM, megatron/core/transformer/transformer_config.py";
const FILE: &str = "the file itself";
const SPARSE: &str = "Megatron-LM, megatron/core/transformer/experimental_attention_variant/dsa_cudnn_kernels.py";
const MODEL: &str = "the cost model (README, how right it is)";

/// All rules: of reading, of legality, of memory, of links, of speed.
pub const RULES: &[LintRule] = &[
    rule("abbreviation", "A flag is written whole.", "Python argparse, allow_abbrev"),
    rule(
        "adapters",
        "All parameters are trained, or low-rank adapters, whose share of the weights is taken as 0.2 %.",
        FILE,
    ),
    rule("assumed-unset", "What a script takes from its environment is given.", FILE),
    rule(
        "assumed-vocabulary",
        "The vocabulary is in the file.",
        "Megatron-LM, --vocab-size and --make-vocab-size-divisible-by",
    ),
    rule("broken-continuation", "A line that goes on ends in a backslash with nothing after it.", "POSIX shell, 2.2.1"),
    rule(
        "connections",
        "CUDA_DEVICE_MAX_CONNECTIONS is 1 with tensor or context parallelism before Blackwell.",
        ARGUMENTS,
    ),
    rule("contradiction", "Settings that the framework refuses together do not stand together.", ARGUMENTS),
    rule("deprecated", "Settings that were taken away are not used.", ARGUMENTS),
    rule(
        "dispatcher",
        "A fused exchange with experts is one that the GPUs have.",
        "Megatron-Bridge, training/flex_dispatcher_backend.py",
    ),
    rule(
        "attention-mask",
        "The data loader makes no mask that attention does not read.",
        "Megatron-LM, megatron/core/datasets/gpt_dataset.py, create_attention_mask; ROCm/Megatron-LM, pull request 40: 4 to 6 % of a step",
    ),
    rule(
        "attention-kernel",
        "The attention kernel that a file names runs on the GPUs.",
        "FlashAttention, requirements in its repository; PyTorch, sdp_utils.cpp",
    ),
    rule(
        "transformer-engine",
        "Transformer Engine supports the GPUs.",
        "Transformer Engine, README, system requirements: Ampere and later",
    ),
    rule("device", "The framework runs on the devices.", FILE),
    rule("documents", "The length of packed documents is stated, where attention stays within them.", FILE),
    rule("does-not-divide", "Degrees and batches divide what they share out.", ARGUMENTS),
    rule("flag-twice", "A flag stands once.", "Python argparse: the last counts"),
    rule("impossible-model", "The sizes make a model.", CONFIG),
    rule("line-ends", "Lines end as Unix ends them.", "POSIX shell, 2.3: a CR is a part of its word"),
    rule("missing-flag", "What a model and its training need is there.", ARGUMENTS),
    rule("missing-value", "A flag has its value.", "Python argparse, nargs"),
    rule("needs-code", "What only the training program decides is known.", "DeepSpeed and Accelerate documentation"),
    rule("not-modelled", "What changes the step is part of the cost model.", MODEL),
    rule("not-read", "What is read is all that is set.", FILE),
    rule("not-training", "The program trains.", FILE),
    rule("other-module", "A configuration begins with what the file itself sets.", FILE),
    rule("release", "All flags are of one release.", "Megatron-LM, the parsers of core 0.12 and later"),
    rule(
        "number-format",
        "The GPUs multiply the formats of the file.",
        "Transformer Engine, pytorch/quantization.py; NVIDIA A100 architecture, data types",
    ),
    rule("script-ends", "A script does not end before its launch.", FILE),
    rule("several-launches", "A script launches one training.", FILE),
    rule(
        "stage-0",
        "Stage 0 keeps all states on every replica.",
        "DeepSpeed, runtime/engine.py, _do_optimizer_sanity_check",
    ),
    rule("stray-word", "Every word belongs to a flag.", "Python argparse"),
    rule("unknown-flag", "Every flag is one that some release has.", "Megatron-LM, the parsers of core 0.12 and later"),
    rule(
        "unknown-key",
        "Keys are those that the framework takes.",
        "DeepSpeed zero/config.py (extra=forbid); Accelerate config_args.py",
    ),
    rule("unknown-model", "The model is one of the catalogue.", FILE),
    rule("unknown-value", "A word is one of its flag's choices.", "Megatron-LM, argparse choices"),
    rule("unread-file", "Files that a script names can be read.", FILE),
    rule("unresolved-condition", "Conditions are decided by the script.", FILE),
    rule("unresolved-value", "Values are numbers, not `auto`.", "DeepSpeed, runtime/config.py"),
    rule("unresolved-variable", "Variables are set.", FILE),
    rule("unresolved-world", "The number of GPUs is set.", FILE),
    rule("unread-setting", "Every degree, batch, length, stage and precision is read.", FILE),
    rule("without-effect", "What is set has an effect.", ARGUMENTS),
    rule("wrong-value", "A value has its flag's type and range.", "Python argparse, type"),
    rule("no-model", "The model is known.", FILE),
    rule("no-problem", "The model, the cluster and the workload fit together.", "crates/engine/src/problem.rs"),
    rule("assumed", "Batch and sequence are in the file.", FILE),
    rule("cluster-size", "The launch uses the cluster's GPUs.", FILE),
    rule("node-size", "The launch puts as many processes on a node as it has GPUs.", "torchrun, --nproc-per-node"),
    rule(
        "framework-schedule",
        "The framework runs the schedule.",
        "Megatron-LM schedules.py; torchtitan pipeline_parallel_schedule; DeepSpeed pipe engine; nanotron pp_engine",
    ),
    rule("world-size", "The degrees multiply to the GPUs.", ARGUMENTS),
    rule("heads", "Tensor parallelism divides the heads.", CONFIG),
    rule(
        "ffn-width",
        "Tensor parallelism divides the intermediate size.",
        "Megatron-LM, megatron/core/tensor_parallel/layers.py, divide()",
    ),
    rule("kv-heads", "Key-value heads are a multiple or a divisor of the tensor-parallel size.", CONFIG),
    rule("too-few-layers", "Every chunk of the pipeline has a layer.", ARGUMENTS),
    rule("schedule", "The schedule runs on the pipeline.", "Megatron-LM schedules.py; zero-bubble and DualPipe papers"),
    rule(
        "batch",
        "The global batch is a multiple of micro-batch times replicas.",
        "Megatron-LM, megatron/core/num_microbatches_calculator.py",
    ),
    rule(
        "interleaved-batch",
        "Interleaving walks whole groups of pp micro-batches.",
        "Megatron-LM, megatron/core/pipeline_parallel/schedules.py",
    ),
    rule(
        "few-micro-batches",
        "1F1B of torch.distributed.pipelining has a micro-batch for each stage.",
        "PyTorch, distributed/pipelining/schedules.py, Schedule1F1B",
    ),
    rule("too-many-passes", "A step has few enough passes to be simulated.", MODEL),
    rule(
        "split",
        "Stages that are spelled out hold the model's layers.",
        "Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py",
    ),
    rule("sequence", "The sequence divides by what splits it.", ARGUMENTS),
    rule(
        "ulysses-heads",
        "Heads-for-tokens has a head for each rank.",
        "Transformer Engine, context parallelism by a2a",
    ),
    rule("shared-sequence", "Attention over chosen keys has whole sequences.", SPARSE),
    rule("head-block", "Heads of a rank divide a block of 64, or fill blocks, of sparse attention.", SPARSE),
    rule("index-scores", "One fused kernel computes the scores of an indexer.", SPARSE),
    rule(
        "experts",
        "Expert parallelism divides the experts.",
        "Megatron-LM, megatron/core/transformer/moe/moe_layer.py",
    ),
    rule("expert-grid", "Experts fit the ranks of a stage.", "Megatron-LM, megatron/core/parallel_state.py"),
    rule(
        "domains",
        "The scale-up domains of the cluster have room for groups that do not divide one.",
        "Slurm, sbatch --segment; torchrun, consecutive ranks on a node",
    ),
    rule(
        "mamba-groups",
        "Tensor parallelism divides the groups of Mamba beside attention.",
        "Megatron-LM, megatron/core/ssm/mamba_mixer.py",
    ),
    rule("dense-model", "Expert parallelism has experts.", CONFIG),
    rule("combination", "Settings combine.", "Megatron-LM arguments.py; DeepSpeed pipe/engine.py"),
    rule("out-of-memory", "Every stage fits its device.", MODEL),
    rule("host-memory", "What the ranks of one host leave there fits its memory.", MODEL),
    rule("predicted", "What the launch is predicted to take.", MODEL),
    rule("fits", "Every stage fits its device with room.", MODEL),
    rule("near-ceiling", "A stage has room for what no formula sees.", MODEL),
    rule("leaves-domain", "Groups that talk in every layer stay inside the scale-up domain.", MODEL),
    rule("faster-setting", "No single change makes the plan faster.", MODEL),
    rule("faster-plan", "No other plan of the same framework is faster.", MODEL),
];

/// The rule of that name.
pub fn named(name: &str) -> Option<&'static LintRule> {
    RULES.iter().find(|rule| rule.name == name)
}

/// The keys whose lines a rejection points to, the likeliest first.
pub const fn keys(rejection: &Rejection) -> &'static [&'static str] {
    match rejection {
        Rejection::WorldSize { .. } => &["tp", "pp", "cp"],
        Rejection::Heads { .. }
        | Rejection::FfnWidth { .. }
        | Rejection::KvHeads { .. }
        | Rejection::MambaGroups { .. }
        | Rejection::HeadBlock { .. } => &["tp", "heads"],
        Rejection::Split { .. } => &["split", "vpp", "pp"],
        Rejection::TooFewLayers { .. } | Rejection::Schedule { .. } => &["vpp", "pp"],
        Rejection::Batch { .. } => &["batch", "mbs"],
        Rejection::InterleavedBatch { .. } | Rejection::TooManyPasses { .. } => &["batch", "vpp", "pp"],
        Rejection::Sequence { .. } => &["seq", "cp", "tp"],
        Rejection::UlyssesHeads { .. } => &["cp-kind", "cp"],
        Rejection::SharedSequence { .. } => &["cp"],
        Rejection::IndexScores { .. } => &["mbs", "seq"],
        Rejection::Experts { .. } | Rejection::ExpertGrid { .. } | Rejection::Dense { .. } => &["ep", "etp"],
        Rejection::Domains { .. } => &["ep", "tp", "cp"],
        Rejection::Combination(_) => &["sp", "zero", "recompute", "etp"],
        Rejection::Restricted(_)
        | Rejection::Inexpressible { .. }
        | Rejection::OutOfMemory { .. }
        | Rejection::TooFewGpus { .. }
        | Rejection::HostMemory { .. } => &[],
    }
}
