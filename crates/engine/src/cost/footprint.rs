//! Memory of one rank: its tensors by tenant, and the reserve beyond them.

use serde::Serialize;

use super::moments::{Fullest, Needs, Timing};
use super::states::States;
use super::term::Tenant;
use crate::units::Bytes;

/// Memory beyond the tensors of every rank of a plan: specification §6.5, §6.9.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reserve {
    /// Share of the tensors that the allocator loses.
    pub fragmentation: f64,
    /// CUDA context, workspaces and buffers of NCCL.
    pub context: Bytes,
}

/// Memory of one rank at its peak, by tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Footprint {
    /// Pipeline rank.
    pub rank: u32,
    /// Weights that the GEMMs read.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Master weights and moments.
    pub optimizer: Bytes,
    /// Tensors kept between forward and backward.
    pub activations: Bytes,
    /// Working set: logits, a recomputed layer, gathered weights.
    pub transient: Bytes,
    /// Caches of the libraries (Transformer Engine's weight-gradient buffers).
    pub caches: Bytes,
    /// Memory lost to fragmentation of the allocator.
    pub fragmentation: Bytes,
    /// CUDA context, workspaces and NCCL buffers.
    pub context: Bytes,
}

impl Footprint {
    /// Footprint of a rank at its fullest moment, with fragmentation and context.
    #[inline]
    pub(super) fn of_rank(
        rank: u32,
        reserve: Reserve,
        timing: Timing,
        states: States,
        needs: &Needs,
        caches: Bytes,
    ) -> Self {
        let States { weights, gradients: all, optimizer, update } = states;
        let Fullest { gradients, activations, transient } = timing.fullest(all, update, needs);
        let tensors = weights + gradients + optimizer + activations + transient + caches;
        Self {
            rank,
            weights,
            gradients,
            optimizer,
            activations,
            transient,
            caches,
            fragmentation: timing.beyond(tensors, reserve.fragmentation, &states, needs),
            context: reserve.context,
        }
    }

    /// Every tenant with its name: the one list behind the sums, the tables and the JSON.
    #[inline]
    pub fn tenants(&self) -> [(Tenant, Bytes); 8] {
        let Self { rank: _, weights, gradients, optimizer, activations, transient, caches, fragmentation, context } =
            *self;
        [
            (Tenant::Weights, weights),
            (Tenant::Gradients, gradients),
            (Tenant::Optimizer, optimizer),
            (Tenant::Activations, activations),
            (Tenant::Transient, transient),
            (Tenant::Caches, caches),
            (Tenant::Fragmentation, fragmentation),
            (Tenant::Context, context),
        ]
    }

    /// Tensors allocated at the peak: torch's `max_memory_allocated`.
    pub fn allocated(&self) -> Bytes {
        self.reserved() - self.fragmentation
    }

    /// Memory reserved by the allocator: torch's `max_memory_reserved`.
    pub fn reserved(&self) -> Bytes {
        self.peak() - self.context
    }

    /// Peak memory of the device: everything that the allocator reserves, and the context. `nvidia-smi` shows it.
    #[inline]
    pub fn peak(&self) -> Bytes {
        self.tenants().iter().map(|(_, bytes)| *bytes).sum()
    }
}

/// The rank that needs the most.
pub(super) fn fullest(ranks: &[Footprint]) -> Footprint {
    let sized = ranks.iter().map(|footprint| (footprint.peak(), footprint));
    *sized.reduce(|a, b| if b.0 > a.0 { b } else { a }).expect("a plan has at least one stage").1
}
