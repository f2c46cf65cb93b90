//! Hugging Face configurations: exact counts, and refusals that name what is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::random;
use meshwright::catalog::files::MODELS;
use meshwright::catalog::hf::{HfError, from_config};
use meshwright::catalog::{self, Overrides};
use meshwright::cost::{Costs, Evaluation};
use meshwright::gpu::Format;
use meshwright::model::{Details, Layer, Mixer, Model, ModelFile, Span};
use meshwright::plan::text::parse_plan;
use meshwright::problem::{HbmProfile, Problem};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.json"))).unwrap()
}

fn model(name: &str) -> Model {
    from_config(&text(name), name).unwrap_or_else(|e| panic!("{e}"))
}

fn read(config: &Value) -> Result<Model, HfError> {
    from_config(&config.to_string(), "config.json")
}

fn total(config: &Value) -> u64 {
    read(config).unwrap_or_else(|e| panic!("{e}")).parameters().total
}

/// Rows of `params.csv`, by column: what `transformers` builds, counted tensor by tensor; of six families with code of
/// their own, the tensors of that code, which add up to the size of their published files where these are known.
fn rows() -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(folder().join("params.csv")).unwrap().deserialize().map(Result::unwrap).collect()
}

#[test]
fn every_count_is_exact_to_the_last_parameter() {
    let rows = rows();
    let mut wrong = Vec::new();
    for row in &rows {
        let name = &row["model"];
        let model = model(name);
        let p = model.parameters();
        let tied = row["tied"] == "True";
        let columns = [
            ("total", p.total),
            ("embed_tokens", u64::from(model.vocab) * u64::from(model.hidden)),
            ("embed_pos", u64::from(model.learned_positions) * u64::from(model.hidden)),
            ("lm_head", p.head),
            ("routed_experts", p.experts),
            ("mlp_dense", p.mlp),
            ("active", p.active),
            ("layers", u64::from(model.layers())),
            ("hidden", u64::from(model.hidden)),
        ];
        for (column, ours) in columns {
            let theirs: u64 = row[column].parse().unwrap();
            // Gemma 4's dense MLP stands beside the experts, and is counted as shared here.
            let beside =
                column == "mlp_dense" && ours + p.shared_experts == theirs && row["model_type"] == "gemma4_text";
            if ours != theirs && !beside {
                wrong.push(format!("{name}: {column} is {theirs}, counted {ours}"));
            }
        }
        if model.tied_embeddings != tied {
            wrong.push(format!("{name}: tied is {tied}"));
        }
        let routed = model.kinds.iter().find_map(Layer::moe).map_or((0, 0), |moe| (moe.experts, moe.top_k));
        let number = |column: &str| row[column].parse().unwrap_or(0);
        if routed != (number("experts"), number("top_k")) {
            wrong.push(format!("{name}: experts and top-k counted {routed:?}"));
        }
    }
    assert_eq!(rows.len(), 118);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The built-in models that `transformers` counted too: catalogue name, file in `tests/hf`.
const TWINS: &[(&str, &str)] = &[
    ("bloom-176b", "bloom-176b"),
    ("deepseek-v2", "deepseek-v2"),
    ("deepseek-v3", "deepseek-v3"),
    ("deepseek-v3.2", "deepseek-v3.2"),
    ("gemma2-27b", "gemma-2-27b"),
    ("gemma3-27b", "gemma-3-27b-text"),
    ("glm-4.5", "glm-4.5"),
    ("glm-5", "glm-5"),
    ("gpt-oss-120b", "gpt-oss-120b"),
    ("kimi-k2", "kimi-k2"),
    ("llama2-70b", "llama-2-70b"),
    ("llama2-7b", "llama-2-7b"),
    ("llama3-405b", "llama-3.1-405b"),
    ("llama3-8b", "llama-3.1-8b"),
    ("llama4-maverick", "llama-4-maverick"),
    ("mistral-7b", "mistral-7b-v0.3"),
    ("mixtral-8x7b", "mixtral-8x7b"),
    ("nemotron-h-56b", "nemotron-h-56b"),
    ("qwen2.5-7b", "qwen2.5-7b"),
    ("qwen3-235b-a22b", "qwen3-235b-a22b"),
    ("qwen3-30b-a3b", "qwen3-30b-a3b"),
    ("qwen3-32b", "qwen3-32b"),
    ("qwen3-8b", "qwen3-8b"),
];

fn built_in(name: &str) -> Model {
    let (_, text) = MODELS.iter().find(|(stem, _)| *stem == name).unwrap_or_else(|| panic!("{name}"));
    let file: ModelFile = toml::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
    file.into_model().unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn the_catalogue_is_the_folder_in_order_and_every_model_loads() {
    let mut files: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let names: Vec<_> = MODELS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, files);
    let sources = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sources.toml")).unwrap();
    let sources: toml::Table = toml::from_str(&sources).unwrap();
    for name in names {
        assert!(sources.contains_key(&built_in(name).source), "{name}");
    }
}

#[test]
fn built_in_models_are_their_hugging_face_twins_layer_by_layer() {
    for (ours, theirs) in TWINS {
        let (a, b) = (built_in(ours), model(theirs));
        let layers = |m: &Model| m.order.iter().map(|&kind| m.kinds[kind].clone()).collect::<Vec<_>>();
        assert_eq!(a.layers(), b.layers(), "{ours}");
        for (i, (a, b)) in layers(&a).iter().zip(layers(&b)).enumerate() {
            assert_eq!(*a, b, "{ours}, layer {i}");
        }
        let rest = |m: &Model| Model {
            kinds: vec![],
            order: vec![],
            name: String::new(),
            source: String::new(),
            seq_len: 0,
            details: Details::default(),
            ..m.clone()
        };
        assert_eq!(rest(&a), rest(&b), "{ours}");
        assert_eq!(a.parameters(), b.parameters(), "{ours}");
    }
}

/// Step time and memory of a plan on 512 B200, whose host launches the operators of a layer with experts one by one.
fn price(model: Model) -> (f64, f64) {
    let sets = Overrides::default();
    let (cluster, stack) =
        (catalog::cluster("hgx-b200-512", &sets).unwrap(), catalog::stack("nemo-26", &sets).unwrap());
    let problem =
        Problem::new(model, cluster, random::workload(512, 4096, Format::Bf16), stack, HbmProfile::Normal).unwrap();
    let plan = parse_plan("dp=512 zero=1 mbs=1 recompute=full", &problem).unwrap();
    let Evaluation { step, footprint, .. } = Costs::new(&problem).evaluate(&plan);
    (step.total().get(), footprint.allocated().get())
}

#[test]
fn built_in_models_cost_what_their_hugging_face_twins_do() {
    for (ours, theirs) in TWINS {
        let ((ours_s, bytes), (theirs_s, theirs_bytes)) =
            (price(built_in(ours)), price(Model { seq_len: 4096, ..model(theirs) }));
        // Kinds of layers in another order are summed in another order.
        assert!((ours_s / theirs_s - 1.0).abs() < 1e-12, "{ours}: {ours_s} s, {theirs_s} s");
        assert!((bytes / theirs_bytes - 1.0).abs() < 1e-12, "{ours}: {bytes} B, {theirs_bytes} B");
    }
}

#[test]
fn built_in_models_have_their_published_sizes() {
    let published = [
        ("gpt3-175b", 174.6e9, 0.001),
        ("megatron-22b", 22e9, 0.02),
        ("megatron-530b", 530e9, 0.01),
        ("megatron-1t", 1.0e12, 0.01),
        ("llama2-13b", 13_015_864_320.0, 0.0),
        ("llama3-70b", 70_553_706_496.0, 0.0),
        ("qwen2.5-72b", 72_706_203_648.0, 0.0),
        ("mixtral-8x22b", 140_620_634_112.0, 0.001),
        ("nemotron4-15b", 15.6e9, 0.005),
        ("nemotron4-340b", 341.0e9, 0.001),
        ("gpt-oss-20b", 20_914_757_184.0, 0.0),
        ("llama4-scout", 107_770_000_000.0, 0.001),
        ("falcon-180b", 179_522_565_120.0 - 65024.0 * 14848.0, 0.0), // published files hold the tied head twice
        ("grok-1", 314e9, 0.01),
        ("deepseek-v3.2", 671e9, 0.002),
        ("glm-5", 744e9, 0.001),
    ];
    for (name, total, tolerance) in published {
        let ours = built_in(name).parameters().total as f64;
        assert!((ours / total - 1.0).abs() <= tolerance, "{name}: {ours} is not {total}");
    }
    // 37 B and 40 B active without the embedding's table; 685 B with a second table and head for the layer that predicts.
    for (name, active) in [("deepseek-v3.2", 37e9), ("glm-5", 40e9)] {
        let parameters = built_in(name).parameters();
        let ours = (parameters.active - parameters.embedding) as f64;
        assert!((ours / active - 1.0).abs() < 0.025, "{name}: {ours} active, published {active}");
    }
    let of_v32 = built_in("deepseek-v3.2").parameters();
    let with_prediction = (of_v32.total + of_v32.mtp + of_v32.embedding + of_v32.head) as f64;
    assert!((with_prediction / 685e9 - 1.0).abs() < 0.001, "{with_prediction}");
}

/// GLM 5.2: 21 of 78 layers choose keys, whichever way the file says so; the total is that of the class in transformers 5.23.0.
#[test]
fn layers_that_share_chosen_keys_have_no_indexer() {
    let with = |more: Value| {
        let mut config: Value = serde_json::from_str(&text("glm-5")).unwrap();
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let chooses = |layer: usize| layer <= 3 || (layer - 3).is_multiple_of(4);
    let names: Vec<&str> = (1..=78).map(|layer| if chooses(layer) { "full" } else { "shared" }).collect();
    let letters: String = (1..=78).map(|layer| if chooses(layer) { 'F' } else { 'S' }).collect();
    for more in [
        json!({"index_topk_freq": 4, "index_skip_topk_offset": 3}),
        json!({"indexer_types": names}),
        json!({"index_topk_pattern": letters}),
    ] {
        let model = read(&with(more)).unwrap();
        assert_eq!(model.parameters().total, 743_377_000_704);
        let sharing: Vec<bool> = (0..78).map(|layer| model.shares_keys(layer)).collect();
        assert_eq!(sharing.iter().filter(|shares| !**shares).count(), 21);
        assert!((1..=78).all(|layer| sharing[layer - 1] != chooses(layer)));
    }
    assert_eq!(read(&with(json!({"index_topk_freq": 1}))).unwrap().parameters().total, 743_911_199_232);
    for (field, wrong) in [
        ("indexer_types", json!(vec!["full"; 77])),
        ("index_topk_pattern", json!("FSSF")),
        ("index_topk_pattern", json!("S".repeat(78))),
        ("index_topk_freq", json!(0)),
        ("index_head_dim", json!(32)),
        ("index_topk", json!(-1)),
        ("index_n_heads", json!("many")),
        ("q_lora_rank", json!(null)),
        ("index_kpool", json!(4)),
        ("layer_types", json!(vec!["full_attention"; 78])),
    ] {
        let error = read(&with(json!({field: wrong}))).unwrap_err().to_string();
        assert!(error.contains(field), "{field}: {error}");
    }
}

/// Configurations as published, without what says nothing of the architecture, and their published counts.
#[test]
fn other_published_configurations_are_exact() {
    let llama = |h: u32, f: u32, l: u32, a: u32, g: u32, v: u32| {
        json!({"model_type": "llama", "hidden_size": h, "intermediate_size": f, "num_hidden_layers": l,
            "num_attention_heads": a, "num_key_value_heads": g, "vocab_size": v})
    };
    let with = |mut base: Value, more: Value| {
        for (key, value) in more.as_object().unwrap() {
            base[key] = value.clone();
        }
        base
    };
    let llama_1b = with(llama(2048, 8192, 16, 32, 8, 128_256), json!({"tie_word_embeddings": true, "head_dim": 64}));
    assert_eq!(total(&llama_1b), 1_235_814_400);
    let nemo = with(
        llama(5120, 14336, 40, 32, 8, 131_072),
        json!({"model_type": "mistral", "head_dim": 128, "sliding_window": null}),
    );
    assert_eq!(total(&nemo), 12_247_782_400);
    let qwen = with(llama(896, 4864, 24, 14, 2, 151_936), json!({"model_type": "qwen2", "tie_word_embeddings": true}));
    assert_eq!(total(&qwen), 494_032_768);
    let qwen3_14b = with(llama(5120, 17408, 40, 40, 8, 151_936), json!({"model_type": "qwen3", "head_dim": 128}));
    assert_eq!(total(&qwen3_14b), 14_768_307_200);
    let qwen15_moe = with(
        llama(2048, 5632, 24, 16, 16, 151_936),
        json!({"model_type": "qwen2_moe", "num_experts": 60, "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1}),
    );
    assert_eq!(total(&qwen15_moe), 14_315_784_192);
    let phi2 = with(llama(2560, 10240, 32, 32, 32, 51200), json!({"model_type": "phi", "qk_layernorm": false}));
    assert_eq!(total(&phi2), 2_779_683_840);
    let olmo2 = with(llama(4096, 11008, 32, 32, 32, 100_352), json!({"model_type": "olmo2"}));
    assert_eq!(total(&olmo2), 7_298_617_344);
    let starcoder2 = with(llama(3072, 12288, 30, 24, 2, 49152), json!({"model_type": "starcoder2", "use_bias": true}));
    assert_eq!(total(&starcoder2), 3_030_371_328);
    let gemma = with(llama(3072, 24576, 28, 16, 16, 256_000), json!({"model_type": "gemma", "head_dim": 256}));
    assert_eq!(total(&gemma), 8_537_680_896);
    let falcon40b = json!({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": true, "multi_query": true,
        "parallel_attn": true, "bias": false, "alibi": false, "vocab_size": 65024});
    assert_eq!(total(&falcon40b), 41_303_293_952);
    let opt = |h: u32, l: u32, a: u32| {
        json!({"model_type": "opt", "hidden_size": h, "ffn_dim": 4 * h, "num_hidden_layers": l, "num_attention_heads": a,
            "max_position_embeddings": 2048, "word_embed_proj_dim": h, "do_layer_norm_before": true, "vocab_size": 50272})
    };
    assert_eq!(total(&opt(768, 12, 12)), 125_239_296);
    assert_eq!(total(&opt(4096, 32, 32)), 6_658_473_984);
    let air = json!({"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
        "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
        "attention_bias": true, "use_qk_norm": false, "first_k_dense_replace": 1, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_group": 1,
        "topk_group": 1, "num_nextn_predict_layers": 1, "vocab_size": 151_552});
    assert_eq!(total(&air), 106_852_245_504);
    let lite = json!({"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
        "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "n_group": 1, "topk_group": 1,
        "topk_method": "greedy", "vocab_size": 102_400});
    assert_eq!(total(&lite), 15_706_484_224);
    let gemma3_4b = json!({"model_type": "gemma3", "vision_config": {}, "text_config": {"model_type": "gemma3_text",
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}});
    assert_eq!(total(&gemma3_4b), 3_880_263_168);
}

/// Other sizes of the families whose classes are in the repositories of their weights.
#[test]
fn families_with_code_of_their_own_are_exact() {
    let base = |kind: &str, h: u32, f: u32, l: u32, a: u32, v: u32| {
        json!({"model_type": kind, "hidden_size": h, "intermediate_size": f, "num_hidden_layers": l,
            "num_attention_heads": a, "vocab_size": v})
    };
    assert_eq!(total(&base("qwen", 4096, 22016, 32, 32, 151_936)), 7_721_324_544);
    let mut baichuan = base("baichuan", 4096, 11008, 32, 32, 125_696);
    assert!(read(&baichuan).unwrap().kinds.iter().all(|kind| matches!(&kind.mixer, Mixer::Attention(a) if !a.rope)));
    baichuan["max_position_embeddings"] = json!(4096);
    assert_eq!(total(&baichuan), 7_505_973_248);
    let mut internlm = base("internlm2", 4096, 14336, 32, 32, 92544);
    internlm["num_key_value_heads"] = json!(8);
    internlm["bias"] = json!(false);
    assert_eq!(total(&internlm), 7_737_708_544);
    let chatglm = json!({"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28,
        "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2,
        "add_qkv_bias": true, "add_bias_linear": false, "rmsnorm": true, "padded_vocab_size": 65024,
        "seq_length": 8192});
    assert_eq!(total(&chatglm), 6_243_584_000);
    let dbrx = json!({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "vocab_size": 100_352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500_000},
        "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4, "ffn_hidden_size": 10752}});
    assert_eq!(total(&dbrx), 131_596_523_520);
}

#[test]
fn the_text_part_of_a_multimodal_model_is_read() {
    let sizes = json!({"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064});
    let mut flat = sizes.clone();
    flat["model_type"] = json!("qwen2_5_vl");
    flat["vision_config"] = json!({"depth": 32});
    let mut inner = sizes;
    inner["model_type"] = json!("qwen2");
    for whole in [
        flat,
        json!({"model_type": "llava_onevision", "text_config": inner}),
        json!({"model_type": "internvl_chat", "llm_config": inner}),
        json!({"model_type": "qwen2_5_omni", "talker_config": {}, "thinker_config": {"text_config": inner}}),
    ] {
        assert_eq!(total(&whole), 7_615_616_512, "{whole}");
    }
    let towers = json!({"model_type": "internvl_chat", "llm_config": inner, "vision_config": {"depth": 32}});
    assert!(!read(&towers).unwrap().details.left_out.is_empty() && read(&inner).unwrap().details.left_out.is_empty());
    let llava = json!({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}});
    assert_eq!(total(&llava), 6_738_415_616 + 2 * 64 * 4096, "Vicuna's sizes are those of the class");
}

/// Heads of files without `head_dim`, as transformers 5.23.0 builds them: 128 wide, or the hidden size over the heads.
#[test]
fn widths_of_heads_follow_the_class() {
    let internlm = json!({"model_type": "internlm3", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32003, "tie_word_embeddings": true});
    assert_eq!(total(&internlm), 17_634_304);
    let mut of_hidden = internlm;
    of_hidden["head_dim"] = json!(null);
    assert_eq!(total(&of_hidden), 12_915_712);
}

#[test]
fn windows_ties_and_dropout_follow_the_class() {
    let mistral = json!({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000});
    let Mixer::Attention(attention) = &read(&mistral).unwrap().kinds[0].mixer else { panic!("attention") };
    assert_eq!(attention.span, Span::Window(4096));
    assert!(model("gpt2").dropout && !model("llama-2-7b").dropout);
    assert_eq!(model("deepseek-v3").mtp_depth, 1);
    let limit = |name| model(name).kinds.iter().find_map(Layer::moe).map(|moe| moe.group_limit);
    assert_eq!([limit("deepseek-v3"), limit("deepseek-v2"), limit("kimi-k2")], [Some(4), Some(3), Some(0)]);
    assert_eq!(model("llama-3.1-8b").seq_len, 8192);
    assert_eq!(model("gpt2").seq_len, 1024);
    assert_eq!(read(&mistral).unwrap().seq_len, 4096);
}
