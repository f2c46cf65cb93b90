//! NeMo's, Megatron-Bridge's and FlagScale's files.

use super::import_formats::{read, refused};
use meshwright::frameworks;
use meshwright::gpu::Format;
use meshwright::import::{self, Context, FileKind, Finding, Imported, Severity};
use meshwright::model::Ffn;
use meshwright::plan::{CpKind, ZeroStage};
use meshwright::schedule::Schedule;
use meshwright::workload::Adaptation;

/// A recipe of adapters; `PEFT` is what they are, `NAME` a precision.
const ADAPTERS: &str = "
from megatron.bridge.recipes.common import _peft_common

def llama3_8b_peft_config() -> ConfigContainer:
    cfg = _peft_common()
    cfg.mixed_precision = get_mixed_precision_config('NAME')
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.num_layers_in_first_pipeline_stage = 6
    PEFT
    return cfg
";

#[test]
fn adapters_and_weights_of_recipes_are_read() {
    let recipe = |peft: &str, precision: &str| {
        let text = ADAPTERS.replace("PEFT", peft).replace("NAME", precision);
        import::read(&text, FileKind::Of(&frameworks::MEGATRON_BRIDGE), &Context::alone("recipe.py")).unwrap()
    };
    let rank = |peft: &str| recipe(peft, "bf16_mixed").adapters.and_then(|adapters| adapters.rank);
    assert_eq!((rank(""), rank("cfg.peft.dim = 8")), (Some(32), Some(8)));
    assert_eq!((rank("cfg.peft = default_peft_config('lora', dim=4)"), rank("cfg.peft = None")), (Some(4), None));
    let dora = recipe("cfg.peft = DoRA(dim=16)", "bf16_mixed");
    assert_eq!((dora.work.adaptation, dora.adapters.unwrap().targets.len()), (Adaptation::Lora, 4));
    assert!(dora.findings.iter().any(|finding| finding.rule == "not-modelled" && finding.message.contains("DoRA")));
    let unknown = recipe("cfg.peft = Prompts(tokens=4)", "bf16_mixed");
    assert!(unknown.findings.iter().any(|finding| finding.rule == "unread-setting"), "{:?}", unknown.findings);
    let bytes = |precision: &str| recipe("", precision).work.recipe.weight.to_string();
    assert_eq!(["bf16-mixed", "bf16_with_fp8_subchannel_scaling_mixed"].map(bytes), ["2", "2"]);
    assert_eq!(["bf16-with-mxfp8-mixed", "bf16_with_fp8_current_scaling_mixed"].map(bytes), ["1", "1"]);
    assert!(recipe("", "bf16_mixed").on(8).to_string().contains("split=first-6"));
}

/// A recipe as Megatron-Bridge's performance recipes are written: it inherits from another file.
const RECIPE: &str = "
from megatron.bridge.recipes.llama import llama3_70b_pretrain_config

def llama3_70b_pretrain_64gpu_config() -> ConfigContainer:
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = _perf_precision('fp8_mx')
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = True
    cfg.model.cp_comm_type = 'a2a'
    cfg.model.context_parallel_size = 2
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1
    cfg.ddp.use_distributed_optimizer = True
    return cfg
";

