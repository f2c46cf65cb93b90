//! Settings of a model that no price depends on, from `config.json` through to the files of each framework.

use std::path::Path;
use std::process::Command;

/// Files of a configuration of `tests/hf` for a framework, or the reason for none.
pub fn emitted(framework: &str, config: &str, plan: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = root.join("tests/hf").join(format!("{config}.json"));
    emitted_of(framework, config.to_str().unwrap(), plan)
}

/// Files of a configuration of `tests/hf` for a framework that writes it.
pub fn written(framework: &str, config: &str, plan: &str) -> String {
    let text = emitted(framework, config, plan);
    assert!(text.contains("# predicted by meshwright"), "{framework} {config} {plan}: {text}");
    text
}

/// Files of a model for a framework, or the reason for none.
fn emitted_of(framework: &str, model: &str, plan: &str) -> String {
    emitted_at("4096", framework, model, plan)
}

/// Files of a model for a framework with sequences of a length, or the reason for none.
fn emitted_at(seq_len: &str, framework: &str, model: &str, plan: &str) -> String {
    let args = ["emit", framework, model, "h100-512", "--plan", plan, "--seq-len", seq_len];
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap();
    String::from_utf8(if output.status.success() { output.stdout } else { output.stderr }).unwrap()
}

fn assert_all(text: &str, wanted: &[&str]) {
    for part in wanted {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

const DENSE: &str = "tp=2 dp=256 zero=1 mbs=1";

#[test]
fn rotary_settings_and_epsilon_of_llama_3_reach_every_file() {
    let wanted = ["--rotary-base 500000", "--use-rope-scaling", "--rope-scaling-factor 8.0", "--norm-epsilon 0.00001"];
    assert_all(&emitted("megatron", "llama-3.1-8b", DENSE), &wanted);
    let wanted = ["model.rotary_base = 500000", "model.rope_scaling = True", "model.layernorm_epsilon = 0.00001"];
    assert_all(&emitted("bridge", "llama-3.1-8b", DENSE), &wanted);
    let wanted =
        ["ComplexRoPE.Config(", "theta=500000.0", "scaling=\"llama\"", "scaling_factor=8.0", "EPSILON = 0.00001"];
    assert_all(&emitted("torchtitan", "llama-3.1-8b", "dp=512 zero=3 mbs=1"), &wanted);
    let wanted = ["rope_theta: 1000000.0", "rms_norm_eps: 0.00001"];
    assert_all(&emitted("nanotron", "mistral-7b-v0.3", DENSE), &wanted);
    let refused = emitted("nanotron", "llama-3.1-8b", DENSE);
    assert!(refused.contains("rope_scaling = llama3"), "{refused}");
}

/// The catalogue says the score alone: bias, scale and loss of the router are named as unknown.
#[test]
fn scores_of_the_catalogue_reach_files_without_a_bias_that_nobody_said() {
    let experts = "dp=512 ep=64 zero=1 mbs=1 recompute=full";
    let text = emitted_of("megatron", "deepseek-v3", experts);
    assert_all(&text, &["--moe-router-score-function sigmoid", "router's bias, scale and loss"]);
    assert!(!text.contains("--moe-router-enable-expert-bias"), "{text}");
    let text = emitted_of("megatron", "mixtral-8x7b", "dp=512 ep=8 zero=1 mbs=1 recompute=full");
    assert!(text.contains("--num-experts 8") && !text.contains("sigmoid"), "{text}");
    let text = emitted_of("torchtitan", "qwen3-30b-a3b", "dp=512 ep=8 zero=3 mbs=1 recompute=full");
    assert!(text.contains("score_func=\"softmax\"") && !text.contains("route_norm"), "{text}");
}

#[test]
fn routers_score_as_their_model_does() {
    let experts = "dp=512 ep=64 zero=1 mbs=1 recompute=full";
    let wanted = [
        "--moe-router-score-function sigmoid",
        "--moe-router-enable-expert-bias",
        "--moe-router-topk-scaling-factor 2.5",
        "--rotary-scaling-factor 40.0",
        "--norm-epsilon 0.000001",
    ];
    assert_all(&emitted("megatron", "deepseek-v3", "tp=1 pp=8 dp=64 ep=64 zero=1 mbs=1 recompute=full"), &wanted);
    let qwen = emitted("megatron", "qwen3-30b-a3b", experts);
    assert_all(&qwen, &["--moe-aux-loss-coeff 0.001", "--rotary-base 1000000"]);
    assert!(!qwen.contains("pre-softmax") && !qwen.contains("sigmoid"), "{qwen}");
    // torchtitan balances experts by a bias, and has no loss: a file without the loss is written, with the bias off.
    let plan = "dp=512 ep=64 zero=3 mbs=1 recompute=full";
    let refused = emitted("torchtitan", "qwen3-30b-a3b", plan);
    assert!(refused.contains("router_aux_loss_coef (or aux_loss_alpha) = 0.001"), "{refused}");
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf/qwen3-30b-a3b.json")).unwrap();
    let without = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without-loss");
    let text = text.replace("\"router_aux_loss_coef\": 0.001", "\"router_aux_loss_coef\": 0.0");
    std::fs::write(without.with_extension("json"), text).unwrap();
    let titan = emitted("torchtitan", without.to_str().unwrap(), plan);
    let wanted = [
        "score_func=\"softmax\", route_norm=True",
        "theta=1000000.0",
        "load_balance_coeff=None",
        "models.qwen3",
        "CosSinRoPE.Config(",
    ];
    assert_all(&titan, &wanted);
}

/// Grouped heads have every number of YaRN as a flag of Megatron core 0.19; latent attention has those that differ from the
/// defaults in Megatron-Bridge's containers alone. A scale of queries beside YaRN is refused.
#[test]
fn yarn_reaches_the_files_with_all_its_numbers() {
    let experts = "dp=512 ep=64 zero=1 mbs=1 recompute=full";
    let wanted = [
        "--position-embedding-type yarn",
        "--rotary-scaling-factor 32.0",
        "--yarn-original-max-position-embeddings 4096",
        "--yarn-beta-fast 32.0",
        "--yarn-beta-slow 1.0",
        "--mscale 1.0",
        "--mscale-all-dim 0.0",
        "--no-yarn-correction-range-round-to-int",
        "every flag is one of Megatron core 0.19 and later",
    ];
    assert_all(&emitted("megatron", "gpt-oss-120b", experts), &wanted);
    let wanted = [
        "model.position_embedding_type = \"yarn\"",
        "model.yarn_rotary_scaling_factor = 32.0",
        "model.yarn_mscale_all_dim = 0.0",
        "model.yarn_correction_range_round_to_int = False",
    ];
    assert_all(&emitted("bridge", "gpt-oss-120b", experts), &wanted);
    let latent = "pp=8 dp=64 ep=64 zero=1 mbs=1 recompute=full";
    let wanted = ["model.rotary_scaling_factor = 32.0", "model.mscale = 1.0", "model.beta_fast = 1.0"];
    assert_all(&emitted("bridge", "kimi-k2", latent), &wanted);
    assert!(!written("bridge", "deepseek-v3", latent).contains("beta_fast"), "the provider's own");
    for (config, plan, why) in [
        ("kimi-k2", latent, "rope_scaling = yarn:"),
        ("ministral-3-8b", DENSE, "rope_scaling = yarn with llama_4_scaling_beta"),
    ] {
        let refused = emitted("megatron", config, plan);
        assert!(refused.contains(why), "{config}: {refused}");
    }
}

/// EXAONE 4 has its norms behind attention and MLP, which a file that is written for norms before them does not say.
#[test]
fn norms_behind_the_two_parts_are_named() {
    for (framework, plan) in
        [("megatron", DENSE), ("torchtitan", "dp=512 zero=3 mbs=1"), ("maxtext", "dp=512 zero=3 mbs=1")]
    {
        let refused = emitted(framework, "exaone-4-32b", plan);
        assert!(refused.contains("norms behind attention and MLP"), "{framework}: {refused}");
    }
    assert!(!written("megatron", "llama-3.1-8b", DENSE).contains("norms behind"));
}

/// Megatron's kernels of a bias and an activation are for GELU, SwiGLU and quick GELU: beside another they are off.
#[test]
fn squared_relu_has_no_fused_bias() {
    let plan = "dp=512 zero=1 mbs=1 recompute=full";
    assert_all(&emitted("megatron", "persimmon-8b", plan), &["--squared-relu", "--no-bias-gelu-fusion"]);
    let bridge = emitted("bridge", "persimmon-8b", plan);
    assert_all(&bridge, &["model.activation_func = squared_relu", "model.bias_activation_fusion = False"]);
    assert!(!written("megatron", "llama-3.1-8b", plan).contains("--no-bias-gelu-fusion"));
}

/// Llama 3's classes have its order of rotary heads, Qwen3's the other and norms on queries and keys, DeepSeek's latent attention.
#[test]
fn torchtitans_module_is_that_of_the_architecture() {
    for (config, module, rope) in [
        ("mistral-7b-v0.3", "torchtitan.models.llama3.model", "ComplexRoPE.Config("),
        ("qwen3-8b", "torchtitan.models.qwen3.model", "CosSinRoPE.Config("),
        ("moonlight-16b-a3b", "torchtitan.models.deepseek_v3.model", "ComplexRoPE.Config("),
    ] {
        assert_all(&emitted("torchtitan", config, "dp=512 zero=3 shard=128 mbs=1"), &[module, rope]);
    }
}

#[test]
fn what_a_file_cannot_say_is_refused_by_its_field() {
    for (framework, config, field) in [
        ("megatron", "granite-3.1-8b", "embedding_multiplier = 12"),
        ("megatron", "gpt-neox-20b", "use_parallel_residual = 1"),
        ("torchtitan", "granite-3.1-8b", "logits_scaling = 16"),
        ("gpt-neox", "granite-3.1-8b", "embedding_multiplier = 12"),
        ("gpt-neox", "qwen3-8b", "norms on queries and keys"),
        ("gpt-neox", "minimax-m2", "num_experts = 256"),
        ("gpt-neox", "moonlight-16b-a3b", "latent attention"),
        ("gpt-neox", "llama-3.1-8b", "rope_scaling = llama3"),
        ("torchtitan", "gpt-oss-120b", "biases"),
        ("torchtitan", "minimax-m2", "a norm over all heads"),
    ] {
        let refused = emitted(framework, config, "dp=512 zero=3 mbs=1");
        assert!(refused.contains(field), "{framework}, {config}: {refused}");
    }
    let titan = emitted("torchtitan", "qwen3-8b", "cp=8 cp-kind=allgather dp=64 zero=3 mbs=1");
    assert!(titan.contains("context_parallel_degree = 8"), "{titan}");
}

/// GPT-NeoX adds attention and MLP to one input, and turns a quarter of each head, as the model's own file says.
#[test]
fn gpt_neox_says_what_its_own_model_is() {
    let neox = emitted("gpt-neox", "gpt-neox-20b", "tp=2 dp=256 zero=1 mbs=1 recompute=full");
    let wanted = [
        "gpt_j_residual: true",
        "rotary_pct: 0.25",
        "rotary_emb_base: 10000",
        "layernorm_epsilon: 0.00001",
        "activation: gelu\nbias_gelu_fusion: false",
        "intermediate_size: 24576",
        "use_bias_in_attn_linear: true\nuse_bias_in_mlp: true",
        "pipe_parallel_size: 0\nmodel_parallel_size: 2\nsequence_parallel: true",
        "checkpoint_activations: true",
    ];
    assert_all(&neox, &wanted);
    let llama = emitted("gpt-neox", "mistral-7b-v0.3", "dp=512 zero=2 mbs=1");
    assert_all(&llama, &["num_kv_heads: 8", "intermediate_size: 43008\nactivation: swiglu", "norm: rmsnorm"]);
}

/// DeepSpeed shards the states of bf16 weights without being asked, exits for ZeRO 2 beside tensor parallelism, and breaks with
/// narrow gradients beside a pipeline.
#[test]
fn gpt_neox_refuses_what_deepspeed_does_otherwise() {
    for (plan, why) in [
        ("dp=512 zero=0 mbs=1", "shards its states like ZeRO 1"),
        ("tp=2 dp=256 zero=2 mbs=1", "ZeRO 1 is the most beside tensor parallelism"),
        ("cp=2 cp-kind=allgather dp=256 zero=1 mbs=1", "no context parallelism"),
    ] {
        let refused = emitted("gpt-neox", "mistral-7b-v0.3", plan);
        assert!(refused.contains(why), "{plan}: {refused}");
    }
    for (plan, why) in [
        ("dp=512 zero=0 mbs=1", "added in bf16 with ZeRO alone"),
        ("pp=4 dp=128 zero=1 mbs=1", "--optimizer megatron has them in fp32"),
    ] {
        let asked = ["gpt3-175b", "h100-512", "--optimizer", "megatron-bf16-grads", "--plan", plan];
        let refused =
            Command::new(env!("CARGO_BIN_EXE_meshwright")).args(["emit", "gpt-neox"]).args(asked).output().unwrap();
        let refused = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.contains(why), "{plan}: {refused}");
    }
}

/// Rotary frequencies, the kind of norms on queries and keys, and the length of windows.
#[test]
fn llm_foundry_says_what_an_mpt_is() {
    let llama = emitted("llm-foundry", "llama-3.1-8b", "dp=512 zero=3 mbs=1");
    let wanted = [
        "name: mpt_causal_lm",
        "no_bias: true\n  attention_bias: false\n  norm_type: low_precision_rmsnorm\n  norm_eps: 0.00001",
        "rope: true\n    rope_impl: hf\n    rope_theta: 500000\n    rope_hf_config:\n      factor: 8.0\n      type: llama3",
        "original_max_position_embeddings: 8192",
        "ffn_type: mptglu\n    ffn_hidden_size: 14336\n    ffn_act_fn:\n      name: silu",
        "data_parallel_shard_degree: 512\n  sharding_strategy: FULL_SHARD\n  mixed_precision: DEFAULT",
    ];
    assert_all(&llama, &wanted);
    let qwen = emitted("llm-foundry", "qwen3-8b", "dp=512 zero=3 shard=8 reshard=off mbs=1");
    let norms = "qk_gn: true\n    norm_type: low_precision_rmsnorm\n    norm_eps: 0.000001";
    assert_all(&qwen, &[norms, "data_parallel_replicate_degree: 64\n  sharding_strategy: _HYBRID_SHARD_ZERO2"]);
    let mixtral = emitted("llm-foundry", "mixtral-8x7b", "dp=512 ep=8 zero=3 mbs=1");
    let wanted = [
        "ffn_type: mb_dmoe\n    ffn_hidden_size: 14336\n    ffn_act_fn:\n      name: silu\n    mlp_type: glu",
        "moe_num_experts: 8\n    moe_top_k: 2\n    moe_normalize_expert_weights: 1\n    moe_loss_weight: 0.02\n    \
        moe_world_size: 8",
    ];
    assert_all(&mixtral, &wanted);
    let dbrx = emitted("llm-foundry", "dbrx-132b", "dp=512 ep=16 zero=3 mbs=1 recompute=full");
    assert_all(&dbrx, &["clip_qkv: 8.0", "rope_theta: 500000", "moe_loss_weight: 0.05", "no_bias: true"]);
    for (config, plan, why) in [
        ("mixtral-8x7b", "dp=512 ep=8 zero=0 mbs=1", "DDP would average the experts of unlike ranks"),
        ("mixtral-8x7b", "dp=512 ep=8 zero=3 shard=64 mbs=1", "beside copies are refused"),
        ("gpt-oss-120b", "dp=512 zero=3 mbs=1", "biases of experts or of the router"),
        ("qwen3-next-80b-a3b", "dp=512 zero=3 mbs=1", "linear-attention layers"),
        ("llama-3.1-8b", "tp=2 dp=256 zero=3 mbs=1", "splits MLPs alone"),
        ("llama-3.1-8b", "dp=512 zero=0 mbs=1 recompute=full", "only FSDP recomputes"),
        ("llama-3.1-8b", "dp=512 zero=2 mbs=1", "may keep them until backward"),
        ("llama-3.1-8b", "dp=512 zero=3 mbs=1 offload-optimizer=1", "refuses `cpu_offload`"),
        ("minimax-m2", "dp=512 zero=3 mbs=1", "by a sigmoid"),
        ("moonlight-16b-a3b", "dp=512 zero=3 mbs=1", "latent attention"),
        ("gpt-neox-20b", "dp=512 zero=3 mbs=1", "use_parallel_residual = 1"),
    ] {
        let refused = emitted("llm-foundry", config, plan);
        assert!(refused.contains(why), "{config} {plan}: {refused}");
    }
}

/// Rotary frequencies as shares of the spectrum, norms behind the two parts, kinds of norms on queries and keys, and routers.
#[test]
fn olmo_core_says_what_its_decoders_are() {
    let llama = emitted("olmo-core", "llama-3.1-8b", "dp=512 zero=3 mbs=1");
    let wanted = [
        "norm = LayerNormConfig(name=LayerNormType.rms, eps=0.00001, bias=False)",
        "rope=RoPEConfig(theta=500000, scaling=StepwiseRoPEScalingConfig(",
        "factor=8.0, low_freq_proportion=0.0, high_freq_proportion=0.25, old_context_len=8192",
        "name=DataParallelType.fsdp, param_dtype=DType.bfloat16, reduce_dtype=DType.float32",
        "block=block_0,",
    ];
    assert_all(&llama, &wanted);
    let exaone = emitted("olmo-core", "exaone-4-32b", "dp=512 zero=3 shard=8 mbs=1");
    let wanted = [
        "name=TransformerBlockType.reordered_norm",
        "qk_norm=norm, use_head_qk_norm=True",
        "block_pattern=[\"block_0\"] * 3 + [\"block_1\"] * 1",
        "num_replicas=64, shard_degree=8",
    ];
    assert_all(&exaone, &wanted);
    let qwen = emitted("olmo-core", "qwen3-30b-a3b", "dp=512 ep=64 shard=64 zero=3 mbs=1");
    let wanted = [
        "top_k=8, gating_function=MoERouterGatingFunction.softmax, normalize_expert_weights=1.0",
        "lb_loss_weight=0.001, scale_loss_by_num_layers=False",
        "ep_config=TransformerExpertParallelConfig(degree=64)",
    ];
    assert_all(&qwen, &wanted);
    for (config, plan, why) in [
        ("llama-3.1-8b", "tp=2 dp=256 zero=0 mbs=1", "DDP is for copies of whole models"),
        ("llama-3.1-8b", "dp=512 zero=3 reshard=off mbs=1", "freed after forward"),
        ("llama-3.1-8b", "cp=2 dp=256 cp-kind=allgather zero=3 mbs=1", "round a ring, or exchanges heads"),
        ("llama-3.1-8b", "pp=2 dp=256 schedule=zb-v vpp=2 zero=3 reshard=off mbs=1", "without torch.compile"),
        (
            "llama-3.1-8b",
            "pp=2 dp=256 schedule=1f1b zero=3 reshard=off mbs=1 recompute=per-op",
            "in pipelines it recomputes all blocks, or MLPs",
        ),
        ("llama-3.1-8b", "pp=4 dp=128 schedule=1f1b zero=3 reshard=off mbs=2", "fewer micro-batches than its 4 stages"),
        (
            "llama-3.1-8b",
            "tp=2 pp=2 dp=128 schedule=1f1b zero=3 reshard=off mbs=1",
            "stop at what tensor parallelism splits",
        ),
        ("qwen3-30b-a3b", "tp=2 ep=8 dp=256 zero=3 mbs=1", "`ep_config` beside `tp_config` is refused"),
        ("qwen3-30b-a3b", "dp=512 ep=8 zero=3 mbs=1", "`ep_config.degree` is HSDP's `shard_degree`"),
        ("qwen3-30b-a3b", "dp=512 zero=3 mbs=1 recompute=full", "does not recompute blocks with experts"),
        ("qwen2.5-7b", "dp=512 zero=3 mbs=1", "`AttentionConfig.bias` is for all four"),
        ("glm-4.5", "dp=512 zero=3 mbs=1", "averaged with the experts"),
        ("moonlight-16b-a3b", "dp=512 zero=3 mbs=1", "latent attention"),
        ("bloom-176b", "dp=512 zero=3 mbs=1", "its MLPs are gated"),
    ] {
        let refused = emitted("olmo-core", config, plan);
        assert!(refused.contains(why), "{config} {plan}: {refused}");
    }
}

#[test]
fn torchtitan_pipelines_have_the_micro_batches_that_torch_asks_for() {
    let plan = |schedule: &str| {
        emitted("torchtitan", "llama-3.1-8b", &format!("pp=4 dp=128 schedule={schedule} zero=3 mbs=2"))
    };
    assert!(plan("1f1b").contains("fewer micro-batches than its 4 stages"), "{}", plan("1f1b"));
    assert!(plan("gpipe").contains("pipeline_parallel_schedule = \"GPipe\""), "torch's GPipe takes any number");
    assert!(plan("zb-v").contains("ZBVZeroBubble"), "and so does its ZB-V");
}

/// Masks of flex attention are split in whole blocks of 128 queries: 1,152 tokens over 4 ranks are not.
#[test]
fn torchtitan_splits_sequences_in_whole_blocks() {
    let of = |seq_len: &str| {
        let args =
            ["emit", "torchtitan", "llama3-8b", "h100-512", "--plan", "cp=4 cp-kind=allgather dp=128 zero=3 mbs=1"];
        let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).args(["--seq-len", seq_len]).output();
        output.unwrap()
    };
    let refused = String::from_utf8(of("1152").stderr).unwrap();
    assert!(refused.contains("whole blocks of 128"), "{refused}");
    assert!(of("2048").status.success());
}

