//! Moments of a step that may be the peak of a rank's memory (specification §6.10).

use super::activations::UNFUSED_NORM;
use super::costs::Costs;
use super::counts::LayerChoice;
use super::states::States;
use crate::model::{Ffn, Layer, Mixer};
use crate::plan::{Modules, Plan, ZeroStage};
use crate::units::Bytes;

/// Bytes per logit of the loss head's working set. Source: specification §6.5.
pub(super) const LOGIT: f64 = 12.0;
/// Bytes per logit of the loss head's working set where the cross-entropy is fused. Source: specification §6.5.
pub(super) const FUSED_LOGIT: f64 = 6.0;

/// Bytes per logit while the loss is computed: logits in 16 bits, in fp32, and their logarithms. Source: [memory-oracle].
const FORWARD_LOGITS: f64 = 10.0;

/// Bytes of an element of the head's gathered weights in a loss by chunks. Source: [torchtitan] `ChunkedLossWrapper`.
const CHUNKED_HEAD: f64 = 2.0;
/// Bytes of an element of its gradient there, in 16 bits and twice in fp32; a frozen head has none. Source: as [`CHUNKED_HEAD`].
const CHUNKED_HEAD_GRADIENT: f64 = 10.0;
/// Bytes of an element of the sum of the head's input gradients over chunks. Source: [torchtitan] `ChunkedLossWrapper`.
const CHUNKED_INPUT: f64 = 4.0;

/// Bytes of a weight while one layer is gathered and the next arrives in a buffer. Source: [memory-oracle].
const GATHERED: f64 = 4.0;

/// Bytes of an intermediate element of an MLP in its backward: gradients of the product and of one of its factors. Source:
/// [memory-oracle].
const MLP_BACKWARD: f64 = 4.0;

/// Bytes of a hidden element in the backward of a row-parallel matmul: its output's gradient gathered, and its input's before
/// the reduction. Source: [memory-oracle].
const GATHERED_GRADIENTS: f64 = 4.0;

/// Bytes of tensors that are resident on a rank only during parts of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Temporary {
    /// Tensors resident while the loss is computed.
    pub loss: Bytes,
    /// Tensors resident while the backward goes through a layer.
    pub backward: Bytes,
    /// Peak of the allocator's pool for the stream that gathers weights.
    pub gathers: Bytes,
}

impl Temporary {
    /// Sum, part by part.
    pub(super) fn plus(self, other: Self) -> Self {
        self.joined(other, |a, b| a + b)
    }

    /// Minimum, part by part.
    pub(super) fn lesser(self, other: Self) -> Self {
        self.joined(other, Bytes::min)
    }

    fn joined(self, other: Self, join: impl Fn(Bytes, Bytes) -> Bytes) -> Self {
        let Self { loss, backward, gathers } = other;
        Self {
            loss: join(self.loss, loss),
            backward: join(self.backward, backward),
            gathers: join(self.gathers, gathers),
        }
    }

    /// Whether no part exceeds that of `other`.
    pub(super) fn within(self, other: Self) -> bool {
        self.lesser(other) == self
    }
}

/// Bytes of a rank without its states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Needs {
    /// Activations at their peak.
    pub activations: Bytes,
    /// Activations of the layer that keeps the most.
    pub layer: Bytes,
    /// Working sets, and temporarily unsharded weights or gradients.
    pub temporary: Temporary,
}

impl Needs {
    /// Whether no part exceeds that of `other`.
    pub fn within(&self, other: &Self) -> bool {
        let Self { activations, layer, temporary } = *self;
        activations <= other.activations && layer <= other.layer && temporary.within(other.temporary)
    }
}

/// Bytes on a rank, by whether it holds the head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndBytes {
    /// On the ranks that hold the head.
    pub head: Bytes,
    /// On the others.
    pub others: Bytes,
}

impl EndBytes {
    /// Bytes of the loss, which only the ranks with the head hold.
    pub(in crate::cost) const fn of_loss(loss: Bytes) -> Self {
        Self { head: loss, others: Bytes::ZERO }
    }

    /// Bytes on a rank.
    pub const fn on_rank(self, holds_head: bool) -> Bytes {
        if holds_head { self.head } else { self.others }
    }

    /// Minimum on each kind of rank.
    pub fn min(self, other: Self) -> Self {
        Self { head: self.head.min(other.head), others: self.others.min(other.others) }
    }
}

/// Memory lost to fragmentation, relative to the tensors of a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fragmented {
    /// Relative to the activations.
    pub activations: f64,
    /// Relative to the other tensors.
    pub transient: f64,
}

