//! Operators that the host runs for a layer with experts, counted in Megatron core.
//!
//! Views and new tensors without a kernel are not counted. Shapes do not matter: the count is of a layer on one rank, with the fused
//! kernels that Megatron-Bridge's performance recipes choose, for the permutation of tokens, rotary positions and the router.
//!
//! Source of all counts: [megatron-lm] core 0.19.2, counted by `checks/operators.py`, which compares them with `checks/operators.tsv`.

use super::costs::Costs;
use crate::model::{Layer, Mixer, Moe, QkNorm, Router, RouterScore};

/// Operators of a layer's forward and backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operators {
    /// Operators of the forward pass.
    pub forward: f64,
    /// Operators of the backward pass.
    pub backward: f64,
}

/// A layer with grouped queries and experts that softmax scores choose.
const PLAIN: Operators = Operators { forward: 32.0, backward: 37.0 };
/// Addition of norms of queries and keys.
const QK_NORMS: Operators = Operators { forward: 2.0, backward: 4.0 };
/// Addition of latent attention: its maps down and up, and their norms.
const LATENT: Operators = Operators { forward: 4.0, backward: 14.0 };
/// Addition of shared experts.
const SHARED: Operators = Operators { forward: 5.0, backward: 19.0 };
/// Addition of sigmoid scores with a bias for each expert and a loss for each sequence.
const SIGMOID: Operators = Operators { forward: 3.0, backward: 1.0 };
/// Operators of Qwen3's layer, to whose runs the host time of a layer is fitted.
const QWEN3: Operators = PLAIN.plus(QK_NORMS);

impl Operators {
    /// Operators of both.
    const fn plus(self, other: Self) -> Self {
        Self { forward: self.forward + other.forward, backward: self.backward + other.backward }
    }

    /// These where a condition holds, else none.
    const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self { forward: 0.0, backward: 0.0 } }
    }

    /// Operators of a layer with the experts `moe`.
    fn of(layer: &Layer, moe: &Moe, router: &Router) -> Self {
        let sigmoid = router.score.map_or(moe.router_bias && !moe.bias, |score| score == RouterScore::Sigmoid);
        let has_norms = matches!(&layer.mixer, Mixer::Attention(attention) if attention.qk_norm != QkNorm::None);
        PLAIN
            .plus(QK_NORMS.when(has_norms))
            .plus(LATENT.when(matches!(layer.mixer, Mixer::Mla(_))))
            .plus(SHARED.when(moe.shared().is_some()))
            .plus(SIGMOID.when(sigmoid))
    }
}

impl Costs<'_> {
    /// Operators of a layer with experts as a multiple of those of Qwen3's, to whose runs the host time of a layer is fitted.
    pub(super) fn relative_operators(&self, layer: &Layer, moe: &Moe) -> Operators {
        let own = Operators::of(layer, moe, &self.problem.model().details.router);
        Operators { forward: own.forward / QWEN3.forward, backward: own.backward / QWEN3.backward }
    }
}

#[cfg(test)]
mod tests {
    use super::{LATENT, Operators, PLAIN, QK_NORMS, SHARED, SIGMOID};

    /// Operators of a layer by `checks/operators.tsv`.
    fn counted(layer: &str) -> Operators {
        let table = include_str!("../../../../checks/operators.tsv");
        let line = table.lines().find_map(|line| line.strip_prefix(&format!("{layer}\t"))).expect(layer);
        let (forward, backward) = line.split_once('\t').expect(line);
        Operators { forward: forward.parse().expect(line), backward: backward.parse().expect(line) }
    }

    #[test]
    fn parts_add_up_to_the_counts_of_megatron() {
        assert_eq!(counted("grouped queries"), PLAIN);
        assert_eq!(counted("grouped queries, qk norms"), PLAIN.plus(QK_NORMS));
        assert_eq!(counted("latent attention"), PLAIN.plus(LATENT));
        assert_eq!(counted("shared experts"), PLAIN.plus(SHARED));
        assert_eq!(counted("sigmoid scores, groups"), PLAIN.plus(SIGMOID));
        assert_eq!(counted("DeepSeek-V3"), PLAIN.plus(LATENT).plus(SHARED).plus(SIGMOID));
    }
}
