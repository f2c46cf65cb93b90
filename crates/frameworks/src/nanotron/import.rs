//! nanotron's YAML.
//!
//! Source: [nanotron] `src/nanotron/config/config.py`, `parallelism_config.py`, `models_config.py`, commit of 2026-04-07.

use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::{Imported, Unknown};
use crate::import::known;
use crate::readers::document::{self, Document, Form};
use meshwright_engine::model::{Attention, Details, Ffn, Layer, Mixer, Mlp, Model, Moe, Norm, Span};
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::range::LAYERS;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::nanotron::own_split;
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Half, Recipe};

/// Keys of the top and of the sections that decide the plan; nanotron refuses others.
const KEYS: &[(&str, &str)] = &[
    (
        "",
        "general parallelism model tokenizer checkpoints logging metrics_logging tokens optimizer data_stages profiler lighteval \
         s3_upload",
    ),
    (
        "parallelism",
        "dp pp tp pp_engine tp_mode tp_linear_async_communication recompute_layer tp_recompute_allgather expert_parallel_size \
         context_parallel_size",
    ),
    (
        "tokens",
        "sequence_length train_steps micro_batch_size batch_accumulation_per_replica val_check_interval limit_val_batches \
         limit_test_batches",
    ),
    (
        "optimizer",
        "optimizer_factory zero_stage weight_decay clip_grad accumulate_grad_in_fp32 learning_rate_scheduler \
         weight_decay_exclude_named_params",
    ),
];

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "nanotron";

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    Ok(imported_from(&document::parse(text, Form::Yaml, context)?, &Launched::default()))
}

