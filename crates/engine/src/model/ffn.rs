//! Feed-forward parts: a dense MLP, or a mixture of experts.

use serde::{Deserialize, Serialize};

/// The feed-forward part of a layer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ffn {
    /// One MLP for every token.
    Dense(Mlp),
    /// Routed experts, with or without a shared one.
    Moe(Moe),
    /// No feed-forward part: the layer is a mixer alone (Nemotron-H counts those as layers).
    None,
}

impl Ffn {
    /// Width of the tokens that the MLP or the routed experts take: the hidden size, or that of the experts' latent space.
    pub(crate) const fn input(&self, hidden: u32) -> u32 {
        match self {
            Self::Moe(moe) => moe.token_width(hidden),
            Self::Dense(_) | Self::None => hidden,
        }
    }
}

/// A two- or three-matrix MLP.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mlp {
    /// Intermediate size (F).
    pub intermediate: u32,
    /// Whether a third matrix gates the first (`SwiGLU`, `GeGLU`).
    pub gated: bool,
    /// Whether the matrices have biases.
    #[serde(default)]
    pub bias: bool,
}

impl Mlp {
    /// Matrices of the first projection: 2 when gated (G of the specification §0.2).
    pub const fn gates(&self) -> u64 {
        if self.gated { 2 } else { 1 }
    }

    /// Number of weights and biases.
    ///
    /// ```text
    /// (G+1)·h·F + β·(G·F + h)          specification §1.1
    /// ```
    pub fn parameters(&self, hidden: u32) -> u64 {
        let (h, f, g) = (u64::from(hidden), u64::from(self.intermediate), self.gates());
        (g + 1) * h * f + if self.bias { g * f + h } else { 0 }
    }

    /// Number of weights without biases.
    pub fn weights(&self, hidden: u32) -> u64 {
        (self.gates() + 1) * u64::from(hidden) * u64::from(self.intermediate)
    }
}

/// Mixture of experts with a router.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Moe {
    /// Number of routed experts.
    pub experts: u32,
    /// Number of experts per token (top-k).
    pub top_k: u32,
    /// Intermediate size of one routed expert.
    pub intermediate: u32,
    /// Whether experts are gated MLPs.
    pub gated: bool,
    /// Whether experts have biases (GPT-OSS).
    #[serde(default)]
    pub bias: bool,
    /// Intermediate size of the shared experts together; 0 for none.
    #[serde(default)]
    pub shared_intermediate: u32,
    /// Whether a sigmoid gate scales the shared expert (Qwen).
    #[serde(default)]
    pub shared_gate: bool,
    /// Whether the router has a bias per expert.
    #[serde(default)]
    pub router_bias: bool,
    /// Score that the router gives to an expert; none where the model's source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_score: Option<RouterScore>,
    /// Largest number of expert groups per token, when routing is limited (DeepSeek); 0 for no limit.
    #[serde(default)]
    pub group_limit: u32,
    /// Intermediate size of a dense MLP in parallel with the experts (Gemma 4); 0 for none.
    #[serde(default)]
    pub dense_intermediate: u32,
    /// Width of the latent space that tokens are projected into before their dispatch, and in which the routed experts work
    /// (ℓ; Nemotron 3 Super); 0 where they work at the hidden size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub latent: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_zero(width: &u32) -> bool {
    *width == 0
}

/// Score that a router gives to an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterScore {
    /// Softmax over experts.
    Softmax,
    /// Sigmoid of each expert's logit.
    Sigmoid,
}

impl Moe {
    /// Gated experts without biases, `top_k` of them per token, and no shared parts.
    pub const fn gated(experts: u32, top_k: u32, intermediate: u32) -> Self {
        Self {
            experts,
            top_k,
            intermediate,
            gated: true,
            bias: false,
            shared_intermediate: 0,
            shared_gate: false,
            router_bias: false,
            router_score: None,
            group_limit: 0,
            dense_intermediate: 0,
            latent: 0,
        }
    }

    /// Whether the router scores these experts by a sigmoid: as the model's source says, or else where it has a bias
    /// and they have none.
    pub fn has_sigmoid_scores(&self) -> bool {
        self.router_score.map_or(self.router_bias && !self.bias, |score| score == RouterScore::Sigmoid)
    }

    /// MLP of one routed expert.
    pub const fn expert(&self) -> Mlp {
        Mlp { intermediate: self.intermediate, gated: self.gated, bias: self.bias }
    }

    /// Width of a token that a routed expert receives and returns: ℓ, or h without a latent space.
    pub const fn token_width(&self, hidden: u32) -> u32 {
        if self.latent == 0 { hidden } else { self.latent }
    }

    /// Weights of the two projections into the latent space and out of it, `2·h·ℓ`.
    pub fn latent_weights(&self, hidden: u32) -> u64 {
        2 * u64::from(hidden) * u64::from(self.latent)
    }

    /// Parameters of one routed expert.
    pub(crate) fn one_expert(&self, hidden: u32) -> u64 {
        self.expert().parameters(self.token_width(hidden))
    }

    /// MLP that every token uses: shared experts, and a parallel dense MLP if there is one.
    pub const fn shared(&self) -> Option<Mlp> {
        let intermediate = self.shared_intermediate.saturating_add(self.dense_intermediate);
        if intermediate == 0 { None } else { Some(Mlp { intermediate, gated: self.gated, bias: false }) }
    }

    /// Parameters of the router: a row per expert, its bias, and the shared expert's gate.
    pub fn router_parameters(&self, hidden: u32) -> u64 {
        let (h, e) = (u64::from(hidden), u64::from(self.experts));
        h * e + if self.router_bias { e } else { 0 } + if self.shared_gate { h } else { 0 }
    }

    /// Parameters of all routed experts of one layer.
    pub(crate) fn expert_parameters(&self, hidden: u32) -> u64 {
        u64::from(self.experts) * self.one_expert(hidden)
    }
}