/// Activations of the catalogue's models are in the flags; a note names the one that Megatron has by default where the source says none.
#[test]
fn activations_of_the_catalogue_reach_megatrons_files() {
    let activation = "activation is ";
    for (model, plan, flags, note) in [
        ("nemotron4-340b", "tp=8 pp=8 dp=8 zero=1 mbs=1", &["--squared-relu"][..], None),
        ("nemotron-h-56b", "tp=8 dp=64 zero=1 mbs=1", &["--squared-relu"], None),
        ("llama3-8b", DENSE, &["--swiglu"], None),
        ("gpt-oss-20b", "dp=512 ep=8 zero=1 mbs=1", &["--quick-geglu", "--activation-func-clamp-value 7.0"], None),
        ("megatron-22b", DENSE, &[], None),
        ("falcon-180b", "tp=8 pp=8 dp=8 zero=1 mbs=1", &[], None),
        ("gpt3-175b", "tp=8 pp=8 dp=8 zero=1 mbs=1", &[], Some("GELU")),
    ] {
        let text = emitted_at("2048", "megatron", model, plan); // as many positions as GPT-3 learns
        assert!(text.contains("# predicted by meshwright"), "{model}: {text}");
        assert_all(&text, flags);
        for flag in ["--squared-relu", "--swiglu", "--quick-geglu"] {
            assert_eq!(text.contains(flag), flags.contains(&flag), "{model}: {flag} in {text}");
        }
        let words = text.replace("\n#  ", "");
        assert_eq!(words.contains(activation), note.is_some(), "{model}: {words}");
        assert!(note.is_none_or(|name| words.contains(&format!("{activation}{name}"))), "{model}: {words}");
    }
}
