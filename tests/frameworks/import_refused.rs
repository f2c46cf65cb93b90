//! Formats are recognised by what they must contain, and others are refused by their name: nothing is read as its cousin.

use meshwright::import::{self, Context, FileKind, Imported, Severity};

fn kind(name: &str, text: &str) -> Result<FileKind, String> {
    import::kind_of(name, text).map_err(|error| error.to_string())
}

fn read(name: &str, text: &str) -> Imported {
    let kind = import::kind_of(name, text).unwrap_or_else(|error| panic!("{error}"));
    import::read(text, kind, &Context::alone(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn errors(imported: &Imported) -> Vec<&str> {
    let of_level = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    of_level.map(|finding| finding.message.as_str()).collect()
}

#[test]
fn formats_that_are_not_read_are_refused_by_their_name() {
    for (name, text, title) in [
        ("a.yaml", "step_scheduler:\n  global_batch_size: 64\nmodel:\n  _target_: nemo_automodel.x\n", "Automodel"),
        ("v.yaml", "actor_rollout_ref:\n  actor:\n    megatron:\n      tensor_model_parallel_size: 2\n", "verl"),
        (
            "r.yaml",
            "policy:\n  megatron_cfg:\n    tensor_model_parallel_size: 8\ncluster:\n  num_nodes: 2\n",
            "NeMo-RL",
        ),
        ("x.yml", "base_model: a/b\nmicro_batch_size: 2\nrl: grpo\n", "axolotl"),
        ("f.yaml", "model_name_or_path: a/b\nfinetuning_type: lora\ncutoff_len: 2048\n", "LLaMA-Factory"),
        ("c.yaml", "models:\n- model_name: a\nmax_seq_len: 2048\n", "llm-foundry"),
        ("m.yml", "base_config: base.yml\nper_device_batch_size: 4\nici_fsdp_parallelism: 16\n", "MaxText"),
        (
            "p.yaml",
            "modules:\n  pre_trainer:\n    framework: torchtitan\n    overrides:\n      training:\n        seq_len: 8\n",
            "Primus",
        ),
        ("k.yaml", "apiVersion: v1\nkind: Job\n", "Kubernetes"),
        ("asr.yaml", "trainer:\n  devices: 8\nmodel:\n  sample_rate: 16000\n", "no training of a GPT"),
        ("config.json", "{\"model_type\": \"llama\", \"hidden_size\": 4096}", "Hugging Face"),
        (
            "recipe.py",
            "import nemo_run as run\ndef r():\n    return run.Config(tensor_model_parallel_size=4)\n",
            "program of NeMo",
        ),
        ("o.py", "from olmo_core.config import DType\ndef build_config(o):\n    return o\n", "OLMo-core"),
        ("train.py", "import torch\nmodel = torch.nn.Linear(2, 2)\n", "training program"),
        ("pyproject.toml", "[project]\nname = 'x'\n", "manifest"),
    ] {
        let refused = kind(name, text).expect_err(name);
        assert!(
            refused.contains(title) && refused.contains("not read") && refused.contains("hint:"),
            "{name}: {refused}"
        );
    }
    assert!(kind("x.yaml", "colour: green\n").unwrap_err().contains("no known format"));
}

#[test]
fn launches_of_programs_that_are_not_read_are_refused_by_their_name() {
    for (script, what) in [
        ("python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.ppo_micro_batch_size=8 trainer.nnodes=2", "verl"),
        ("python3 -m maxtext.trainers.train base.yml per_device_batch_size=4 dcn.tensor=2", "MaxText"),
        ("torchrun --nproc-per-node 8 examples/automodel/finetune.py --config a.yaml", "Automodel"),
    ] {
        let error = import::read(script, FileKind::Script, &Context::alone("run.sh")).expect_err(script);
        assert!(error.to_string().contains(what), "{script}: {error}");
    }
}

#[test]
fn a_setting_that_decides_and_is_not_read_is_an_error() {
    let text = "model:\n  num_layers: 8\n  hidden_size: 512\n  num_attention_heads: 8\n  seq_length: 128\n  vocab_size: 1000\n\
                \n  hyper_parallel_size: 4\n  colour: green\ntrain:\n  micro_batch_size: 2\n  global_batch_size: 8\n";
    let imported = read("b.yaml", text);
    assert!(errors(&imported).iter().any(|error| error.contains("hyper_parallel_size")), "{:?}", imported.findings);
    assert!(imported.without_effect.contains(&"model.colour".to_owned()), "{:?}", imported.without_effect);
    let script = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --bf16 \
                  --seq-length 128 --micro-batch-size 1 --tensor-parallel-degree 4";
    let imported = import::read(script, FileKind::Script, &Context::alone("run.sh")).unwrap();
    assert!(
        errors(&imported).iter().any(|error| error.contains("--tensor-parallel-degree")),
        "{:?}",
        imported.findings
    );
}

const HELPED: &str = "
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.recipes.utils import tuned

def _optimizer(cfg, bits=32):
    cfg.optimizer.exp_avg_dtype = 'bf16'
    cfg.train.micro_batch_size = 4

def _larger(cfg: ConfigContainer) -> ConfigContainer:
    cfg.model.pipeline_model_parallel_size = 8
    return cfg

def pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained(\"meta-llama/Meta-Llama-3-8B\").get_model_config()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.seq_length = 8192
    cfg = _larger(cfg)
    _optimizer(cfg, bits=16)
    cfg = tuned(cfg)
    return cfg
";

#[test]
fn a_recipe_keeps_its_settings_through_helpers() {
    let imported = read("recipe.py", HELPED);
    let plan = &imported.plan;
    assert_eq!((plan.layout.tp, plan.layout.pp, plan.micro_batch), (4, 8, 4));
    assert_eq!((imported.work.global_batch, imported.work.seq_len), (Some(32), Some(8192)), "the base's batch");
    assert_eq!(imported.model.as_ref().map(meshwright::model::Model::layers), Some(32));
    let unread = imported.findings.iter().filter(|finding| finding.rule == "not-read");
    assert_eq!(unread.filter_map(|finding| finding.place.as_ref()).map(|place| place.line).collect::<Vec<_>>(), [20]);
    let other = HELPED.replace("_pretrain_common()", "llama3_70b_pretrain_config()");
    assert!(errors(&read("recipe.py", &other)).iter().any(|error| error.contains("of another module")));
}

#[test]
fn a_branch_that_decides_is_an_error() {
    let text = HELPED.replace("    cfg = tuned(cfg)\n", "    if fast:\n        cfg.model.context_parallel_size = 2\n");
    assert!(errors(&read("recipe.py", &text)).iter().any(|error| error.contains("depends on running")));
}

#[test]
fn references_and_defaults_in_yaml_are_followed() {
    let nemo = "trainer:\n  devices: 8\n  num_nodes: 2\nmodel:\n  num_layers: 8\n  hidden_size: 512\n  num_attention_heads: 8\n\
                \n  encoder_seq_length: 2048\n  max_position_embeddings: ${.encoder_seq_length}\n  micro_batch_size: 2\n\
                \n  global_batch_size: 64\n  tensor_model_parallel_size: 2\n";
    let imported = read("nemo.yaml", nemo);
    assert!(errors(&imported).is_empty(), "{:?}", imported.findings);
    assert_eq!(imported.model.as_ref().map(|model| model.learned_positions), Some(2048));
    let primus = "modules:\n  pre_trainer:\n    framework: megatron\n    model: llama3_8B.yaml\n    overrides:\n\
                  \n      tensor_model_parallel_size: ${TP:2}\n      micro_batch_size: 1\n      global_batch_size: \
                  16\n      seq_length: 8192\n";
    let variables = [("TP".to_owned(), "4".to_owned())];
    let kind = import::kind_of("p.yaml", primus).unwrap();
    let given = import::read(primus, kind, &Context { variables: &variables, ..Context::alone("p.yaml") }).unwrap();
    assert_eq!((given.plan.layout.tp, u8::from(given.plan.zero)), (4, 1), "its trainers shard the optimizer");
    assert_eq!(read("p.yaml", primus).plan.layout.tp, 2);
}

#[test]
fn accumulated_micro_batches_count_on_any_number_of_gpus() {
    let text =
        "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8, \"bf16\": {\"enabled\": true}}";
    assert_eq!(read("ds.json", text).batch_on(16), 4 * 8 * 16);
}