/// Which tensors of a rank are resident at the same moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Timing {
    /// All at once, each at its own peak.
    Together,
    /// Each only at those moments of a step at which it is needed.
    ByMoment {
        /// Whether gradients stay from one micro-batch to the next.
        gradients_stay: bool,
        /// Whether gradients are reduced on a separate stream, and so lie in that stream's pool of the allocator.
        gradients_apart: bool,
        /// Loss to fragmentation.
        lost: Fragmented,
    },
    /// Each only at those ends of a compiled loop over the layers at which it is needed.
    Loop {
        /// Whether gradients stay from one micro-batch to the next.
        gradients_stay: bool,
    },
}

/// Tensors at the moment of peak memory, without those that are always resident.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fullest {
    /// Gradients resident at that moment.
    pub gradients: Bytes,
    /// Activations resident at that moment.
    pub activations: Bytes,
    /// Working sets, and temporarily unsharded weights or gradients.
    pub transient: Bytes,
}

impl Fullest {
    fn sum(&self) -> Bytes {
        self.gradients + self.activations + self.transient
    }
}

impl Timing {
    /// The moment of peak memory of a rank whose whole gradients take `gradients` and whose optimizer needs `update` beside the
    /// states.
    ///
    /// ```text
    /// together    max( G + A + loss + backward,  G + update )
    /// by moment   max( g + A + loss,  g + A + backward,  G + A_layer + backward,  G + update )
    /// loop        max( g + A + loss,  G + A + backward,  G + update )          g = G where gradients stay, else 0
    /// ```
    ///
    /// During the backward, activations shrink and gradients grow layer by layer, so the sum peaks at its start or its end. A
    /// compiled loop keeps its arrays whole throughout.
    #[inline]
    pub fn fullest(self, gradients: Bytes, update: Bytes, needs: &Needs) -> Fullest {
        let Needs { activations, layer, temporary } = *needs;
        let fullest = |gradients, activations, transient| Fullest { gradients, activations, transient };
        let before = |stay: bool| if stay { gradients } else { Bytes::ZERO };
        let fuller = |a: Fullest, b: Fullest| if b.sum() > a.sum() { b } else { a };
        let passes = match self {
            Self::Together => fullest(gradients, activations, temporary.loss + temporary.backward),
            Self::ByMoment { gradients_stay, .. } => {
                let start = fullest(before(gradients_stay), activations, temporary.loss.max(temporary.backward));
                fuller(start, fullest(gradients, layer.min(activations), temporary.backward))
            }
            Self::Loop { gradients_stay } => {
                let loss = fullest(before(gradients_stay), activations, temporary.loss);
                fuller(loss, fullest(gradients, activations, temporary.backward))
            }
        };
        fuller(passes, fullest(gradients, Bytes::ZERO, update))
    }

    /// Memory that the allocator reserves beyond the tensors of the fullest moment, which are `tensors` in all; `share` of them is
    /// lost to fragmentation where all are resident at once.
    ///
    /// ```text
    /// together, loop    share·tensors
    /// by moment         one pool per stream, each at its own peak:
    ///             T + β·T + max(A + α·A, update) + G + gathers − (the part of these that is resident together)
    ///             T = max(loss, backward); where no stream reduces gradients, they are in the pool of the activations:
    ///             max(g + A + α·A, G + max(A_layer, update))
    /// ```
    ///
    /// Source: [memory-oracle].
    #[inline]
    pub fn beyond(self, tensors: Bytes, share: f64, states: &States, needs: &Needs) -> Bytes {
        let Self::ByMoment { lost, gradients_apart, gradients_stay } = self else { return tensors * share };
        let Needs { activations, layer, temporary } = *needs;
        let transient = temporary.loss.max(temporary.backward);
        let States { gradients, update, .. } = *states;
        let kept = activations + activations * lost.activations;
        let kept = if gradients_apart {
            kept.max(update) + gradients
        } else {
            let before = if gradients_stay { gradients } else { Bytes::ZERO };
            (kept + before).max(gradients + update.max(layer.min(activations)))
        };
        kept + transient + transient * lost.transient + temporary.gathers - self.fullest(gradients, update, needs).sum()
    }
}

/// Width of an MLP or of experts on a rank, as its tokens and as its weights see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MlpWidths {
    /// Of all tokens together.
    pub of_tokens: f64,
    /// Of the weights.
    pub of_weights: f64,
}

/// Whether a single GPU holds the whole model, and no engine shards it: nothing is gathered or reduced. ZeRO 3 on one
/// rank goes through its engine all the same.
pub(super) fn is_whole(plan: &Plan) -> bool {
    plan.layout.world_size() == 1 && plan.zero != ZeroStage::Three
}

