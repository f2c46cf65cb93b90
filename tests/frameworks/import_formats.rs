//! The configurations of DeepSpeed, torchtitan, Accelerate, nanotron, NeMo and Bridge, alone and behind a launcher.

use super::import_torchtitan::TITAN;
use crate::random::seeded;
use meshwright::frameworks;
use meshwright::import::{self, Context, FileKind, ImportError, Imported, Severity};
use meshwright::model::Ffn;
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::stack::Family;
use meshwright::workload::Recipe;

pub fn read(text: &str, kind: FileKind) -> Imported {
    import::read(text, kind, &Context::alone("file")).unwrap_or_else(|error| panic!("{error}"))
}

pub fn refused(text: &str, kind: FileKind) -> ImportError {
    import::read(text, kind, &Context::alone("file")).err().unwrap_or_else(|| panic!("read: {text}"))
}

fn error<'a>(imported: &'a Imported, rule: &str) -> &'a import::Finding {
    let found = imported.findings.iter().find(|finding| finding.level == Severity::Error && finding.rule == rule);
    found.unwrap_or_else(|| panic!("no {rule}: {:?}", imported.findings))
}

/// A launch whose configuration lies beside it.
pub fn launched(script: &str, name: &'static str, text: &'static str) -> Imported {
    let files = move |asked: &str| (asked == name).then(|| text.to_owned());
    let context = Context { files: &files, ..Context::alone("run.sh") };
    import::read(script, FileKind::Script, &context).unwrap_or_else(|error| panic!("{error}"))
}

const DEEPSPEED: &str = r#"{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 4,
  "bf16": { "enabled": true },
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "stage3_prefetch_bucket_size": 5e7,
    "offload_optimizer": { "device": "cpu", "ratio": 0.5 }
  },
  "gradient_clipping": 1.0,
  "wandb": { "enabled": false },
  "zero_optimisation": 1
}"#;

