//! Layers of each chunk of the pipeline.

use crate::stack::LayerSplit;

/// Layers of each of `chunks`, in model order.
///
/// Even: ⌈L/chunks⌉ each; what is too many is taken from the last chunk, then the first, then the others from the back,
/// as Megatron does when it accounts for loss and embedding (126 = 16·8 − 2 for Llama 3). Source: specification §4.3.
pub fn even(layers: u32, chunks: u32) -> Vec<u32> {
    let most = layers.div_ceil(chunks);
    let mut counts = vec![most; chunks as usize];
    let mut surplus = most * chunks - layers;
    let last = chunks as usize - 1;
    let order: Vec<usize> = if last == 0 { vec![0] } else { [last, 0].into_iter().chain((1..last).rev()).collect() };
    while surplus > 0 {
        for &chunk in order.iter().take(surplus as usize) {
            counts[chunk] -= 1;
        }
        surplus = surplus.saturating_sub(order.len() as u32);
    }
    counts
}

/// Layers of each chunk where the head counts as `x` layers:
///
/// ```text
/// τ = (L + x)/chunks,   last = round(τ − x) within [0, L],   the rest spread evenly
/// ```
///
/// Source: specification §4.3, version 1.1.
pub fn cost_balanced(layers: u32, chunks: u32, head_in_layers: f64) -> Vec<u32> {
    if chunks == 1 {
        return vec![layers];
    }
    let last = last_of_cost_balanced(layers, chunks, head_in_layers);
    let (rest, others) = (layers - last, chunks - 1);
    let mut counts: Vec<u32> = (0..others).map(|i| rest / others + u32::from(i < rest % others)).collect();
    counts.push(last);
    counts
}

/// Layers of the last chunk of [`cost_balanced`]; the others follow from it.
pub fn last_of_cost_balanced(layers: u32, chunks: u32, head_in_layers: f64) -> u32 {
    if chunks == 1 {
        return layers;
    }
    let target = (f64::from(layers) + head_in_layers) / f64::from(chunks);
    ((target - head_in_layers).round_ties_even().max(0.0) as u32).min(layers)
}

/// Layers of each chunk under a split.
pub fn layers_of_chunks(split: LayerSplit, layers: u32, chunks: u32, head_in_layers: f64) -> Vec<u32> {
    match split {
        LayerSplit::Even => even(layers, chunks),
        LayerSplit::CostBalanced => cost_balanced(layers, chunks, head_in_layers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_3_405b_has_a_layer_less_at_both_ends() {
        let counts = even(126, 128);
        assert_eq!((counts[0], counts[127]), (0, 0));
        let counts = even(126, 16);
        assert_eq!((counts[0], counts[1], counts[15]), (7, 8, 7));
        assert_eq!(counts.iter().sum::<u32>(), 126);
    }

    #[test]
    fn every_layer_has_a_chunk() {
        for layers in 1..40 {
            for chunks in 1..=layers {
                assert_eq!(even(layers, chunks).iter().sum::<u32>(), layers, "{layers} {chunks}");
                assert_eq!(cost_balanced(layers, chunks, 1.7).iter().sum::<u32>(), layers, "{layers} {chunks}");
            }
        }
    }
}