#[test]
fn python_recipes_are_followed() {
    let name = "llama3_70b_pretrain_64gpu_config".to_owned();
    let context = Context { arguments: &[name], ..Context::alone("recipe.py") };
    assert_eq!(import::kind_of("recipe.py", RECIPE), Ok(FileKind::Of(&frameworks::MEGATRON_BRIDGE)));
    let recipe = import::read(RECIPE, FileKind::Of(&frameworks::MEGATRON_BRIDGE), &context).unwrap();
    assert_eq!(recipe.model.as_ref().and_then(import::known::name_of), Some("llama3-70b"));
    let plan =
        "tp=2 cp=2 pp=4 dp=4 sp=on cp-kind=a2a schedule=interleaved vpp=5 split=even zero=1 mbs=1 recompute=none";
    assert_eq!(recipe.on(64).to_string(), plan);
    assert_eq!((recipe.work.global_batch, recipe.work.format), (Some(128), Format::Mxfp8));
    let unknown = Context { arguments: &["llama3_70b_pretrain".to_owned()], ..Context::alone("recipe.py") };
    let error = import::read(RECIPE, FileKind::Of(&frameworks::MEGATRON_BRIDGE), &unknown).unwrap_err();
    assert!(error.why.contains("llama3_70b_pretrain") && !error.expected.is_empty(), "{error}");
    let broken = import::read("cfg = (1,\n", FileKind::Of(&frameworks::MEGATRON_BRIDGE), &Context::alone("recipe.py"))
        .unwrap_err();
    assert_eq!((broken.line, broken.why.as_str()), (1, "`(` is never closed"));
}

