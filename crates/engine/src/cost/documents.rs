//! Documents that are packed into a sequence, as attention sees them.

use super::costs::Costs;
use crate::gpu::AttentionKernel;
use crate::stack::Family;

impl Costs<'_> {
    /// Tokens over which one call of a kernel attends. Kernels of variable length compute the scores within documents alone; others
    /// compute those of the whole sequence, and mask. JAX counts as the latter, as on TPUs.
    ///
    /// Source: specification §1.3, [maxtext].
    pub(super) fn attention_len(&self, kernel: AttentionKernel) -> f64 {
        let workload = self.problem.workload();
        let skips = match kernel {
            AttentionKernel::Unfused | AttentionKernel::Efficient => false,
            AttentionKernel::Fa1 | AttentionKernel::Fa2 | AttentionKernel::Cudnn | AttentionKernel::Fa3 => {
                self.problem.stack().family != Family::Jax
            }
        };
        f64::from(if skips { workload.attention_len() } else { workload.seq_len })
    }
}
