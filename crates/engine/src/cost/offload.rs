//! Optimizer states and activations on the host: copies over the host link, and the update on the host.

use super::costs::Costs;
use super::counts::LayerChoice;
use super::data::RankParameters;
use super::layer::LayerCost;
use super::work::Work;
use crate::gpu::{Copies, Host};
use crate::plan::Plan;
use crate::units::{Bytes, Seconds};

/// Share by which copies slow down collectives inside the scale-up domain. Source: [nccl-copies].
const SLOWER_COLLECTIVES: f64 = 0.1;
/// Speed of the update on Grace against that on x86. Source: [superoffload].
const GRACE_UPDATE: f64 = 1.3;

impl Costs<'_> {
    /// Bandwidth of copies of one GPU while all GPUs of its node copy. Without a pipeline they go one way at a time; in a pipeline
    /// forward and backward passes alternate, so that they go both ways at once.
    pub(super) fn copies(&self, plan: &Plan) -> Copies {
        let gpu = self.device.gpu;
        if plan.layout.pp > 1 { gpu.copies_both_ways() } else { gpu.copies_one_way() }
    }

    /// Adds the exposed time of a layer's activation copies to the host and back.
    ///
    /// ```text
    /// forward    max(0, A·x/out − F − host) + 0.1·min(TP, A·x/out)          A = activations, x = share on the host
    /// backward   max(0, A·x/back − B − host) + 0.1·min(TP, A·x/back)        host = waits for launches
    /// ```
    ///
    /// On x86 the copies occupy the GPU's PCIe link, for which its traffic over the NIC waits ([`Work::link`]). Source:
    /// specification §6.8.
    pub(super) fn add_transfer(&self, work: &mut Work, cost: &LayerCost, plan: &Plan, choice: &LayerChoice) {
        if choice.on_host <= 0.0 {
            return;
        }
        let moved = self.kept_activations(choice.kind, plan) * choice.on_host;
        let Copies { out, back } = self.copies(plan);
        let (out, back) = (moved / out, moved / back);
        let exposed = |copy: Seconds, kernels: Seconds, host: Seconds, tp: Seconds| {
            (copy - kernels - host).or_zero() + tp.min(copy) * SLOWER_COLLECTIVES
        };
        work.host.forward += exposed(out, cost.forward, work.host.forward, work.tp.forward);
        work.host.backward += exposed(back, cost.dgrad + cost.wgrad, work.host.backward, work.tp.backward);
        if self.device.host == Host::X86 {
            work.link.forward += out;
            work.link.backward += back;
        }
    }

    /// Time of the update on the host, copies included; 0 where nothing is offloaded.
    ///
    /// ```text
    /// max( shard·t_update, shard·(g + w)/out )          t_update 1.65 ns a parameter on x86, 1.65/1.3 on Grace
    /// ```
    ///
    /// `out` = bandwidth of copies to the host. Source: specification §6.8.
    ///
    /// All of it is exposed: clipping needs the norm of all gradients before the first update, and Megatron's
    /// `HybridDeviceOptimizer` and DeepSpeed's `CPUAdam` end their step before the next forward begins ([megatron-lm],
    /// [deepspeed]).
    pub(super) fn host_update(&self, plan: &Plan, heaviest: &RankParameters) -> Seconds {
        if plan.offload.optimizer <= 0.0 {
            return Seconds::ZERO;
        }
        let shard = plan.optimizer_shard(heaviest.dense, heaviest.experts) * plan.offload.optimizer;
        let speed = match self.device.host {
            Host::X86 => 1.0,
            Host::Grace => GRACE_UPDATE,
        };
        let recipe = &self.problem.workload().recipe;
        let moved = Bytes::new(shard * (recipe.gradient + recipe.weight));
        let copied = moved / self.device.gpu.copies_one_way().out;
        (self.device.stack.host_update * (shard / speed)).max(copied)
    }
}
