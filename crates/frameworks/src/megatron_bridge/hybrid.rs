//! Hybrids of Mamba, attention and MLP layers in a container: `HybridModelProvider`, with a letter for each layer.
//!
//! Source: [megatron-bridge] `models/hybrid/hybrid_provider.py`, `recipes/nemotronh/`, release 0.6.2, where
//! `MambaModelProvider` is its former name; [megatron-lm] `core/models/hybrid/`, release 0.19.2.

use crate::emit::language::Python;
use crate::emit::snippet::{Snippet, snippet};
use crate::megatron::hybrid::{Hybrid, is_hybrid};
use crate::readers::document::{CALLED, Document};
use crate::rules::lacking;
use crate::sizes::SharedMixer;
use meshwright_engine::model::{Model, QkNorm};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_planner::limits::Obstacle;

/// Name of the provider of hybrids.
pub(super) const PROVIDER: &str = "HybridModelProvider";
/// Former name of the provider, which release 0.6 takes too.
const FORMER: &str = "MambaModelProvider";
/// Import of the provider.
pub(super) const IMPORT: &str = "from megatron.bridge.models.hybrid.hybrid_provider import HybridModelProvider";

/// Dropout of both kinds where a configuration says none: `hidden_dropout` and `attention_dropout` of `TransformerConfig`.
const DROPOUT: f64 = 0.1;

/// Obstacles of a hybrid: settings that its provider has no field for, or that its layers ignore. None of other models.
pub(super) fn obstacles(model: &Model) -> Vec<Obstacle> {
    let Some(hybrid) = is_hybrid(model).then(|| Hybrid::of(model).ok()).flatten() else { return Vec::new() };
    let sizes = &hybrid.sizes;
    lacking(
        model,
        [
            (
                matches!(sizes.mixer, SharedMixer::Mla(_)),
                "latent attention beside Mamba",
                "`HybridModelProvider` has no ranks of queries and keys",
            ),
            (
                model.details.rope_scaling.is_some(),
                "rotary frequencies changed beside Mamba",
                "`HybridModelProvider` has base and share alone",
            ),
            (
                sizes.qk_norm() != QkNorm::None,
                "norms of queries and keys beside Mamba",
                "attention of `HybridModel` has none",
            ),
        ],
    )
}

/// Obstacle of several chunks on a rank: the provider of hybrids asserts that there are none.
pub(super) fn chunks(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let chunks = plan.schedule.virtual_stages();
    if chunks == 1 || plan.layout.pp == 1 || !is_hybrid(problem.model()) {
        return None;
    }
    Obstacle::of_plan(
        format!("vpp={chunks}"),
        "its provider of hybrids takes no virtual stages",
        Plan { schedule: Schedule::OneFOneB, ..plan.clone() },
    )
}

/// Attributes of the provider that no flag of Megatron-LM sets, since its defaults are not those of the flags.
pub(super) fn attributes(model: &Model, hybrid: &Hybrid) -> Vec<Snippet<Python>> {
    let set = |field: &'static str, value: bool| snippet!("{} = {}", Snippet::fixed(field), value);
    let mut lines =
        vec![set("is_hybrid_model", true), set("masked_softmax_fusion", true), set("attention_softmax_in_fp32", false)];
    if hybrid.sizes.biases().out {
        lines.push(set("add_bias_linear", true));
    }
    if model.tied_embeddings {
        lines.push(set("share_embeddings_and_output_weights", true));
    }
    if model.dropout {
        lines.extend(
            ["hidden_dropout", "attention_dropout"].map(|field| snippet!("{} = {}", Snippet::fixed(field), DROPOUT)),
        );
    }
    lines
}

/// Fields of the provider whose defaults are not those of Megatron-LM's flags.
const DEFAULTS: &[(&str, &str)] = &[
    ("normalization", "RMSNorm"),
    ("add_bias_linear", "False"),
    ("share_embeddings_and_output_weights", "False"),
    ("position_embedding_type", "none"),
    ("hidden_dropout", "0.0"),
    ("attention_dropout", "0.0"),
];

/// Sets what a provider of hybrids has by default and the program does not say.
pub(super) fn complete(document: &mut Document) {
    let called = format!("model.{CALLED}");
    let is_of_hybrids = |name: &str| [PROVIDER, FORMER].contains(&name.rsplit('.').next().unwrap_or_default());
    if !document.peek(&called).is_some_and(is_of_hybrids) {
        return;
    }
    let line = document.place("model").map_or(1, |place| place.line);
    for (field, value) in DEFAULTS {
        let path = format!("model.{field}");
        if !document.has(&path) {
            document.put(&path, value, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::model::{Ffn, Mixer, RopeScaling, RopeScalingKind};
    use meshwright_planner::catalog::{self, Overrides};

    fn nemotron() -> Model {
        catalog::model("nemotron-h-56b", &Overrides::default()).unwrap()
    }

    fn refused(change: impl FnOnce(&mut Model)) -> Vec<String> {
        let mut model = nemotron();
        change(&mut model);
        obstacles(&model).into_iter().map(|obstacle| obstacle.what).collect()
    }

    #[test]
    fn what_the_provider_has_no_field_for_is_refused() {
        assert!(refused(|_| ()).is_empty());
        let scaling = RopeScaling { kind: RopeScalingKind::Linear, factor: 2.0, original_positions: None };
        let stretched = refused(|model| model.details.rope_scaling = Some(scaling));
        assert_eq!(stretched, ["Nemotron-H 56B: rotary frequencies changed beside Mamba"]);
        let normed = refused(|model| {
            for layer in &mut model.kinds {
                if let Mixer::Attention(attention) = &mut layer.mixer {
                    attention.qk_norm = QkNorm::PerHead;
                }
            }
        });
        assert_eq!(normed, ["Nemotron-H 56B: norms of queries and keys beside Mamba"]);
        let latent = catalog::model("deepseek-v2", &Overrides::default()).unwrap();
        let latent = latent.kinds.iter().find(|layer| matches!(layer.mixer, Mixer::Mla(_))).unwrap().mixer.clone();
        let of_latent = refused(|model| {
            for layer in &mut model.kinds {
                if matches!(layer.mixer, Mixer::Attention(_)) {
                    layer.mixer = latent.clone();
                }
            }
        });
        assert_eq!(of_latent, ["Nemotron-H 56B: latent attention beside Mamba"]);
    }

    #[test]
    fn defaults_that_differ_from_the_flags_are_written_out() {
        let lines = |model: &Model| {
            let hybrid = Hybrid::of(model).unwrap();
            attributes(model, &hybrid).into_iter().map(Snippet::into_text).collect::<Vec<_>>()
        };
        let mut model = nemotron();
        assert!(lines(&model).contains(&"is_hybrid_model = True".to_owned()));
        assert_eq!(lines(&model).len(), 3);
        (model.tied_embeddings, model.dropout) = (true, true);
        for layer in &mut model.kinds {
            if let Mixer::Attention(attention) = &mut layer.mixer {
                (attention.qkv_bias, attention.out_bias) = (true, true);
            }
            if let Ffn::Dense(mlp) = &mut layer.ffn {
                mlp.bias = true;
            }
        }
        let others = [
            "add_bias_linear = True",
            "share_embeddings_and_output_weights = True",
            "hidden_dropout = 0.1",
            "attention_dropout = 0.1",
        ];
        assert_eq!(lines(&model)[3..], others);
    }
}