#[test]
fn deepspeed_is_read_with_its_launcher() {
    let imported =
        launched("deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed_config ds.json", "ds.json", DEEPSPEED);
    assert_eq!((imported.kind, imported.world), ("deepspeed", Some(16)));
    let plan = imported.plan;
    assert_eq!((plan.layout.dp, plan.zero, plan.micro_batch), (16, ZeroStage::Three, 4));
    assert!((plan.offload.optimizer - 0.5).abs() < 1e-9);
    assert_eq!(imported.work.global_batch, Some(256));
    assert_eq!(imported.unknown[0].nearest.as_deref(), Some("zero_optimization"));
    assert_eq!(imported.unknown[0].place.line, 14);
    assert!(imported.without_effect.iter().any(|key| key == "gradient_clipping"), "{:?}", imported.without_effect);
    let wrong = launched("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "ds.json", DEEPSPEED);
    assert!(error(&wrong, "does-not-divide").message.contains("4·4·8 = 128"));
}

#[test]
fn deepspeed_refuses_what_its_parser_refuses() {
    let typo = read(
        r#"{"zero_optimization": {"stage": 2, "overlap_com": true}, "bf16": {"enabled": true}}"#,
        FileKind::Of(&frameworks::DEEPSPEED),
    );
    assert!(error(&typo, "unknown-key").expected.contains("overlap_comm"));
    for (key, meant) in [
        ("stage3_prefetch_bucket_siz", Some("stage3_prefetch_bucket_size")),
        ("stage3_overlap_comm", Some("overlap_comm")),
        ("gather_fp16_weights_on_model_save", Some("gather_16bit_weights_on_model_save")),
        ("stage3_gather_fp16_weights_on_model_save", None),
        ("prefetch_bucket_size", None),
    ] {
        let text = format!("{{\"zero_optimization\": {{\"{key}\": 1}}, \"bf16\": {{\"enabled\": true}}}}");
        let found = read(&text, FileKind::Of(&frameworks::DEEPSPEED));
        let unknown = found.findings.iter().find(|finding| finding.rule == "unknown-key");
        assert_eq!(unknown.is_some(), meant.is_some(), "{key}");
        assert!(meant.is_none_or(|meant| unknown.unwrap().expected.contains(&format!("`{meant}`"))), "{unknown:?}");
    }
    let both = read(r#"{"bf16": {"enabled": true}, "fp16": {"enabled": true}}"#, FileKind::Of(&frameworks::DEEPSPEED));
    assert_eq!(error(&both, "contradiction").rule, "contradiction");
    let stage = read(r#"{"zero_optimization": {"stage": 4}}"#, FileKind::Of(&frameworks::DEEPSPEED));
    assert!(error(&stage, "wrong-value").expected.contains("0, 1, 2 or 3"));
    let auto = read(
        r#"{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}"#,
        FileKind::Of(&frameworks::DEEPSPEED),
    );
    assert!(auto.findings.iter().any(|finding| finding.rule == "unresolved-value"));
    let broken = refused("{\n \"a\": 1,,\n}", FileKind::Of(&frameworks::DEEPSPEED));
    assert_eq!(broken.line, 2, "{broken}");
    assert!(refused("{\"a\": 1,\n\"a\": 2}", FileKind::Of(&frameworks::DEEPSPEED)).to_string().contains("line 1"));
}

/// DeepSpeed divides the batch of a step where the micro-batch is not stated: among the launched GPUs, or those of the cluster.
#[test]
fn deepspeed_derives_the_micro_batch_that_is_not_stated() {
    let config = |more: &str| format!("{{\"train_batch_size\": 256, \"bf16\": {{\"enabled\": true}}{more}}}");
    let whole: &'static str = config("").leak();
    let launch = |text| launched("deepspeed --num_gpus 8 train.py --deepspeed_config a.json", "a.json", text);
    assert_eq!(launch(whole).plan.micro_batch, 32);
    assert_eq!(launch(config(", \"gradient_accumulation_steps\": 4").leak()).plan.micro_batch, 8);
    let alone = read(whole, FileKind::Of(&frameworks::DEEPSPEED));
    assert_eq!((alone.on(8).micro_batch, alone.on(64).micro_batch, alone.batch_on(64)), (32, 4, 256));
}

#[test]
fn deepspeed_states_what_gradients_and_optimizers_take() {
    let recipe = |more: &str| {
        let text = format!("{{\"zero_optimization\": {{\"stage\": 1}}, {more}}}");
        read(&text, FileKind::Of(&frameworks::DEEPSPEED)).work.recipe
    };
    let bf16 = "\"bf16\": {\"enabled\": true}";
    let optimizer = |kind: &str| recipe(&format!("{bf16}, \"optimizer\": {{\"type\": \"{kind}\"}}"));
    let wide = recipe(&format!("{bf16}, \"data_types\": {{\"grad_accum_dtype\": \"fp32\"}}"));
    let bytes = |recipe: Recipe| [recipe.weight, recipe.gradient, recipe.master, recipe.state];
    for (recipe, expected) in [
        (recipe(bf16), [2.0, 2.0, 4.0, 8.0]),
        (recipe("\"bfloat16\": {\"enabled\": \"auto\"}"), [2.0, 2.0, 4.0, 8.0]),
        (wide, [2.0, 4.0, 4.0, 8.0]),
        (optimizer("FusedAdam"), [2.0, 2.0, 4.0, 8.0]),
        (optimizer("Lion"), [2.0, 2.0, 4.0, 4.0]),
        (optimizer("SGD"), [2.0, 2.0, 4.0, 0.0]),
    ] {
        assert!(bytes(recipe).iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{recipe:?} {expected:?}");
    }
}

#[test]
fn megatron_deepspeed_takes_both_its_flags_and_its_json() {
    let script = r#"
NUM_GPUS=16
cat <<EOT > ds.json
{ "train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true} }
EOT
OPTIONS="--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
OPTIONS="$OPTIONS --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 50257 --tensor-model-parallel-size 2"
CMD="deepspeed --num_nodes 2 --num_gpus $((NUM_GPUS / 2)) pretrain_gpt.py $OPTIONS --deepspeed --deepspeed_config ds.json --zero-stage 1"
eval $CMD
"#;
    let imported = import::read(script, FileKind::Script, &Context::alone("run.sh")).unwrap();
    assert_eq!((imported.family, imported.world), (Family::MegatronDeepspeed, Some(16)));
    assert_eq!((imported.plan.layout.tp, imported.plan.layout.dp, imported.plan.zero), (2, 8, ZeroStage::One));
    let model = imported.model.unwrap();
    assert_eq!((model.layers(), model.hidden, model.tied_embeddings), (24, 2048, true));
}

#[test]
fn trainer_arguments_fill_what_a_json_leaves_open() {
    let json = "{\"train_batch_size\": \"auto\", \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3}}";
    let beside = |name: &str| (name == "ds.json").then(|| json.to_owned());
    let context = Context { files: &beside, ..Context::alone("run.sh") };
    let script = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path meta-llama/Llama-3.1-8B \\\n \
                  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --gradient_checkpointing True \
                  --max_seq_length 4096";
    let launch = import::read(script, FileKind::Script, &context).unwrap();
    assert_eq!(launch.model.as_ref().and_then(import::known::name_of), Some("llama3-8b"));
    assert_eq!(launch.plan.to_string(), "tp=1 cp=1 pp=1 dp=8 zero=3 mbs=2 recompute=full");
    assert_eq!((launch.work.global_batch, launch.work.seq_len), (Some(64), Some(4096)));
}

const ACCELERATE: &str = "compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
";

#[test]
fn accelerate_is_read_alone_and_launched() {
    let imported = read(ACCELERATE, FileKind::Of(&frameworks::ACCELERATE));
    let plan = imported.plan;
    assert_eq!((imported.world, imported.gpus_per_node), (Some(16), Some(8)));
    assert_eq!((plan.layout.tp, plan.layout.dp, plan.shard_group), (2, 8, Some(4)));
    assert_eq!((plan.zero, plan.recompute), (ZeroStage::Three, Recompute::Full));
    let wrong =
        launched("accelerate launch --config_file a.yaml --num_processes 32 train.py --lr 1", "a.yaml", ACCELERATE);
    assert!(error(&wrong, "world-size").message.contains("multiply to 16, and there are 32"));
    let unknown = read(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_procesess: 8\n",
        FileKind::Of(&frameworks::ACCELERATE),
    );
    let found = error(&unknown, "unknown-key");
    assert!(found.expected.contains("num_processes") && found.place.as_ref().unwrap().line == 3);
    let plain = import::read(
        "accelerate launch --use_fsdp --num_processes 8 --fsdp_sharding_strategy SHARD_GRAD_OP --mixed_precision bf16 t.py",
        FileKind::Script,
        &Context::alone("run.sh"),
    )
    .unwrap();
    assert_eq!((plain.world, plain.plan.zero, plain.plan.reshard_after_forward), (Some(8), ZeroStage::Three, false));
}

const NANOTRON: &str = "parallelism:
  dp: 4
  pp: 2
  tp: 8
  pp_engine: 1f1b
  tp_mode: REDUCE_SCATTER
  tp_linear_async_communication: true
tokens:
  sequence_length: 4096
  micro_batch_size: 2
  batch_accumulation_per_replica: 16
  train_steps: 100
optimizer:
  zero_stage: 1
  accumulate_grad_in_fp32: true
model:
  dtype: bfloat16
  model_config:
    is_llama_config: true
    hidden_size: 4096
    intermediate_size: 14336
    num_attention_heads: 32
    num_key_value_heads: 8
    num_hidden_layers: 32
    vocab_size: 128256
    tie_word_embeddings: false
general:
  seed: 42
";

#[test]
fn nanotron_is_read() {
    let imported = read(NANOTRON, FileKind::Of(&frameworks::NANOTRON));
    assert_eq!(imported.model.as_ref().and_then(import::known::name_of), Some("llama3-8b"));
    assert_eq!((imported.world, imported.work.global_batch), (Some(64), Some(128)));
    assert!(imported.plan.sequence_parallel && imported.plan.zero == ZeroStage::One);
    assert!((imported.work.recipe.total() - 18.0).abs() < 1e-9);
    let wrong = read(
        &NANOTRON.replace("1f1b", "dualpipe").replace("zero_stage: 1", "zero_stage: 3"),
        FileKind::Of(&frameworks::NANOTRON),
    );
    let wrongs = wrong.findings.iter().filter(|finding| finding.rule == "wrong-value").count();
    assert_eq!(wrongs, 2, "{:?}", wrong.findings);
    let world = launched("torchrun --nproc_per_node 8 run_train.py --config-file n.yaml", "n.yaml", NANOTRON);
    assert!(error(&world, "world-size").message.contains("64, and 8"));
}

#[test]
fn nanotrons_first_experts_are_as_wide_as_its_mlp() {
    let with = |more: &str| {
        read(
            &NANOTRON.replace("    vocab_size:", &format!("{more}    vocab_size:")),
            FileKind::Of(&frameworks::NANOTRON),
        )
    };
    let moe = |imported: &Imported| match &imported.model.as_ref().map(|model| model.kinds[0].ffn.clone()) {
        Some(Ffn::Moe(moe)) => Some((moe.experts, moe.top_k, moe.intermediate)),
        _ => None,
    };
    assert_eq!(moe(&with("    moe_num_experts: 8\n    num_experts_per_tok: 2\n")), Some((8, 2, 14336)));
    assert_eq!(moe(&with("    moe_num_experts: 4\n")), Some((4, 1, 14336)), "nanotron's router takes one expert");
    assert_eq!(moe(&with("    moe_num_experts: 1\n")), None, "one expert is an MLP");
}

#[test]
fn files_are_known_by_name_and_text() {
    for (name, text, kind) in [
        ("x.sh", "torchrun", FileKind::Script),
        ("args.txt", "--num-layers 2", FileKind::Of(&frameworks::MEGATRON)),
        ("ds.json", "{\"train_batch_size\": 8}", FileKind::Of(&frameworks::DEEPSPEED)),
        ("x.toml", "[training]\nseq_len = 8\n", FileKind::Of(&frameworks::TORCHTITAN)),
        ("a.yaml", ACCELERATE, FileKind::Of(&frameworks::ACCELERATE)),
        ("n.yml", NANOTRON, FileKind::Of(&frameworks::NANOTRON)),
        ("m.yaml", "MODEL_ARGS:\n  --num-layers: 2\n", FileKind::Of(&frameworks::MEGATRON_BRIDGE)),
    ] {
        assert_eq!(import::kind_of(name, text), Ok(kind), "{name}");
    }
}

proptest::proptest! {
    #![proptest_config(seeded(256))]

    /// No text makes a reader panic, and every error has a line.
    #[test]
    fn no_text_is_too_odd(text in "[ -~\n\t]{0,200}", cut in 0_usize..400) {
        for kind in FileKind::names().filter_map(FileKind::named) {
            let cuts = [DEEPSPEED, NANOTRON, TITAN].map(|whole| cut_at(whole, cut));
            for text in [text.clone(), format!("torchrun {text}")].into_iter().chain(cuts) {
                if let Err(error) = import::read(&text, kind, &Context::alone("odd")) {
                    proptest::prop_assert!(error.line >= 1);
                }
            }
        }
    }

    /// A slip in one place of a script is named or harmless, and never a panic.
    #[test]
    fn scripts_with_a_hole_are_read_or_refused(from in 0_usize..600, long in 1_usize..40) {
        let script = "A=(--num-layers 4 --hidden-size 64)\nB=${X:-\"a b\"}\nif [[ -z \"$C\" && 1 -lt 2 ]]; then A+=(--bf16); fi\n\
                      for i in 1 2; do N=$((N + i)); done\ncase $B in a*) D=1;; *) D=2;; esac\nf() { echo $1; }\n\
                      cat <<EOF > x.json\n{\"a\": $N}\nEOF\nsrun bash -c \"torchrun --nnodes $N p.py ${A[@]} \
                      --seq-length $((2**10))\"\n";
        let holed: String = script.chars().enumerate().filter(|(at, _)| *at < from || *at >= from + long).map(|(_, c)| c).collect();
        let _ = import::read(&holed, FileKind::Script, &Context::alone("holed"));
    }
}

fn cut_at(text: &str, at: usize) -> String {
    text.chars().take(at).collect()
}

/// MaxText's YAML is read where it says everything itself; over a model's own file it is refused by its name.
#[test]
fn maxtext_is_read_whole_or_refused() {
    let whole = "base_config: base.yml\ndecoder_block: llama2\nbase_emb_dim: 4096\nbase_num_decoder_layers: \
    32\nbase_num_query_heads: 32\n\
                 base_num_kv_heads: 8\nhead_dim: 128\nbase_mlp_dim: 14336\nvocab_size: 128256\nenable_dropout: false\n\
                 ici_fsdp_parallelism: 64\nici_tensor_parallelism: 4\nper_device_batch_size: 0.5\nmax_target_length: 8192\n";
    let read = |text: &str| {
        let kind = import::kind_of("maxtext.yml", text)?;
        import::read(text, kind, &Context::alone("maxtext.yml"))
    };
    let imported = read(whole).unwrap();
    assert_eq!(imported.plan.to_string(), "tp=4 cp=1 pp=1 dp=64 sp=off zero=3 mbs=2 recompute=full");
    assert_eq!((imported.world, imported.work.global_batch, imported.work.seq_len), (Some(256), Some(128), Some(8192)));
    assert_eq!(imported.model.unwrap().parameters().total, 8_030_261_248);
    for (more, rule) in [("ici_pipeline_parallelism: 2", "unread-setting"), ("quantization: fp8", "unread-setting")] {
        let imported = read(&format!("{whole}{more}\n")).unwrap();
        assert!(imported.findings.iter().any(|finding| finding.rule == rule), "{more}: {:?}", imported.findings);
    }
    for (policy, recompute, known) in [
        ("minimal", "per-op", true),
        ("minimal_flash", "none", true),
        ("minimal_offloaded", "per-op", true),
        ("none", "full", true),
        ("save_dot_except_mlp", "core_attn+mlp", true),
        ("save_qkv_proj", "full", false),
    ] {
        let imported = read(&format!("{whole}remat_policy: {policy}\n")).unwrap();
        assert_eq!(imported.plan.recompute.to_string(), recompute, "{policy}");
        assert_eq!(imported.plan.offload.activations > 0.0, policy == "minimal_offloaded");
        let warned = imported.findings.iter().any(|finding| finding.rule == "not-modelled");
        assert_ne!(warned, known, "{policy}: {:?}", imported.findings);
    }
    let partial = read("base_config: base.yml\nmodel_name: llama3.1-8b\nici_fsdp_parallelism: -1\n").unwrap_err();
    assert!(partial.why.contains("MaxText's configuration, which is not read"), "{partial}");
}
