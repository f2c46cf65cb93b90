//! Tensors of one layer on one rank, shape by shape: a framework's allocations, as opposed to the cost model's formulas.
//!
//! They are counted independently, in whole elements, and allocated on the device; that checks the formulas of
//! specification §6 and the driver's rounding, not a framework's own habits.

use meshwright_engine::cost::Costs;
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::model::{Attention, Ffn, Indexer, Layer, Mixer, Mla, Mlp, Moe, QkNorm};
use meshwright_engine::plan::{Modules, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;

/// Tensor with a name and a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTensor {
    /// Name of the tensor.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Tensors of a layer at the end of its forward pass, or before the backward pass of a recomputed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerTensors {
    /// Weights, gradients, master weights and moments: one buffer each, shared by the layers of a rank.
    pub states: Vec<NamedTensor>,
    /// Activations kept for one micro-batch.
    pub activations: Vec<NamedTensor>,
}

/// Tensors of a layer; `None` for state-space, linear attention and short convolutions, and for unfused scores.
pub fn of_layer(problem: &Problem, plan: &Plan, kind: usize) -> Option<LayerTensors> {
    let layer = problem.model().kinds.get(kind)?;
    if problem.stack().attention == AttentionKernel::Unfused
        || matches!(
            layer.mixer,
            Mixer::Mamba(_) | Mixer::DeltaNet(_) | Mixer::KimiDelta(_) | Mixer::ShortConv(_) | Mixer::AttentionMamba(_)
        )
    {
        return None;
    }
    let rank = Rank::new(problem, plan);
    Some(LayerTensors { states: states(problem, plan, &rank.weights(layer)), activations: rank.activations(layer) })
}

/// Weight matrix on one rank.
struct Weight {
    elements: u64,
    is_expert: bool,
}

/// View of one rank of a plan.
struct Rank<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    hidden: u64,
    tp: u64,
    tokens: u64,
    /// Tokens in the parts that sequence parallelism divides.
    shared_tokens: u64,
    /// Token copies that the rank's experts receive.
    received: u64,
    recomputed: Modules,
}

impl<'a> Rank<'a> {
    fn new(problem: &'a Problem, plan: &'a Plan) -> Self {
        let costs = Costs::new(problem);
        let (tokens, tp) = (costs.tokens(plan).ceil() as u64, u64::from(plan.layout.tp));
        let top_k = problem.model().kinds.iter().filter_map(Layer::moe).map(|moe| moe.top_k).max().unwrap_or(0);
        Self {
            problem,
            plan,
            hidden: u64::from(problem.model().hidden),
            tp,
            tokens,
            shared_tokens: tokens.div_ceil(plan.sequence_shards() as u64),
            received: (costs.owned_tokens(plan) * f64::from(top_k)).ceil() as u64,
            recomputed: if let Recompute::Selective(modules) = plan.recompute { modules } else { Modules::default() },
        }
    }

    /// Bytes of the stored inputs of a GEMM.
    fn stored(&self, elements: u64) -> u64 {
        (elements as f64 * self.problem.workload().format.element_bytes()).ceil() as u64
    }

