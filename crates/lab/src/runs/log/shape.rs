//! Shape columns of a row, from a catalogue model or from torchtitan's description of its model.

use super::lines::{after, number_after};
use crate::runs::row::Row;
use meshwright_engine::model::{Ffn, Mixer, Model};

/// Fills the shape columns of a model; of several kinds of attention, the first is used.
pub fn of_model(model: &Model, row: Row) -> Row {
    let count = |value: u32| Some(f64::from(value));
    let attention = model.kinds.iter().find_map(|layer| match &layer.mixer {
        Mixer::Attention(attention) => Some((attention.heads, attention.kv_heads, attention.head_dim, false)),
        Mixer::Mla(mla) if mla.indexer.is_none() => Some((mla.heads, mla.heads, mla.qk_dim(), true)),
        // No column says an indexer, or Mamba beside attention: a row without heads says too little to be predicted.
        Mixer::Mla(_)
        | Mixer::Mamba(_)
        | Mixer::DeltaNet(_)
        | Mixer::KimiDelta(_)
        | Mixer::ShortConv(_)
        | Mixer::AttentionMamba(_)
        | Mixer::None => None,
    });
    let dense = model.kinds.iter().find_map(|layer| match &layer.ffn {
        Ffn::Dense(mlp) => Some((mlp.intermediate, mlp.gated)),
        Ffn::Moe(_) | Ffn::None => None,
    });
    let moe = model.kinds.iter().find_map(|layer| match &layer.ffn {
        Ffn::Moe(moe) => Some(moe),
        Ffn::Dense(_) | Ffn::None => None,
    });
    let leading = model.order.iter().take_while(|kind| !matches!(model.kinds[**kind].ffn, Ffn::Moe(_))).count() as u32;
    let gated = dense.map(|(_, gated)| gated).or(moe.map(|moe| moe.gated));
    Row {
        model_name: Some(model.name.clone()),
        layers: count(model.layers()),
        hidden: count(model.hidden),
        ffn: dense.and_then(|(width, _)| count(width)),
        heads: attention.and_then(|(heads, ..)| count(heads)),
        kv_heads: attention.and_then(|(_, heads, ..)| count(heads)),
        head_dim: attention.and_then(|(_, _, dim, _)| count(dim)),
        mla: attention.map(|(.., latent)| f64::from(u8::from(latent))),
        vocab: count(model.vocab),
        experts: moe.and_then(|moe| count(moe.experts)),
        topk: moe.and_then(|moe| count(moe.top_k)),
        moe_ffn: moe.and_then(|moe| count(moe.intermediate)),
        moe_latent: moe.filter(|moe| moe.latent > 0).and_then(|moe| count(moe.latent)),
        shared_experts: moe.map(|moe| (f64::from(moe.shared_intermediate) / f64::from(moe.intermediate)).round()),
        dense_layers: moe.and_then(|_| count(leading)),
        gated_mlp: gated.map(|gated| f64::from(u8::from(gated))),
        tied_embeddings: Some(f64::from(u8::from(model.tied_embeddings))),
        seq_len: row.seq_len.or(count(model.seq_len)),
        ..row
    }
}

/// Model as torchtitan prints it.
pub struct TitanShape {
    name: String,
    columns: Option<Columns>,
}

/// Shape columns of a row.
struct Columns {
    layers: f64,
    hidden: f64,
    heads: f64,
    kv_heads: f64,
    ffn: f64,
    vocab: f64,
}

/// `Building llama3 8B with TransformerModelArgs(dim=4096, n_layers=32, …)`; newer releases print the name alone.
pub fn of_titan(line: &str) -> Option<TitanShape> {
    let name = after(line, "Building ").filter(|name| name.starts_with("llama") || line.contains("ModelArgs("))?;
    let size = after(&line[line.find(name)? + name.len()..], " ").unwrap_or_default();
    Some(TitanShape { name: format!("{name}-{}", size.to_lowercase()), columns: columns(line) })
}

/// Sizes in the arguments of a model; none where the line lacks one of them.
///
/// ```text
/// width of the MLP = ⌈⌊⌊8·dim/3⌋·multiplier⌋/multiple⌉·multiple          torchtitan's Llama
/// ```
fn columns(line: &str) -> Option<Columns> {
    let number_of = |label: &str| number_after(line, label);
    let (hidden, layers, heads) = (number_of("dim=")?, number_of("n_layers=")?, number_of("n_heads=")?);
    let multiple = number_of("multiple_of=").unwrap_or(256.0).max(1.0);
    let width = (8.0 * hidden / 3.0).floor() * number_of("ffn_dim_multiplier=").unwrap_or(1.0);
    Some(Columns {
        layers,
        hidden,
        heads,
        kv_heads: number_of("n_kv_heads=").unwrap_or(heads),
        ffn: (width.floor() / multiple).ceil() * multiple,
        vocab: number_of("vocab_size=").filter(|vocab| *vocab > 0.0)?,
    })
}

impl TitanShape {
    /// Fills the shape columns; if the log has only a name, the catalogue's model of that name is used.
    pub fn fill(self, row: Row) -> Row {
        if let Some(Columns { layers, hidden, heads, kv_heads, ffn, vocab }) = self.columns {
            return Row {
                model_name: Some(self.name),
                layers: Some(layers),
                hidden: Some(hidden),
                heads: Some(heads),
                kv_heads: Some(kv_heads),
                ffn: Some(ffn),
                vocab: Some(vocab),
                gated_mlp: Some(1.0),
                tied_embeddings: Some(0.0),
                ..row
            };
        }
        let known = meshwright_planner::catalog::model_names().into_iter().find(|name| *name == self.name);
        let model = known.and_then(|name| {
            meshwright_planner::catalog::model(name, &meshwright_planner::catalog::Overrides::default()).ok()
        });
        model.map_or(Row { model_name: Some(self.name), ..row.clone() }, |model| of_model(&model, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_widths_follow_the_rule() {
        let line = "Building llama3 8B with TransformerModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, \
                    vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)";
        let row = of_titan(line).unwrap().fill(Row::default());
        assert_eq!((row.ffn, row.layers, row.kv_heads), (Some(14336.0), Some(32.0), Some(8.0)));
    }

    #[test]
    fn a_name_alone_is_looked_up() {
        let row = of_titan("[titan] - root - INFO - Building llama3 8B").unwrap().fill(Row::default());
        assert_eq!((row.ffn, row.hidden), (Some(14336.0), Some(4096.0)));
        assert!(of_titan("Building device mesh with parallelism: pp=1").is_none());
    }
}
