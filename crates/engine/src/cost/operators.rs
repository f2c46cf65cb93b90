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
/// Addition of sigmoid scores with a bias for each expert and a loss for each sequence.
const SIGMOID: PerPass = PerPass::new(3.0, 1.0);
/// Operators of Qwen3's layer, to whose runs the host time of a layer is fitted.
const QWEN3: PerPass = sum(PLAIN, QK_NORMS);

/// Operators of both.
const fn sum(some: PerPass, others: PerPass) -> PerPass {
    PerPass::new(some.forward + others.forward, some.backward + others.backward)
}

/// Operators of a layer with the experts `moe`.
fn operators(layer: &Layer, moe: &Moe) -> PerPass {
    let has_norms = layer.attention().is_some_and(|attention| attention.qk_norm != QkNorm::None);
    let parts = [
        (has_norms, QK_NORMS),
        (matches!(layer.mixer, Mixer::Mla(_)), LATENT),
        (moe.shared().is_some(), SHARED),
        (moe.has_sigmoid_scores(), SIGMOID),
    ];
    parts.into_iter().filter_map(|(has, part)| has.then_some(part)).fold(PLAIN, sum)
}

/// Operators of a layer with experts as a multiple of those of Qwen3's, to whose runs the host time of a layer is fitted.
pub(super) fn relative_operators(layer: &Layer, moe: &Moe) -> PerPass {
    let own = operators(layer, moe);
    PerPass::new(own.forward / QWEN3.forward, own.backward / QWEN3.backward)
}

#[cfg(test)]
mod tests {
    use super::{LATENT, PLAIN, QK_NORMS, SHARED, SIGMOID, sum};
    use crate::kernel::PerPass;

    /// Operators of a layer by `checks/operators.tsv`.
    fn counted(layer: &str) -> PerPass {
        let table = include_str!("../../../../checks/operators.tsv");
        let line = table.lines().find_map(|line| line.strip_prefix(&format!("{layer}\t"))).expect(layer);
        let (forward, backward) = line.split_once('\t').expect(line);
        PerPass::new(forward.parse().expect(line), backward.parse().expect(line))
    }

    #[test]
    fn parts_add_up_to_the_counts_of_megatron() {
        assert_eq!(counted("grouped queries"), PLAIN);
        assert_eq!(counted("grouped queries, qk norms"), sum(PLAIN, QK_NORMS));
        assert_eq!(counted("latent attention"), sum(PLAIN, LATENT));
        assert_eq!(counted("shared experts"), sum(PLAIN, SHARED));
        assert_eq!(counted("sigmoid scores, groups"), sum(PLAIN, SIGMOID));
        assert_eq!(counted("DeepSeek-V3"), [LATENT, SHARED, SIGMOID].into_iter().fold(PLAIN, sum));
    }
}
