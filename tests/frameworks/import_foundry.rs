//! llm-foundry's YAML: alone, with overrides behind its launcher, and as a job of MosaicML's platform.

use meshwright::frameworks::LLM_FOUNDRY;
use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::model::{Mixer, Norm, QkNorm, Span};
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::stack::Family;
use meshwright::workload::{Adaptation, Half};

const MPT: &str = "\
variables:
  max_seq_len: 2048
  run_name:
max_seq_len: ${variables.max_seq_len}
run_name: ${variables.run_name}
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: ${variables.max_seq_len}
  vocab_size: 50368
  attn_config:
    attn_impl: flash
tokenizer:
  name: EleutherAI/gpt-neox-20b
train_loader:
  name: text
  dataset:
    max_seq_len: ${variables.max_seq_len}
optimizer:
  name: decoupled_adamw
global_train_batch_size: 1024
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
";

fn read(text: &str) -> Imported {
    let kind = import::kind_of("mpt.yaml", text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kind, FileKind::Of(&LLM_FOUNDRY));
    import::read(text, kind, &Context::alone("mpt.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

fn changed(from: &str, to: &str) -> String {
    assert!(MPT.contains(from), "{from}");
    MPT.replace(from, to)
}

fn errors(imported: &Imported) -> Vec<&str> {
    let errors = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    errors.map(|finding| finding.message.as_str()).collect()
}

fn refused(text: &str) -> String {
    let kind = import::kind_of("mpt.yaml", text).unwrap();
    import::read(text, kind, &Context::alone("mpt.yaml")).unwrap_err().to_string()
}

#[test]
fn its_values_refer_to_others() {
    let imported = read(MPT);
    assert_eq!((imported.kind, imported.family, imported.stack), ("llm-foundry", Family::Fsdp, "foundry-2023"));
    assert_eq!(
        (imported.work.global_batch, imported.work.seq_len, imported.plan.micro_batch),
        (Some(1024), Some(2048), 8)
    );
    assert_eq!((imported.plan.zero, imported.plan.recompute), (ZeroStage::Three, Recompute::Full));
    assert_eq!(imported.settings.items(), ["stack.reduce_bytes=2"], "PURE reduces gradients in bf16");
    let model = imported.model.as_ref().unwrap();
    // Its benchmarks count 6.6589 billion for MPT-7b with 2,048 positions (tests/published/runs.csv, foundry-0039).
    assert_eq!((model.layers(), model.learned_positions, model.tied_embeddings), (32, 2048, true));
    assert!((model.parameters().total as f64 / 6.6589e9 - 1.0).abs() < 1e-4, "{}", model.parameters().total);
    assert_eq!(errors(&imported), [""; 0]);
}

#[test]
fn its_decoders_have_their_sizes() {
    let settings = "d_model: 4096\n  no_bias: true\n  attention_bias: true\n  norm_type: rmsnorm\n  tie_word_embeddings: false\n  \
                    resid_pdrop: 0.1\n  ffn_config:\n    ffn_type: mptglu\n    ffn_hidden_size: 11008\n    \
                    ffn_act_fn:\n      name: silu";
    let attention = "attn_impl: torch\n    attn_type: grouped_query_attention\n    kv_n_heads: 8\n    qk_gn: \
    true\n    rope: true\n    sliding_window_size: 1023";
    let imported = read(&changed("d_model: 4096", settings).replace("attn_impl: flash", attention));
    assert_eq!(errors(&imported), [""; 0]);
    assert!(imported.settings.items().contains(&"stack.attention=unfused".to_owned()));
    let model = imported.model.as_ref().unwrap();
    assert_eq!(
        (model.norm, model.tied_embeddings, model.dropout, model.learned_positions),
        (Norm::Rms, false, true, 0)
    );
    let Mixer::Attention(attention) = &model.kinds[0].mixer else { panic!("attention") };
    assert_eq!((attention.kv_heads, attention.qk_norm, attention.rope), (8, QkNorm::PerHead, true));
    assert_eq!((attention.span, attention.qkv_bias, attention.out_bias), (Span::Window(1024), true, false));
    let own = changed("n_heads: 32", "n_heads: 32\n  ffn_config:\n    ffn_type: my_moe\n    moe_num_experts: 4");
    assert!(refused(&own).contains("layers of `my_moe` are not read"));
    let whole = read(&changed("n_heads: 32", "n_heads: 32\n  block_overrides:\n    order: []"));
    assert!(errors(&whole)[0].contains("`block_overrides`"));
    let slip = read(&changed("n_layers: 32", "n_layers: 32\n  norm_type: other"));
    assert!(errors(&slip)[0].contains("norm_type"));
}

/// DBRX's own settings, and layers that drop tokens or walk experts one by one.
#[test]
fn its_experts_are_megablocks() {
    let experts = |kind: &str, more: &str| {
        let ffn = format!(
            "n_heads: 32\n  no_bias: true\n  ffn_config:\n    ffn_type: {kind}\n    ffn_hidden_size: 10752\n    \
            ffn_act_fn:\n      name: silu\n    \
             mlp_type: glu\n    moe_num_experts: 16\n    moe_top_k: 4\n    moe_world_size: 8{more}"
        );
        read(&changed("n_heads: 32", &ffn))
    };
    let dbrx = experts("mb_dmoe", "\n    moe_normalize_expert_weights: 1\n    moe_loss_weight: 0.05");
    assert_eq!(errors(&dbrx), [""; 0]);
    let model = dbrx.model.as_ref().unwrap();
    let moe = model.kinds[0].moe().unwrap();
    assert_eq!((moe.experts, moe.top_k, moe.intermediate, moe.gated, moe.bias), (16, 4, 10752, true, false));
    let router = &model.details.router;
    assert_eq!((router.normalized, router.aux_loss, dbrx.work.drops_tokens), (Some(true), Some(0.05), false));
    assert_eq!(dbrx.on(64).layout.ep, 8);
    let plain = experts("mb_moe", "");
    assert!(plain.work.drops_tokens, "`moe_capacity_factor` is 1 where nothing is said");
    assert_eq!(plain.model.unwrap().details.router.normalized, Some(false));
    let walked = experts("torch_dmoe", "");
    assert!(walked.findings.iter().any(|finding| finding.message.contains("one by one")), "{:?}", walked.findings);
}

#[test]
fn its_strategies_are_those_of_the_mesh() {
    let of = |settings: &str| read(&changed("sharding_strategy: FULL_SHARD", settings));
    let grads = of("sharding_strategy: SHARD_GRAD_OP");
    assert_eq!((grads.plan.zero, grads.plan.reshard_after_forward), (ZeroStage::Three, false));
    assert_eq!(of("sharding_strategy: NO_SHARD").plan.zero, ZeroStage::Zero);
    let hybrid =
        of("sharding_strategy: HYBRID_SHARD\n  data_parallel_shard_degree: 8\n  data_parallel_replicate_degree: 4");
    assert_eq!((hybrid.world, hybrid.plan.shard_group), (Some(32), Some(8)));
    let copies = of("sharding_strategy: HYBRID_SHARD\n  data_parallel_replicate_degree: 4");
    assert_eq!((copies.world, copies.on(64).shard_group), (None, Some(16)));
    let alone = of("sharding_strategy: HYBRID_SHARD");
    assert!(alone.findings.iter().any(|finding| finding.message.contains("shards over all GPUs")));
    assert_eq!(alone.on(64).shard_group, None);
    for (settings, why) in [
        ("sharding_strategy: FULL", "sharding_strategy"),
        ("cpu_offload: true", "refuses `cpu_offload`"),
        ("sharding_strategy: NO_SHARD\n  data_parallel_replicate_degree: 4", "beside `data_parallel_replicate_degree`"),
    ] {
        let found = of(settings);
        assert!(errors(&found).iter().any(|message| message.contains(why)), "{settings}: {:?}", found.findings);
    }
    for (settings, why) in [
        ("sharding_strategy: FULL_SHARD\n  process_group: node", "groups of its processes"),
        ("sharding_strategy: HYBRID_SHARD\n  device_mesh: [2, 8]", "since release 0.24"),
    ] {
        assert!(refused(&changed("sharding_strategy: FULL_SHARD", settings)).contains(why), "{settings}");
    }
    let tensor = format!("{MPT}tp_config:\n  strategy: ffn\n  tensor_parallel_degree: 2\n");
    assert!(refused(&tensor).contains("over 2 ranks splits MLPs alone"));
    let copied = read(&MPT[..MPT.find("fsdp_config").unwrap()]);
    assert_eq!((copied.plan.zero, copied.plan.recompute), (ZeroStage::Zero, Recompute::None));
    assert_eq!(copied.settings.items(), [""; 0], "DDP reduces in fp32");
}

#[test]
fn its_formats_are_read() {
    let half = read(&changed("precision: amp_bf16", "precision: amp_fp16"));
    assert_eq!(half.work.half, Half::Fp16);
    let lion = read(&changed("decoupled_adamw", "decoupled_lionw"));
    assert_eq!(lion.work.recipe.state.to_bits(), 4.0_f64.to_bits());
    let weights = read(&changed("d_model: 4096", "d_model: 4096\n  master_weights_dtype: bf16"));
    assert_eq!((weights.work.recipe.weight + weights.work.recipe.master).to_bits(), 2.0_f64.to_bits());
    let wide = read(&changed("PURE", "DEFAULT"));
    assert_eq!(wide.settings.items(), [""; 0]);
    let spelled =
        read(&changed("mixed_precision: PURE", "mixed_precision:\n    param_dtype: bf16\n    reduce_dtype: fp32"));
    assert_eq!(spelled.settings.items(), [""; 0]);
    let narrow = read(&changed("precision: amp_bf16", "precision: amp_fp8"));
    assert!(narrow.findings.iter().any(|finding| finding.message.contains("multiplies in bf16")));
    let engine = changed("d_model: 4096", "fc_type: te\n  d_model: 4096").replace("amp_bf16", "amp_fp8");
    assert_eq!(read(&engine).work.format, meshwright::gpu::Format::Fp8);
    let unknown = read(&changed("precision: amp_bf16", "precision: int4"));
    assert!(errors(&unknown)[0].contains("`precision` has the value `int4`"));
}

#[test]
fn nothing_that_decides_is_guessed() {
    let auto = read(&changed("device_train_microbatch_size: 8", "device_train_microbatch_size: auto"));
    assert!(errors(&auto)[0].contains("the largest that fits"));
    let gone = read(&changed("device_train_microbatch_size: 8\n", ""));
    assert!(errors(&auto)[0].starts_with("`device_train_microbatch_size: auto` is"), "{:?}", auto.findings);
    assert!(
        errors(&gone)[0].contains("is not given: its default, `auto`, is the largest that fits"),
        "{:?}",
        gone.findings
    );
    let slip = read(&changed("device_train_microbatch_size: 8", "device_train_microbatch_sizes: 8"));
    assert!(errors(&slip).iter().any(|message| message.contains("refuses keys that it does not know")));
    let slip = read(&changed("activation_checkpointing: true", "activation_checkpoint: true"));
    assert_eq!(slip.unknown[0].nearest.as_deref(), Some("activation_checkpointing"));
    let missing = read(&changed("global_train_batch_size: 1024", "global_train_batch_size: ${variables.batch}"));
    assert!(errors(&missing)[0].contains("`${variables.batch}`"), "{:?}", missing.findings);
    let parts = read(&changed("n_heads: 32", "n_heads: 32\n  activation_checkpointing_target: mptmlp"));
    assert!(errors(&parts)[0].contains("recomputes parts of blocks"));
    let other = changed("name: mpt_causal_lm", "name: hf_t5");
    assert!(refused(&other).contains("models of `hf_t5` are not read"));
    let evaluation = "models:\n- model_name: a\nmax_seq_len: 1024\nicl_tasks: tasks.yaml\n";
    assert!(import::kind_of("eval.yaml", evaluation).unwrap_err().why.contains("does not train"));
}

#[test]
fn its_launchers_and_jobs_say_how_many_train() {
    let files = |name: &str| (name == "yamls/7b.yaml").then(|| MPT.to_owned());
    let script =
        |text: &str| import::read(text, FileKind::Script, &Context { files: &files, ..Context::alone("run.sh") });
    let launched =
        script("composer -n 8 train/train.py yamls/7b.yaml fsdp_config.mixed_precision=DEFAULT max_seq_len=2048")
            .unwrap();
    assert_eq!((launched.world, launched.plan.layout.dp, launched.kind), (Some(8), 8, "llm-foundry"));
    assert_eq!(launched.settings.items(), [""; 0]);
    let nodes =
        script("composer --nproc 8 --world_size 256 --node_rank 3 scripts/train/train.py yamls/7b.yaml").unwrap();
    assert_eq!((nodes.world, nodes.gpus_per_node, nodes.plan.micro_batch), (Some(256), Some(8), 4));
    assert!(nodes.findings.iter().any(|finding| finding.message.contains("over the 4 sequences of one GPU")));
    let uneven = script("composer -n 6 train.py yamls/7b.yaml").unwrap();
    assert!(errors(&uneven)[0].contains("is not divided by 6 GPUs"), "{:?}", uneven.findings);
    let one = script("composer -n 1 train.py yamls/7b.yaml").unwrap();
    assert_eq!((one.plan.zero, one.plan.recompute), (ZeroStage::Zero, Recompute::None));
    assert!(script("composer -n 8 train.py yamls/13b.yaml").unwrap_err().why.contains("was not found"));
    let second = script("export FSDP_VERSION=2\ncomposer -n 8 train.py yamls/7b.yaml").unwrap_err();
    assert!(second.why.contains("FSDP 2"), "{second}");
    let inner = format!("  {}", MPT.trim_end().replace('\n', "\n  "));
    let job = format!(
        "name: a\ncompute:\n  gpus: 64\nimage: b\ncommand: |\n  composer train.py /mnt/config/parameters.yaml\nparameters:\n{inner}"
    );
    let job = read(&job);
    assert_eq!((job.world, job.work.seq_len, job.plan.layout.dp), (Some(64), Some(2048), 64));
    let without = "name: a\ncompute:\n  gpus: 64\nimage: b\ncommand: composer train.py 7b.yaml\n";
    assert!(import::kind_of("job.yaml", without).unwrap_err().why.contains("job of the MosaicML platform"));
}

#[test]
fn its_models_of_the_hub_are_those_of_their_names() {
    let at = MPT.find("  init_device").unwrap();
    let end = MPT.find("tokenizer:").unwrap();
    let hub = |settings: &str| {
        let text = format!(
            "{}  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n{settings}{}",
            &MPT[..at],
            &MPT[end..]
        );
        read(&text.replace("mpt_causal_lm", "hf_causal_lm"))
    };
    let plain = hub("  use_flash_attention_2: true\n");
    assert_eq!(plain.model.as_ref().map(|model| model.name.as_str()), Some("Llama 3 8B"));
    assert_eq!(errors(&plain), [""; 0]);
    let tuned = hub("  peft_config:\n    r: 64\n    peft_type: LORA\n    target_modules: [q_proj]\n");
    assert_eq!(tuned.work.adaptation, Adaptation::LoraAttention);
    let adapters = tuned.adapters.unwrap();
    assert_eq!((adapters.rank, adapters.targets), (Some(64), vec!["q_proj".to_owned()]));
    let changed = hub("  config_overrides:\n    num_hidden_layers: 4\n");
    assert!(errors(&changed)[0].contains("num_hidden_layers"), "{:?}", changed.findings);
}
