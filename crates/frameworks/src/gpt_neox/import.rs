//! GPT-NeoX: YAML files that together hold Megatron's and DeepSpeed's settings under one roof.
//!
//! Source: [gpt-neox] `megatron/neox_arguments/{neox_args,deepspeed_args,arguments}.py`, `megatron/model/transformer.py`, main of
//! 2026-08: names, defaults, and widths of gated layers.

use super::limits::{PARALLEL, own_split};
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::{Finding, Place};
use crate::import::imported::{Imported, NamedKernel, replicas};
use crate::import::known;
use crate::megatron::import as megatron;
use crate::megatron::import::Arguments;
use crate::readers::document::{self, Document, Form};
use crate::readers::shell::text::Text;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::model::{Ffn, Mixer, Model, Norm, Span};
use meshwright_engine::plan::ZeroStage;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "gpt-neox";

/// Reads a file, and those that are named after `--`.
///
/// # Errors
/// A file that does not parse, or describes no model: a part of a configuration.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let mut document = document::parse(text, Form::Yaml, context)?;
    let more = context.arguments.iter().filter(|name| !name.starts_with('-'));
    for name in more {
        document.join(other(name, context)?);
    }
    imported_from(&document, &Launched::default(), context.file)
}

/// Plan, workload and settings of the files that a launch of `deepy.py` names.
///
/// # Errors
/// Those of [`read`], and a launch that names no file.
pub(crate) fn of_launch(words: &[String], launched: &Launched, context: &Context) -> Result<Imported, ImportError> {
    let folder = words.iter().position(|word| word == "-d" || word == "--conf_dir").and_then(|at| words.get(at + 1));
    let is_yaml = |word: &&String| {
        let extension = std::path::Path::new(word).extension();
        extension.is_some_and(|extension| extension == "yml" || extension == "yaml")
    };
    let mut whole: Option<(Document, String)> = None;
    for word in words.iter().filter(is_yaml) {
        let name = folder.map_or_else(|| word.clone(), |folder| format!("{folder}/{word}"));
        let document = other(&name, context)?;
        match &mut whole {
            Some((first, _)) => first.join(document),
            None => whole = Some((document, name)),
        }
    }
    let (document, name) = whole.ok_or_else(|| ImportError {
        file: context.file.into(),
        line: 1,
        why: "deepy.py is launched with no YAML file".into(),
        expected: "its configuration files".into(),
    })?;
    imported_from(&document, launched, &name)
}

fn other(name: &str, context: &Context) -> Result<Document, ImportError> {
    let text = (context.files)(name).ok_or_else(|| ImportError {
        file: context.file.into(),
        line: 1,
        why: format!("`{name}` was not found"),
        expected: "the file beside this one".into(),
    })?;
    document::parse(&text, Form::Yaml, &Context { files: context.files, ..Context::alone(name) })
}

/// Keys whose value is one word of a flag.
const WORDS: &[(&str, &str)] = &[
    ("num_layers", "--num-layers"),
    ("hidden_size", "--hidden-size"),
    ("num_attention_heads", "--num-attention-heads"),
    ("seq_length", "--seq-length"),
    ("max_position_embeddings", "--max-position-embeddings"),
    ("model_parallel_size", "--tensor-model-parallel-size"),
    ("train_micro_batch_size_per_gpu", "--micro-batch-size"),
    ("train_batch_size", "--global-batch-size"),
    ("zero_optimization.stage", "--zero-stage"),
];

/// A configuration, with the keys that were read.
struct Neox<'a> {
    document: &'a Document,
    list: Arguments,
    file: &'a str,
}

impl Neox<'_> {
    /// The path of a key: with underscores, or with dashes as older files have it.
    fn path(&self, key: &str) -> String {
        let dashed = key.replace('_', "-");
        if self.document.has(key) || !self.document.has(&dashed) { key.to_owned() } else { dashed }
    }

    fn word(&self, key: &str) -> Option<String> {
        self.document.word(&self.path(key))
    }

    fn number(&self, key: &str) -> Option<u32> {
        self.document.number(&self.path(key))
    }

    fn is(&self, key: &str, otherwise: bool) -> bool {
        self.document.switch(&self.path(key)).unwrap_or(otherwise)
    }

    fn place(&self, key: &str) -> Place {
        self.document.place(&self.path(key)).unwrap_or(Place { file: self.file.to_owned(), line: 1 })
    }

    fn set(&mut self, key: &str, flag: &str, value: &str) {
        let place = self.place(key);
        let values = if value.is_empty() { Vec::new() } else { vec![Text::on(value, place.line)] };
        self.list.add(flag, values, place);
    }

    fn set_if(&mut self, holds: bool, key: &str, flag: &str) {
        if holds {
            self.set(key, flag, "");
        }
    }
}

