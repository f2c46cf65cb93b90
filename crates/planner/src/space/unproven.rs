//! Mechanisms that no published run has shown: the default space is without them, `--exotic` lets them in.
//!
//! An exact search finds the corner where a price is most optimistic, and a price that no run has confirmed is the likeliest
//! corner. `tests/evidence/unproven.rs` fails as soon as a published run uses one of them, and where no run reaches a bound that
//! is named here.

use crate::limits::rule::EXPERT_RANKS;
use meshwright_engine::gpu::{Format, Host};
use meshwright_engine::plan::{CpKind, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Family;

/// One mechanism without a published run.
#[derive(Debug)]
pub struct Unproven {
    /// The mechanism in prose, as a sentence goes on after "it uses".
    pub what: &'static str,
    /// Mechanism of the published runs in its place.
    pub instead: &'static str,
    /// Key of the plan that selects it.
    pub(super) key: &'static str,
    /// Values of the key that select it on a problem, as `--forbid` reads them; none where it has published runs.
    forbids: fn(&Problem) -> Option<String>,
    /// Plans that use it, where it is unproven.
    uses: fn(&Problem, &Plan) -> bool,
}

/// Largest expert group of a published run: Llama 4 Maverick on 512 H100 (dgxc-0269).
pub const LARGEST_EXPERT_GROUP: u32 = 128;

/// Ranks of the largest expert group, EP × ETP, of a published run in a rack of GPUs that NVLink joins: DeepSeek-V3 on 256 GB200
/// (mbridge-0007) and others. Groups of more ranks leave the rack, which has 72.
pub const LARGEST_EXPERT_GROUP_IN_RACK: u32 = 64;

/// Fewest tokens of a sequence on a rank of context parallelism in a published run: Llama 3.1 8B with sequences of 8,192 over
/// four ranks (mlperf-0041). It and mlperf-0042 are predicted 27 and 19 % too fast without their fold (docs/accuracy.md); the 102
/// runs with 4,096 tokens are predicted within 3 % in the median.
pub const FEWEST_TOKENS: u32 = 2048;

/// Most model chunks on a pipeline rank of a published run: Qwen3 30B-A3B over two ranks (mbridge-0026).
pub const MOST_CHUNKS: u32 = 24;

/// Parameters of the largest model that a published run trains with Megatron's ZeRO 3 on GPUs behind PCIe: Llama 3 8B
/// (mbridge-0022).
pub const LARGEST_OVER_PCIE: u64 = 8_030_261_248;

/// Parameters of the largest such model on GPUs with Grace hosts: Llama 3.1 405B (mbridge-0005).
pub const LARGEST_BESIDE_GRACE: u64 = 405_853_388_800;

/// GPUs of a DGX or HGX server.
const SERVER: u32 = 8;

/// Ratio of parameters up to which a model counts as large as the one of the run; a judgement.
const AS_LARGE: u64 = 2;

/// Every mechanism without a published run.
pub(crate) static UNPROVEN: [Unproven; 22] = [
    Unproven {
        what: "activation offload over PCIe",
        instead: "published runs offload activations to Grace hosts alone",
        key: "offload-activations",
        forbids: |problem| values(over_pcie(problem), "0.25,0.5,0.75,1"),
        uses: |_, plan| plan.offload.activations > 0.0,
    },
    Unproven {
        what: "optimizer offload",
        instead: "published runs keep the optimizer on the GPU",
        key: "offload-optimizer",
        forbids: |_| values(true, "0.25,0.5,0.75,1"),
        uses: |_, plan| plan.offload.optimizer > 0.0,
    },
    Unproven {
        what: "hierarchical context parallelism",
        instead: "published runs exchange keys and values by a ring, an all-gather or an all-to-all",
        key: "cp-kind",
        forbids: |_| values(true, "a2a+p2p"),
        uses: |_, plan| plan.layout.cp > 1 && plan.cp_kind == CpKind::Hierarchical,
    },
    Unproven {
        what: "an all-gather of keys and values in Megatron",
        instead: "published runs of Megatron exchange them by a ring or an all-to-all",
        key: "cp-kind",
        forbids: |problem| values(megatron(problem), "allgather"),
        uses: |_, plan| plan.layout.cp > 1 && plan.cp_kind == CpKind::AllGather,
    },
    Unproven {
        what: "context parallelism with fewer than 2,048 tokens of a sequence on a rank",
        instead: "published runs leave 2,048 at the least",
        key: "cp",
        forbids: |problem| Some(above(most_context_ranks(problem))),
        uses: |problem, plan| plan.layout.cp > most_context_ranks(problem),
    },
    Unproven {
        what: "context parallelism beside adapters outside Megatron",
        instead: "published runs of adapters split sequences in Megatron alone",
        key: "cp",
        forbids: |problem| (problem.workload().adaptation.is_lora() && !megatron(problem)).then(|| above(1)),
        uses: |_, plan| plan.layout.cp > 1,
    },
    Unproven {
        what: "tensor parallelism beside adapters in DeepSpeed's engine",
        instead: "published runs of adapters split matrices in Megatron and with PyTorch's own FSDP",
        key: "tp",
        forbids: |problem| {
            let adapts = problem.workload().adaptation.is_lora() && problem.stack().family == Family::Deepspeed;
            adapts.then(|| above(1))
        },
        uses: |_, plan| plan.layout.tp > 1,
    },
    Unproven {
        what: "context parallelism in MaxText",
        instead: "published runs of MaxText leave sequences whole",
        key: "cp",
        forbids: |problem| maxtext(problem).then(|| above(1)),
        uses: |_, plan| plan.layout.cp > 1,
    },
    Unproven {
        what: "a pipeline in MaxText",
        instead: "published runs of MaxText shard parameters (FSDP) and matrices",
        key: "pp",
        forbids: |problem| maxtext(problem).then(|| above(1)),
        uses: |_, plan| plan.layout.pp > 1,
    },
    Unproven {
        what: "ZeRO 1 or 2 in MaxText",
        instead: "published runs of MaxText replicate all states or shard all of them",
        key: "zero",
        forbids: |problem| values(maxtext(problem), "1,2"),
        uses: |_, plan| matches!(plan.zero, ZeroStage::One | ZeroStage::Two),
    },
    Unproven {
        what: "attention's output kept in MaxText (`remat_policy: minimal_with_context`)",
        instead: "published runs of MaxText recompute attention",
        key: "recompute",
        forbids: |problem| values(maxtext(problem), "none"),
        uses: |_, plan| plan.recompute == Recompute::None,
    },
    Unproven {
        what: "more than 24 chunks on a pipeline rank",
        instead: "published runs have at most 24",
        key: "vpp",
        forbids: |_| Some(above(MOST_CHUNKS)),
        uses: |_, plan| plan.layout.pp > 1 && plan.schedule.virtual_stages() > MOST_CHUNKS,
    },
    Unproven {
        what: "expert groups of more than 128 ranks",
        instead: "published runs have at most 128",
        key: "ep",
        forbids: |problem| problem.model().is_moe().then(|| above(LARGEST_EXPERT_GROUP)),
        uses: |_, plan| plan.layout.ep > LARGEST_EXPERT_GROUP,
    },
    Unproven {
        what: "expert groups that leave an NVL72 rack",
        instead: "published runs have at most 64 ranks in a group (EP × ETP) there",
        key: EXPERT_RANKS,
        forbids: |problem| {
            let is_unproven = problem.model().is_moe() && joins_racks(problem);
            is_unproven.then(|| above(LARGEST_EXPERT_GROUP_IN_RACK))
        },
        uses: |_, plan| plan.layout.ep.saturating_mul(plan.layout.etp) > LARGEST_EXPERT_GROUP_IN_RACK,
    },
    Unproven {
        what: "ZeRO 2 of Megatron-FSDP",
        instead: "published runs of Megatron shard the optimizer (ZeRO 1) or everything (ZeRO 3)",
        key: "zero",
        forbids: |problem| values(megatron(problem), "2"),
        uses: |_, plan| plan.zero == ZeroStage::Two,
    },
    Unproven {
        what: "ZeRO 3 in Megatron of a model of this size",
        instead: "published runs with it train up to 8 B parameters over PCIe and 405 B beside Grace hosts",
        key: "zero",
        forbids: |problem| values(megatron(problem) && !problem.model().is_moe() && is_larger(problem), "3"),
        uses: |_, plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "ZeRO 3 of Megatron on AMD's GPUs",
        instead: "published runs of Megatron there shard the optimizer alone",
        key: "zero",
        forbids: |problem| values(megatron(problem) && problem.cluster().gpu.vendor == "AMD", "3"),
        uses: |_, plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "ZeRO 3 of a mixture of experts in Megatron",
        instead: "published runs of such models shard the optimizer alone",
        key: "zero",
        forbids: |problem| values(megatron(problem) && problem.model().is_moe(), "3"),
        uses: |_, plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "ZeRO 3 of Megatron in block-scaled formats",
        instead: "published runs with ZeRO 3 train in bf16 or in FP8 with one scale per tensor",
        key: "zero",
        forbids: |problem| {
            let block_scaled = matches!(problem.workload().format, Format::Fp8Block | Format::Mxfp8 | Format::Nvfp4);
            values(megatron(problem) && block_scaled, "3")
        },
        uses: |_, plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "ZeRO 2 or 3 in Megatron-DeepSpeed",
        instead: "published runs of it shard the optimizer alone",
        key: "zero",
        forbids: |problem| values(problem.stack().family == Family::MegatronDeepspeed, "2,3"),
        uses: |_, plan| plan.zero >= ZeroStage::Two,
    },
    Unproven {
        what: "a pipeline in DeepSpeed's engine",
        instead: "published runs of it with Transformers shard states and sequences alone, and its pipeline needs a model rewritten as a \
                  `PipelineModule`",
        key: "pp",
        forbids: |problem| (problem.stack().family == Family::Deepspeed).then(|| above(1)),
        uses: |_, plan| plan.layout.pp > 1,
    },
    Unproven {
        what: "a zero-bubble, folded or looped pipeline in torchtitan",
        instead: "published runs of torchtitan use 1F1B",
        key: "schedule",
        forbids: |problem| {
            let torchtitan = problem.stack().family == Family::Torchtitan;
            values(torchtitan, "gpipe,zb-h1,zb-h2,zb-v,dualpipe,dualpipe-v,looped-bfs")
        },
        uses: |_, plan| {
            plan.layout.pp > 1 && !matches!(plan.schedule, Schedule::OneFOneB | Schedule::Interleaved { .. })
        },
    },
];

/// Values of a key where a mechanism is unproven.
fn values(unproven: bool, values: &str) -> Option<String> {
    unproven.then(|| values.to_owned())
}

/// Range of all degrees above one.
fn above(most: u32) -> String {
    format!("{}..{}", most + 1, u32::MAX)
}

fn over_pcie(problem: &Problem) -> bool {
    problem.cluster().host == Host::X86
}

/// Whether the GPUs are NVIDIA's in racks of more than a server that NVLink joins.
fn joins_racks(problem: &Problem) -> bool {
    let cluster = problem.cluster();
    cluster.gpu.vendor == "NVIDIA" && cluster.scale_up.gpus > SERVER
}

fn maxtext(problem: &Problem) -> bool {
    problem.stack().family == Family::Jax
}

fn megatron(problem: &Problem) -> bool {
    problem.stack().family == Family::Megatron
}

/// Most ranks of context parallelism that leave each the tokens of a published run; none of a sequence that is shorter.
fn most_context_ranks(problem: &Problem) -> u32 {
    (problem.workload().seq_len / FEWEST_TOKENS).max(1)
}

/// Whether a model is larger than those that published runs train with Megatron's ZeRO 3.
fn is_larger(problem: &Problem) -> bool {
    let largest = if over_pcie(problem) { LARGEST_OVER_PCIE } else { LARGEST_BESIDE_GRACE };
    problem.model().parameters().total > AS_LARGE * largest
}

impl Unproven {
    /// Mechanisms that are unproven on a problem.
    pub fn on(problem: &Problem) -> impl Iterator<Item = &'static Self> + '_ {
        UNPROVEN.iter().filter(|mechanism| (mechanism.forbids)(problem).is_some())
    }

    /// Mechanisms of a plan that no published run has shown.
    pub fn in_plan(problem: &Problem, plan: &Plan) -> Vec<&'static Self> {
        Self::on(problem).filter(|mechanism| (mechanism.uses)(problem, plan)).collect()
    }

    /// Whether plans may need the mechanism to fit: the order of operations and the exchange of keys and values change their time.
    pub(super) fn frees_memory(&self) -> bool {
        !matches!(self.key, "vpp" | "schedule" | "cp-kind")
    }

    /// Setting that leaves the mechanism out of a problem's plans, as `--forbid` reads it; none where it has published runs.
    pub(super) fn forbidden_on(&self, problem: &Problem) -> Option<String> {
        (self.forbids)(problem).map(|values| format!("{}={values}", self.key))
    }
}
