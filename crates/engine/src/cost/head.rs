//! Cost of the two ends of the model: the input embedding; the output head with the loss.

use super::costs::Costs;
use super::groups;
use super::layer::PassTimes;
use super::traffic::{self, Streamed};
use crate::gpu::{Collective, Format};
use crate::kernel::{GemmShape, Pass};
use crate::plan::Plan;
use crate::units::{Bytes, Seconds};

/// Elements of 16 bits in 16 bytes.
const ALIGNED_ELEMENTS: u32 = 8;

/// Times of the embedding and of the output head with the loss, on one rank for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ends {
    /// Compute of the embedding.
    pub embedding: PassTimes,
    /// Tensor-parallel collective of the embedding.
    pub embedding_comm: PassTimes,
    /// Compute of the head and the loss.
    pub head: PassTimes,
    /// Tensor-parallel collectives of the head.
    pub head_comm: PassTimes,
}

impl Costs<'_> {
    /// Times of embedding, head and loss on one rank, for one micro-batch.
    ///
    /// ```text
    /// head    forward GEMM(n, V/t, h) + loss     backward two GEMMs + loss     one collective in each pass
    /// embed   6h or 4h bytes a token forward, 6h more backward, and a reduce-scatter or all-reduce under tp
    /// ```
    ///
    /// GEMMs of the head run in bf16. Adapters leave both ends frozen: the head has one GEMM backward, the embedding none. Source:
    /// specification §2.4, §2.6, §2.11.
    pub fn ends(&self, plan: &Plan) -> Ends {
        let model = self.problem.model();
        let (tokens, hidden, tp) = (self.tokens(plan), f64::from(model.hidden), f64::from(plan.layout.tp));
        let vocab = model.padded_vocab(plan.layout.tp) / tp;
        let unaligned = self.unaligned();
        let gemm = |m, n, k, output_bytes, pass| {
            self.device.gemm_pass(&GemmShape { m, n, k, batch: 1.0, output_bytes }, Format::Bf16, pass) * unaligned
        };
        let stream = |elements: f64, of: Streamed| self.device.stream(Bytes::new(elements * of.bytes), of.kernels);
        let loss = self.loss(plan, tokens * vocab);
        let payload = Bytes::new(tokens * hidden * traffic::BF16);
        let collective = |op| self.fabric.time(op, payload, groups::tp(plan), 1.0);
        let (head_op, embed_op) = if plan.sequence_parallel {
            (Collective::AllGather, Collective::ReduceScatter)
        } else {
            (Collective::AllReduce, Collective::AllReduce)
        };
        let has_positions = model.learned_positions > 0;
        let embedding = if has_positions { traffic::EMBEDDING_WITH_POSITIONS } else { traffic::EMBEDDING };
        let embed = stream(tokens * hidden, embedding);
        let head_comm = collective(head_op);
        let embed_comm = collective(embed_op);
        let trained = |time: Seconds| if self.is_lora() { Seconds::ZERO } else { time };
        Ends {
            embedding: PassTimes {
                forward: embed,
                backward: trained(embed + stream(tokens * hidden, traffic::EMBEDDING_BACKWARD)),
            },
            embedding_comm: PassTimes { forward: embed_comm, backward: Seconds::ZERO },
            head: PassTimes {
                forward: gemm(tokens, vocab, hidden, traffic::BF16, Pass::Forward) + loss.forward,
                backward: (gemm(tokens, hidden, vocab, traffic::BF16, Pass::Dgrad)
                    + trained(gemm(hidden, vocab, tokens, traffic::ACCUMULATED, Pass::Wgrad))
                    + loss.backward),
            },
            head_comm: PassTimes { forward: head_comm, backward: head_comm },
        }
    }

    /// Factor on the GEMMs of a head whose vocabulary leaves the rows of logits at no multiple of 16 bytes: Hopper's own kernels need that,
    /// so that cuBLAS takes those of Ampere, in compiled models too. Source: [kestrel-alignment], [gollem].
    fn unaligned(&self) -> f64 {
        let aligned = self.problem.model().vocab.is_multiple_of(ALIGNED_ELEMENTS);
        let factor = self.device.gpu.unaligned_gemm.as_ref().filter(|_| self.device.stack.raw_vocabulary && !aligned);
        factor.map_or(1.0, |factor| factor.value)
    }

    /// Time of the cross-entropy over a rank's logits.
    ///
    /// ```text
    /// compiled   b/2 bytes a logit in either pass, as counted          b = `stack.loss_traffic`
    /// otherwise  8 and 6 bytes fused, 22 and 8 in separate kernels
    /// ```
    ///
    /// Source: specification §2.4, [pytorch-inductor].
    fn loss(&self, plan: &Plan, logits: f64) -> PassTimes {
        let stack = self.device.stack;
        if let Some(bytes) = stack.loss_traffic.filter(|_| plan.layout.tp == 1) {
            let pass = self.device.stream(Bytes::new(logits * bytes / 2.0), traffic::COMPILED_LOSS_KERNELS);
            return PassTimes { forward: pass, backward: pass };
        }
        let loss = if stack.fused_cross_entropy { traffic::FUSED_LOSS } else { traffic::UNFUSED_LOSS };
        let pass = |of: Streamed| self.device.stream(Bytes::new(logits * of.bytes), of.kernels);
        PassTimes { forward: pass(loss.forward), backward: pass(loss.backward) }
    }
}
