//! Megatron-LM: one shell script with `torchrun` and every argument of `pretrain_gpt.py`.
//!
//! Names and meanings: [megatron-lm] `megatron/training/arguments.py`, release 0.19.2.

mod model;
mod plan;

use super::header::lines;
use super::settings::{Group, Setting, Value, quoted};
use super::text::Text;
use super::{File, Request};
use meshwright_engine::plan::{RankOrder, ZeroStage};
use meshwright_planner::express::{Hybrid, Sizes, Target};

/// All arguments, in groups: the name of the group's shell array, what it is, its flags.
pub(super) struct Arguments {
    pub groups: Vec<(&'static str, &'static str, Group)>,
    /// What the prediction assumed and the arguments cannot say, or what the model does not know.
    pub notes: Vec<String>,
}

impl Arguments {
    /// The arguments of a plan that Megatron-LM can express.
    pub fn new(request: &Request, sizes: &Sizes, hybrid: Option<&Hybrid>) -> Self {
        let mut notes = Vec::new();
        let groups = vec![
            ("MODEL_ARGS", "architecture", model::architecture(request, sizes, hybrid, &mut notes)),
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
const RUN: [&str; 13] = [
    "--mock-data",
    "--tokenizer-type NullTokenizer",
    "--train-iters 50",
    "--lr 3e-4",
    "--min-lr 3e-5",
    "--lr-decay-style cosine",
    "--lr-warmup-iters 5",
    "--clip-grad 1.0",
    "--weight-decay 0.1",
    "--log-interval 1",
    "--log-throughput",
    "--eval-interval 1000",
    "--eval-iters 0",
];

/// The launch script.
pub(super) fn script(request: &Request, sizes: &Sizes, hybrid: Option<&Hybrid>) -> File {
    let arguments = Arguments::new(request, sizes, hybrid);
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let cluster = problem.cluster();
    let (nodes, per_node) = nodes(cluster.gpus, cluster.gpus_per_node);
    let mut text = Text::default();
    text.line("#!/usr/bin/env bash");
    text.comments(lines(Target::Megatron, request, &arguments.notes));
    text.comments([rank_order(plan.order), "Run it in a Megatron-LM checkout, once a node; under Slurm:"]);
    text.line(format!("#   srun --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={per_node} bash megatron.sh"));
    text.line("set -euo pipefail\n");
    if let Some(connections) = connections(request) {
        text.line(format!("export CUDA_DEVICE_MAX_CONNECTIONS={connections}\n"));
    }
    text.array("DISTRIBUTED_ARGS", distributed(nodes, per_node));
    let mut arrays = vec!["DISTRIBUTED_ARGS"];
    for (name, what, group) in &arguments.groups {
        if !group.settings.is_empty() {
            text.line(format!("\n# {what}"));
            text.array(name, group.settings.iter().map(written));
            arrays.push(*name);
        }
    }
    text.line("\n# To be edited: data, tokenizer, learning rate, length of the run.");
    text.array("RUN_ARGS", RUN);
    arrays.push("RUN_ARGS");
    let arrays: Vec<String> = arrays.iter().map(|name| format!("\"${{{name}[@]}}\"")).collect();
    let program = if hybrid.is_some() { "pretrain_hybrid.py" } else { "pretrain_gpt.py" };
    text.line(format!("\ntorchrun {} {program} \\\n    {}", arrays[0], arrays[1..].join(" \\\n    ")));
    File { name: "megatron.sh".into(), text: text.into_string() }
}

/// What neighbouring ranks share.
pub(super) const fn rank_order(order: RankOrder) -> &'static str {
    match order {
        RankOrder::PipelineOutermost => {
            "Rank order tp-cp-ep-dp-pp: neighbouring ranks share tensors, stages lie farthest apart."
        }
        RankOrder::DataOutermost => {
            "Rank order tp-cp-ep-pp-dp: neighbouring ranks share tensors, replicas lie farthest apart."
        }
    }
}

/// Options of `torchrun` on every node.
pub(super) fn distributed(nodes: u32, per_node: u32) -> [String; 5] {
    [
        format!("--nnodes {nodes}"),
        format!("--nproc-per-node {per_node}"),
        "--node-rank \"${SLURM_PROCID:-0}\"".into(),
        "--master-addr \"${MASTER_ADDR:-localhost}\"".into(),
        "--master-port \"${MASTER_PORT:-29500}\"".into(),
    ]
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
pub(super) fn connections(request: &Request) -> Option<u32> {
    let plan = &request.evaluation.plan;
    if plan.zero >= ZeroStage::Two {
        Some(8)
    } else if plan::overlaps_experts(request) {
        Some(32)
    } else {
        (plan.layout.tp > 1 || plan.layout.cp > 1).then_some(1)
    }
}