fn imported_from(document: &Document, launched: &Launched, file: &str) -> Result<Imported, ImportError> {
    let mut neox = Neox { document, list: Arguments::empty(true), file };
    for (key, flag) in WORDS {
        if let Some(word) = neox.word(key) {
            neox.set(key, flag, &word);
        }
    }
    if neox.number("num_layers").is_none() {
        return Err(ImportError {
            file: file.into(),
            line: 1,
            why: "this is a part of a GPT-NeoX configuration, without the model".into(),
            expected: "import the file with `num_layers`, and name this one behind `--`".into(),
        });
    }
    architecture(&mut neox)?;
    let mut launched = launched.clone();
    let counted = neox.number("num_nodes").filter(|nodes| *nodes < MOST_NODES).zip(neox.number("num_gpus"));
    let counted = neox.number("global_num_gpus").or(counted.and_then(|(nodes, each)| nodes.checked_mul(each)));
    launched.world = launched.world.or(counted);
    let pp = neox.number("pipe_parallel_size").unwrap_or(0).max(1);
    neox.set("pipe_parallel_size", "--pipeline-model-parallel-size", &pp.to_string());
    let steps = neox.number("gradient_accumulation_steps").filter(|steps| *steps > 0).unwrap_or(1);
    batch(&mut neox, launched.world, pp, steps);
    training(&mut neox);
    let _ = neox.word("output_layer_parallelism"); // `column` is its one choice
    let vocabulary = vocabulary(&mut neox);
    neox.set("make_vocab_size_divisible_by", "--vocab-size", &vocabulary.to_string());
    neox.set("num_layers", "--deepspeed", "");
    let flash = neox.document.leaves(&neox.path("attention_config")).iter().any(|kind| kind == "flash");
    let flash_place = neox.place("attention_config");
    let extras = Extras {
        attention_bias: neox.is("use_bias_in_attn_linear", true),
        mlp_bias: neox.is("use_bias_in_mlp", true),
        window: neox.number("sliding_window_width"),
        plain_norm: neox.word("norm").is_some_and(|norm| norm == "non_parametric_layernorm"),
        parallel: neox.is("gpt_j_residual", false),
        expert_width: neox.number("intermediate_size").unwrap_or_else(|| {
            let hidden = neox.number("hidden_size").unwrap_or(0);
            hidden.saturating_mul(4).div_ceil(EXPERT_MULTIPLE).saturating_mul(EXPERT_MULTIPLE)
        }),
        expert_interval: neox.number("moe_expert_interval").unwrap_or(1).max(1),
    };
    let spread = neox.number("moe_num_experts").is_some_and(|experts| experts > 1)
        && neox.number("model_parallel_size").is_some_and(|tp| tp > 1);
    let on_host = neox.is("checkpoint_activations", false) && neox.is("checkpoint_in_cpu", false);
    let own_method = neox.word("pipe_partition_method").is_none_or(|method| method.starts_with("type:"));
    if !own_method && pp > 1 {
        let finding = Finding::note("not-modelled", "stages are priced as ones of as many layers each");
        neox.list.findings.push(finding.at(&neox.place("pipe_partition_method")));
    }
    let replicated = neox.number("zero_optimization.stage").unwrap_or(0) == 0;
    let Neox { mut list, .. } = neox;
    list.findings.append(&mut document.findings.borrow_mut());
    let mut imported = megatron::imported_from(list, &launched);
    imported.kind = KIND;
    imported.accumulation = steps;
    imported.findings.retain(|finding| !finding.message.contains("--moe-token-dispatcher-type")); // it has one way
    if spread {
        let message = "whole experts are spread over the ranks of tensor parallelism: priced as split by it";
        let place = document.place("moe_num_experts").unwrap_or_else(|| document.start());
        imported.findings.push(Finding::warning("not-modelled", message).at(&place));
    }
    imported.model = imported.model.map(|model| extras.added_to(model));
    let own = imported.model.as_ref().filter(|_| pp > 1 && own_method).and_then(|model| own_split(model, pp));
    imported.plan.split = own.unwrap_or(imported.plan.split);
    if on_host {
        imported.plan.offload.activations = 1.0;
    }
    if replicated && imported.world.is_some() && imported.plan.layout.dense_replicas() == 1 {
        imported.plan.zero = ZeroStage::Zero; // one replica has nobody to share its states with
        imported.findings.retain(|finding| finding.message != megatron::BF16_SHARDS);
    }
    if flash {
        imported.settings.put_word("attention", "fa2");
        imported.attention = Some(NamedKernel {
            kernel: AttentionKernel::Fa2,
            name: "`flash` in `attention_config`".into(),
            place: Some(flash_place),
            instead: "`global`".into(),
        });
    }
    imported.without_effect = document.unread().into_iter().map(|(path, _)| path).collect();
    Ok(imported)
}

