//! Llama's decoder, which several frameworks write: attention with rotary positions to all keys, RMSNorm, gated MLPs.

use meshwright_engine::model::{Attention, Norm, OutputGate, QkNorm, Span};
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Obstacle;

use crate::details::{Expressible, inexpressible};
use crate::rules::{lacking, no_float16};
use crate::sizes::{Biases, SharedMixer, Sizes};

/// Decoders that a framework can express: Llama's, extended by the features that the fields name.
pub(crate) struct LlamaDecoder {
    /// Whether queries, keys and values may have biases.
    pub qkv_bias: bool,
    /// Whether there may be a norm on the queries and keys of each head.
    pub head_norms: bool,
    /// Whether attention may be latent.
    pub latent_attention: bool,
    /// Settings of a model that the framework's files can express.
    pub expressible: Expressible,
}

impl LlamaDecoder {
    /// Obstacles of a problem whose model is no such decoder, of adapters, and of weights in fp16. Experts, the recipe and the
    /// format of GEMMs are the framework's own to judge.
    pub fn obstacles(&self, problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
        let model = problem.model();
        let Biases { qkv: qkv_bias, out: out_bias, mlp: mlp_bias } = sizes.biases();
        let biases = if self.qkv_bias {
            (
                out_bias || mlp_bias,
                "biases of the attention's output or the MLP",
                "only queries, keys and values have them",
            )
        } else {
            (qkv_bias || out_bias || mlp_bias, "biases", "its linear layers have none")
        };
        let windows = sizes.spans.iter().any(|span| *span != Span::Full);
        let not_rotary = model.learned_positions > 0 || sizes.rope.contains(&false);
        let lora = problem.workload().adaptation.is_lora();
        let mut found = lacking(
            model,
            [
                biases,
                (!sizes.gated(), "an MLP without a gate", "its MLPs are gated"),
                (model.norm != Norm::Rms || model.embedding_norm, "other norms than RMSNorm", "its norms are RMSNorm"),
                (not_rotary, "positions that are not rotary", "every layer has rotary positions"),
                (windows, "windows", "every layer attends to all keys before a token"),
                (model.head_bias, "a bias on the output head", "its head has none"),
                (model.mtp_depth > 0, "multi-token prediction", "it is not written: plan with --set model.mtp_depth=0"),
                (lora, "LoRA", "this configuration trains all weights"),
            ],
        );
        match &sizes.mixer {
            SharedMixer::Attention(attention) => found.extend(lacking(model, self.attention_rows(attention))),
            SharedMixer::Mla(_) => {
                let why = "its attention is multi-head or grouped here";
                found.extend(lacking(model, [(!self.latent_attention, "latent attention", why)]));
            }
        }
        found.extend(inexpressible(model, sizes, &self.expressible));
        found.extend(no_float16(problem));
        found
    }

    /// Rows of [`lacking`] for grouped-query attention.
    fn attention_rows(&self, attention: &Attention) -> [(bool, &'static str, &'static str); 3] {
        let Attention { qk_norm, sinks, output_gate, keys_are_values, .. } = attention;
        [
            (*qk_norm == QkNorm::Full, "a norm over all heads", "it norms each head, or none"),
            (*qk_norm == QkNorm::PerHead && !self.head_norms, "norms on queries and keys", "it has none"),
            (
                *sinks || *output_gate != OutputGate::None || *keys_are_values,
                "attention sinks, gates or shared values",
                "it has none",
            ),
        ]
    }
}
