//! Start of the processes: `torchrun` on every node, the environment, and variables that the user sets.

use super::header::lines;
use super::language::Shell;
use super::request::Request;
use super::snippet::{Snippet, snippet};
use super::text::Lines;
use meshwright_engine::gpu::Format;
use meshwright_planner::limits::Limits;

/// Nodes and GPUs on each: a part of one node stays one node.
pub(crate) fn nodes(gpus: u32, per_node: u32) -> (u32, u32) {
    if gpus <= per_node {
        (1, gpus)
    } else if gpus.is_multiple_of(per_node) {
        (gpus / per_node, per_node)
    } else {
        let fit = (1..=per_node).rev().find(|n| gpus.is_multiple_of(*n)).unwrap_or(1);
        (gpus / fit, fit)
    }
}

/// Nodes of a request, and GPUs on each.
pub(crate) fn nodes_of(request: &Request) -> (u32, u32) {
    let cluster = request.costs.problem.cluster();
    nodes(cluster.gpus, cluster.gpus_per_node)
}

/// Number of this node, from 0.
pub(crate) const NODE: &str = "\"${SLURM_NODEID:-${NODE_RANK:?set NODE_RANK to the number of this node, from 0}}\"";
/// Host name of the first node: where it is not known, no rank may wait on its own host for the others.
pub(crate) const FIRST: &str =
    "\"${MASTER_ADDR:?start it by launch.sbatch, or set MASTER_ADDR to the host name of the first node}\"";
/// Port on the first node.
pub(crate) const PORT: &str = "\"${MASTER_PORT:-29500}\"";

/// Options of `torchrun` on every node.
pub(crate) fn distributed(nodes: u32, per_node: u32) -> Vec<Snippet<Shell>> {
    let counts = [snippet!("--nnodes {}", nodes), snippet!("--nproc-per-node {}", per_node)];
    if nodes == 1 {
        return counts.into_iter().chain([Snippet::fixed("--standalone")]).collect();
    }
    let meeting = [
        snippet!("--node-rank {}", Snippet::fixed(NODE)),
        snippet!("--master-addr {}", Snippet::fixed(FIRST)),
        snippet!("--master-port {}", Snippet::fixed(PORT)),
    ];
    counts.into_iter().chain(meeting).collect()
}

/// Beginning of a launch script: the header of its plan with `notes`, these comments, and the rule that the first error ends it.
pub(crate) fn launch_script<S: AsRef<str>>(
    framework: &Limits,
    request: &Request,
    notes: &[String],
    comments: impl IntoIterator<Item = S>,
) -> Lines<Shell> {
    let mut text = Lines::new();
    text.comments(lines(framework, request, notes));
    text.comments(comments);
    text.fixed("set -euo pipefail\n");
    text
}

/// Duties of `train.py`, which the model's own code has whatever the framework.
pub(crate) fn own_code_duties(request: &Request) -> Vec<String> {
    let problem = request.costs.problem;
    let build = format!("build {} and read sequences of {} tokens", problem.model().name, problem.workload().seq_len);
    [build].into_iter().chain(request.timing_duty()).collect()
}

/// Comments that list the duties of `train.py` below `whose`, and say how the script is started.
pub(crate) fn with_duties(whose: &str, duties: &[String]) -> Vec<String> {
    let start = "Run it once a node; under Slurm: sbatch launch.sbatch. What follows its name goes to train.py.";
    let listed = duties.iter().map(|duty| format!("  * {duty}"));
    [whose.to_owned()].into_iter().chain(listed).chain([start.to_owned()]).collect()
}

/// A variable that the user sets: its name, and what it holds.
pub(crate) type Wanted = (&'static str, &'static str);

/// Checks of the variables that a run needs, each with a sentence where it is not set.
pub(crate) fn wanted(text: &mut Lines<Shell>, variables: &[Wanted]) {
    if variables.is_empty() {
        return;
    }
    text.comments(["To be set: in the environment, or above these lines."]);
    for (name, what) in variables {
        let (name, what) = (Snippet::fixed(name), Snippet::fixed(what));
        text.line(snippet!(": \"${{}:?set {} to {}}\"", name.clone(), name, what));
    }
    text.fixed("");
}

/// Mark of what a run needs and the user sets, in files that take no variables.
pub(crate) const UNSET: &str = "TO_BE_SET";

/// Check that no mark is left in a file outside of comments, with a sentence where one is.
pub(crate) fn no_marks(text: &mut Lines<Shell>, file: &'static str, sentence: &'static str) {
    text.line(snippet!("if grep -n '^[^#]*{}' {} >&2; then", Snippet::fixed(UNSET), file));
    text.line(snippet!("    echo {} >&2", sentence));
    text.fixed("    exit 1\nfi\n");
}

/// Variables that the recipes of NVIDIA and PyTorch set, each with its reason; what the environment has already stays.
///
/// Source: [megatron-bridge] `src/megatron/bridge/recipes/utils/environment_utils.py`; [torchtitan] `run_train.sh`.
pub(crate) fn environment(text: &mut Lines<Shell>, request: &Request) {
    let problem = request.costs.problem;
    text.comments(["Segments of memory grow in place, so that less is lost to fragments."]);
    text.fixed("export PYTORCH_CUDA_ALLOC_CONF=\"${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}\"");
    if problem.cluster().gpu.vendor == "NVIDIA" {
        text.comments(["A collective's tensors are freed when it ends, not when the allocator looks next."]);
        text.fixed("export TORCH_NCCL_AVOID_RECORD_STREAMS=\"${TORCH_NCCL_AVOID_RECORD_STREAMS:-1}\"");
        text.comments(["Multicast in the switches takes memory of every GPU, and no buffer is registered for it."]);
        text.fixed("export NCCL_NVLS_ENABLE=\"${NCCL_NVLS_ENABLE:-0}\"");
        if problem.stack().cuda_graphs {
            text.comments(["Segments that grow cannot be registered by CUDA graphs."]);
            text.fixed("export NCCL_GRAPH_REGISTER=\"${NCCL_GRAPH_REGISTER:-0}\"");
        }
    } else if problem.workload().format == Format::Mxfp8 {
        text.comments(["Transformer Engine for ROCm has MXFP8 behind a switch."]);
        text.fixed("export NVTE_ROCM_ENABLE_MXFP8=\"${NVTE_ROCM_ENABLE_MXFP8:-1}\"");
    }
    text.fixed("");
}