    fn weights(&self, layer: &Layer) -> Vec<Weight> {
        let mut weights = match &layer.mixer {
            Mixer::Attention(attention) => self.attention_weights(attention),
            Mixer::Mla(mla) => self.mla_weights(mla),
            Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_)
            | Mixer::AttentionMamba(_)
            | Mixer::None => Vec::new(),
        };
        match &layer.ffn {
            Ffn::Dense(mlp) => weights.extend(self.mlp_weights(mlp)),
            Ffn::Moe(moe) => weights.extend(self.moe_weights(moe)),
            Ffn::None => {}
        }
        let norm = self.hidden * self.problem.model().norm.width();
        let norms = [layer.mixer != Mixer::None, layer.ffn != Ffn::None].into_iter().filter(|is_there| *is_there);
        weights.extend(norms.map(|_| Weight { elements: norm, is_expert: false }));
        weights
    }

    fn attention_weights(&self, attention: &Attention) -> Vec<Weight> {
        let out = attention.context_width();
        let small = attention.small_parameters(self.problem.model().hidden, self.problem.model().norm.width());
        let projections = [self.hidden * attention.qkv_width().div_ceil(self.tp), out.div_ceil(self.tp) * self.hidden];
        projections.into_iter().chain([small]).map(|elements| Weight { elements, is_expert: false }).collect()
    }

    fn mla_weights(&self, mla: &Mla) -> Vec<Weight> {
        let hidden = self.problem.model().hidden;
        let projections = [mla.projections(hidden), mla.index_projections(hidden)].concat();
        let weights = projections.iter().map(|projection| {
            let widths = projection.on_rank(self.tp as f64);
            Weight { elements: (widths.input * widths.output).ceil() as u64, is_expert: false }
        });
        let small = mla.small_parameters(self.problem.model().norm.width());
        weights.chain([Weight { elements: small, is_expert: false }]).collect()
    }

    fn mlp_weights(&self, mlp: &Mlp) -> Vec<Weight> {
        let width = u64::from(mlp.intermediate).div_ceil(self.tp);
        let bias = u64::from(mlp.bias);
        vec![
            Weight { elements: mlp.gates() * width * (self.hidden + bias), is_expert: false },
            Weight { elements: width * self.hidden + bias * self.hidden, is_expert: false },
        ]
    }

    fn moe_weights(&self, moe: &Moe) -> Vec<Weight> {
        let layout = &self.plan.layout;
        let experts = u64::from(moe.experts).div_ceil(u64::from(layout.ep));
        let width = u64::from(moe.intermediate).div_ceil(u64::from(layout.etp));
        let (gates, bias) = (moe.expert().gates(), u64::from(moe.bias));
        let hidden = self.problem.model().hidden;
        let token = u64::from(moe.token_width(hidden));
        let mut weights = vec![
            Weight { elements: moe.router_parameters(hidden) + moe.latent_weights(hidden), is_expert: false },
            Weight { elements: experts * gates * width * (token + bias), is_expert: true },
            Weight { elements: experts * (width + bias) * token, is_expert: true },
        ];
        if let Some(shared) = moe.shared() {
            weights.extend(self.mlp_weights(&shared));
        }
        weights
    }

    /// Activations of one micro-batch, with the statistics of norms and softmax.
    fn activations(&self, layer: &Layer) -> Vec<NamedTensor> {
        let blocks = u64::from(layer.mixer != Mixer::None) + u64::from(layer.ffn != Ffn::None);
        let mut all: Vec<(&str, u64)> = (0..blocks).flat_map(|_| self.block_inputs()).collect();
        match &layer.mixer {
            Mixer::Attention(attention) => all.extend(self.attention_activations(attention)),
            Mixer::Mla(mla) => all.extend(self.mla_activations(mla)),
            Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_)
            | Mixer::AttentionMamba(_)
            | Mixer::None => {}
        }
        match &layer.ffn {
            Ffn::Dense(mlp) if !self.recomputed.mlp => all.extend(self.mlp_activations(mlp, self.tokens, self.tp)),
            Ffn::Moe(moe) if !self.recomputed.moe => all.extend(self.moe_activations(moe)),
            Ffn::Dense(_) | Ffn::Moe(_) | Ffn::None => {}
        }
        all.into_iter().map(|(name, bytes)| NamedTensor { name: name.to_owned(), bytes }).collect()
    }

    /// Input of a mixer or an FFN, with its norm and dropout.
    fn block_inputs(&self) -> Vec<(&'static str, u64)> {
        let memory = &self.problem.stack().memory;
        let inputs = if memory.keeps_gathered_inputs { self.tokens } else { self.shared_tokens };
        let mut tensors =
            vec![("block input", 2 * self.shared_tokens * self.hidden), ("norm statistics", 4 * self.shared_tokens)];
        if !self.recomputed.layernorm {
            tensors.push(("normed input", self.stored(inputs * self.hidden)));
        }
        if memory.unfused_norms {
            tensors.push(("fp32 and unscaled parts of a norm", 4 * self.shared_tokens * self.hidden));
        }
        if self.problem.model().dropout {
            tensors.push(("dropout mask", self.shared_tokens * self.hidden));
        }
        tensors
    }

    fn attention_activations(&self, attention: &Attention) -> Vec<(&'static str, u64)> {
        let memory = &self.problem.stack().memory;
        let heads = u64::from(attention.heads).div_ceil(self.tp);
        let rotated = u64::from(attention.heads + attention.kv_heads) * u64::from(attention.head_dim);
        let rotated = self.tokens * rotated.div_ceil(self.tp);
        let mut tensors = vec![("queries, keys and values", 2 * self.tokens * attention.qkv_width().div_ceil(self.tp))];
        if memory.keeps_whole_qkv {
            tensors.push(("rotated queries and keys", 2 * rotated));
        }
        if attention.qk_norm != QkNorm::None {
            tensors.push(("norms of queries and keys", if memory.unfused_norms { 6 } else { 2 } * rotated));
        }
        tensors.push(("context", 2 * self.tokens * heads * u64::from(attention.v_dim())));
        tensors.push(("softmax statistics", 4 * self.tokens * heads));
        tensors
    }

    fn mla_activations(&self, mla: &Mla) -> Vec<(&'static str, u64)> {
        let heads = u64::from(mla.heads).div_ceil(self.tp);
        let (qk, v) = (u64::from(mla.qk_dim()), u64::from(mla.v_dim));
        let ranks = u64::from(mla.q_rank + mla.kv_rank);
        let mut tensors = vec![
            ("compressions", 2 * self.tokens * (ranks + u64::from(mla.rope_dim))),
            ("normed compressions", self.stored(self.tokens * ranks)),
        ];
        if let Some(indexer) = &mla.indexer {
            tensors.extend(self.sparse_activations(mla, indexer));
            return tensors;
        }
        if !self.recomputed.mla_up_proj {
            tensors.push(("queries", 2 * self.tokens * heads * qk));
            tensors.push(("keys", 2 * self.tokens * heads * qk));
            tensors.push(("values", 2 * self.tokens * heads * v));
        }
        tensors.push(("context", 2 * self.tokens * heads * v));
        tensors.push(("softmax statistics", 4 * self.tokens * heads));
        tensors
    }

    /// Activations of attention over chosen keys beside the compressions: keys and values are one absorbed head.
    fn sparse_activations(&self, mla: &Mla, indexer: &Indexer) -> Vec<(&'static str, u64)> {
        let heads = u64::from(mla.heads).div_ceil(self.tp);
        let (value, index) = (u64::from(mla.kv_rank), u64::from(indexer.head_dim));
        let key = value + u64::from(mla.rope_dim);
        let chosen = u64::from(indexer.top_k.min(self.problem.workload().seq_len));
        let mut tensors = Vec::new();
        if !self.recomputed.mla_up_proj {
            tensors.push(("queries", 2 * self.tokens * heads * u64::from(mla.qk_dim())));
            tensors.push(("absorbed queries", 2 * self.tokens * heads * key));
            tensors.push(("absorbed keys and values", 2 * self.tokens * key));
        }
        if !self.recomputed.core_attn {
            tensors.push(("sums of values", 2 * self.tokens * heads * value));
            tensors.push(("softmax statistics", 4 * self.tokens * heads));
            tensors.push(("chosen keys", 4 * self.tokens * chosen));
        }
        if !self.recomputed.core_attn && !indexer.shared {
            tensors.push(("gradients of index queries", 2 * self.tokens * indexer.queries()));
            tensors.push(("gradients of index keys", 2 * self.tokens * index));
            tensors.push(("gradients of the weights of index heads", 2 * self.tokens * u64::from(indexer.heads)));
            tensors.push(("index keys before their norm", 2 * self.tokens * index));
            tensors.push(("normed index keys", 2 * self.tokens * index));
            if self.shared_tokens < self.tokens {
                let width = self.hidden + u64::from(mla.queries_from(self.problem.model().hidden));
                tensors.push(("gathered inputs of the indexer", 2 * self.tokens * width));
            }
        }
        tensors.push(("context", 2 * self.tokens * heads * u64::from(mla.v_dim)));
        tensors
    }

    fn moe_activations(&self, moe: &Moe) -> Vec<(&'static str, u64)> {
        let token = u64::from(moe.token_width(self.problem.model().hidden));
        let mut tensors = vec![("dispatched tokens", self.stored(self.received * token))];
        tensors.extend(self.mlp_activations(&moe.expert(), self.received, u64::from(self.plan.layout.etp)));
        if self.problem.stack().memory.keeps_expert_outputs {
            tensors.push(("outputs of the experts", 2 * self.received * token));
        }
        if moe.latent > 0 {
            let owned = self.received.div_ceil(u64::from(moe.top_k));
            tensors.push(("inputs of the latent projections", self.stored(owned * token)));
            if self.problem.workload().format != Format::Bf16 {
                tensors.push(("copied input of the latent projection", self.stored(owned * self.hidden)));
            }
        }
        let of_experts = 4 * self.tokens * u64::from(moe.experts).div_ceil(self.tp);
        tensors.push(("router logits", of_experts));
        tensors.push(("router probabilities", of_experts));
        if let Some(shared) = moe.shared() {
            tensors.extend(self.mlp_activations(&shared, self.tokens, self.tp));
        }
        tensors
    }

    /// Activations of an MLP on this many tokens, its width in this many shards.
    fn mlp_activations(&self, mlp: &Mlp, tokens: u64, shards: u64) -> Vec<(&'static str, u64)> {
        let width = u64::from(mlp.intermediate).div_ceil(shards);
        let elements = (tokens * mlp.gates() * width) as f64;
        let memory = &self.problem.stack().memory;
        let bytes = elements * memory.activation_input_bytes;
        let mut tensors = vec![("gate and up", bytes.ceil() as u64)];
        if !self.recomputed.act && memory.keeps_activated_gate && mlp.gates() > 1 {
            tensors.push(("activated gate", 2 * tokens * width));
        }
        if !self.recomputed.act {
            tensors.push(("activated", self.stored(tokens * width)));
        }
        tensors
    }
}

