//! The two ends of the model: embedding, output head and loss.

use super::costs::Costs;
use super::groups;
use super::layer::Pair;
use crate::gpu::{Collective, Format};
use crate::kernel::GemmShape;
use crate::kernel::Pass;
use crate::plan::Plan;
use crate::units::Bytes;

/// Bytes per logit of cross-entropy, forward and backward: in one kernel, or in several.
///
/// Source: specification §2.4.
mod loss {
    pub const FUSED: (f64, f64) = (8.0, 6.0);
    pub const UNFUSED: (f64, f64) = (22.0, 8.0);
}

/// The two ends of the model on one rank for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ends {
    /// Embedding, compute.
    pub embedding: Pair,
    /// Embedding, communication.
    pub embedding_comm: Pair,
    /// Head and loss, compute.
    pub head: Pair,
    /// Head and loss, communication.
    pub head_comm: Pair,
}

impl Costs<'_> {
    /// Embedding, head and loss.
    ///
    /// ```text
    /// head    forward product(n, V/t, h) + loss     backward two products + loss     one collective each way
    /// embed   6h or 4h bytes a token forward, 6h backward, and a reduce-scatter or all-reduce under tp
    /// ```
    ///
    /// Products of the head run in bf16. Adapters leave the head frozen: half its backward. Source: specification
    /// §2.4, §2.6, §2.11.
    pub fn ends(&self, plan: &Plan) -> Ends {
        let model = self.problem.model();
        let (tokens, hidden, tp) = (self.tokens(plan), f64::from(model.hidden), f64::from(plan.layout.tp));
        let vocab = f64::from(model.padded_vocab(plan.layout.tp)) / tp;
        let product = |m, n, k, output_bytes, pass| {
            self.device.gemm_pass(&GemmShape { m, n, k, batch: 1.0, output_bytes }, Format::Bf16, pass)
        };
        let (loss_f, loss_b) = if self.device.stack.fused_cross_entropy { loss::FUSED } else { loss::UNFUSED };
        let logits = |bytes: f64, kernels| self.device.stream(Bytes::new(tokens * vocab * bytes), kernels);
        let payload = Bytes::new(tokens * hidden * 2.0);
        let collective = |op| self.fabric.time(op, payload, groups::tp(plan), 1.0);
        let (head_op, embed_op) = if plan.sequence_parallel {
            (Collective::AllGather, Collective::ReduceScatter)
        } else {
            (Collective::AllReduce, Collective::AllReduce)
        };
        let positions = if model.learned_positions > 0 { 6.0 } else { 4.0 };
        let embed = self.device.stream(Bytes::new(tokens * hidden * positions), 3.0);
        let head_comm = collective(head_op);
        let embed_comm = collective(embed_op);
        Ends {
            embedding: Pair {
                forward: embed,
                backward: embed + self.device.stream(Bytes::new(tokens * hidden * 6.0), 2.0),
            },
            embedding_comm: Pair { forward: embed_comm, backward: crate::units::Seconds::ZERO },
            head: Pair {
                forward: product(tokens, vocab, hidden, 2.0, Pass::Forward) + logits(loss_f, 6.0),
                backward: (product(tokens, hidden, vocab, 2.0, Pass::Dgrad)
                    + product(hidden, vocab, tokens, 8.0, Pass::Wgrad)
                    + logits(loss_b, 2.0)),
            },
            head_comm: Pair { forward: head_comm, backward: head_comm },
        }
    }
}
