//! Families of Hugging Face configurations: kinds of layers that a count of parameters does not tell, and published sizes.

use std::fs;
use std::path::Path;

use meshwright::catalog::hf::{HfError, from_config};
use meshwright::model::{
    Attention, AttentionMamba, Ffn, KimiDelta, Layer, Mamba, Mixer, Mlp, Model, QkNorm, ShortConv, Span,
};
use serde_json::{Value, json};

fn config(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hf/{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn read(config: &Value) -> Result<Model, HfError> {
    from_config(&config.to_string(), "config.json")
}

fn model(name: &str) -> Model {
    read(&config(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn layers(model: &Model) -> Vec<&Layer> {
    model.order.iter().map(|&kind| &model.kinds[kind]).collect()
}

fn attentions(model: &Model) -> Vec<&Attention> {
    let mixers = layers(model).into_iter().map(|layer| &layer.mixer);
    mixers.filter_map(|mixer| if let Mixer::Attention(attention) = mixer { Some(attention) } else { None }).collect()
}

/// The sizes in the names that their publishers give the models: total and, of mixtures, active per token, in 10⁹. Mistral's 6.5
/// billion active leave out one of the two tables of tokens, as most publishers' do.
#[test]
fn counts_are_those_that_publishers_state() {
    let published = [
        ("hy3", 295.0, Some(21.0)),
        ("mimo-v2-flash", 309.0, Some(15.0)),
        ("mistral-small-4", 119.0, Some(6.5)),
        ("ax-k1", 519.0, Some(33.0)),
        ("kolibri-1", 78.0, None),
        ("iquest-coder-40b", 40.0, None),
        ("llama-nemotron-super-49b", 49.9, None),
        ("jais-2-8b", 8.0, None),
        ("minicpm3-4b", 4.0, None),
        ("youtu-llm-2b", 1.96, None),
    ];
    for (name, total, active) in published {
        let counted = model(name).parameters();
        let near = |ours: u64, theirs: f64| (ours as f64 / 1e9 / theirs - 1.0).abs() < 0.031;
        assert!(near(counted.total, total), "{name}: {} of {total}", counted.total);
        assert!(active.is_none_or(|active| near(counted.active, active)), "{name}: {} active", counted.active);
    }
}

#[test]
fn windows_sinks_and_positions_follow_the_class() {
    let granite = model("granite-swa-class");
    let of = attentions(&granite);
    assert!(of.iter().all(|attention| attention.sinks && attention.rope));
    assert!((0..24).all(|i| of[i].span == if i % 4 == 0 { Span::Full } else { Span::Window(128) }));
    let mut bases = config("granite-swa-class");
    bases["layer_rope_theta"] = json!((0..24).map(|i| if i % 4 == 0 { 0.0 } else { 1e4 }).collect::<Vec<f64>>());
    let without = read(&bases).unwrap();
    assert!(attentions(&without).iter().enumerate().all(|(i, attention)| attention.rope == (i % 4 != 0)));
    bases["layer_rope_theta"] = json!([0.0]);
    assert!(read(&bases).unwrap_err().to_string().contains("layer_rope_theta"));

    let kolibri = model("kolibri-1");
    let of = attentions(&kolibri);
    assert!((0..50).all(|i| of[i].rope == (i % 5 != 4) && (of[i].span == Span::Full) == (i % 5 == 4)));

    let mut command = config("command-a-moe-class");
    for name in ["layer_types", "mlp_layer_types"] {
        command.as_object_mut().unwrap().remove(name);
    }
    command["first_k_dense_replace"] = json!(1);
    command["prefix_dense_intermediate_size"] = json!(16_384);
    let command = read(&command).unwrap();
    let of = attentions(&command);
    assert!(of[0].span == Span::Full && of[0].rope, "the dense layer sees all keys, with positions");
    assert!((1..40).all(|i| (of[i].span == Span::Full) == (i % 4 == 0) && of[i].rope == (i % 4 != 0)));
    assert!(layers(&command).iter().enumerate().all(|(i, layer)| layer.moe().is_some() == (i > 0)));
}

/// LFM2: attention where the file says, convolutions of three tokens elsewhere, and MLPs of two thirds of the size that it gives.
#[test]
fn short_convolutions_stand_between_layers_with_attention() {
    let dense = model("lfm2-1.2b");
    let of = layers(&dense);
    let attends = |i: usize| [2, 5, 8, 10, 12, 14].contains(&i);
    let conv = |bias| Mixer::ShortConv(ShortConv { conv_kernel: 3, bias });
    assert!((0..16).all(|i| (of[i].mixer == conv(false)) != attends(i)));
    assert!(attentions(&dense).iter().all(|attention| attention.qk_norm == QkNorm::PerHead));
    let mlp = Mlp { intermediate: 8192, gated: true, bias: false };
    assert!(dense.tied_embeddings && of.iter().all(|layer| layer.ffn == Ffn::Dense(mlp.clone())));
    let mut other = config("lfm2-1.2b");
    (other["conv_bias"], other["tie_embedding"]) = (json!(true), json!(false));
    (other["block_ffn_dim_multiplier"], other["block_multiple_of"]) = (json!(0.8), json!(100));
    let read_other = read(&other).unwrap();
    assert_eq!((layers(&read_other)[0].mixer.clone(), read_other.tied_embeddings), (conv(true), false));
    assert!(matches!(&layers(&read_other)[0].ffn, Ffn::Dense(mlp) if mlp.intermediate == 6600), "6,553 in hundreds");
    other["block_ffn_dim_multiplier"] = json!(1e9);
    assert!(read(&other).unwrap_err().to_string().contains("block_ffn_dim_multiplier"));
    other = config("lfm2-8b-a1b");
    assert!(layers(&read(&other).unwrap()).iter().enumerate().all(|(i, layer)| layer.moe().is_some() == (i >= 2)));
    assert_eq!(read(&other).unwrap().details.router.bias, Some(true));
    other["use_expert_bias"] = json!(false);
    assert_eq!(read(&other).unwrap().details.router.bias, Some(false));
    other["layer_types"][3] = json!("mamba");
    assert!(read(&other).unwrap_err().to_string().contains("`mamba` is not a layer of LFM2"));
    other.as_object_mut().unwrap().remove("layer_types");
    assert!(read(&other).unwrap_err().to_string().contains("layer_types"));
}

/// Falcon-H1: attention and Mamba in every layer, as wide as the file says, with the norm and the biases that it switches on.
#[test]
fn attention_and_mamba_stand_side_by_side() {
    let small = model("falcon-h1-0.5b");
    let attention = Attention::plain(8, 2, 64);
    let mamba = Mamba {
        heads: 24,
        head_dim: 64,
        groups: 1,
        state: 128,
        conv_kernel: 4,
        conv_bias: true,
        proj_bias: false,
        out_bias: None,
        norm: false,
    };
    let mixer = Mixer::AttentionMamba(AttentionMamba { attention, mamba: mamba.clone() });
    assert!(layers(&small).iter().all(|layer| layer.mixer == mixer && layer.norms == 2));
    assert!(small.details.others.contains(&("ssm_in_multiplier".to_owned(), 1.25)));
    let mamba_of = |config: &Value| match &read(config).unwrap().kinds[0].mixer {
        Mixer::AttentionMamba(both) => both.mamba.clone(),
        other => panic!("{other:?}"),
    };
    let mut other = config("falcon-h1-0.5b");
    (other["projectors_bias"], other["mamba_rms_norm"]) = (json!(true), json!(true));
    assert_eq!(mamba_of(&other), Mamba { out_bias: Some(true), norm: true, ..mamba.clone() });
    other["mamba_proj_bias"] = json!(true);
    assert_eq!(mamba_of(&other), Mamba { proj_bias: true, norm: true, ..mamba.clone() });
    other = config("falcon-h1-0.5b");
    (other["mamba_d_ssm"], other["mamba_d_head"], other["mamba_n_heads"]) = (Value::Null, json!("auto"), json!(32));
    assert_eq!(mamba_of(&other), Mamba { heads: 32, ..mamba }, "twice the hidden size");
    other["mamba_d_head"] = json!(48);
    assert!(read(&other).unwrap_err().to_string().contains("mamba_d_ssm"));
}

/// Kimi-Linear: latent attention without positions where the file says, which counts from 1, and Kimi Delta Attention
/// elsewhere; experts behind the first layer. What Kimi K3's text models have beyond it is refused.
#[test]
fn kimis_delta_attention_stands_between_layers_with_latent_attention() {
    let kimi = model("kimi-linear-48b-a3b");
    let of = layers(&kimi);
    let delta = Mixer::KimiDelta(KimiDelta { heads: 32, head_dim: 128, conv_kernel: 4 });
    assert!((0..27).all(|i| (of[i].mixer == delta) != [3, 7, 11, 15, 19, 23, 26].contains(&i)));
    assert!(of.iter().all(|layer| !matches!(&layer.mixer, Mixer::Mla(mla) if mla.rope)));
    assert!(of.iter().enumerate().all(|(i, layer)| layer.moe().is_some() == (i > 0)));
    let counted = kimi.parameters();
    assert_eq!((counted.total, counted.active / 10_000_000), (49_122_675_072, 348));
    assert_eq!((kimi.details.router.bias, kimi.details.router.normalized), (Some(true), Some(true)));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut other = config("kimi-linear-48b-a3b");
        change(&mut other);
        read(&other)
    };
    let typed = with(&|other| other["layer_types"] = json!(vec!["linear_attention"; 27])).unwrap();
    assert!(layers(&typed).iter().all(|layer| layer.mixer == delta), "the types go before the lists");
    let narrow = with(&|other| other["linear_attn_config"]["num_heads"] = json!(16)).unwrap();
    assert!(matches!(&narrow.kinds[0].mixer, Mixer::KimiDelta(net) if net.heads == 16));
    let refused = |field: &str, change: &dyn Fn(&mut Value)| {
        let error = with(change).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    };
    refused("mla_use_nope", &|other| other["mla_use_nope"] = json!(false));
    refused("kda_layers", &|other| other["linear_attn_config"]["kda_layers"] = json!([1, 2]));
    refused("kda_layers", &|other| other["linear_attn_config"]["full_attn_layers"] = json!([1, 4]));
    refused("use_full_rank_gate", &|other| other["linear_attn_config"]["use_full_rank_gate"] = json!(true));
    refused("layer_types", &|other| other["layer_types"] = json!(vec!["mamba"; 27]));
    let biased = with(&|other| other["attention_bias"] = json!(true)).unwrap();
    assert_eq!(biased.parameters().total - counted.total, 7 * (512 + 64 + 2304));
    for field in ["mla_use_output_gate", "attn_res_block_size", "routed_expert_hidden_size"] {
        refused(field, &|other| other[field] = if field.contains("size") { json!(2) } else { json!(true) });
    }
}

#[test]
fn hybrids_have_their_kinds_in_order() {
    let olmo = model("olmo-hybrid-7b");
    let of = layers(&olmo);
    assert!((0..32).all(|i| matches!(of[i].mixer, Mixer::DeltaNet(_)) == (i % 4 != 3)));
    assert!(attentions(&olmo).iter().all(|attention| attention.qk_norm == QkNorm::Full && attention.rope));
    let mut released = config("olmo-hybrid-7b");
    released["rope_parameters"] = Value::Null;
    for name in ["linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"] {
        released.as_object_mut().unwrap().remove(name);
    }
    let released = read(&released).unwrap();
    assert_eq!(released.parameters(), olmo.parameters());
    assert!(attentions(&released).iter().all(|attention| !attention.rope));
}

/// MiMo 7B: 7.83 billion with the layer that predicts, by the sizes of XiaomiMiMo/MiMo-7B-Base.
#[test]
fn mimo_predicts_another_token() {
    let mimo =
        read(&json!({"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151_680, "num_nextn_predict_layers": 1}))
        .unwrap();
    let counted = mimo.parameters();
    assert_eq!((mimo.mtp_depth, (counted.total + counted.mtp) / 10_000_000), (1, 783));
}

/// The fields that XiaomiMiMo/MiMo-V2-Flash publishes, instead of those that the class in transformers writes.
#[test]
fn mimo_v2_is_one_model_in_both_forms() {
    let class = model("mimo-v2-flash");
    let of = attentions(&class);
    for (i, attention) in of.iter().enumerate() {
        let full = i == 0 || i % 6 == 5;
        let (kv_heads, span) = if full { (4, Span::Full) } else { (8, Span::Window(129)) };
        let sizes = (attention.heads, attention.kv_heads, attention.head_dim, attention.v_dim());
        assert_eq!((sizes, attention.span, attention.sinks), ((64, kv_heads, 192, 128), span, !full), "layer {i}");
    }
    let mut published = config("mimo-v2-flash");
    for name in ["layer_types", "mlp_layer_types", "sliding_window"] {
        published.as_object_mut().unwrap().remove(name);
    }
    let slides: Vec<u32> = (0..48).map(|i| u32::from(i > 0 && i % 6 != 5)).collect();
    let sparse: Vec<u32> = (0..48).map(|i| u32::from(i > 0)).collect();
    let fields = json!({"hybrid_layer_pattern": slides, "moe_layer_freq": sparse, "sliding_window": 128,
        "sliding_window_size": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
        "swa_v_head_dim": 128, "add_swa_attention_sink_bias": true, "add_full_attention_sink_bias": false,
        "n_shared_experts": null, "routed_scaling_factor": null});
    for (name, value) in fields.as_object().unwrap() {
        published[name] = value.clone();
    }
    let read_published = read(&published).unwrap();
    assert_eq!(layers(&read_published), layers(&class));
    for (name, value) in [
        ("hybrid_layer_pattern", json!([1, 0])),
        ("moe_layer_freq", json!([1])),
        ("n_shared_experts", json!(1)),
        ("num_nextn_predict_layers", json!(3)),
    ] {
        let mut wrong = published.clone();
        wrong[name] = value;
        assert!(read(&wrong).unwrap_err().to_string().contains(name), "{name}");
    }
}

#[test]
fn blocks_that_a_search_chose_are_read_one_by_one() {
    let nemotron = model("llama-nemotron-super-49b");
    let of = layers(&nemotron);
    let idle = of.iter().filter(|layer| layer.mixer == Mixer::None && layer.norms == 1).count();
    assert_eq!((idle, attentions(&nemotron).len()), (31, 49));
    let with = |part: &str, name: &str, value: Value| {
        let mut changed = config("llama-nemotron-super-49b");
        changed["block_configs"][3][part][name] = value;
        read(&changed).map_err(|error| error.to_string())
    };
    assert_eq!(
        with("ffn", "no_op", json!(true)).unwrap().parameters().mlp,
        nemotron.parameters().mlp - 3 * 8192 * 28672
    );
    for (part, name, value) in [
        ("attention", "replace_with_linear", json!(true)),
        ("ffn", "replace_with_linear", json!(true)),
        ("attention", "window_length", json!(512)),
        ("attention", "n_heads_in_group", json!(7)),
        ("ffn", "ffn_mult", json!(-1.0)),
        ("ffn", "ffn_mult", Value::Null),
    ] {
        let error = with(part, name, value).unwrap_err();
        assert!(error.contains(&format!("block_configs.{part}.{name}")), "{error}");
    }
}
