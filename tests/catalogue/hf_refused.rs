//! Configurations that are no model: refused by name, never approximated, and without a panic.

use std::fs;
use std::path::Path;

use meshwright::catalog::Overrides;
use meshwright::catalog::hf::{HfError, from_config, model_types};
use meshwright::model::Model;
use serde_json::{Value, json};

/// The files of `tests/hf`, by name.
fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf");
    let stems = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let json = stems.filter(|path| path.extension().is_some_and(|e| e == "json"));
    json.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf");
    fs::read_to_string(folder.join(format!("{name}.json"))).unwrap()
}

fn read(config: &Value) -> Result<Model, HfError> {
    from_config(&config.to_string(), "config.json")
}

fn llama_with(key: &str, value: &Value) -> Result<Model, HfError> {
    let mut config: Value = serde_json::from_str(&text("llama-3.1-8b")).unwrap();
    config[key] = value.clone();
    read(&config)
}

#[test]
fn what_is_malformed_is_refused_by_name() {
    let whole = text("llama-3.1-8b");
    for cut in (0..whole.len() - 2).filter(|&cut| whole.is_char_boundary(cut)) {
        let error = from_config(&whole[..cut], "cut.json").unwrap_err();
        assert!(matches!(error, HfError::NotJson { line, .. } if line <= 50), "{cut}: {error}");
    }
    for wrong in ["[]", "3", "null", "\"llama\"", "true"] {
        assert!(matches!(from_config(wrong, "x").unwrap_err(), HfError::NotAnObject { .. }), "{wrong}");
    }
    assert!(matches!(read(&json!({"text_config": []})), Err(HfError::NotAnObject { .. })));
    assert!(matches!(read(&json!({})), Err(HfError::MissingField { field, .. }) if field == "model_type"));
    assert!(matches!(read(&json!({"model_type": 3})), Err(HfError::WrongType { .. })));
    let unknown = read(&json!({"model_type": "wav2vec2"})).unwrap_err();
    assert!(matches!(&unknown, HfError::UnknownModelType { model_type, .. } if model_type == "wav2vec2"));
    assert!(unknown.to_string().contains("nemotron_h, olmo, olmo2"), "{unknown}");
    for (kind, part) in [("minimax", "lightning attention"), ("jamba", "Mamba-1"), ("t5", "an encoder")] {
        let error = read(&json!({"model_type": kind})).unwrap_err();
        assert!(matches!(&error, HfError::Unpriced { model_type, .. } if model_type == kind), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    for size in ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"] {
        let missing = llama_with(size, &Value::Null).unwrap_err();
        assert!(matches!(&missing, HfError::MissingField { field, .. } if field == size), "{missing}");
        for value in [json!(-1), json!(0), json!(4_294_967_296_u64), json!(u64::MAX)] {
            let error = llama_with(size, &value).unwrap_err();
            assert!(matches!(&error, HfError::OutOfRange { field, .. } if field == size), "{error}");
        }
        for value in [json!("4096"), json!(4096.5), json!(1e300), json!([1]), json!({}), json!(true)] {
            let error = llama_with(size, &value).unwrap_err();
            assert!(matches!(&error, HfError::WrongType { field, .. } if field == size), "{error}");
        }
    }
    assert!(matches!(llama_with("num_hidden_layers", &json!(100_001)), Err(HfError::OutOfRange { .. })));
}

#[test]
fn a_name_of_the_hub_says_how_to_fetch_its_file() {
    let read = |name: &str| meshwright::catalog::model(name, &Overrides::default()).unwrap_err().to_string();
    let error = read("meta-llama/Llama-3.1-8B");
    let command = "`hf download meta-llama/Llama-3.1-8B config.json --local-dir Llama-3.1-8B`";
    assert!(error.contains(command), "{error}");
    for other in ["./Llama-3.1-8B", "a/b/c", "models/ours.toml", "~/x", "/x"] {
        assert!(!read(other).contains("hf download"), "{other}");
    }
}

#[test]
fn what_would_change_the_architecture_is_refused() {
    for (key, value) in [
        ("num_local_experts", json!(8)),
        ("kv_lora_rank", json!(512)),
        ("layer_types", json!(["sliding_attention"])),
        ("is_encoder_decoder", json!(true)),
        ("use_qk_norm", json!(true)),
        ("qkv_bias", json!(true)),
        ("shared_intermediate_size", json!(512)),
        ("mlp_layer_types", json!(["sparse"])),
        ("use_cla", json!(true)),
    ] {
        let error = llama_with(key, &value).unwrap_err();
        assert!(matches!(&error, HfError::Unsupported { field, .. } if field == key), "{error}");
        assert!(llama_with(key, &Value::Null).is_ok(), "{key}");
    }
    assert!(matches!(llama_with("num_attention_heads", &json!(33)), Err(HfError::Unsupported { .. })));
    assert!(matches!(llama_with("num_key_value_heads", &json!(5)), Err(HfError::Impossible { .. })));
}

/// A switch that says what a class always does is no refusal, and heads of other kinds are one.
#[test]
fn switches_and_heads_are_those_of_the_class() {
    let mut coder: Value = serde_json::from_str(&text("qwen3-30b-a3b")).unwrap();
    let parameters = read(&coder).unwrap().parameters().total;
    coder["use_qk_norm"] = json!(true);
    assert_eq!(read(&coder).unwrap().parameters().total, parameters);
    for class in ["LlamaForSequenceClassification", "LlamaBidirectionalModel", "Qwen2ForRewardModel"] {
        let error = llama_with("architectures", &json!([class])).unwrap_err();
        assert!(matches!(&error, HfError::Unsupported { field, .. } if field == "architectures"), "{error}");
    }
    for (key, value) in [
        ("draft_vocab_size", json!(32_000)),
        ("use_bidirectional_attention", json!(true)),
        ("use_bidirectional_attention", json!("all")),
        ("is_causal", json!(false)),
    ] {
        let error = llama_with(key, &value).unwrap_err();
        assert!(matches!(&error, HfError::Unsupported { field, .. } if field == key), "{error}");
    }
    let outer = json!({"architectures": ["InternVLForSequenceClassification"], "model_type": "internvl_chat", "llm_config": coder});
    assert!(matches!(read(&outer), Err(HfError::Unsupported { field, .. }) if field == "architectures"));
    for (config, expected) in [
        (json!({"peft_type": "LORA", "base_model_name_or_path": "x"}), "with --lora"),
        (json!({"_class_name": "FluxTransformer2DModel"}), "a diffusion model"),
    ] {
        let error = read(&config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn sizes_that_a_class_would_fill_in_are_refused() {
    for name in ["glm-4.5", "exaone-moe-class", "dots-llm1", "deepseek-v3"] {
        let mut config: Value = serde_json::from_str(&text(name)).unwrap();
        for key in ["n_routed_experts", "num_experts", "num_local_experts"] {
            config.as_object_mut().unwrap().remove(key);
        }
        let error = read(&config).unwrap_err();
        assert!(matches!(&error, HfError::MissingField { field, .. } if *field == "num_local_experts"), "{error}");
    }
    let mut nemotron: Value = serde_json::from_str(&text("nemotron-h-56b").replace("Infinity", "1e9")).unwrap();
    nemotron["tie_word_embeddings"] = json!(true);
    let error = read(&nemotron).unwrap_err();
    assert!(matches!(&error, HfError::Unsupported { field, .. } if field == "tie_word_embeddings"), "{error}");
    let mut trinity: Value = serde_json::from_str(&text("trinity-mini-class")).unwrap();
    trinity["attention_bias"] = json!(true);
    let error = read(&trinity).unwrap_err();
    assert!(matches!(&error, HfError::Unsupported { field, .. } if field == "attention_bias"), "{error}");
    for (name, key) in [("deepseek-v3.2", "index_topk"), ("glm-5", "index_n_heads"), ("glm-5", "index_head_dim")] {
        let mut config: Value = serde_json::from_str(&text(name)).unwrap();
        config.as_object_mut().unwrap().remove(key);
        let error = read(&config).unwrap_err();
        assert!(matches!(&error, HfError::MissingField { field, .. } if field == key), "{error}");
    }
    let mut deepseek: Value = serde_json::from_str(&text("deepseek-v3")).unwrap();
    deepseek["index_topk"] = json!(2048);
    let error = read(&deepseek).unwrap_err();
    assert!(matches!(&error, HfError::Unsupported { field, .. } if field == "index_topk"), "{error}");
}

/// Every field of every file, set to what it must not be: an error or a model, never a panic.
#[test]
fn nothing_panics() {
    let bad = [
        json!(null),
        json!(0),
        json!(-7),
        json!(i32::MAX),
        json!(1e308),
        json!("x"),
        json!([]),
        json!({}),
        json!(true),
        json!([-1, "M"]),
    ];
    for name in names() {
        let config = text(&name).replace("Infinity", "1e9");
        let whole: Value = serde_json::from_str(&config).unwrap();
        let inner = whole.get("text_config").unwrap_or(&whole).clone();
        for key in inner.as_object().unwrap().keys() {
            for value in &bad {
                let mut changed = inner.clone();
                changed[key] = value.clone();
                if let Ok(model) = read(&changed) {
                    assert!(model.parameters().total > 0);
                }
            }
        }
        for kind in model_types() {
            let mut changed = inner.clone();
            changed["model_type"] = json!(kind);
            if let Ok(model) = read(&changed) {
                assert!(model.parameters().total > 0);
            }
        }
    }
    let sizes =
        ["hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"];
    let mut huge: Value = serde_json::from_str(&text("llama-3.1-8b")).unwrap();
    for size in sizes {
        huge[size] = json!(i32::MAX);
    }
    assert!(matches!(read(&huge), Err(HfError::OutOfRange { .. })));
    for size in sizes {
        huge[size] = json!(1 << 16);
    }
    assert!(matches!(read(&huge), Err(HfError::Impossible { .. })), "each size is possible, and all together are not");
}
