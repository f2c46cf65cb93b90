//! GPT-NeoX's files.

use super::import_formats::{read, refused};
use meshwright::frameworks::GPT_NEOX;
use meshwright::import::{self, Context, FileKind, Severity};
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::stack::Family;

const NEOX: &str = r#"{
  "pipe_parallel_size": 4,
  "model_parallel_size": 2,
  "num_layers": 44,
  "hidden_size": 6144,
  "num_attention_heads": 64,
  "seq_length": 2048,
  "max_position_embeddings": 2048,
  "pos_emb": "rotary",
  "no_weight_tying": true,
  "zero_optimization": { "stage": 1, "overlap_comm": True, },
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 32,
  "checkpoint_activations": true,
  "fp16": { "enabled": true },
  "tokenizer_type": "HFTokenizer",
  "gradient_clipping": 1.0,
}"#;

#[test]
fn gpt_neox_is_read_as_itself() {
    let kind = import::kind_of("20B.yml", NEOX).unwrap();
    assert_eq!(kind, FileKind::Of(&GPT_NEOX));
    let imported = read(NEOX, kind);
    assert_eq!((imported.kind, imported.family), ("gpt-neox", Family::MegatronDeepspeed));
    let plan = imported.on(96);
    assert_eq!((plan.layout.tp, plan.layout.pp, plan.layout.dp, plan.micro_batch), (2, 4, 12, 4));
    assert_eq!((plan.zero, plan.recompute), (ZeroStage::One, Recompute::Full));
    assert_eq!(imported.batch_on(96), 1536, "as the model was trained on 96 GPUs: 3.15 M tokens of 2048");
    let model = imported.model.as_ref().unwrap();
    assert_eq!((model.layers(), model.vocab, model.tied_embeddings), (44, 50_432, false));
    // The published count of GPT-NeoX-20B is 20,554,567,680 parameters (tests/hf/params.csv).
    assert_eq!(model.parameters().total, 20_554_567_680);
    assert!(imported.findings.iter().all(|finding| finding.level != Severity::Error), "{:?}", imported.findings);
    assert!(imported.without_effect.contains(&"gradient_clipping".to_owned()));
}

/// Its experts have neither gates nor biases, whatever the activation, and the first layer has some.
#[test]
fn gpt_neox_spreads_experts_over_tensor_parallelism() {
    let experts = "\"moe_num_experts\": 8, \"moe_top_k\": 2, \"moe_expert_interval\": 3, \"activation\": \"swiglu\",";
    let text = NEOX.replace("\"num_layers\": 44,", &format!("\"num_layers\": 44, {experts}"));
    let imported = read(&text, import::kind_of("dmoe.yml", &text).unwrap());
    let model = imported.model.as_ref().unwrap();
    let moe: Vec<_> = model.order.iter().map(|&kind| model.kinds[kind].moe()).collect();
    assert_eq!(moe.iter().enumerate().filter_map(|(at, moe)| moe.map(|_| at)).take(3).collect::<Vec<_>>(), [0, 3, 6]);
    let first = moe[0].unwrap();
    assert_eq!((first.experts, first.top_k, first.intermediate), (8, 2, 4 * 6144));
    assert!(!first.gated && !first.bias && !first.router_bias, "{first:?}");
    let spread: Vec<_> = imported.findings.iter().filter(|finding| finding.rule == "not-modelled").collect();
    assert!(spread.len() == 1 && spread[0].message.contains("spread over the ranks"), "{spread:?}");
}

#[test]
fn gpt_neox_has_gated_widths_and_dashes() {
    let llama = "pipe-parallel-size: 0\nmodel-parallel-size: 1\nnum-layers: 32\nhidden-size: 4096\nnum-attention-heads: 32\n\
                 seq-length: 4096\npos-emb: rotary\nmlp-multiple-of: 256\nintermediate-size: 32768\nactivation: \
                 swiglu\nnorm: rmsnorm\nprecision: bfloat16\n\
                 use-bias-in-attn-linear: false\nuse-bias-in-mlp: false\nno-weight-tying: true\ntokenizer-type: SPMTokenizer\n\
                 make-vocab-size-divisible-by: 1\ntrain-batch-size: 64\nnum-nodes: 2\nnum-gpus: 8\n";
    let imported = read(llama, import::kind_of("7B.yml", llama).unwrap());
    let model = imported.model.as_ref().unwrap();
    assert_eq!(model.name, "Llama 2 7B");
    assert_eq!((imported.world, imported.plan.layout.dp, imported.plan.micro_batch), (Some(16), 16, 4));
    assert_eq!(imported.work.global_batch, Some(64));
    let part = "data_path: data/x\nvocab_file: data/v.json\n";
    assert!(refused(part, import::kind_of("local_setup.yml", part).unwrap()).why.contains("part of a GPT-NeoX"));
    let mamba = llama.replace("precision", "attention-config: [[[\"mamba\"], 32]]\nprecision");
    assert!(refused(&mamba, import::kind_of("m.yml", &mamba).unwrap()).why.contains("`mamba`"));
}

#[test]
fn gpt_neox_files_are_read_together() {
    let files = |name: &str| match name {
        "configs/20B.yml" => Some(NEOX.to_owned()),
        "configs/cluster.yml" => Some("num_nodes: 12\nnum_gpus: 8\n".to_owned()),
        _ => None,
    };
    let context = Context { files: &files, ..Context::alone("run.sh") };
    let script = "python ./deepy.py train.py -d configs 20B.yml cluster.yml";
    let imported = import::read(script, FileKind::Script, &context).unwrap();
    assert_eq!((imported.world, imported.plan.layout.dp, imported.work.global_batch), (Some(96), 12, Some(1536)));
}
