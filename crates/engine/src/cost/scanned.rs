//! Layers that a compiled loop runs, as XLA does for JAX (specification §6.11).

use super::costs::Costs;
use super::counts::LayerChoice;
use super::moments::MlpWidths;
use crate::model::Mixer;
use crate::plan::{Plan, Recompute};
use crate::units::Bytes;

/// Tensors of an MLP's width, two bytes an element, that the backward of a layer holds: gate, up and the gradients of both. Source:
/// [maxtext-compiled].
const MLP_TENSORS: f64 = 4.0;
/// Tensors of [`MLP_TENSORS`] beyond those that the loop keeps anyway, where it keeps gate and up: the gradients.
const MLP_GRADIENTS: f64 = 2.0;

/// Tensors of the width of queries, and of keys, in the backward of attention: both halves of the rotation, each padded to 128
/// lanes, what is rotated, its gradient, and attention's output or the values' gradient. Source: [maxtext-compiled].
const ROTATED: f64 = 5.0;

/// Tensors of the width of queries that are held during the backward of an MLP: attention's output and input, and its
/// log-sum-exp, which is padded to 128 lanes in fp32. Source: [maxtext-compiled].
const BESIDE_MLP: f64 = 4.0;

/// Tensors of the hidden width in the backward of attention. Source: [maxtext-compiled].
const HIDDEN_OF_ATTENTION: f64 = 2.0;
/// Tensors of the hidden width in the backward of an MLP. Source: [maxtext-compiled].
const HIDDEN_OF_MLP: f64 = 1.0;

/// Gathered sequences of the hidden width where tensor parallelism splits them. Source: [maxtext-compiled].
const GATHERED_SEQUENCES: f64 = 3.0;

/// Matrices of an MLP that are whole in its backward: gathered, or gradients before their reduction. Source: [maxtext-compiled].
const WHOLE_OF_MLP: f64 = 3.0;
/// Matrices of attention that are whole in the backward of an MLP. Source: [maxtext-compiled].
const WHOLE_OF_ATTENTION: f64 = 2.0;

/// Hidden elements, two bytes each, that the loop is given and returns: gradients of its output. Source: [maxtext-compiled].
const CARRIED: f64 = 2.0;

/// Bytes of an element of activations, and of a gathered weight.
const ELEMENT: f64 = 2.0;

impl Costs<'_> {
    /// Whether a compiled loop runs the layers.
    pub(super) const fn is_scanned(&self) -> bool {
        self.device.stack.memory.scanned_layers
    }

    /// Bytes of the backward of one scanned layer in addition to what the loop keeps, and of the head that waits for
    /// the loop's end.
    ///
    /// ```text
    /// max( n·2·(m·f + 5·d(a+g))/t + 4·n·h/ts,  n·2·(m·f + 4·a·d)/t + 2·n·h/ts + 2·h·(3·f + 2·a·d)/t )   m = 4, or 2 if kept
    /// + 6·n·h where the sequence is split + head
    /// ```
    ///
    /// Source: [maxtext-compiled].
    pub(super) fn scanned_backward(&self, choice: &LayerChoice, plan: &Plan) -> Bytes {
        let layer = &self.problem.model().kinds[choice.kind];
        let (tokens, hidden, tp) =
            (self.tokens(plan), f64::from(self.problem.model().hidden), f64::from(plan.layout.tp));
        let keeps_mlp = match choice.recompute {
            Recompute::None | Recompute::PerOp => true,
            Recompute::Selective(modules) => !(modules.mlp || modules.moe),
            Recompute::Full | Recompute::EveryOther | Recompute::FirstLayers(_) => false,
        };
        let widths = if keeps_mlp { MLP_GRADIENTS } else { MLP_TENSORS };
        let MlpWidths { of_tokens, of_weights } = self.mlp_widths(&layer.ffn, plan);
        let (queries, keys) = match (&layer.mixer, layer.attention()) {
            (Mixer::Mla(mla), _) => (mla.heads * mla.qk_dim(), mla.heads * mla.qk_dim()),
            (_, Some(a)) => (a.heads * a.head_dim, a.kv_heads * a.head_dim),
            (_, None) => (0, 0),
        };
        let (queries, keys) = (f64::from(queries) / tp, f64::from(keys) / tp);
        let mlp = widths * of_tokens;
        let own_hidden = tokens * hidden / plan.sequence_shards();
        let attention = mlp + tokens * ROTATED * (queries + keys) + HIDDEN_OF_ATTENTION * own_hidden;
        let input = f64::from(layer.ffn.input(self.problem.model().hidden));
        let whole = WHOLE_OF_MLP * of_weights * input + WHOLE_OF_ATTENTION * queries * hidden;
        let feed_forward = mlp + tokens * BESIDE_MLP * queries + HIDDEN_OF_MLP * own_hidden + whole;
        let gathered = if plan.sequence_shards() > 1.0 { GATHERED_SEQUENCES * tokens * hidden } else { 0.0 };
        Bytes::new(ELEMENT * (attention.max(feed_forward) + gathered)) + self.head_beside_loop(plan)
    }

    /// Bytes of the head during the backward loop: the gradient of its weights, unless they are frozen, or, under tensor parallelism, of
    /// the logits.
    ///
    /// ```text
    /// 2·h·V, or 2·n·V/t + 4·n·h/ts
    /// ```
    ///
    /// Source: [maxtext-compiled].
    fn head_beside_loop(&self, plan: &Plan) -> Bytes {
        let model = self.problem.model();
        let (tokens, hidden) = (self.tokens(plan), f64::from(model.hidden));
        let vocab = model.padded_vocab(plan.layout.tp) / f64::from(plan.layout.tp);
        let head = match plan.layout.tp {
            1 if self.is_lora() => 0.0,
            1 => hidden * vocab,
            _ => tokens * vocab,
        };
        Bytes::new(ELEMENT * (head + CARRIED * tokens * hidden / plan.sequence_shards()))
    }
}