/// A number of nodes that is none: the default is −1.
const MOST_NODES: u32 = 1 << 20;

/// The model's own settings, and attention that is read.
fn architecture(neox: &mut Neox) -> Result<(), ImportError> {
    let kinds = neox.document.leaves(&neox.path("attention_config"));
    let plain = |kind: &String| ["flash", "global", "all"].contains(&kind.as_str()) || kind.parse::<u32>().is_ok();
    if let Some(kind) = kinds.iter().find(|kind| !plain(kind)) {
        let place = neox.place("attention_config");
        let why = format!("layers of `{kind}` in `attention_config` are not read");
        return Err(ImportError { file: place.file, line: place.line, why, expected: "global and flash are".into() });
    }
    let activation = neox.word("activation").unwrap_or_else(|| "gelu".into());
    let gated = ["swiglu", "geglu", "reglu", "glu", "bilinear"].contains(&activation.as_str());
    let hidden = u64::from(neox.number("hidden_size").unwrap_or(0));
    let width = neox.number("intermediate_size").map_or(hidden * 4, u64::from);
    // A gated layer has a third of the width in each of its matrices.
    let width = if gated { width * 2 / 3 / 2 } else { width };
    let multiple = u64::from(neox.number("mlp_multiple_of").unwrap_or(1).max(1));
    let width = width.div_ceil(multiple) * multiple;
    neox.set("intermediate_size", "--ffn-hidden-size", &width.to_string());
    neox.set_if(gated, "activation", "--swiglu");
    if let Some(groups) = neox.number("num_kv_heads") {
        neox.set("num_kv_heads", "--group-query-attention", "");
        neox.set("num_kv_heads", "--num-query-groups", &groups.to_string());
    }
    if neox.word("norm").is_some_and(|norm| norm.contains("rms")) {
        neox.set("norm", "--normalization", "RMSNorm");
    }
    let position = match neox.word("pos_emb").as_deref() {
        Some("rotary") => "rope",
        Some("learned") | None => "learned_absolute",
        Some(_) => "none",
    };
    neox.set("pos_emb", "--position-embedding-type", position);
    neox.set_if(neox.is("no_weight_tying", false), "no_weight_tying", "--untie-embeddings-and-output-weights");
    neox.set_if(neox.is("use_qk_layernorm", false), "use_qk_layernorm", "--qk-layernorm");
    for (key, flag) in [("hidden_dropout", "--hidden-dropout"), ("attention_dropout", "--attention-dropout")] {
        let share = neox.word(key).unwrap_or_else(|| "0".into());
        neox.set(key, flag, &share);
    }
    if neox.number("moe_num_experts").is_some_and(|experts| experts > 1) {
        for (key, flag, usual) in [
            ("moe_num_experts", "--num-experts", 1),
            ("moe_top_k", "--topk", 1),
            ("moe_expert_interval", "--expert-interval", 1),
        ] {
            let value = neox.number(key).unwrap_or(usual).to_string();
            neox.set(key, flag, &value);
        }
    }
    Ok(())
}