/// Megatron core asserts that a layout has as many chunks as the recipe says.
#[test]
fn chunks_beside_another_layout_are_an_error() {
    let read = |layout: &str| {
        let own = format!("_size = 5\n    cfg.model.pipeline_model_parallel_layout = '{layout}'\n");
        let text = RECIPE.replace("_size = 5\n", &own);
        let name = "llama3_70b_pretrain_64gpu_config".to_owned();
        let context = Context { arguments: &[name], ..Context::alone("recipe.py") };
        import::read(&text, FileKind::Of(&frameworks::MEGATRON_BRIDGE), &context).unwrap()
    };
    let errors = |imported: &Imported| {
        let of_layout = |finding: &&Finding| finding.message.contains("beside a layout");
        imported.findings.iter().filter(of_layout).map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    let twenty = read("Etttt|(tttt|)*18ttttL");
    assert_eq!((errors(&twenty), twenty.plan.schedule.virtual_stages()), (Vec::new(), 5));
    let other = read("Ettttt|(ttttt|)*14tttttL");
    assert_eq!(
        errors(&other),
        ["`model.virtual_pipeline_model_parallel_size: 5` beside a layout of 16 stages on pp=4, which has 4 a rank: \
             Megatron core asserts that they agree"]
    );
}

#[test]
fn nemo_and_bridge_are_other_spellings() {
    let nemo = "trainer:\n  num_nodes: 4\n  devices: 8\n  precision: bf16\nmodel:\n  micro_batch_size: 1\n  \
    global_batch_size: 128\n  \
                encoder_seq_length: 4096\n  max_position_embeddings: 4096\n  num_layers: 32\n  hidden_size: 4096\n  \
                ffn_hidden_size: 14336\n  num_attention_heads: 32\n  num_query_groups: 8\n  tensor_model_parallel_size: 4\n  \
                pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: 4\n  sequence_parallel: true\n  \
                normalization: rmsnorm\n  activation: fast-swiglu\n  bias: false\n  position_embedding_type: rope\n  \
                share_embeddings_and_output_weights: false\n  hidden_dropout: 0.0\n  attention_dropout: 0.0\n  \
                activations_checkpoint_granularity: selective\n  overlap_p2p_comm: true\n  optim:\n    name: \
                distributed_fused_adam\n";
    let imported = read(nemo, FileKind::Of(&frameworks::MEGATRON_BRIDGE));
    assert_eq!(imported.model.as_ref().map(|model| model.name.as_str()), Some("Llama 3 8B"), "{:?}", imported.findings);
    assert_eq!((imported.world, imported.plan.layout.dp), (Some(32), 4));
    assert_eq!(
        (imported.plan.schedule, imported.plan.zero),
        (Schedule::Interleaved { virtual_stages: 4 }, ZeroStage::One)
    );
    let script = "torchrun --nproc_per_node=8 --nnodes=2 run_recipe.py --recipe llama3_8b_pretrain_config \
                  model.tensor_model_parallel_size=2 model.context_parallel_size=2 train.global_batch_size=64 \
                  train.micro_batch_size=1 model.seq_length=8192 +mixed_precision=bf16_with_mxfp8_mixed \
                  model.cp_comm_type=a2a ddp.use_distributed_optimizer=true ddp.overlap_grad_reduce=true";
    let bridge = import::read(script, FileKind::Script, &Context::alone("run.sh")).unwrap();
    assert_eq!(bridge.model.as_ref().and_then(import::known::name_of), Some("llama3-8b"));
    assert_eq!((bridge.plan.layout.tp, bridge.plan.layout.cp, bridge.plan.layout.dp), (2, 2, 4));
    assert_eq!((bridge.plan.cp_kind, bridge.work.format.to_string().as_str()), (CpKind::AllToAll, "mxfp8"));
    let recipe = "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --bf16: \
    true\n  --swiglu: false\n  \
                  --recompute-modules: \"[layernorm]\"\n  --recompute-granularity: selective\n  --seq-length: 1024\n  \
                  --micro-batch-size: 4\n  --vocab-size: 1000\n  --max-position-embeddings: 1024\n";
    let own = read(recipe, FileKind::Of(&frameworks::MEGATRON_BRIDGE));
    assert_eq!(own.model.as_ref().map(|model| (model.layers(), model.hidden)), Some((12, 512)));
    assert_eq!((own.plan.micro_batch, own.work.seq_len), (4, Some(1024)));
    assert!(refused("a: 1\n", FileKind::Of(&frameworks::MEGATRON_BRIDGE)).to_string().contains("MODEL_ARGS"));
}

/// FlagScale: the model under `model`, degrees and formats under `system`, the vocabulary with the tokenizer.
#[test]
fn flagscale_has_its_degrees_under_system() {
    let text = "\
system:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  sequence_parallel: true
  use_distributed_optimizer: true
  precision:
    bf16: true
  logging:
    log_interval: 1
model:
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  seq_length: 4096
  max_position_embeddings: 4096
  micro_batch_size: 1
  global_batch_size: 64
data:
  tokenizer:
    vocab_size: 100008
";
    let read = import::read(text, import::kind_of("train.yaml", text).unwrap(), &Context::alone("train.yaml")).unwrap();
    let plan = read.on(64).to_string();
    assert!(plan.starts_with("tp=2 cp=1 pp=4 dp=8 sp=on") && plan.contains("zero=1"), "{plan}");
    assert_eq!(read.model.as_ref().unwrap().vocab, 100_008);
    assert!(!read.without_effect.iter().any(|key| key.contains("parallel")), "{:?}", read.without_effect);
}

/// A clone of Megatron-Bridge in small: a recipe, the helpers that it shares with others, and the recipe that it builds on.
fn clone(name: &str) -> Option<String> {
    let text = match name {
        "megatron/bridge/perf_recipes/common.py" => {
            "
from megatron.bridge.recipes.llama import llama3_70b_pretrain_config
from megatron.bridge.training.mixed_precision import mxfp8_mixed

def _precision(kind: str, more: bool = False, last: int = 4):
    if kind == 'bf16':
        cfg = bf16_mixed()
    elif kind == 'fp8_mx':
        cfg = mxfp8_mixed()
    else:
        raise ValueError(kind)
    cfg.grad_reduce_in_fp32 = more
    return cfg

def _benchmark(cfg, *, impl: str = 'te') -> None:
    cfg.model.cross_entropy_fusion_impl = impl
    if hasattr(cfg.model, 'graphs') and cfg.model.graphs:
        cfg.model.cuda_graph_scope = []
"
        }
        "megatron/bridge/training/mixed_precision.py" => {
            "
def bf16_mixed():
    return MixedPrecisionConfig(bf16=True, params_dtype=torch.bfloat16)

@register
def mxfp8_mixed() -> MixedPrecisionConfig:
    cfg = bf16_mixed()
    cfg.fp8 = 'e4m3'
    cfg.fp8_recipe = 'mxfp8'
    return cfg
"
        }
        "megatron/bridge/recipes/llama/__init__.py" => {
            "from .llama3 import llama3_70b_pretrain_32gpu_config as llama3_70b_pretrain_config\n"
        }
        "megatron/bridge/recipes/llama/llama3.py" => {
            "
from megatron.bridge.recipes.common import _pretrain_common

def llama3_70b_pretrain_32gpu_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained('meta-llama/Meta-Llama-3-70B').to_megatron_provider()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_layout = None
    cfg.model.sequence_parallel = True
    cfg.model.seq_length = cfg.dataset.seq_length = 8192
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    return cfg
"
        }
        "megatron/bridge/recipes/common.py" => {
            "
def _pretrain_common() -> ConfigContainer:
    return ConfigContainer(
        model=None,
        train=TrainingConfig(global_batch_size=32, micro_batch_size=2),
        ddp=DDPConfig(use_distributed_optimizer=True),
        dataset=GPTDatasetConfig(seq_length=4096),
        mixed_precision='bf16_mixed',
    )
"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

const BUILT_ON: &str = "
from megatron.bridge.perf_recipes.common import (
    _benchmark,
    _precision,
    llama3_70b_pretrain_config as base,
)

def llama3_70b_pretrain_64gpu_config() -> ConfigContainer:
    cfg = base()
    cfg.mixed_precision = _precision('fp8_mx')
    cfg.model.virtual_pipeline_model_parallel_size = 5
    if cfg.model.tensor_model_parallel_size > 1:
        cfg.train.micro_batch_size = 1
    _benchmark(cfg)
    return cfg
";

fn errors(imported: &Imported) -> Vec<&str> {
    let found = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    found.map(|finding| finding.message.as_str()).collect()
}

/// The recipe that a recipe builds on is read from its file in the same clone, and so are the helpers that change it.
#[test]
fn recipes_of_other_files_are_read() {
    let context = Context { files: &clone, ..Context::alone("recipe.py") };
    let recipe = import::read(BUILT_ON, FileKind::Of(&frameworks::MEGATRON_BRIDGE), &context).unwrap();
    assert_eq!(errors(&recipe), [""; 0]);
    assert_eq!(recipe.model.as_ref().and_then(import::known::name_of), Some("llama3-70b"));
    let plan = "tp=4 cp=1 pp=4 dp=4 sp=on schedule=interleaved vpp=5 split=even zero=1 mbs=1 recompute=none";
    assert_eq!(recipe.on(64).to_string(), plan);
    assert_eq!((recipe.work.global_batch, recipe.work.seq_len), (Some(32), Some(8192)));
    assert_eq!(recipe.work.format, Format::Mxfp8);
}

#[test]
fn recipes_whose_base_is_missing_are_errors() {
    let alone =
        import::read(BUILT_ON, FileKind::Of(&frameworks::MEGATRON_BRIDGE), &Context::alone("recipe.py")).unwrap();
    assert!(
        errors(&alone).iter().any(|message| message.contains("`base` is of another module")),
        "{:?}",
        errors(&alone)
    );
}

/// Assertions of Megatron's parser, which reads no file of Bridge, are no errors there.
#[test]
fn assertions_of_megatrons_parser_are_not_bridges() {
    let kind = FileKind::Of(&frameworks::MEGATRON_BRIDGE);
    let bridge = "model:\n  num_layers: 32\n  hidden_size: 4096\n  num_attention_heads: 32\n  vocab_size: 32000\n  \
                  seq_length: 4096\nddp:\n  use_distributed_optimizer: true\n  overlap_param_gather: true\n\
                  comm_overlap:\n  tp_comm_overlap: true\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 8\n";
    let read_so = read(bridge, kind);
    assert!(errors(&read_so).is_empty(), "{:?}", errors(&read_so));
    let arguments = "MODEL_ARGS:\n  --num-layers: 32\n  --hidden-size: 4096\n  --num-attention-heads: 32\n  --vocab-size: 32000\n  \
                     --seq-length: 4096\n  --max-position-embeddings: 4096\n  --micro-batch-size: 1\n  --tp-comm-overlap: true\n";
    let read_so = read(arguments, kind);
    assert!(errors(&read_so).iter().any(|message| message.contains("--tp-comm-overlap")), "{:?}", errors(&read_so));
}

const LAUNCHER: &str = "\
trainer:
  num_nodes: 64
  devices: 8
  precision: bf16
exp_manager:
  checkpoint_callback_params:
    model_parallel_size: ${multiply:${training.model.tensor_model_parallel_size}, 1}
model:
  micro_batch_size: 2
  global_batch_size: 2048
  tensor_model_parallel_size: 2
  encoder_seq_length: 2048
  max_position_embeddings: 2048
  num_layers: 44
  hidden_size: 6144
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 48
  make_vocab_size_divisible_by: 128
  fsdp: false
  fsdp_sharding_strategy: 'full'
  tokenizer:
    type: 'GPT2BPETokenizer'
  optim:
    name: mcore_distributed_optim
";

/// NeMo's launcher: sizes as products of others, the tokenizer's vocabulary, settings of what is off.
#[test]
fn the_launchers_resolvers_and_tokenizers_are_read() {
    let kind = FileKind::Of(&frameworks::MEGATRON_BRIDGE);
    let imported = read(LAUNCHER, kind);
    assert_eq!(errors(&imported), [""; 0]);
    let model = imported.model.as_ref().unwrap();
    assert_eq!((model.layers(), model.hidden, model.vocab), (44, 6144, 50_257));
    let layer = &model.kinds[0];
    assert!(matches!(&layer.ffn, Ffn::Dense(mlp) if mlp.intermediate == 24_576), "{layer:?}");
    assert_eq!((imported.world, imported.plan.layout.dp, imported.plan.micro_batch), (Some(512), 256, 2));
    let sharded = read(&LAUNCHER.replace("fsdp: false", "fsdp: true"), kind);
    assert!(
        errors(&sharded).iter().any(|message| message.contains("fsdp_sharding_strategy")),
        "{:?}",
        errors(&sharded)
    );
}

/// Products in MXFP4, which Primus has on AMD's GPUs, are no NVFP4.
#[test]
fn mxfp4_is_not_read_as_nvfp4() {
    let text = |recipe: &str| {
        format!(
            "modules:\n  pre_trainer:\n    framework: megatron\n    model: llama3_8B.yaml\n    overrides:\n      \
            micro_batch_size: 1\n      \
             global_batch_size: 8\n      seq_length: 8192\n      fp4: e2m1\n      fp4_recipe: {recipe}\n"
        )
    };
    let kind = FileKind::Of(&frameworks::MEGATRON_BRIDGE);
    let amd = read(&text("mxfp4"), kind);
    assert_eq!(amd.work.format, Format::Mxfp8);
    assert!(amd.findings.iter().any(|finding| finding.message.contains("MXFP4")), "{:?}", amd.findings);
    assert_eq!(read(&text("nvfp4"), kind).work.format, Format::Nvfp4);
}

#[test]
fn a_module_of_nemotron_is_none_of_nemo() {
    let recipe = |module: &str| format!("from {module} import base\nfrom megatron.bridge import ConfigContainer\n");
    assert!(import::kind_of("recipe.py", &recipe("nemo.collections")).unwrap_err().why.contains("of NeMo"));
    for module in ["nemotron_3_super", "megatron.bridge.recipes.nemotronh"] {
        let text = recipe(module);
        assert_eq!(import::kind_of("recipe.py", &text), Ok(FileKind::Of(&frameworks::MEGATRON_BRIDGE)), "{module}");
        let text = text.replace("from nemotron_3_super import base", "import nemotron_3_super");
        assert_eq!(import::kind_of("recipe.py", &text), Ok(FileKind::Of(&frameworks::MEGATRON_BRIDGE)), "{module}");
    }
}
