//! Checkpoint policies of JAX, which name the outputs that a layer keeps (specification §6.4).

use super::costs::Costs;
use crate::model::{Ffn, Mixer};
use crate::plan::{Modules, Plan, Recompute};
use crate::units::Bytes;

impl Costs<'_> {
    /// Modules that a checkpoint policy recomputes, where the stack's policies keep outputs of matmuls; none of other stacks, and
    /// where whole layers are recomputed. XLA keeps nothing that a policy does not name, so norms and activation functions run
    /// again in each.
    ///
    /// ```text
    /// recompute        MaxText's remat_policy       keeps the outputs of                       runs again
    /// none             minimal_with_context         all matmuls, attention                     norms, activation functions
    /// per-op           minimal                      all matmuls                                and attention
    /// core_attn+mlp    save_dot_except_mlp          QKV, attention's projection                and the MLP
    /// ```
    ///
    /// Source: [maxtext] `layers/decoders.py`, `get_remat_policy`.
    pub(super) fn policy(&self, recompute: Recompute) -> Option<Modules> {
        let elementwise = Modules { layernorm: true, act: true, ..Modules::default() };
        let recomputed = match recompute {
            Recompute::None => elementwise,
            Recompute::PerOp => Modules { core_attn: true, ..elementwise },
            Recompute::Selective(modules) => Modules { layernorm: true, act: true, ..modules },
            Recompute::EveryOther | Recompute::FirstLayers(_) | Recompute::Full => return None,
        };
        self.device.stack.memory.keeps_matmul_outputs.then_some(recomputed)
    }

    /// Outputs that a policy keeps of one layer.
    ///
    /// ```text
    /// n·2·( d(a+2g)/t + (a·d/t) + (G·f/t) ) + 4·n·h/ts          QKV, (context), (gate and up), projection and input
    /// ```
    ///
    /// Of other layers than attention with a dense MLP, all activations but those of the recomputed modules. Source: [maxtext],
    /// [maxtext-compiled].
    pub(super) fn kept_outputs(&self, kind: usize, plan: &Plan, recomputed: Modules) -> Bytes {
        let (model, layer) = (self.problem.model(), &self.problem.model().kinds[kind]);
        let (Mixer::Attention(attention), Ffn::Dense(mlp)) = (&layer.mixer, &layer.ffn) else {
            return self.all_activations(kind, plan, recomputed);
        };
        let unless = |recomputed: bool, width: f64| if recomputed { 0.0 } else { width };
        let context = attention.context_width() as f64;
        let split = attention.qkv_width() as f64
            + unless(recomputed.core_attn, context)
            + unless(recomputed.mlp, mlp.gates() as f64 * f64::from(mlp.intermediate));
        let whole = 2.0 * f64::from(model.hidden) / plan.sequence_shards();
        Bytes::new(self.tokens(plan) * 2.0 * (split / f64::from(plan.layout.tp) + whole))
    }
}
