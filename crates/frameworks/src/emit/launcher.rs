//! Start of the processes: `torchrun` on every node, the environment, and variables that the user sets.

use super::header::lines;
use super::language::Shell;
use super::request::{EmittedFile, Request};
use super::snippet::{Snippet, snippet};
use super::text::Lines;
use crate::rules::FusedExchange;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::Mixer;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Dispatcher;
use meshwright_planner::limits::{Limits, Obstacle};

/// Nodes of a run, which all use equally many of their GPUs.
#[derive(Clone, Copy)]
pub(crate) struct Nodes {
    /// Number of the nodes.
    pub count: u32,
    /// GPUs that the run uses on each.
    pub gpus_each: u32,
}

impl Nodes {
    /// Nodes that have the GPUs of a cluster: a part of one node stays one node, and nodes of which some would be part
    /// empty use fewer GPUs each.
    pub fn of_cluster(cluster: &Cluster) -> Self {
        let Cluster { gpus, gpus_per_node, .. } = *cluster;
        let gpus_each = (1..=gpus_per_node.min(gpus)).rev().find(|n| gpus.is_multiple_of(*n)).unwrap_or(1);
        Self { count: gpus / gpus_each, gpus_each }
    }

    /// Nodes of a request.
    pub fn of_request(request: &Request) -> Self {
        Self::of_cluster(request.costs.problem.cluster())
    }
}

/// Obstacle of several nodes of which the last would be used in part: launchers start equally many processes on each.
pub(super) fn part_of_a_node(cluster: &Cluster) -> Option<Obstacle> {
    let (below, above) = cluster.whole_nodes()?;
    let node = cluster.gpus_per_node;
    let why = format!("{below} and {above} are whole nodes of {node}; of smaller nodes: --set cluster.gpus_per_node=…");
    Some(Obstacle::of_model(format!("{} GPUs", cluster.gpus), why))
}

/// Number of this node, from 0.
pub(crate) const NODE: &str = "\"${SLURM_NODEID:-${NODE_RANK:?set NODE_RANK to the number of this node, from 0}}\"";
/// Host name of the first node: where it is not known, no rank may wait on its own host for the others.
pub(crate) const FIRST: &str =
    "\"${MASTER_ADDR:?start it by launch.sbatch, or set MASTER_ADDR to the host name of the first node}\"";
/// Port on the first node.
pub(crate) const PORT: &str = "\"${MASTER_PORT:-29500}\"";

/// Options of `torchrun` on every node, as the array `DISTRIBUTED_ARGS`.
pub(crate) fn torchrun_options(text: &mut Lines<Shell>, request: &Request) {
    let Nodes { count: nodes, gpus_each } = Nodes::of_request(request);
    let mut options = vec![snippet!("--nnodes {}", nodes), snippet!("--nproc-per-node {}", gpus_each)];
    if nodes == 1 {
        options.push(Snippet::fixed("--standalone"));
    } else {
        options.extend([
            snippet!("--node-rank {}", Snippet::fixed(NODE)),
            snippet!("--master-addr {}", Snippet::fixed(FIRST)),
            snippet!("--master-port {}", Snippet::fixed(PORT)),
        ]);
    }
    text.array("DISTRIBUTED_ARGS", options);
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

/// Launch script of a framework whose program `torchrun` starts on every node, as its parts in the order of the file.
pub(crate) struct TorchrunScript<'a> {
    /// Limits of the framework, which name it.
    pub framework: &'a Limits,
    /// Comments below those of the plan: how the script is started, and which program takes its further arguments.
    pub comments: &'a [&'static str],
    /// Variables that the user sets.
    pub variables: &'a [RequiredVariable],
    /// File in which the user replaces each mark; none where the script takes all in variables.
    pub marked: Option<MarkedFile>,
    /// Lines that export variables of the framework, in addition to those of every run; empty for none.
    pub exports: &'static str,
    /// The program and its arguments, behind the options of `torchrun`.
    pub program: Snippet<Shell>,
}

impl TorchrunScript<'_> {
    /// The script for a plan, under a name.
    pub fn file(self, request: &Request, name: &str) -> EmittedFile {
        let mut text = launch_script(self.framework, request, &[], self.comments);
        check_variables(&mut text, self.variables);
        if let Some(marked) = self.marked {
            no_marks(&mut text, marked);
        }
        environment(&mut text, request);
        if !self.exports.is_empty() {
            text.fixed(self.exports);
        }
        torchrun(&mut text, request, self.program);
        text.into_file(name)
    }
}

/// `torchrun` of a program on every node.
pub(crate) fn torchrun(text: &mut Lines<Shell>, request: &Request, program: Snippet<Shell>) {
    torchrun_options(text, request);
    text.line(snippet!("\ntorchrun \"${DISTRIBUTED_ARGS[@]}\" {}", program));
}

