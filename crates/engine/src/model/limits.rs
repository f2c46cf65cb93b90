//! Ranges of the sizes of a model, and an upper bound of its parameters in floating point, by which impossible sizes
//! are refused before parameters are counted in integers.

use super::{Attention, DeltaNet, Ffn, Indexer, KimiDelta, Layer, Mamba, Mixer, Mla, Mlp, Model, Moe, Span};
use crate::range::{self, HIDDEN, LAYERS, MTP_LAYERS, OutOfRange, PARTS, SEQUENCE, WIDTH};

/// Number of widths that bound the small terms of a layer: biases, norms and scalars.
const SMALL: f64 = 8.0;

/// Size with its key and range.
type Size = (&'static str, f64, range::Range);

fn size(key: &'static str, value: u32, range: range::Range) -> Size {
    (key, f64::from(value), range)
}

impl Attention {
    fn sizes(&self) -> Vec<Size> {
        let span = match self.span {
            Span::Full => 1,
            Span::Window(keys) | Span::Chunk(keys) => keys,
        };
        let one = PARTS.at_least_one();
        vec![
            size("heads", self.heads, one),
            size("kv_heads", self.kv_heads, one),
            size("head_dim", self.head_dim, one),
            size("value_dim", self.value_dim, PARTS),
            size("span", span, SEQUENCE),
        ]
    }
}

impl Mla {
    fn sizes(&self) -> Vec<Size> {
        let Self { heads, q_rank, kv_rank, nope_dim, rope_dim, v_dim, rope: _, indexer: _ } = *self;
        vec![
            size("heads", heads, PARTS.at_least_one()),
            size("q_rank", q_rank, PARTS),
            size("kv_rank", kv_rank, PARTS.at_least_one()),
            size("nope_dim", nope_dim, PARTS),
            size("rope_dim", rope_dim, PARTS),
            size("v_dim", v_dim, PARTS.at_least_one()),
        ]
    }
}

impl Indexer {
    fn sizes(&self) -> Vec<Size> {
        let Self { heads, head_dim, top_k, shared: _ } = *self;
        let one = PARTS.at_least_one();
        vec![size("heads", heads, one), size("head_dim", head_dim, one), size("top_k", top_k, SEQUENCE)]
    }
}

impl Mamba {
    fn sizes(&self) -> Vec<Size> {
        let Self { heads, head_dim, groups, state, conv_kernel, conv_bias: _, proj_bias: _, out_bias: _, norm: _ } =
            *self;
        vec![
            size("heads", heads, PARTS.at_least_one()),
            size("head_dim", head_dim, PARTS.at_least_one()),
            size("groups", groups, PARTS),
            size("state", state, PARTS),
            size("conv_kernel", conv_kernel, PARTS),
        ]
    }
}

impl DeltaNet {
    fn sizes(&self) -> Vec<Size> {
        let Self { key_heads, value_heads, key_dim, value_dim, conv_kernel } = *self;
        vec![
            size("key_heads", key_heads, PARTS.at_least_one()),
            size("value_heads", value_heads, PARTS.at_least_one()),
            size("key_dim", key_dim, PARTS.at_least_one()),
            size("value_dim", value_dim, PARTS.at_least_one()),
            size("conv_kernel", conv_kernel, PARTS),
        ]
    }
}

impl KimiDelta {
    fn sizes(&self) -> Vec<Size> {
        let Self { heads, head_dim, conv_kernel } = *self;
        vec![
            size("heads", heads, PARTS.at_least_one()),
            size("head_dim", head_dim, PARTS.at_least_one()),
            size("conv_kernel", conv_kernel, PARTS),
        ]
    }
}

impl Moe {
    fn sizes(&self) -> Vec<Size> {
        vec![
            size("experts", self.experts, PARTS.at_least_one()),
            size("top_k", self.top_k, PARTS.at_least_one()),
            size("intermediate", self.intermediate, WIDTH.at_least_one()),
            size("shared_intermediate", self.shared_intermediate, WIDTH),
            size("group_limit", self.group_limit, PARTS),
            size("dense_intermediate", self.dense_intermediate, WIDTH),
            size("latent", self.latent, WIDTH),
        ]
    }
}

impl Mixer {
    fn sizes(&self) -> Vec<Size> {
        match self {
            Self::Attention(attention) => attention.sizes(),
            Self::Mla(mla) => mla.sizes(),
            Self::Mamba(mamba) => mamba.sizes(),
            Self::DeltaNet(delta) => delta.sizes(),
            Self::KimiDelta(delta) => delta.sizes(),
            Self::ShortConv(conv) => vec![size("conv_kernel", conv.conv_kernel, PARTS.at_least_one())],
            Self::AttentionMamba(both) => both.mixers().iter().flat_map(Self::sizes).collect(),
            Self::None => Vec::new(),
        }
    }

    /// Upper bound of the parameters, in multiples of the hidden size.
    fn width_bound(&self, hidden: f64) -> f64 {
        let n = |x: u32| f64::from(x);
        match self {
            Self::Attention(a) => n(a.head_dim.max(a.value_dim)) * (3.0 * n(a.heads) + 2.0 * n(a.kv_heads)),
            Self::Mla(m) => {
                let qk = n(m.nope_dim) + n(m.rope_dim);
                let inner = n(m.heads) * (qk + n(m.nope_dim) + 2.0 * n(m.v_dim));
                let index = m.indexer.as_ref().map_or(0.0, |indexer| {
                    n(indexer.heads) * n(indexer.head_dim) * (n(m.q_rank) / hidden).max(1.0)
                        + n(indexer.head_dim)
                        + n(indexer.heads)
                });
                let ranks = n(m.q_rank) + n(m.kv_rank);
                inner * (1.0 + ranks / hidden) + ranks + n(m.rope_dim) + index
            }
            Self::Mamba(m) => {
                let inner = n(m.heads) * n(m.head_dim);
                let conv = inner + 2.0 * n(m.groups) * n(m.state);
                2.0 * inner + conv + n(m.heads) + conv * n(m.conv_kernel) / hidden
            }
            Self::DeltaNet(d) => {
                let (keys, values) = (n(d.key_heads) * n(d.key_dim), n(d.value_heads) * n(d.value_dim));
                2.0 * keys + 3.0 * values + 2.0 * n(d.value_heads) + (2.0 * keys + values) * n(d.conv_kernel) / hidden
            }
            Self::KimiDelta(d) => {
                let width = n(d.heads) * n(d.head_dim);
                let low_rank = 2.0 * n(d.head_dim) * (1.0 + width / hidden);
                4.0 * width + low_rank + n(d.heads) + 3.0 * width * n(d.conv_kernel) / hidden
            }
            Self::ShortConv(c) => 4.0 * hidden + n(c.conv_kernel),
            Self::AttentionMamba(both) => both.mixers().iter().map(|mixer| mixer.width_bound(hidden)).sum(),
            Self::None => 0.0,
        }
    }
}

impl Layer {
    /// Checks every size against the range of its kind.
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { mixer, ffn, norms, extra_parameters } = self;
        range::check(mixer.sizes()).map_err(|why| why.below("mixer"))?;
        if let Mixer::Mla(Mla { indexer: Some(indexer), .. }) = mixer {
            range::check(indexer.sizes()).map_err(|why| why.below("indexer").below("mixer"))?;
        }
        let sizes = match ffn {
            Ffn::Dense(Mlp { intermediate, gated: _, bias: _ }) => vec![size("intermediate", *intermediate, WIDTH)],
            Ffn::Moe(moe) => moe.sizes(),
            Ffn::None => Vec::new(),
        };
        range::check(sizes).map_err(|why| why.below("ffn"))?;
        PARTS.check("norms", f64::from(*norms))?;
        range::PARAMETERS.check("extra_parameters", *extra_parameters as f64)
    }

    /// Upper bound of the parameters of a layer.
    fn weight_bound(&self, hidden: f64) -> f64 {
        let n = |x: u32| f64::from(x);
        let ffn_width = match &self.ffn {
            Ffn::Dense(mlp) => 3.0 * n(mlp.intermediate),
            Ffn::Moe(moe) => {
                let shared = n(moe.shared_intermediate) + n(moe.dense_intermediate);
                3.0 * (n(moe.experts) * (n(moe.intermediate) + 1.0) + shared + n(moe.latent))
            }
            Ffn::None => 0.0,
        };
        (self.mixer.width_bound(hidden) + ffn_width + n(self.norms)) * (hidden + SMALL) + self.extra_parameters as f64
    }
}

