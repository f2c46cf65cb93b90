//! Megatron-LM: one shell script with `torchrun` and every argument of `pretrain_gpt.py`.
//!
//! Names and meanings: [megatron-lm] `megatron/training/arguments.py`, release 0.19.2.

mod model;
mod plan;

use super::header::{comment, lines};
use super::settings::{Group, Setting, Value, quoted};
use super::{File, Request};
use crate::express::{Sizes, Target};
use crate::plan::{RankOrder, ZeroStage};

/// All arguments, in groups: the name of the group's shell array, what it is, its flags.
pub(super) struct Arguments {
    pub groups: Vec<(&'static str, &'static str, Group)>,
    /// What the prediction assumed and the arguments cannot say, or what the model does not know.
    pub notes: Vec<String>,
}

impl Arguments {
    /// The arguments of a plan that Megatron-LM can express.
    pub fn new(request: &Request, sizes: &Sizes) -> Self {
        let mut notes = Vec::new();
        let groups = vec![
            ("MODEL_ARGS", "architecture", model::architecture(request, sizes, &mut notes)),
            ("PARALLEL_ARGS", "degrees, pipeline and sharding", plan::parallelism(request)),
            ("BATCH_ARGS", "batch and sequence", plan::batch(request)),
            ("PRECISION_ARGS", "number formats and optimizer", plan::precision(request, &mut notes)),
            ("MEMORY_ARGS", "recomputation and offloading", plan::memory(request, &mut notes)),
            ("KERNEL_ARGS", "kernels and overlap that the prediction assumed", plan::kernels(request, &mut notes)),
        ];
        Self { groups, notes }
    }
}

/// What a run needs beside the plan; to be edited.
const RUN: &str = "\
# To be edited: data, tokenizer, learning rate, length of the run.
RUN_ARGS=(
    --mock-data
    --tokenizer-type NullTokenizer
    --train-iters 50
    --lr 3e-4
    --min-lr 3e-5
    --lr-decay-style cosine
    --lr-warmup-iters 5
    --clip-grad 1.0
    --weight-decay 0.1
    --log-interval 1
    --log-throughput
    --eval-interval 1000
    --eval-iters 0
)
";

/// The launch script.
pub(super) fn script(request: &Request, sizes: &Sizes) -> File {
    let arguments = Arguments::new(request, sizes);
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let mut text = "#!/usr/bin/env bash\n".to_owned();
    text += &comment(&lines(Target::Megatron, request, &arguments.notes));
    let cluster = problem.cluster();
    let (nodes, per_node) = nodes(cluster.gpus, cluster.gpus_per_node);
    let order = match plan.order {
        RankOrder::PipelineOutermost => "tp-cp-ep-dp-pp: neighbouring ranks share tensors, stages lie farthest apart",
        RankOrder::DataOutermost => "tp-cp-ep-pp-dp: neighbouring ranks share tensors, replicas lie farthest apart",
    };
    text += &format!("# Rank order {order}.\n");
    text += "# Run it in a Megatron-LM checkout, once a node; under Slurm:\n";
    text += &format!("#   srun --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={per_node} bash megatron.sh\n");
    text += "set -euo pipefail\n\n";
    if let Some(connections) = connections(request) {
        text += &format!("export CUDA_DEVICE_MAX_CONNECTIONS={connections}\n\n");
    }
    text += &format!(
        "DISTRIBUTED_ARGS=(\n    --nnodes {nodes}\n    --nproc-per-node {per_node}\n    --node-rank \"${{SLURM_NODEID:-0}}\"\n    \
         --master-addr \"${{MASTER_ADDR:-localhost}}\"\n    --master-port \"${{MASTER_PORT:-29500}}\"\n)\n\n"
    );
    let mut arrays = Vec::new();
    for (name, what, group) in &arguments.groups {
        if group.settings.is_empty() {
            continue;
        }
        let flags: String = group.settings.iter().map(|setting| format!("    {}\n", written(setting))).collect();
        text += &format!("# {what}\n{name}=(\n{flags})\n\n");
        arrays.push(*name);
    }
    text += RUN;
    arrays.push("RUN_ARGS");
    let arrays: Vec<String> = arrays.iter().map(|name| format!("\"${{{name}[@]}}\"")).collect();
    text += &format!("\ntorchrun \"${{DISTRIBUTED_ARGS[@]}}\" pretrain_gpt.py \\\n    {}\n", arrays.join(" \\\n    "));
    File { name: "megatron.sh".into(), text }
}

/// A flag as it is typed.
fn written(setting: &Setting) -> String {
    let Setting { flag, value } = setting;
    match value {
        Value::On => format!("--{flag}"),
        Value::Word(word) => format!("--{flag} {}", quoted(word)),
        Value::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("--{flag} {}", words.join(" "))
        }
    }
}

/// Nodes and GPUs on each: a part of one node stays one node.
pub(super) fn nodes(gpus: u32, per_node: u32) -> (u32, u32) {
    if gpus <= per_node {
        (1, gpus)
    } else if gpus.is_multiple_of(per_node) {
        (gpus / per_node, per_node)
    } else {
        let fit = (1..=per_node).rev().find(|n| gpus.is_multiple_of(*n)).unwrap_or(1);
        (gpus / fit, fit)
    }
}

/// Hardware queues: one, so that collectives start before the products that hide them; FSDP and batch-level expert overlap
/// want more.
///
/// Source: [megatron-lm] `arguments.py`: tp or cp before Blackwell needs 1, FSDP must not have 1.
fn connections(request: &Request) -> Option<u32> {
    let plan = &request.evaluation.plan;
    if plan.zero >= ZeroStage::Two {
        Some(8)
    } else if plan::overlaps_experts(request) {
        Some(32)
    } else {
        (plan.layout.tp > 1 || plan.layout.cp > 1).then_some(1)
    }
}