/// Duties of `train.py`, which the model's own code has whatever the framework.
pub(crate) fn own_code_duties(request: &Request) -> Vec<String> {
    let problem = request.costs.problem;
    let build = format!("build {} and read sequences of {} tokens", problem.model().name, problem.workload().seq_len);
    [build].into_iter().chain(recurrence_kernels(problem)).chain(request.timing_duty()).collect()
}

/// Duty of having the packages whose kernels are priced where a layer has a recurrence.
///
/// Source: [transformers] 5.23 `modeling_nemotron_h.py`, `modeling_falcon_h1.py` and `modeling_qwen3_next.py`, which
/// run plain PyTorch without these packages.
pub(crate) fn recurrence_kernels(problem: &Problem) -> Option<String> {
    let packages = problem.model().kinds.iter().find_map(|layer| match layer.mixer {
        Mixer::Mamba(_) | Mixer::AttentionMamba(_) => Some("mamba-ssm and causal-conv1d"),
        Mixer::DeltaNet(_) | Mixer::KimiDelta(_) => Some("flash-linear-attention and causal-conv1d"),
        Mixer::Attention(_) | Mixer::Mla(_) | Mixer::ShortConv(_) | Mixer::None => None,
    })?;
    Some(format!("find {packages} installed: their kernels are priced, not the plain PyTorch that runs without them"))
}

/// Comments that list the duties of `train.py` below `whose`, and say how the script is started.
pub(crate) fn with_duties(whose: &str, duties: &[String]) -> Vec<String> {
    let start = "Run it once a node; under Slurm: sbatch launch.sbatch. What follows its name goes to train.py.";
    let listed = duties.iter().map(|duty| format!("  * {duty}"));
    [whose.to_owned()].into_iter().chain(listed).chain([start.to_owned()]).collect()
}

/// A variable that the user sets: its name and its meaning.
pub(crate) type RequiredVariable = (&'static str, &'static str);

/// Checks of the variables that a run needs, each with a sentence where it is not set.
pub(crate) fn check_variables(text: &mut Lines<Shell>, variables: &[RequiredVariable]) {
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

/// Placeholder of a value that the user must set, in files that take no variables.
pub(crate) const UNSET: &str = "TO_BE_SET";

/// File in which the user replaces each mark [`UNSET`].
#[derive(Clone, Copy)]
pub(crate) struct MarkedFile {
    /// Name of the file.
    pub name: &'static str,
    /// Settings that the placeholders stand for, in words.
    pub of: &'static str,
}

/// Shell check that no placeholder is left in a file outside of comments; otherwise a message lists their meanings.
pub(crate) fn no_marks(text: &mut Lines<Shell>, marked: MarkedFile) {
    text.line(snippet!("if grep -n '^[^#]*{}' {} >&2; then", Snippet::fixed(UNSET), marked.name));
    let sentence = format!("{}: set these: {}", marked.name, marked.of);
    text.line(snippet!("    echo {} >&2", sentence.as_str()));
    text.fixed("    exit 1\nfi\n");
}

/// Variables that the recipes of NVIDIA and PyTorch set, each with its reason; variables that the environment has already are kept.
///
/// Source: [megatron-bridge] `src/megatron/bridge/recipes/utils/environment_utils.py`; [torchtitan] `run_train.sh`.
pub(crate) fn environment(text: &mut Lines<Shell>, request: &Request) {
    let problem = request.costs.problem;
    if let Some(topology) = hybrid_ep_topology(problem, &request.evaluation.plan) {
        text.comments([
            "HybridEP: ranks of an expert group in one NVLink domain, GPUs of a domain, and that a domain spans nodes.",
        ]);
        for (name, value) in topology {
            let name = Snippet::fixed(name);
            text.line(snippet!("export {}=\"${{}:-{}}\"", name.clone(), name, value));
        }
    }
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

/// Variables by which HybridEP knows the scale-up domains, where a domain joins several nodes; none for other exchanges. The ranks in
/// one domain divide the group: of a group larger than a domain, those of the largest blocks that lie in no two domains.
///
/// Source: [megatron-bridge] `scripts/performance/utils/utils.py`, `apply_target_topology_environment`; [megatron-lm]
/// `tests/functional_tests/test_cases/nemotron/nemotron3_super_release_gb200`.
fn hybrid_ep_topology(problem: &Problem, plan: &Plan) -> Option<[(&'static str, u32); 3]> {
    let (cluster, ranks) = (problem.cluster(), plan.layout.ep.saturating_mul(plan.layout.etp));
    let (domain, node) = (cluster.scale_up.gpus, cluster.gpus_per_node);
    let exchanges = problem.model().is_moe() && ranks > 1 && plan.dispatcher == Dispatcher::DeepEp;
    if !exchanges || domain <= node || FusedExchange::of(problem) != Some(FusedExchange::HybridEp) {
        return None;
    }
    let divides = |block: &u32| ranks.is_multiple_of(*block) && domain.is_multiple_of(*block);
    let in_domain = if ranks <= domain { ranks } else { (1..=domain).rev().find(divides)? };
    Some([("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", in_domain), ("NVLINK_DOMAIN_SIZE", domain), ("USE_MNNVL", 1)])
}
