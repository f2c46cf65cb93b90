//! Mechanisms that no published run has shown: the default space is without them, `--exotic` lets them in.
//!
//! An exact search finds the corner where a price is most optimistic, and a price that no run has confirmed is the likeliest
//! corner. `tests/evidence/unproven.rs` fails as soon as a published run uses one of them.

use meshwright_engine::cluster::Host;
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{CpKind, Plan, ZeroStage};
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
    /// Its values, as `--forbid` reads them.
    pub(super) forbids: &'static str,
    /// Problems on which it is unproven.
    applies: fn(&Problem) -> bool,
    /// Plans that use it.
    uses: fn(&Plan) -> bool,
}

/// Largest expert group of a published run: Llama 4 Maverick on 512 H100 (dgxc-0269).
pub(crate) const LARGEST_EXPERT_GROUP: u32 = 128;

/// Parameters from which on Megatron's ZeRO 3 has no published run on GPUs behind PCIe: those of GPT-3.
const LARGE_MODEL: u64 = 175_000_000_000;

/// Every mechanism without a published run.
pub(crate) static UNPROVEN: [Unproven; 9] = [
    Unproven {
        what: "activation offload over PCIe",
        instead: "published runs offload activations to Grace hosts alone",
        key: "offload-activations",
        forbids: "offload-activations=0.25,0.5,0.75,1",
        applies: |problem| problem.cluster().host == Host::X86,
        uses: |plan| plan.offload.activations > 0.0,
    },
    Unproven {
        what: "optimizer offload",
        instead: "published runs keep the optimizer on the GPU",
        key: "offload-optimizer",
        forbids: "offload-optimizer=0.25,0.5,0.75,1",
        applies: |_| true,
        uses: |plan| plan.offload.optimizer > 0.0,
    },
    Unproven {
        what: "hierarchical context parallelism",
        instead: "published runs exchange keys and values by a ring, an all-gather or an all-to-all",
        key: "cp-kind",
        forbids: "cp-kind=a2a+p2p",
        applies: |_| true,
        uses: |plan| plan.layout.cp > 1 && plan.cp_kind == CpKind::Hierarchical,
    },
    Unproven {
        what: "expert groups of more than 128 ranks",
        instead: "published runs have at most 128",
        key: "ep",
        forbids: "ep=129..4294967295",
        applies: |problem| problem.model().is_moe(),
        uses: |plan| plan.layout.ep > LARGEST_EXPERT_GROUP,
    },
    Unproven {
        what: "ZeRO 2 of Megatron-FSDP",
        instead: "published runs of Megatron shard the optimizer (ZeRO 1) or everything (ZeRO 3)",
        key: "zero",
        forbids: "zero=2",
        applies: |problem| problem.stack().family == Family::Megatron,
        uses: |plan| plan.zero == ZeroStage::Two,
    },
    Unproven {
        what: "ZeRO 3 of a model of 175 B parameters or more in Megatron over PCIe",
        instead: "published runs of such models use tensor and pipeline parallelism, or Grace hosts",
        key: "zero",
        forbids: "zero=3",
        applies: |problem| {
            problem.stack().family == Family::Megatron
                && problem.cluster().host == Host::X86
                && problem.model().parameters().total >= LARGE_MODEL
        },
        uses: |plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "ZeRO 3 of a mixture of experts in Megatron",
        instead: "published runs of such models shard the optimizer alone",
        key: "zero",
        forbids: "zero=3",
        applies: |problem| problem.stack().family == Family::Megatron && problem.model().is_moe(),
        uses: |plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "ZeRO 3 of Megatron in block-scaled formats",
        instead: "published runs with ZeRO 3 train in bf16 or in FP8 with one scale per tensor",
        key: "zero",
        forbids: "zero=3",
        applies: |problem| {
            let block_scaled = matches!(problem.workload().format, Format::Fp8Block | Format::Mxfp8 | Format::Nvfp4);
            problem.stack().family == Family::Megatron && block_scaled
        },
        uses: |plan| plan.zero == ZeroStage::Three,
    },
    Unproven {
        what: "a zero-bubble, folded or looped pipeline in torchtitan",
        instead: "published runs of torchtitan use 1F1B",
        key: "schedule",
        forbids: "schedule=gpipe,zb-h1,zb-h2,zb-v,dualpipe,dualpipe-v,looped-bfs",
        applies: |problem| problem.stack().family == Family::Torchtitan,
        uses: |plan| plan.layout.pp > 1 && !matches!(plan.schedule, Schedule::OneFOneB | Schedule::Interleaved { .. }),
    },
];

impl Unproven {
    /// Mechanisms that are unproven on a problem.
    pub fn on(problem: &Problem) -> impl Iterator<Item = &'static Self> + '_ {
        UNPROVEN.iter().filter(|mechanism| (mechanism.applies)(problem))
    }

    /// Mechanisms of a plan that no published run has shown.
    pub fn in_plan(problem: &Problem, plan: &Plan) -> Vec<&'static Self> {
        Self::on(problem).filter(|mechanism| (mechanism.uses)(plan)).collect()
    }
}