/// Weights, gradients, master weights and two moments, each in one buffer, as distributed optimizers store them, and
/// sharded by the plan's ZeRO stage.
fn states(problem: &Problem, plan: &Plan, weights: &[Weight]) -> Vec<NamedTensor> {
    let recipe = problem.workload().recipe;
    let costs = Costs::new(problem);
    let (is_frozen, fp32_shards) = (costs.is_lora(), costs.shards_are_masters(plan));
    let on_device = 1.0 - plan.offload.optimizer;
    let copies = f64::from(plan.schedule.weight_copies());
    let buffers = [
        ("weights", if fp32_shards { 0.0 } else { costs.weight_bytes(plan).layer * copies }, ZeroStage::Three),
        ("gradients", recipe.gradient * copies, ZeroStage::Two),
        ("master weights", recipe.master * on_device * if fp32_shards { copies } else { 1.0 }, ZeroStage::One),
        ("first moments", recipe.state / 2.0 * on_device, ZeroStage::One),
        ("second moments", recipe.state / 2.0 * on_device, ZeroStage::One),
    ];
    let elements = |from: ZeroStage| -> u64 {
        let shards = |weight: &Weight| match (plan.zero >= from, weight.is_expert) {
            (false, _) => 1,
            (true, false) => plan.dense_shards(),
            (true, true) => plan.layout.expert_replicas(),
        };
        weights.iter().map(|weight| weight.elements.div_ceil(u64::from(shards(weight)))).sum()
    };
    buffers
        .into_iter()
        .enumerate()
        .filter(|(at, (_, bytes, _))| *bytes > 0.0 && (*at == 0 || !is_frozen))
        .map(|(_, (name, bytes, from))| NamedTensor {
            name: name.to_owned(),
            bytes: (elements(from) as f64 * bytes).ceil() as u64,
        })
        .collect()
}
