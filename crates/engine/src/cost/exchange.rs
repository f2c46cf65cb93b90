//! Communication inside a layer: tensor, context and expert parallelism.

use super::costs::Costs;
use super::groups;
use super::layer::{LayerCost, PassTimes};
use crate::collective::{Dispatch, Group};
use crate::gpu::{Collective, Format};
use crate::model::{Ffn, Layer, Mixer, Moe};
use crate::plan::{CpKind, Plan};
use crate::stack::Dispatcher;
use crate::units::{Bytes, Seconds};

/// Collectives of a layer in one pass under sequence parallelism: all-gather and reduce-scatter of both parts. Source:
/// specification §3.6.
pub(super) const LAYER_COLLECTIVES: f64 = 4.0;
/// Microseconds to merge the partial results of one ring step. Source: specification §2.3, version 1.1 [A].
const RING_MERGE: f64 = 20.0;
/// Bytes of memory traffic for each element of a shard's bf16 result that is added to the fp32 sum: reads 4 and 2, writes 4.
const MERGED: f64 = 10.0;
/// Bytes of the routing weight of one copy of a token, in fp32.
const TOKEN_WEIGHT: f64 = 4.0;
/// Volume of the heads-for-tokens exchange backward against forward. Source: specification §3.7.
const ULYSSES_BACKWARD: f64 = 1.5;

/// Ranks of a context-parallel group that lie in one scale-up domain of `domain` GPUs: the inner group of `a2a+p2p`.
pub const fn context_inside(plan: &Plan, domain: u32) -> u32 {
    groups::cp(plan).inside(domain)
}

/// Width of queries, keys, values and context of a mixer, or of a recurrence's inputs and outputs.
fn exchanged_width(mixer: &Mixer) -> f64 {
    match mixer {
        Mixer::Attention(a) => f64::from(a.heads + a.kv_heads) * f64::from(a.head_dim + a.v_dim()),
        Mixer::Mla(m) => f64::from(m.heads) * f64::from(2 * m.qk_dim() + 2 * m.v_dim),
        Mixer::Mamba(m) => (m.in_width() + m.inner()) as f64,
        Mixer::DeltaNet(d) => (d.in_width() + d.values()) as f64,
        Mixer::AttentionMamba(both) => both.mixers().iter().map(exchanged_width).sum(),
        Mixer::KimiDelta(_) | Mixer::ShortConv(_) | Mixer::None => 0.0, // ranks do not share its sequences
    }
}

/// Width of a mixer's context, the input of its projection out.
fn context_width(mixer: &Mixer) -> f64 {
    match mixer {
        Mixer::Attention(a) => a.context_width() as f64,
        Mixer::Mla(m) => f64::from(m.heads) * f64::from(m.v_dim),
        Mixer::Mamba(m) => m.inner() as f64,
        Mixer::DeltaNet(d) => d.values() as f64,
        Mixer::AttentionMamba(both) => both.mixers().iter().map(context_width).sum(),
        Mixer::KimiDelta(_) | Mixer::ShortConv(_) | Mixer::None => 0.0, // ranks do not share its sequences
    }
}

