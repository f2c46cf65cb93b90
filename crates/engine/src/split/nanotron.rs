//! nanotron's own split of a model into pipeline stages, which no setting changes.

use super::LayerSplit;
use crate::model::{Ffn, Model};
use crate::split::layers::plainest;

/// The layers that nanotron gives each stage of `pp`; none where its split leaves stages without any block.
///
/// ```text
/// cost of a layer 4·h² + 3·f·h, of the head V·h, of the embedding and the last norm 0; a block goes to the stage that is
/// being filled, and the next is begun once the sum is over its share of the whole
/// ```
///
/// Source: [nanotron] `models/base.py` (`build_model`), `models/qwen.py` (`get_block_compute_costs`), commit 2411b022.
pub fn own_split(model: &Model, pp: u32) -> Option<LayerSplit> {
    let width = model
        .kinds
        .iter()
        .find_map(|layer| if let Ffn::Dense(mlp) = &layer.ffn { Some(mlp.intermediate) } else { None })?;
    let (hidden, layers) = (f64::from(model.hidden), model.layers());
    let (layer, head) = (hidden * (4.0 * hidden + 3.0 * f64::from(width)), hidden * f64::from(model.vocab));
    let whole = layer * f64::from(layers) + head;
    let mut counts = vec![0_u32; pp as usize];
    let (mut stage, mut sum) = (0, 0.0);
    for _ in 0..layers {
        *counts.get_mut(stage)? += 1;
        sum += layer;
        stage += usize::from(sum > whole * (f64::from(stage as u32 + 1) / f64::from(pp)));
    }
    // The norm costs nothing, but the last stage may begin with it.
    stage += usize::from(stage + 1 < counts.len() && sum > whole * (f64::from(stage as u32 + 1) / f64::from(pp)));
    (stage + 1 == counts.len()).then(|| plainest(&counts, pp, 0, counts.len() - 1))
}
