//! A model as one set of sizes, for frameworks that have one kind of attention, MLP and mixture for all layers.

use meshwright_engine::model::{Attention, Ffn, Indexer, Layer, Mixer, Mla, Mlp, Model, Moe, QkNorm, Span};
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Obstacle;

/// Attention that all layers share, but for the keys that each sees and whether its positions are rotary.
#[derive(Clone, Debug, PartialEq)]
pub enum SharedMixer {
    /// Grouped-query attention; `span` and `rope` are those of the first layer.
    Attention(Attention),
    /// Latent attention.
    Mla(Mla),
}

/// A model whose layers differ only in ways that one set of sizes and a list per layer can express.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Attention of every layer.
    pub mixer: SharedMixer,
    /// The MLP of dense layers.
    pub dense: Option<Mlp>,
    /// The mixture of the others.
    pub moe: Option<Moe>,
    /// Whether each layer has experts, in order.
    pub has_experts: Vec<bool>,
    /// The keys that each layer sees, in order.
    pub spans: Vec<Span>,
    /// Whether each layer's positions are rotary, in order.
    pub rope: Vec<bool>,
    /// Whether each layer takes the keys that an earlier one chose, in order.
    pub shares_keys: Vec<bool>,
}

/// Parts of a layer that have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// Projections of queries, keys and values.
    pub qkv: bool,
    /// Projection of attention's output.
    pub out: bool,
    /// MLPs, dense or of experts.
    pub mlp: bool,
}

impl Sizes {
    /// Obstacles of a problem by its model's sizes, or the reasons why those are not one set.
    pub fn judged(problem: &Problem, of: impl FnOnce(&Problem, &Self) -> Vec<Obstacle>) -> Vec<Obstacle> {
        Self::of(problem.model()).map_or_else(|differences| differences, |sizes| of(problem, &sizes))
    }

    /// Number of attention heads.
    pub const fn heads(&self) -> u32 {
        match &self.mixer {
            SharedMixer::Attention(a) => a.heads,
            SharedMixer::Mla(m) => m.heads,
        }
    }

    /// Parts of a layer that have biases.
    pub fn biases(&self) -> Biases {
        let (qkv, out) = match &self.mixer {
            SharedMixer::Attention(a) => (a.qkv_bias, a.out_bias),
            SharedMixer::Mla(_) => (false, false),
        };
        let dense = self.dense.as_ref().is_some_and(|mlp| mlp.bias);
        Biases { qkv, out, mlp: dense || self.moe.as_ref().is_some_and(|moe| moe.bias) }
    }

    /// Whether the feed-forward parts are gated.
    pub fn gated(&self) -> bool {
        self.dense.as_ref().is_some_and(|mlp| mlp.gated) || self.moe.as_ref().is_some_and(|moe| moe.gated)
    }

    /// The sizes of a model.
    ///
    /// # Errors
    /// Differences between layers that one set of sizes excludes: mixers, sizes, norms.
    pub fn of(model: &Model) -> Result<Self, Vec<Obstacle>> {
        let mut found = Vec::new();
        let mut refuse = |what: &str, why: &'static str| {
            let obstacle = Obstacle { what: format!("{}: {what}", model.name), why: why.into(), instead: None };
            if !found.contains(&obstacle) {
                found.push(obstacle);
            }
        };
        let mut mixers: Vec<SharedMixer> = Vec::new();
        let mut dense: Vec<Mlp> = Vec::new();
        let mut moe: Vec<Moe> = Vec::new();
        for layer in &model.kinds {
            match &layer.mixer {
                Mixer::Attention(a) => {
                    if a.v_dim() != a.head_dim {
                        refuse("heads whose values are narrower than their keys", "keys and values have one dimension");
                    }
                    keep(&mut mixers, SharedMixer::Attention(Attention { span: Span::Full, rope: true, ..a.clone() }));
                }
                Mixer::Mla(m) => {
                    if !m.rope {
                        refuse("latent attention without positions", "it rotates a part of each head");
                    }
                    let indexer = m.indexer.as_ref().map(|indexer| Indexer { shared: false, ..indexer.clone() });
                    keep(&mut mixers, SharedMixer::Mla(Mla { indexer, ..m.clone() }));
                }
                Mixer::Mamba(_) => refuse("Mamba layers", "only attention can be written"),
                Mixer::DeltaNet(_) => refuse("linear-attention layers", "only attention can be written"),
                Mixer::KimiDelta(_) => refuse("Kimi Delta Attention", "only attention can be written"),
                Mixer::ShortConv(_) => refuse("gated short convolutions", "only attention can be written"),
                Mixer::AttentionMamba(_) => {
                    refuse("attention beside Mamba in one layer", "only attention can be written");
                }
                Mixer::None => refuse("layers without attention", "every layer has attention here"),
            }
            match &layer.ffn {
                Ffn::Dense(mlp) => keep(&mut dense, mlp.clone()),
                Ffn::Moe(m) => keep(&mut moe, m.clone()),
                Ffn::None => refuse("layers without a feed-forward part", "every layer has one here"),
            }
            if layer.norms != 2 {
                refuse(
                    &format!("{} norms a layer", layer.norms),
                    "layers have one norm before each of their two parts",
                );
            }
            if layer.extra_parameters > 0 {
                refuse("parameters beside the matrices and norms", "there is no place for them");
            }
        }
        if mixers.len() > 1 {
            refuse("attention of several sizes", "all layers share heads and head dimensions");
        }
        if dense.len() > 1 || moe.len() > 1 {
            refuse("feed-forward parts of several sizes", "all dense layers are alike, and all with experts");
        }
        let gates = [dense.first().map(|mlp| mlp.gated), moe.first().map(|moe| moe.gated)];
        if gates == [Some(true), Some(false)] || gates == [Some(false), Some(true)] {
            refuse("gated and plain feed-forward parts", "all are gated, or none");
        }
        let spans = in_order(model, |layer| layer.attention().map_or(Span::Full, |a| a.span));
        let rope = in_order(model, |layer| layer.attention().is_none_or(|a| a.rope));
        match mixers.into_iter().next() {
            Some(mixer) if found.is_empty() => Ok(Self {
                mixer,
                dense: dense.into_iter().next(),
                moe: moe.into_iter().next(),
                has_experts: model.order.iter().map(|&kind| model.kinds[kind].moe().is_some()).collect(),
                spans,
                rope,
                shares_keys: (0..model.order.len()).map(|layer| model.shares_keys(layer)).collect(),
            }),
            Some(_) | None => Err(found),
        }
    }

    /// Indexer that chooses the keys of each query, if there is one.
    pub const fn indexer(&self) -> Option<&Indexer> {
        match &self.mixer {
            SharedMixer::Mla(m) => m.indexer.as_ref(),
            SharedMixer::Attention(_) => None,
        }
    }

    /// Norms on queries and keys.
    pub const fn qk_norm(&self) -> QkNorm {
        match &self.mixer {
            SharedMixer::Attention(a) => a.qk_norm,
            SharedMixer::Mla(_) => QkNorm::None,
        }
    }
}

fn keep<T: PartialEq>(known: &mut Vec<T>, new: T) {
    if !known.contains(&new) {
        known.push(new);
    }
}

fn in_order<T>(model: &Model, of: impl Fn(&Layer) -> T) -> Vec<T> {
    model.order.iter().map(|&kind| of(&model.kinds[kind])).collect()
}