impl Costs<'_> {
    /// Adds the collectives of tensor (and sequence) parallelism, S = n·h·2 bytes.
    ///
    /// ```text
    /// per split block and pass   all-reduce(S)      with sequence parallelism   all-gather(S·y/2) + reduce-scatter(S)
    /// exposed (1 − θ)·c;  the hidden part slows compute by θ·c·σ/2
    /// ```
    ///
    /// A layer has one such block for its mixer, two where attention and Mamba are side by side, and one for its
    /// feed-forward part; experts that are not split themselves (etp = 1) take their tokens as sequence parallelism
    /// left them. GEMMs gather y bytes an element ([`TpGather`](crate::stack::TpGather)), split experts two. Source:
    /// specification §3.6, §5.3.
    pub(super) fn tensor_parallel(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        if plan.layout.tp == 1 {
            return;
        }
        let group = groups::tp(plan);
        let elements = self.tokens(plan) * f64::from(self.problem.model().hidden);
        let time = |op, bytes: f64| self.fabric.time(op, Bytes::new(elements * bytes), group, 1.0);
        let mixers = match &layer.mixer {
            Mixer::None => 0,
            Mixer::AttentionMamba(both) => both.mixers().len() as u32,
            Mixer::Attention(_)
            | Mixer::Mla(_)
            | Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_) => 1,
        };
        let gemm_blocks = mixers + u32::from(matches!(layer.ffn, Ffn::Dense(_)));
        let expert_blocks = match &layer.ffn {
            Ffn::Moe(_) => u32::from(!plan.sequence_parallel || plan.layout.etp > 1),
            Ffn::Dense(_) | Ffn::None => 0,
        };
        let block = |gathered: f64| {
            if plan.sequence_parallel {
                time(Collective::AllGather, gathered) + time(Collective::ReduceScatter, 2.0)
            } else {
                time(Collective::AllReduce, 2.0)
            }
        };
        let (domain, stack) = (self.fabric.domain(), &self.device.stack);
        let across = |pass: Seconds| {
            if plan.layout.tp <= domain {
                return pass;
            }
            let spanned = f64::from(plan.layout.tp) / f64::from(domain);
            let waits = stack.quirks.cross_domain_tp_latency * (LAYER_COLLECTIVES * spanned);
            (pass + waits) / stack.quirks.cross_domain_tp_efficiency
        };
        let of_experts = if expert_blocks == 0 { Seconds::ZERO } else { block(2.0) * f64::from(expert_blocks) };
        let pass = |gathered: f64| across(block(gathered) * f64::from(gemm_blocks) + of_experts);
        let gathered = stack.tp_gather.bytes(self.device.format);
        let forward = pass(gathered.forward);
        let is_same = gathered.forward.total_cmp(&gathered.backward).is_eq();
        let backward = if is_same { forward } else { pass(gathered.backward) };
        let index = self.index_exchange(layer, plan, group);
        // GEMMs overlap all-gathers and reduce-scatters by parts of their rows, and no all-reduce; registered buffers are shared by processes
        // of one scale-up domain only ([te-userbuffers]; [megatron-lm] `arguments.py`, which asserts sequence parallelism).
        let overlaps = plan.sequence_parallel && self.fabric.inside_domain(group) == group.ranks;
        let hidden = if overlaps { stack.overlap.tp } else { 0.0 };
        let contention = hidden * 0.5 * self.device.gpu.contention.value;
        cost.tp = PassTimes {
            forward: forward * (1.0 - hidden) + index.forward,
            backward: backward * (1.0 - hidden) + index.backward,
        };
        cost.forward += forward * contention;
        cost.dgrad += backward * contention;
    }

    /// Bytes of keys and values of one micro-batch, all context-parallel ranks together, on one tensor-parallel rank.
    ///
    /// `2·b·s·max(1, g/t)·(d + d_v)`, latent attention `b·s·a/t·(d_qk + d_v)·2` (specification §3.7); g = a where the
    /// stack repeats keys and values for each head of queries before it exchanges them.
    fn kv_bytes(&self, mixer: &Mixer, plan: &Plan) -> Bytes {
        let tp = f64::from(plan.layout.tp);
        let tokens = f64::from(plan.micro_batch) * f64::from(self.problem.workload().seq_len);
        let repeats = self.device.stack.repeats_keys;
        Bytes::new(match mixer {
            Mixer::Attention(a) => {
                let heads = if repeats { a.heads } else { a.kv_heads };
                2.0 * tokens * (f64::from(heads) / tp).max(1.0) * f64::from(a.head_dim + a.v_dim())
            }
            Mixer::Mla(m) => 2.0 * tokens * f64::from(m.heads) / tp * f64::from(m.qk_dim() + m.v_dim),
            Mixer::Mamba(m) => 2.0 * tokens * m.conv_width() as f64 / tp,
            Mixer::DeltaNet(d) => 2.0 * tokens * (2 * d.keys() + d.values()) as f64 / tp,
            Mixer::AttentionMamba(both) => both.mixers().iter().map(|part| self.kv_bytes(part, plan).get()).sum(),
            Mixer::KimiDelta(_) | Mixer::ShortConv(_) | Mixer::None => 0.0, // ranks do not share its sequences
        })
    }

    /// Bytes of one rank that the all-to-all of heads for tokens moves: queries, keys and values in, context out.
    fn head_bytes(&self, layer: &Layer, plan: &Plan) -> Bytes {
        Bytes::new(self.tokens(plan) * exchanged_width(&layer.mixer) / f64::from(plan.layout.tp) * 2.0)
    }

    /// Adds the exchange of context parallelism, S = keys and values, c ranks.
    ///
    /// ```text
    /// ring        (c−1) sends of S/c; exposed max(0, ring − ω·T_attn) + (c−1)·20 us; backward twice
    /// all-gather  ag(S) forward, ag(S) + rs(S) backward, fully exposed; see `gathered_by_shard` for stacks that attend by shard
    /// all-to-all  heads for tokens: T forward, 1.5·T backward
    /// a2a+p2p     all-to-all inside the scale-up domain, then a ring across domains
    /// ```
    ///
    /// Source: specification §3.7 with version 1.1.
    pub(super) fn context_parallel(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        if plan.layout.cp == 1 || layer.mixer == Mixer::None {
            return;
        }
        let group = groups::cp(plan);
        let hidden = self.device.stack.overlap.cp;
        match plan.cp_kind {
            CpKind::AllToAll => cost.cp = self.ulysses(layer, plan, group),
            CpKind::AllGather if self.device.stack.attends_by_shard => self.gathered_by_shard(layer, plan, group, cost),
            CpKind::AllGather => {
                let kv = self.kv_bytes(&layer.mixer, plan);
                let gather = self.fabric.time(Collective::AllGather, kv, group, 1.0);
                let scatter = self.fabric.time(Collective::ReduceScatter, kv, group, 1.0);
                cost.cp = PassTimes { forward: gather, backward: gather + scatter };
            }
            CpKind::Ring => self.ring(self.kv_bytes(&layer.mixer, plan), group, hidden, cost),
            CpKind::Hierarchical => {
                let inside = self.fabric.inside_domain(group);
                let near = Group { ranks: inside, stride: group.stride };
                let far = Group { ranks: group.ranks / inside, stride: group.stride * inside };
                let exchange = self.ulysses(layer, plan, near);
                self.ring(self.kv_bytes(&layer.mixer, plan) / f64::from(inside), far, hidden, cost);
                cost.cp.forward += exchange.forward;
                cost.cp.backward += exchange.backward;
            }
        }
    }

    /// All-to-all of heads for tokens (Ulysses) in each pass of a layer.
    fn ulysses(&self, layer: &Layer, plan: &Plan, group: Group) -> PassTimes {
        let forward = self.fabric.time(Collective::AllToAll, self.head_bytes(layer, plan), group, 1.0);
        PassTimes { forward, backward: forward * ULYSSES_BACKWARD }
    }

    /// Adds a ring of `kv` bytes of keys and values over a group, of which a share `hidden` of attention hides its sends.
    fn ring(&self, kv: Bytes, group: Group, hidden: f64, cost: &mut LayerCost) {
        if group.ranks <= 1 {
            return;
        }
        let steps = f64::from(group.ranks - 1);
        let forward = self.fabric.ring_send(kv / f64::from(group.ranks), group) * steps;
        let backward = forward * 2.0;
        let (attention_f, attention_b) = (cost.attention, cost.attention_backward);
        let merge = Seconds::micros(RING_MERGE) * steps;
        let sigma = self.device.gpu.contention.value * 0.5;
        cost.cp = PassTimes {
            forward: (forward - attention_f * hidden).or_zero() + merge,
            backward: (backward - attention_b * hidden).or_zero() + merge * 2.0,
        };
        cost.forward += forward.min(attention_f) * sigma;
        cost.dgrad += backward.min(attention_b) * sigma;
    }

    /// All keys and values gathered at once, attended shard by shard, S = keys and values of all c ranks (PyTorch).
    ///
    /// ```text
    /// forward    max(0, ag(S) − ω·T_attn/c) + (c−1)·merge
    /// backward   max(0, ag(S) − ω·T_attn,b/c) + (c−1)·max(0, send(2S/c) − ω·T_attn,b/c) + send(2S/c) + (c−1)·merge_b
    /// merge      10 bytes an element of the context;  merge_b    10 an element of the gradients of queries, keys, values
    /// ```
    ///
    /// The first shard is the rank's own, so the gather runs beside it. Gradients of keys and values go round in fp32, the last
    /// hop beside nothing. A merge reads an fp32 sum and a bf16 part and writes the sum. Source: [pytorch-context-parallel].
    fn gathered_by_shard(&self, layer: &Layer, plan: &Plan, group: Group, cost: &mut LayerCost) {
        let (kv, ranks) = (self.kv_bytes(&layer.mixer, plan), f64::from(group.ranks));
        let (others, hidden) = (ranks - 1.0, self.device.stack.overlap.cp);
        let gather = self.fabric.time(Collective::AllGather, kv, group, 1.0);
        let hop = self.fabric.ring_send(kv * 2.0 / ranks, group);
        let (shard_f, shard_b) = (cost.attention * (hidden / ranks), cost.attention_backward * (hidden / ranks));
        let own_kv = kv.get() / ranks / 2.0;
        let context = self.context_elements(layer, plan);
        let merge = |elements: f64, kernels: f64| self.device.stream(Bytes::new(MERGED * elements), kernels) * others;
        cost.cp = PassTimes {
            forward: (gather - shard_f).or_zero() + merge(context, 1.0),
            backward: (gather - shard_b).or_zero()
                + (hop - shard_b).or_zero() * others
                + hop
                + merge(context + own_kv, 3.0),
        };
        let sigma = self.device.gpu.contention.value * 0.5;
        cost.forward += gather.min(shard_f) * sigma;
        cost.dgrad += (gather.min(shard_b) + hop.min(shard_b) * others) * sigma;
    }

    /// Elements of one micro-batch's context on one rank: tokens × heads/t × their values' width.
    fn context_elements(&self, layer: &Layer, plan: &Plan) -> f64 {
        self.tokens(plan) * context_width(&layer.mixer) / f64::from(plan.layout.tp)
    }

    /// Time of dispatch and combine of the routed experts, both in each pass.
    ///
    /// Dispatch is in FP8 where the stack hides it and GEMMs are per-tensor or block FP8 (as DeepSeek does, §3.5), combine in
    /// bf16. The critical rank moves ξ times the mean (§2.8, version 1.1). With experts split by tensor parallelism and the
    /// all-to-all dispatcher, tokens take two hops where the stack says so:
    ///
    /// ```text
    /// all-to-all of n/t tokens over ep ranks, t_e apart; all-gather of n·t_e/t·top_k copies over the t_e ranks of an expert
    /// combine: reduce-scatter, all-to-all; backward the same in reverse                            [megatron-dispatcher]
    /// ```
    ///
    /// The weights of the copies, 4 bytes each, are an exchange of their own in either pass where the stack says so: before the
    /// experts, whose activation they scale, and their gradients back.
    ///
    /// HybridEP, which joins the ranks of a rack, sends each copy with the weights of all experts of its domain, forward in dispatch and
    /// their gradients in backward's combine, and first gathers and scans the routing map ([`Self::routing_map`]).
    ///
    /// Elsewhere tokens take one hop: the group fills domains from the inside out, and `n·t_e/t` (§3.5) counts every token `t_e`
    /// times.
    pub(super) fn expert_exchange(&self, moe: &Moe, plan: &Plan) -> PassTimes {
        if plan.layout.ep == 1 {
            return PassTimes::default();
        }
        let token = f64::from(moe.token_width(self.problem.model().hidden));
        let narrow = matches!(self.device.format, Format::Fp8 | Format::Fp8Block) && self.device.stack.overlap.ep > 0.0;
        let limit = if moe.group_limit > 0 && plan.dispatcher == Dispatcher::DeepEp {
            f64::from(moe.group_limit)
        } else {
            f64::INFINITY
        };
        let expert_tp = plan.layout.etp;
        let two_hops =
            expert_tp > 1 && plan.dispatcher == Dispatcher::AllToAll && self.device.stack.gathers_expert_tokens;
        let (tokens, group) = if two_hops {
            (self.owned_tokens(plan) / f64::from(expert_tp), Group { ranks: plan.layout.ep, stride: expert_tp })
        } else {
            (self.owned_tokens(plan), Group { ranks: plan.layout.ep, stride: 1 })
        };
        let one_way = |bytes: f64| {
            let dispatch = Dispatch {
                tokens,
                token_bytes: Bytes::new(token * bytes),
                top_k: f64::from(moe.top_k),
                most_domains: limit,
                dispatcher: plan.dispatcher,
            };
            self.fabric.dispatch(&dispatch, group)
        };
        let within = if two_hops {
            let copies = Bytes::new(self.owned_tokens(plan) * f64::from(moe.top_k) * token * 2.0);
            let group = Group { ranks: expert_tp, stride: 1 };
            let time = |op| self.fabric.time(op, copies, group, 1.0);
            time(Collective::AllGather) + time(Collective::ReduceScatter)
        } else {
            Seconds::ZERO
        };
        let across = one_way(if narrow { 1.0 } else { 2.0 }) + one_way(2.0);
        let weights = if self.device.stack.sends_token_weights && plan.dispatcher == Dispatcher::AllToAll {
            one_way(TOKEN_WEIGHT / token)
        } else {
            Seconds::ZERO
        };
        let vectors = if self.in_racks(plan) {
            let held = f64::from(moe.experts) / f64::from(plan.layout.ep) * f64::from(self.fabric.inside_domain(group));
            one_way(2.0 + TOKEN_WEIGHT * held / token) - one_way(2.0)
        } else {
            Seconds::ZERO
        };
        let both = (across + weights + vectors + within) * self.imbalance(plan);
        PassTimes { forward: both + self.routing_map(moe, plan, group), backward: both }
    }

    /// Whether the fused exchange of a plan is `HybridEP`'s.
    fn in_racks(&self, plan: &Plan) -> bool {
        plan.dispatcher == Dispatcher::DeepEp && self.device.gpu.fuses_by_hybrid_ep()
    }

    /// Time until each rank of a group of R has the routing map of all of them, a byte for each token and expert, and has read it twice: once
    /// to count the tokens of each rank and once to place them. Zero but for `HybridEP`.
    ///
    /// ```text
    /// ag(R·n·E) + 2·R·n·E/bw
    /// ```
    ///
    /// Source: [hybrid-ep], `allgather_routing_map` and `scan`.
    fn routing_map(&self, moe: &Moe, plan: &Plan, group: Group) -> Seconds {
        if !self.in_racks(plan) {
            return Seconds::ZERO;
        }
        let map = Bytes::new(self.owned_tokens(plan) * f64::from(group.ranks) * f64::from(moe.experts));
        self.fabric.time(Collective::AllGather, map, group, 1.0) + self.device.stream(map * 2.0, 1.0)
    }
}