/// Sequences per step, from two of three numbers.
fn batch(neox: &mut Neox, world: Option<u32>, pp: u32, steps: u32) {
    let tp = neox.number("model_parallel_size").unwrap_or(1).max(1);
    let Some(dp) = world.map(|world| replicas(world, &[tp, pp])) else { return };
    let (micro, whole) = (neox.number("train_micro_batch_size_per_gpu"), neox.number("train_batch_size"));
    match (micro, whole) {
        (Some(micro), None) => {
            let whole = micro.saturating_mul(steps).saturating_mul(dp);
            neox.set("gradient_accumulation_steps", "--global-batch-size", &whole.to_string());
        }
        (None, Some(whole)) => {
            let micro = (whole / steps.saturating_mul(dp).max(1)).max(1);
            neox.set("train_batch_size", "--micro-batch-size", &micro.to_string());
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// Formats, recomputation, offloading and sequence parallelism.
fn training(neox: &mut Neox) {
    let precision = neox.word("precision").unwrap_or_default();
    let kind = neox.word("fp16.type").unwrap_or_default();
    let half = neox.is("fp16.enabled", neox.document.has("fp16") && precision == "fp16") || precision == "fp16";
    let gradients = neox.word("data_types.grad_accum_dtype");
    let wide = gradients.as_deref().is_some_and(|dtype| dtype.contains("32"));
    if precision == "bfloat16" || kind == "bfloat16" || neox.is("bf16.enabled", false) {
        neox.set("precision", "--bf16", "");
        // Without ZeRO, gradients of bf16 are added in fp32 where the file names no format.
        let sharded = neox.number("zero_optimization.stage").unwrap_or(0) > 0;
        neox.set_if(!wide && (gradients.is_some() || sharded), "data_types", "--grad-reduce-in-bf16");
    } else {
        neox.set_if(half, "fp16", "--fp16");
        neox.set_if(half && wide, "data_types", "--accumulate-allreduce-grads-in-fp32");
    }
    neox.set_if(neox.is("checkpoint_activations", false), "checkpoint_activations", "--checkpoint-activations");
    neox.set_if(neox.is("sequence_parallel", false), "sequence_parallel", "--sequence-parallel");
    let device = neox.word("zero_optimization.offload_optimizer.device").filter(|device| device != "none");
    let offloads = device.is_some() || neox.is("zero_optimization.cpu_offload", false);
    neox.set_if(offloads, "zero_optimization", "--cpu-optimizer");
    let optimizer = neox.word("optimizer.type").unwrap_or_else(|| "adam".into()).to_ascii_lowercase();
    if optimizer == "sgd" {
        neox.set("optimizer", "--optimizer", "sgd");
    }
}

/// The padded vocabulary: of the tokenizer that is named, which is no part of the file.
fn vocabulary(neox: &mut Neox) -> u32 {
    let kind = neox.word("tokenizer_type").unwrap_or_else(|| "GPT2BPETokenizer".into());
    let (own, of) = match kind.as_str() {
        "HFTokenizer" => (50_277, "GPT-NeoX-20B's tokenizer"),
        "SPMTokenizer" => (32_000, "Llama 2's tokenizer"),
        "CharLevelTokenizer" => (512, "bytes"),
        "TiktokenTokenizer" => (100_277, "cl100k"),
        _ => (50_257, "GPT-2's tokenizer"),
    };
    let each = neox.number("make_vocab_size_divisible_by").unwrap_or(128).max(1);
    let multiple = each.saturating_mul(neox.number("model_parallel_size").unwrap_or(1).max(1));
    let padded =
        neox.number("padded_vocab_size").unwrap_or_else(|| u32::div_ceil(own, multiple).saturating_mul(multiple));
    let message = format!("the vocabulary is the tokenizer's: {padded} is assumed, that of {of}, padded");
    let finding = Finding::warning("assumed-vocabulary", message).at(&neox.place("tokenizer_type"));
    neox.list.findings.push(finding.expected("another: --vocab"));
    padded
}

/// Settings of a model that Megatron's arguments do not have.
struct Extras {
    /// Whether the projections of attention have biases.
    attention_bias: bool,
    /// Whether those of MLPs have.
    mlp_bias: bool,
    /// Keys that each query sees.
    window: Option<u32>,
    /// Whether norms have no parameters.
    plain_norm: bool,
    /// Whether attention and MLP are added to one input.
    parallel: bool,
    /// Width of an expert, which has no gate, whatever the activation.
    expert_width: u32,
    /// Layers from one with experts to the next; the first has them.
    expert_interval: u32,
}

/// Width of an expert is a multiple of this where the file says none.
///
/// Source: [gpt-neox] `megatron/model/moe_mlp.py` (`ParallelGroupedMLP`), commit ea7aefd8.
const EXPERT_MULTIPLE: u32 = 256;

impl Extras {
    /// A model with these extras.
    fn added_to(self, mut model: Model) -> Model {
        for kind in &mut model.kinds {
            if let Mixer::Attention(attention) = &mut kind.mixer {
                (attention.qkv_bias, attention.out_bias) = (self.attention_bias, self.attention_bias);
                attention.span = self.window.map_or(attention.span, Span::Window);
            }
            match &mut kind.ffn {
                Ffn::Dense(mlp) => mlp.bias = self.mlp_bias,
                Ffn::Moe(moe) => {
                    (moe.gated, moe.bias, moe.router_bias) = (false, false, false);
                    moe.intermediate = self.expert_width;
                }
                Ffn::None => {}
            }
        }
        let kind_with_experts = |has: bool| model.kinds.iter().position(|kind| kind.moe().is_some() == has);
        if let (Some(experts), Some(dense)) = (kind_with_experts(true), kind_with_experts(false)) {
            let interval = self.expert_interval as usize;
            model.order = (0..model.order.len()).map(|at| if at % interval == 0 { experts } else { dense }).collect();
        }
        if self.plain_norm {
            model.norm = Norm::LayerPlain;
        }
        "imported".clone_into(&mut model.name);
        let mut model = known::named(model);
        if self.parallel {
            model.details.others.push((PARALLEL.to_owned(), 1.0));
        }
        model
    }
}
