//! Operators that the host runs for a layer with experts, counted in Megatron core.
//!
//! Views and new tensors without a kernel are not counted. Shapes do not matter: the count is of a layer on one rank,
//! with the fused kernels that Megatron-Bridge's performance recipes choose, for the permutation of tokens, rotary
//! positions and the router.
//!
//! Source of all counts: [megatron-lm] core 0.19.2, counted by `checks/operators.py`, which compares them with
//! `checks/operators.tsv`.

use crate::kernel::PerPass;
use crate::model::{Layer, Mixer, Moe, QkNorm};

/// A layer with grouped queries and experts that softmax scores choose.
const PLAIN: PerPass = PerPass::new(32.0, 37.0);
/// Addition of norms of queries and keys.
const QK_NORMS: PerPass = PerPass::new(2.0, 4.0);
/// Addition of latent attention: its maps down and up, and their norms.
const LATENT: PerPass = PerPass::new(4.0, 14.0);
/// Addition of shared experts.
const SHARED: PerPass = PerPass::new(5.0, 19.0);
/// Addition of experts in a latent space: the maps into it and out of it.
const LATENT_EXPERTS: PerPass = PerPass::new(2.0, 6.0);
/// Addition of sigmoid scores with a bias for each expert and a loss for each sequence.
const SIGMOID: PerPass = PerPass::new(3.0, 1.0);
/// Operators of a layer from the dispatch of tokens on.
const FROM_DISPATCH: PerPass = PerPass::new(7.0, 9.0);
/// Addition of shared experts to those: the sum of both results.
const SUM_FROM_DISPATCH: PerPass = PerPass::new(1.0, 0.0);
/// Addition of experts in a latent space to those: the map out of it.
const LATENT_FROM_DISPATCH: PerPass = PerPass::new(1.0, 3.0);
/// Operators of the attention of a layer with grouped queries, with the norm before it and the sum behind it.
const ATTENTION: PerPass = PerPass::new(8.0, 14.0);
/// Operators of such a layer without it.
const OUTSIDE_ATTENTION: PerPass = PerPass::new(PLAIN.forward - ATTENTION.forward, PLAIN.backward - ATTENTION.backward);
/// Operators of Qwen3's layer, to whose runs the host time of a layer is fitted.
const QWEN3: PerPass = sum(PLAIN, QK_NORMS);

/// Operators of both.
const fn sum(some: PerPass, others: PerPass) -> PerPass {
    PerPass::new(some.forward + others.forward, some.backward + others.backward)
}

/// Sum of the parts that a layer has.
fn total<const N: usize>(first: PerPass, parts: [(bool, PerPass); N]) -> PerPass {
    parts.into_iter().filter_map(|(has, part)| has.then_some(part)).fold(first, sum)
}

/// Count as a multiple of the operators of Qwen3's layer.
fn relative(own: PerPass) -> PerPass {
    PerPass::new(own.forward / QWEN3.forward, own.backward / QWEN3.backward)
}

/// Whether a layer's queries and keys have norms.
fn has_norms(layer: &Layer) -> bool {
    layer.attention().is_some_and(|attention| attention.qk_norm != QkNorm::None)
}

/// Operators of a layer with experts as a multiple of those of Qwen3's, to whose runs the host time of a layer is fitted.
pub(super) fn relative_operators(layer: &Layer, moe: &Moe) -> PerPass {
    let plain = if matches!(layer.mixer, Mixer::None) { OUTSIDE_ATTENTION } else { PLAIN };
    relative(total(
        plain,
        [
            (has_norms(layer), QK_NORMS),
            (matches!(layer.mixer, Mixer::Mla(_)), LATENT),
            (moe.shared().is_some(), SHARED),
            (moe.latent > 0, LATENT_EXPERTS),
            (moe.has_sigmoid_scores(), SIGMOID),
        ],
    ))
}

/// Those of them that attention has, with the norm before it and the sum behind it, as a multiple of the operators of Qwen3's whole layer.
pub(super) fn relative_operators_of_attention(layer: &Layer) -> PerPass {
    if matches!(layer.mixer, Mixer::None) {
        return PerPass::new(0.0, 0.0);
    }
    relative(total(ATTENTION, [(has_norms(layer), QK_NORMS), (matches!(layer.mixer, Mixer::Mla(_)), LATENT)]))
}

/// Those of them from the dispatch of tokens on, which CUDA graphs of attention, router and preprocessing leave to the host, as a multiple
/// of the operators of Qwen3's whole layer. The exchange itself is no operator of one rank.
pub(super) fn relative_operators_from_dispatch(moe: &Moe) -> PerPass {
    let parts = [(moe.shared().is_some(), SUM_FROM_DISPATCH), (moe.latent > 0, LATENT_FROM_DISPATCH)];
    relative(total(FROM_DISPATCH, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators of a layer by `checks/operators.tsv`: all of them, those from the dispatch of tokens on, and those of attention.
    fn counted(layer: &str) -> [PerPass; 3] {
        let table = include_str!("../../../../checks/operators.tsv");
        let line = table.lines().find_map(|line| line.strip_prefix(&format!("{layer}\t"))).expect(layer);
        let counts: Vec<f64> = line.split('\t').map(|count| count.parse().expect(line)).collect();
        let pairs: Vec<PerPass> = counts.chunks(2).map(|pair| PerPass::new(pair[0], pair[1])).collect();
        pairs.try_into().expect(line)
    }

    #[test]
    fn parts_add_up_to_the_counts_of_megatron() {
        let (rest, attention) = (FROM_DISPATCH, ATTENTION);
        assert_eq!(counted("grouped queries"), [PLAIN, rest, attention]);
        assert_eq!(counted("grouped queries, qk norms"), [sum(PLAIN, QK_NORMS), rest, sum(attention, QK_NORMS)]);
        assert_eq!(counted("latent attention"), [sum(PLAIN, LATENT), rest, sum(attention, LATENT)]);
        assert_eq!(counted("shared experts"), [sum(PLAIN, SHARED), sum(rest, SUM_FROM_DISPATCH), attention]);
        assert_eq!(counted("latent experts"), [sum(PLAIN, LATENT_EXPERTS), sum(rest, LATENT_FROM_DISPATCH), attention]);
        assert_eq!(counted("sigmoid scores, groups"), [sum(PLAIN, SIGMOID), rest, attention]);
        let all = [LATENT, SHARED, SIGMOID].into_iter().fold(PLAIN, sum);
        assert_eq!(counted("DeepSeek-V3"), [all, sum(rest, SUM_FROM_DISPATCH), sum(attention, LATENT)]);
    }
}
