//! Time of the optimizer update, and the fixed costs of a step.

use super::costs::Costs;
use super::data::{LORA_SHARE, RankParameters};
use crate::gpu::Format;
use crate::kernel::GemmShape;
use crate::model::Ffn;
use crate::plan::{Offload, Plan, ZeroStage};
use crate::units::{Bytes, Seconds};
use crate::workload::Optimizer;

/// Bytes per parameter, kernels and all-reduces of one optimizer update.
///
/// Source: specification §2.7: 38 bytes with fp32 gradients and moments = 4 (gradient) + 16 (moments) + 10 + 8.
mod update {
    /// Master weights read and written, the new weight written.
    pub const MASTER_AND_WEIGHT: f64 = 10.0;
    /// Gradient read for the norm and for clipping.
    pub const NORM_AND_CLIP: f64 = 8.0;
    /// Kernels of one fused update.
    pub const KERNELS: f64 = 20.0;
    /// Kernels that zero the gradients, compute their norm and clip them.
    pub const GRADIENT_KERNELS: f64 = 4.0;
    /// Number of all-reduces of norms and loss scalars.
    pub const SCALAR_REDUCTIONS: f64 = 3.0;
    /// Microseconds of one of these for each doubling of the ranks.
    pub const REDUCTION_MICROS: f64 = 12.0;
}

/// Orthogonalisation of Muon. Source: specification §2.7.
mod newton_schulz {
    /// Number of iterations.
    pub const ITERATIONS: f64 = 5.0;
    /// GEMMs of one iteration.
    pub const GEMMS: f64 = 3.0;
    /// Time relative to GEMMs of that size at full rate.
    pub const SLOWDOWN: f64 = 2.0;
}

/// Time of the update that ends a step, in its two parts: the optimizer states on the device, then those on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Update {
    /// Update on the device.
    pub device: Seconds,
    /// Update on the host, copies included.
    pub host: Seconds,
}

impl Update {
    /// Time of both parts, one after the other.
    pub fn total(self) -> Seconds {
        self.device + self.host
    }

    /// Whether neither part takes longer than that of `other`.
    pub fn within(self, other: Self) -> bool {
        self.device <= other.device && self.host <= other.host
    }

    /// Minimum, part by part.
    pub fn lesser(self, other: Self) -> Self {
        Self { device: self.device.min(other.device), host: self.host.min(other.host) }
    }
}

impl Costs<'_> {
    /// Update of the rank where it takes the longest.
    pub(super) fn longest_update<'p>(
        &self,
        plan: &Plan,
        ranks: impl Iterator<Item = (&'p RankParameters, Offload)>,
    ) -> Update {
        let (mut longest, mut known) = (Update::default(), None);
        let scalars = scalar_reductions(plan);
        for (parameters, offload) in ranks {
            if known == Some((*parameters, offload)) {
                continue;
            }
            known = Some((*parameters, offload));
            let plan = plan.offloading(offload);
            let device = if plan.zero == ZeroStage::Three {
                self.fsdp_update(&plan, parameters)
            } else {
                self.optimizer_step(&plan, parameters, scalars)
            };
            let update = Update { device, host: self.host_update(&plan, parameters) };
            if update.total() > longest.total() {
                longest = update;
            }
        }
        longest
    }

    /// Time of the optimizer update; `scalars` is the time of the all-reduces of gradient norms and loss scalars.
    ///
    /// ```text
    /// T = shard·u/(BW·e_mem) + P·(g + 1)/(BW·e_mem) + 3·12 us·log2 N + T_muon + host time once a step
    /// u = 38 bytes with fp32 gradients and moments
    /// ```
    ///
    /// Shards over dp·cp (experts over their own replicas) under ZeRO ≥ 1. What is offloaded is updated on the host
    /// (`offload`). Source: specification §2.7.
    pub(super) fn optimizer_step(&self, plan: &Plan, heaviest: &RankParameters, scalars: Seconds) -> Seconds {
        let share = if self.is_lora() { LORA_SHARE } else { 1.0 };
        let (dense, experts) = (heaviest.dense * share, heaviest.experts * share);
        let on_device = 1.0 - plan.offload.optimizer;
        let shard = plan.optimizer_shard(dense, experts) * on_device;
        let gradient = self.device.stack.reduce_bytes;
        let moved =
            gradient + update::MASTER_AND_WEIGHT + update::NORM_AND_CLIP + 2.0 * self.problem.workload().recipe.state;
        let passes = (dense + experts) * (gradient + 1.0);
        self.device.stream_fused(Bytes::new(shard * moved), update::KERNELS)
            + self.device.stream_fused(Bytes::new(passes), update::GRADIENT_KERNELS)
            + scalars
            + self.newton_schulz(plan, heaviest)
            + self.device.stack.quirks.step_overhead
    }

    /// Time of Muon, which orthogonalises each matrix of the rank; whole matrices are distributed over the replicas:
    ///
    /// ```text
    /// 5 iterations of 4·r·c·min(r,c) + 2·min(r,c)²·max(r,c) FLOPs, at half the rate of a GEMM of that size
    /// ```
    ///
    /// Taken as m × (parameters/m): m = h for the dense ones without the tables, which have an elementwise update, and min(h, f) for
    /// experts of width f (min(ℓ, f) in a latent space), which are distributed over their own replicas. Source: specification §2.7.
    pub(super) fn newton_schulz(&self, plan: &Plan, heaviest: &RankParameters) -> Seconds {
        if self.problem.workload().optimizer != Optimizer::Muon {
            return Seconds::ZERO;
        }
        let model = self.problem.model();
        let widths = model.kinds.iter().filter_map(|layer| match &layer.ffn {
            Ffn::Moe(moe) => Some(moe.intermediate.min(moe.token_width(model.hidden))),
            Ffn::Dense(_) | Ffn::None => None,
        });
        let width = widths.max().unwrap_or(model.hidden).min(model.hidden);
        let time = |short: u32, parameters: f64| {
            // 4·r·c·m + 2·m²·x FLOPs are three GEMMs of m × x × m.
            let short = f64::from(short);
            let shape = GemmShape { m: short, n: parameters / short, k: short, batch: 1.0, output_bytes: 2.0 };
            let factor = newton_schulz::SLOWDOWN * newton_schulz::GEMMS * newton_schulz::ITERATIONS;
            if parameters > 0.0 { self.device.gemm(&shape, Format::Bf16) * factor } else { Seconds::ZERO }
        };
        let dense = (heaviest.dense - heaviest.tables) / f64::from(plan.layout.dense_replicas());
        let experts = heaviest.experts / f64::from(plan.layout.expert_replicas());
        time(model.hidden, dense) + time(width, experts)
    }
}

/// Time of the reductions of norms and loss scalars over all ranks.
fn scalar_reductions(plan: &Plan) -> Seconds {
    let hops = libm::log2(f64::from(plan.layout.world_size().max(2)));
    Seconds::micros(update::SCALAR_REDUCTIONS * update::REDUCTION_MICROS * hops)
}