impl Model {
    /// Checks every size against the range of its kind.
    pub(super) fn check_ranges(&self) -> Result<(), OutOfRange> {
        range::check([
            ("hidden", f64::from(self.hidden), HIDDEN),
            ("vocab", f64::from(self.vocab), WIDTH.at_least_one()),
            ("seq_len", f64::from(self.seq_len), SEQUENCE),
            ("learned_positions", f64::from(self.learned_positions), WIDTH),
            ("layers", self.order.len() as f64, LAYERS),
            ("mtp_depth", f64::from(self.mtp_depth), MTP_LAYERS),
        ])?;
        self.kinds.iter().try_for_each(Layer::check_ranges).map_err(|why| why.below("layer"))
    }

    /// Approximate upper bound of the parameters of the model.
    pub(super) fn weight_bound(&self) -> f64 {
        let h = f64::from(self.hidden);
        let rows = 2.0 * f64::from(self.vocab) + f64::from(self.learned_positions);
        let layers: f64 = self.order.iter().filter_map(|&kind| self.kinds.get(kind)).map(|l| l.weight_bound(h)).sum();
        let unused: f64 = self.kinds.iter().map(|layer| layer.weight_bound(h)).sum(); // a kind may stand in no layer
        let mtp = f64::from(self.mtp_depth) * (unused + 2.0 * h * (h + SMALL)); // a layer of one kind each
        layers + unused + mtp + rows * (h + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Attention, Details, Mlp, Norm, OutputGate, QkNorm, Span};

    #[test]
    fn the_bound_is_above_the_count_and_infinite_sizes_are_refused() {
        let attention = Attention {
            heads: 32,
            kv_heads: 32,
            head_dim: 128,
            value_dim: 0,
            span: Span::Full,
            qkv_bias: true,
            out_bias: true,
            qk_norm: QkNorm::Full,
            sinks: true,
            output_gate: OutputGate::PerElement,
            keys_are_values: false,
            rope: true,
        };
        let ffn = Ffn::Dense(Mlp { intermediate: 11008, gated: true, bias: true });
        let layer = Layer { mixer: Mixer::Attention(attention), ffn, norms: 4, extra_parameters: 7 };
        let model = Model {
            name: String::new(),
            source: String::new(),
            hidden: 4096,
            vocab: 32000,
            seq_len: 4096,
            tied_embeddings: false,
            learned_positions: 2048,
            embedding_norm: true,
            head_bias: true,
            norm: Norm::Layer,
            dropout: false,
            kinds: vec![layer],
            order: vec![0; 32],
            mtp_depth: 0,
            details: Details::default(),
        };
        assert!(model.weight_bound() >= model.parameters().total as f64);
        assert!(model.check().is_ok());
        assert!(Model { hidden: u32::MAX, vocab: u32::MAX, ..model }.check().is_err());
    }
}