impl Costs<'_> {
    /// Whether the stack frees tensors so early that the peak of a plan under ZeRO 3, or of a single GPU, is that of one moment
    /// ([`Costs::is_by_moment`]).
    pub(super) fn has_moments(&self) -> bool {
        self.device.stack.memory.by_moment
    }

    /// Whether the peak of a plan's ranks is that of one moment: under ZeRO 3, and on a single GPU, where no buckets of
    /// gradients are reduced.
    pub fn is_by_moment(&self, plan: &Plan) -> bool {
        self.has_moments() && (plan.zero == ZeroStage::Three || is_whole(plan))
    }

    /// Timing of a plan's tensors.
    pub(super) fn timing(&self, plan: &Plan) -> Timing {
        let memory = &self.device.stack.memory;
        let gradients_stay = plan.layout.pp > 1 || self.micro_batches(plan) > 1.0;
        match (self.is_by_moment(plan), self.is_scanned()) {
            (false, _) => Timing::Together,
            (true, true) => Timing::Loop { gradients_stay },
            (true, false) => {
                let lost = Fragmented {
                    activations: memory.activation_fragmentation,
                    transient: memory.transient_fragmentation,
                };
                Timing::ByMoment { gradients_stay, gradients_apart: !is_whole(plan), lost }
            }
        }
    }

    /// Whether the shards of a plan's weights are fp32 and serve as master weights.
    pub fn shards_are_masters(&self, plan: &Plan) -> bool {
        let has_masters = self.problem.workload().recipe.master > 0.0 && !self.is_lora();
        self.device.stack.memory.fp32_shards && plan.zero == ZeroStage::Three && has_masters
    }

    /// Bytes of the loss, on the rank that has it.
    ///
    /// ```text
    /// whole      max(10·n·V/t + 2·h·V/t, b·n·V/t)          b = 12, `logit_bytes`, or `split_logit_bytes` where t > 1
    ///            + 2·h·V/t where the head stays gathered, b + 2 where the outputs are kept; on a single GPU the
    ///            head is a weight
    /// chunked    12·h·V/t + 2·n·V/(t·c) + 4·n·h
    /// both       + 2·n·h/ts + 2·n·h/(ts, or 1 where gathered inputs are kept) + 4·n·h/ts of an un-fused norm
    /// ```
    ///
    /// Source: [memory-oracle].
    pub(super) fn loss_bytes(&self, plan: &Plan) -> Bytes {
        self.loss_bytes_of(plan, plan.layout.world_size() == 1)
    }

    /// Bytes of the loss of a plan's micro-batch on a single GPU, or on one of several.
    pub(super) fn loss_bytes_of(&self, plan: &Plan, is_single: bool) -> Bytes {
        let (model, stack) = (self.problem.model(), self.device.stack);
        let (tokens, hidden, tp) = (self.tokens(plan), f64::from(model.hidden), f64::from(plan.layout.tp));
        let vocab = model.padded_vocab(plan.layout.tp) / tp;
        let gathered = if is_single { 0.0 } else { 2.0 * hidden * vocab };
        let own = if stack.memory.loss_chunks > 1 {
            let logits = 2.0 * tokens * vocab / f64::from(stack.memory.loss_chunks);
            let gradient = if self.is_lora() { 0.0 } else { CHUNKED_HEAD_GRADIENT };
            (CHUNKED_HEAD + gradient) * hidden * vocab + logits + CHUNKED_INPUT * tokens * hidden
        } else {
            let usual = if stack.fused_cross_entropy { FUSED_LOGIT } else { LOGIT };
            let split = stack.memory.split_logit_bytes.filter(|_| plan.layout.tp > 1);
            let backward = split.or(stack.logit_bytes).unwrap_or(usual);
            let logits = |bytes: f64| tokens * vocab * bytes * (1.0 + f64::from(model.mtp_depth));
            let outputs = if stack.memory.keeps_outputs { logits(2.0) } else { 0.0 };
            let stays = if stack.memory.keeps_gathered_head { gathered } else { 0.0 };
            (logits(FORWARD_LOGITS.min(backward)) + gathered).max(logits(backward) + outputs) + stays
        };
        let norm = if stack.memory.unfused_norms { UNFUSED_NORM } else { 0.0 };
        let inputs = (2.0 + norm) / plan.sequence_shards() + 2.0 / self.input_shards(plan);
        Bytes::new(own + tokens * hidden * inputs)
    }

    /// Bytes of the backward of one layer, in addition to its kept activations: recomputed activations, and gradients
    /// of activations.
    ///
    /// ```text
    /// A − A_kept + 4·n·f/t + 2·h·f/t,  and where tensor parallelism splits the sequence  + 4·n·h
    /// ```
    ///
    /// With experts, n·f/t becomes the sum over the tokens that the rank's experts receive, and h·f/t the weights of all its experts.
    pub(super) fn backward_bytes(&self, choice: &LayerChoice, plan: &Plan) -> Bytes {
        if self.is_scanned() {
            return self.scanned_backward(choice, plan);
        }
        let layer = &self.problem.model().kinds[choice.kind];
        let all = self.all_activations(choice.kind, plan, Modules::default());
        let kept = self.kept_activations(choice.kind, &plan.recomputing(choice.recompute));
        let (hidden, tokens) = (self.problem.model().hidden, self.tokens(plan));
        let gathered = if plan.sequence_shards() > 1.0 { GATHERED_GRADIENTS * f64::from(hidden) } else { 0.0 };
        let MlpWidths { of_tokens, of_weights } = self.mlp_widths(&layer.ffn, plan);
        let weights = if self.is_lora() { 0.0 } else { 2.0 * f64::from(layer.ffn.input(hidden)) * of_weights };
        (all - kept).or_zero() + Bytes::new(MLP_BACKWARD * of_tokens + tokens * gathered + weights)
    }

    /// Width of the MLP or of the experts on a rank.
    pub(super) fn mlp_widths(&self, ffn: &Ffn, plan: &Plan) -> MlpWidths {
        match ffn {
            Ffn::Dense(mlp) => {
                let width = f64::from(mlp.intermediate) / f64::from(plan.layout.tp);
                MlpWidths { of_tokens: self.tokens(plan) * width, of_weights: width }
            }
            Ffn::Moe(moe) => {
                let width = f64::from(moe.intermediate) / f64::from(plan.layout.etp);
                let experts = f64::from(moe.experts) / f64::from(plan.layout.ep);
                MlpWidths { of_tokens: self.most_received(moe, plan) * width, of_weights: experts * width }
            }
            Ffn::None => MlpWidths { of_tokens: 0.0, of_weights: 0.0 },
        }
    }

    /// Bytes of temporarily unsharded weights and gradients, by moment, of a rank whose largest layer has `layer` weights and all
    /// of whose layers have `own`.
    ///
    /// ```text
    /// loss        2·P where weights stay gathered
    /// backward    4·P_layer gathered, or 2·P; gradients in fp32 of the layer behind, or of the head: 4·max(P_layer, h·V/t)
    /// gathers     2·P_layer + 4·h·V/t: buffers of a layer, and of both tables
    /// ```
    ///
    /// Source: [memory-oracle]. The backward of a scanned layer includes its gathered matrices.
    pub(super) fn unsharded_by_moment(&self, plan: &Plan, layer: f64, own: f64) -> Temporary {
        let weight = self.problem.workload().recipe.weight;
        let reduced = if self.is_lora() { 0.0 } else { self.device.stack.reduce_bytes };
        let stays = if plan.reshard_after_forward { 0.0 } else { own * weight };
        let gathered = if plan.reshard_after_forward { GATHERED / 2.0 * weight * layer } else { stays };
        if self.is_scanned() {
            return Temporary { loss: Bytes::new(stays), backward: Bytes::new(stays), gathers: Bytes::ZERO };
        }
        let model = self.problem.model();
        let head = model.padded_vocab(plan.layout.tp) * f64::from(model.hidden) / f64::from(plan.layout.tp);
        // A pipeline reduces its gradients after the last micro-batch only: until then they are whole.
        let gradients = if plan.layout.pp > 1 && !plan.reshard_after_forward { own } else { layer.max(head) };
        Temporary {
            loss: Bytes::new(stays),
            backward: Bytes::new(gathered + reduced * gradients),
            gathers: Bytes::new(weight * (2.0 * head + layer)),
        }
    }

    /// Bytes of the tables of rotary embeddings of a rank's layers that each hold their own: cosines and sines in fp32.
    pub(super) fn rotary_tables(&self, plan: &Plan) -> Bytes {
        if !self.device.stack.memory.rotary_tables {
            return Bytes::ZERO;
        }
        let model = self.problem.model();
        let rotated = |layer: &Layer| match (&layer.mixer, layer.attention()) {
            (Mixer::Mla(mla), _) if mla.rope => f64::from(mla.rope_dim),
            (_, Some(attention)) if attention.rope => f64::from(attention.head_dim),
            (_, Some(_) | None) => 0.0,
        };
        let layers =
            self.kind_counts().iter().zip(&model.kinds).map(|(count, layer)| f64::from(*count) * rotated(layer));
        let of_rank = layers.sum::<f64>() / f64::from(plan.layout.pp);
        Bytes::new(4.0 * f64::from(self.problem.workload().seq_len) * of_rank)
    }
}
