//! Settings of a model that change its results and neither its parameters nor its cost, such as the base of rotary embeddings.

use serde::{Deserialize, Serialize};

use super::error::ModelError;

/// Settings that a launch file must carry; none where the model's source does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Details {
    /// Base of the rotary frequencies.
    pub rope_theta: Option<f64>,
    /// Base of the rotary frequencies of layers with a window, where it is another.
    pub rope_local_theta: Option<f64>,
    /// Share of a head's dimension that is rotary; none for all of it.
    pub rotary_share: Option<f64>,
    /// Change of the rotary frequencies for longer sequences.
    pub rope_scaling: Option<RopeScaling>,
    /// Epsilon of the norms.
    pub norm_epsilon: Option<f64>,
    /// Activation of the feed-forward parts.
    pub activation: Option<Activation>,
    /// Whether the norms of the two parts are behind them, and not before (OLMo 2).
    pub norms_after: bool,
    /// Whether an indexer rotates neighbouring elements of its heads (GLM 5) or their halves (DeepSeek V3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_interleaved: Option<bool>,
    /// Weights of the chosen experts, biases and losses of the router.
    pub router: Router,
    /// Parts of the source that the model leaves out, such as encoders of images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<&'static str>,
    /// Settings by their own names that no field above holds: soft caps, multipliers of embeddings, residuals and logits.
    pub others: Vec<(String, f64)>,
}

impl Details {
    /// Checks that a stated base or epsilon is above zero.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        for (name, stated) in [("rope_theta", self.rope_theta), ("norm_epsilon", self.norm_epsilon)] {
            if let Some(value) = stated.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(ModelError::Size(format!("`{name}` is {value}, and must be above 0")));
            }
        }
        Ok(())
    }

    /// Whether the model's source says none of them.
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// Activation function of a feed-forward part, before its gate where it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `SiLU`, or Swish.
    Silu,
    /// GELU by the error function.
    Gelu,
    /// GELU by the hyperbolic tangent.
    GeluTanh,
    /// `ReLU`, squared.
    SquaredRelu,
    /// x·σ(1.702·x) on clamped values, beside a gate that is offset by 1 (GPT-OSS).
    ClampedQuickGelu {
        /// Largest magnitude before the function.
        limit: f64,
    },
    /// Any other, by its name.
    Other(String),
}

/// Change of the rotary frequencies for sequences longer than those of pre-training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeScaling {
    /// Kind.
    pub kind: RopeScalingKind,
    /// Factor by which the sequence grows.
    pub factor: f64,
    /// Sequence length of pre-training.
    pub original_positions: Option<u32>,
}

impl RopeScaling {
    /// Whether the rule is YaRN.
    pub const fn is_yarn(&self) -> bool {
        matches!(self.kind, RopeScalingKind::Yarn { .. })
    }
}

/// Rule by which rotary frequencies change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RopeScalingKind {
    /// Positions divided by the factor.
    Linear,
    /// Llama 3: low frequencies divided by the factor, high ones kept.
    Llama3 {
        /// Factor below which a frequency is low.
        low: f64,
        /// Factor above which a frequency is high.
        high: f64,
    },
    /// YaRN.
    Yarn {
        /// Rotations above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which a frequency is divided.
        beta_slow: f64,
        /// Factor of the scale of scores; none where the file does not say.
        mscale: Option<f64>,
        /// Factor of the scale of scores in all dimensions; none where the file does not say.
        mscale_all_dim: Option<f64>,
        /// Whether the bounds of the ramp between the two are rounded to whole dimensions.
        truncate: bool,
    },
    /// Any other, by its name: `dynamic`, `longrope`.
    Other(String),
}

/// Weights of the chosen experts, biases and losses of the router of a mixture of experts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Router {
    /// Whether the scores of the chosen experts are divided by their sum.
    pub normalized: Option<bool>,
    /// Whether a bias for each expert, which no gradient changes, takes part in the choice.
    pub bias: Option<bool>,
    /// Factor of the chosen scores.
    pub scale: Option<f64>,
    /// Coefficient of the auxiliary loss that balances experts.
    pub aux_loss: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_or_an_epsilon_is_above_zero() {
        let known = Details { rope_theta: Some(1e4), norm_epsilon: Some(1e-5), ..Details::default() };
        assert_eq!(known.check(), Ok(()));
        assert!(Details { rope_theta: Some(0.0), ..known.clone() }.check().is_err());
        assert!(Details { norm_epsilon: Some(f64::NAN), ..known }.check().is_err());
    }
}
