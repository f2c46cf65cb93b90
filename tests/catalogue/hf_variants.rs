//! Configurations with the fields that a family's files spell in several ways, and what its layers are.

use std::path::Path;

use meshwright::catalog::hf::from_config;
use meshwright::model::{Attention, Layer, Mixer, Model, OutputGate, RouterScore, Span};
use serde_json::{Value, json};

/// Configurations of `variants.jsonl` with the parameters that the class in transformers 5.24.0 builds from each.
fn variants() -> Vec<(Value, u64)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf/variants.jsonl");
    let of = |line: &str| {
        let parsed: Value = serde_json::from_str(line).unwrap();
        (parsed["config"].clone(), parsed["total"].as_u64().unwrap())
    };
    std::fs::read_to_string(path).unwrap().lines().map(of).collect()
}

fn read(config: &Value) -> Model {
    from_config(&config.to_string(), "config.json").unwrap_or_else(|why| panic!("{why}"))
}

fn why_not(config: &Value) -> String {
    from_config(&config.to_string(), "config.json").unwrap_err().to_string()
}

/// The first variant of a family.
fn variant(family: &str) -> Value {
    variants().into_iter().map(|(config, _)| config).find(|config| config["model_type"] == family).unwrap()
}

#[test]
fn every_spelling_of_a_field_counts() {
    let variants = variants();
    assert_eq!(variants.len(), 10);
    for (config, total) in variants {
        assert_eq!(read(&config).parameters().total, total, "{config}");
    }
}

fn attentions(model: &Model) -> Vec<&Attention> {
    let of = |layer: &usize| match &model.kinds[*layer].mixer {
        Mixer::Attention(attention) => attention,
        other => panic!("{other:?}"),
    };
    model.order.iter().map(of).collect()
}

#[test]
fn gates_are_for_each_head_or_each_element() {
    let mut laguna = variant("laguna");
    let gate = |config: &Value| attentions(&read(config))[0].output_gate;
    assert_eq!(gate(&laguna), OutputGate::PerElement);
    for (gating, expected) in [
        (json!("per-head"), OutputGate::PerHead),
        (json!(true), OutputGate::PerHead),
        (json!(false), OutputGate::PerElement),
    ] {
        laguna["gating"] = gating;
        assert_eq!(gate(&laguna), expected);
    }
    let mut lfm3 = variant("lfm3");
    let gate = |config: &Value| read(config).kinds.iter().find_map(Layer::attention).unwrap().output_gate;
    assert_eq!(gate(&lfm3), OutputGate::None);
    lfm3["use_attention_gate"] = json!(true);
    assert_eq!(gate(&lfm3), OutputGate::PerHead);
    assert_eq!(attentions(&read(&variant("step3p5")))[0].output_gate, OutputGate::PerHead);
}

#[test]
fn layers_that_slide_have_heads_of_their_own() {
    let step = variant("step3p5");
    let model = read(&step);
    let of = |i: usize| (attentions(&model)[i].heads, attentions(&model)[i].span);
    assert_eq!([of(0), of(1), of(4)], [(8, Span::Full), (12, Span::Window(512)), (8, Span::Full)]);
    let mut saved = step;
    saved.as_object_mut().unwrap().remove("attention_other_setting");
    saved["per_layer_config"] = json!({"1": {"num_attention_heads": 16}});
    let model = read(&saved);
    assert_eq!([0, 1, 2].map(|i| attentions(&model)[i].heads), [8, 16, 8]);
}

#[test]
fn layers_that_see_all_keys_have_no_positions() {
    for (family, full) in [("flint", [0, 1, 5, 7].as_slice()), ("beam", &[5, 7])] {
        let model = read(&variant(family));
        for (i, attention) in attentions(&model).into_iter().enumerate() {
            assert_eq!(attention.span == Span::Full, full.contains(&i), "{family}: layer {i}");
            assert_eq!(attention.rope, attention.span != Span::Full, "{family}: layer {i}");
        }
    }
    let muse = |config: Value| {
        let model = read(&config);
        attentions(&model).into_iter().map(|a| (a.span == Span::Full, a.rope)).collect::<Vec<_>>()
    };
    let config = json!({"model_type": "muse_glimmer_text", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 5,
        "num_attention_heads": 4, "vocab_size": 32000});
    assert_eq!(muse(config.clone()), [(true, false), (false, true), (false, true), (false, true), (true, false)]);
    let mut given = config;
    given["layer_rope_theta"] = json!([10_000, 0, 10_000, 0, 10_000]);
    assert_eq!(muse(given).into_iter().map(|(_, rope)| rope).collect::<Vec<_>>(), [true, false, true, false, true]);
}

#[test]
fn routers_score_as_their_classes_do() {
    for family in ["beam", "flint", "laguna", "sarvam_moe", "step3p5"] {
        let model = read(&variant(family));
        let score = model.kinds.iter().find_map(Layer::moe).unwrap().router_score;
        assert_eq!(score, Some(RouterScore::Sigmoid), "{family}");
    }
}

#[test]
fn what_a_family_does_not_have_is_refused_by_name() {
    let with = |family: &str, field: &str, value: Value| {
        let mut config = variant(family);
        config[field] = value;
        why_not(&config)
    };
    for (family, field, value, expected) in [
        ("step3p5", "num_nextn_predict_layers", json!(3), "0 plans without them"),
        ("step3p5", "per_layer_config", json!({"1": {"head_dim": 32}}), "layer 1 has its own `head_dim`"),
        ("step3p5", "per_layer_config", json!({"one": 1}), "`one` is not a layer"),
        ("step3p5", "moe_layers_enum", json!("2,three"), "not whole numbers with commas"),
        ("laguna", "num_attention_heads_per_layer", json!([8]), "not one entry for each of 8 layers"),
        ("beam", "attention_bias", json!(true), "the gate has no such bias"),
        ("lfm3", "layer_types", json!(vec!["mamba"; 8]), "`mamba` is not a layer of LFM3"),
    ] {
        let why = with(family, field, value);
        assert!(why.contains(field) && why.contains(expected), "{why}");
    }
    let apertus = json!({"model_type": "apertus1p5_text", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 32000, "output_vocab_size": 16000});
    assert!(why_not(&apertus).contains("narrower than the vocabulary"));
}