/// Plan, workload and settings of a configuration.
pub(crate) fn imported_from(document: &Document, launched: &Launched) -> Imported {
    let mut imported = Imported::new(KIND, Family::Nanotron, "nanotron-2025");
    let size = |key: &str| document.size(&format!("parallelism.{key}")).unwrap_or(1);
    let layout = Layout {
        tp: size("tp"),
        cp: size("context_parallel_size"),
        pp: size("pp"),
        dp: size("dp"),
        ep: size("expert_parallel_size"),
        etp: 1,
    };
    let product = [layout.tp, layout.cp, layout.pp, layout.dp]
        .iter()
        .fold(1_u32, |product, degree| product.saturating_mul(*degree));
    if let Some(world) = launched.world.filter(|world| *world != product) {
        let place = document.place("parallelism");
        let finding = Finding::error("world-size", format!("dp·pp·tp·cp = {product}, and {world} GPUs are launched"));
        document.note(finding.at_maybe(place.as_ref()).expected("nanotron asserts that they are the same"));
    }
    imported.world = Some(product);
    imported.gpus_per_node = launched.gpus_per_node;
    imported.model = model(document);
    let own = imported.model.as_ref().filter(|_| layout.pp > 1).and_then(|model| own_split(model, layout.pp));
    imported.plan.split = own.unwrap_or(imported.plan.split);
    let plan = &mut imported.plan;
    plan.layout = layout;
    plan.cp_kind = CpKind::AllGather; // llama3_ring_attention gathers keys and values
    let mode = document.word("parallelism.tp_mode").unwrap_or_else(|| "ALL_REDUCE".into());
    plan.sequence_parallel = layout.tp > 1 && mode.eq_ignore_ascii_case("reduce_scatter");
    if !["reduce_scatter", "all_reduce"].iter().any(|known| mode.eq_ignore_ascii_case(known)) {
        document.wrong("parallelism.tp_mode", &mode, "ALL_REDUCE or REDUCE_SCATTER");
    }
    plan.schedule = match document.word("parallelism.pp_engine").as_deref() {
        Some("1f1b") | None => Schedule::OneFOneB,
        Some("afab") => Schedule::GPipe,
        Some(other) => {
            document.wrong("parallelism.pp_engine", other, "1f1b or afab");
            Schedule::OneFOneB
        }
    };
    if document.switch("parallelism.recompute_layer").unwrap_or(false) {
        plan.recompute = Recompute::Full;
    }
    plan.zero = match document.number("optimizer.zero_stage") {
        Some(1) => ZeroStage::One,
        Some(0) | None => ZeroStage::Zero,
        Some(other) => {
            document.wrong("optimizer.zero_stage", &other.to_string(), "0 or 1");
            ZeroStage::One
        }
    };
    plan.micro_batch = document.size("tokens.micro_batch_size").unwrap_or(1);
    let steps = document.size("tokens.batch_accumulation_per_replica").unwrap_or(1);
    imported.work.global_batch = Some(plan.micro_batch.saturating_mul(steps).saturating_mul(layout.dp));
    imported.work.seq_len = document.size("tokens.sequence_length");
    let wide = document.switch("optimizer.accumulate_grad_in_fp32").unwrap_or(false);
    let optimizer = document.word("optimizer.optimizer_factory.name").unwrap_or_default();
    let state = if optimizer.eq_ignore_ascii_case("sgd") { 4.0 } else { 8.0 };
    imported.work.recipe = Recipe { weight: 2.0, gradient: if wide { 4.0 } else { 2.0 }, master: 4.0, state };
    let dtype = document.word("model.dtype");
    imported.work.half = if dtype.as_deref() == Some("float16") { Half::Fp16 } else { Half::Bf16 };
    if dtype.is_some_and(|dtype| !matches!(dtype.as_str(), "bfloat16" | "float16")) {
        let place = document.place("model.dtype");
        document.note(Finding::warning("not-modelled", "GEMMs are priced as bf16").at_maybe(place.as_ref()));
    }
    for (section, known) in KEYS {
        for key in document.keys(section) {
            let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
            if !known.split_whitespace().any(|known| known == key)
                && let Some(place) = document.place(&path)
            {
                let nearest = meshwright_engine::suggest::nearest(&key, known.split_whitespace());
                imported.unknown.push(Unknown { name: path, values: Vec::new(), place, nearest });
            }
        }
    }
    let unknown: Vec<String> = imported.unknown.iter().map(|unknown| unknown.name.clone()).collect();
    imported.without_effect =
        document.unread().into_iter().map(|(path, _)| path).filter(|path| !unknown.contains(path)).collect();
    for (key, path) in [
        ("tp", "parallelism.tp"),
        ("pp", "parallelism.pp"),
        ("cp", "parallelism.context_parallel_size"),
        ("ep", "parallelism.expert_parallel_size"),
        ("mbs", "tokens.micro_batch_size"),
        ("batch", "tokens.batch_accumulation_per_replica"),
        ("seq", "tokens.sequence_length"),
        ("zero", "optimizer.zero_stage"),
        ("heads", "model.model_config.num_attention_heads"),
        ("kv", "model.model_config.num_key_value_heads"),
        ("ffn", "model.model_config.intermediate_size"),
        ("layers", "model.model_config.num_hidden_layers"),
        ("recompute", "parallelism.recompute_layer"),
    ] {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.findings = document.findings.take();
    imported
}

/// Most layers of a model, so that a mistyped number does not exhaust memory.
const MOST_LAYERS: u32 = LAYERS.most() as u32;

fn model(document: &Document) -> Option<Model> {
    let path_of = |key: &str| format!("model.model_config.{key}");
    let size = |key: &str| document.size(&path_of(key));
    let (hidden, heads, layers, vocab, intermediate) = (
        size("hidden_size")?,
        size("num_attention_heads")?,
        size("num_hidden_layers")?,
        size("vocab_size")?,
        size("intermediate_size")?,
    );
    if layers > MOST_LAYERS {
        document.wrong(&path_of("num_hidden_layers"), &layers.to_string(), "at most 100000");
        return None;
    }
    let is_on = |key: &str| document.switch(&path_of(key)).unwrap_or(false);
    let qwen = is_on("is_qwen2_config");
    let kv_heads = size("num_key_value_heads").unwrap_or(heads);
    let head_dim = size("head_dim").unwrap_or((hidden / heads).max(1));
    let attention = Attention {
        span: document.number(&path_of("sliding_window_size")).filter(|n| *n > 0).map_or(Span::Full, Span::Window),
        qkv_bias: document.switch(&path_of("attention_bias")).unwrap_or(qwen),
        ..Attention::plain(heads, kv_heads, head_dim)
    };
    let ffn = if let Some(experts) = document.size(&path_of("moe_config.num_experts")).filter(|experts| *experts > 1) {
        let size_of = |key: &str| document.size(&path_of(&format!("moe_config.{key}")));
        let shared = document.switch(&path_of("moe_config.enable_shared_expert")).unwrap_or(false);
        let width = size_of("moe_intermediate_size").unwrap_or(intermediate);
        Ffn::Moe(Moe {
            shared_intermediate: if shared { size_of("shared_expert_intermediate_size").unwrap_or(width) } else { 0 },
            shared_gate: shared,
            ..Moe::gated(experts, size_of("top_k").unwrap_or(2), width)
        })
    } else if let Some(experts) = size("moe_num_experts").filter(|experts| *experts > 1) {
        // `is_llamoe_config` of nanotron's examples/moe: every layer has experts as wide as the MLP.
        Ffn::Moe(Moe::gated(experts, size("num_experts_per_tok").unwrap_or(1), intermediate))
    } else {
        Ffn::Dense(Mlp { intermediate, gated: true, bias: false })
    };
    let model = Model {
        name: "imported".into(),
        source: "imported".into(),
        hidden,
        vocab,
        seq_len: document.size("tokens.sequence_length").unwrap_or(4096),
        tied_embeddings: is_on("tie_word_embeddings"),
        learned_positions: 0,
        embedding_norm: false,
        head_bias: false,
        norm: Norm::Rms,
        dropout: false,
        kinds: vec![Layer { mixer: Mixer::Attention(attention), ffn, norms: 2, extra_parameters: 0 }],
        order: vec![0; layers as usize],
        mtp_depth: 0,
        details: Details::default(),
    };
    if let Err(why) = model.check() {
        document.note(Finding::error("impossible-model", why.to_string()));
        return None;
    }
    Some(known::named(model))
}
