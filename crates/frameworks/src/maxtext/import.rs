//! `MaxText`'s YAML, where it says architecture, degrees and batch itself: over `base.yml`, as `emit` writes it.
//!
//! Source: [maxtext] `src/maxtext/configs/base.yml`, commit e591f30c.

use super::limits::{OFFLOADED, POLICIES};
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::Imported;
use crate::import::known;
use crate::readers::document::{self, Document, Form};
use meshwright_engine::model::{Attention, Details, Ffn, Layer, Mixer, Mlp, Model, Moe, Norm, QkNorm};
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::stack::{Dispatcher, Family};
use meshwright_engine::workload::Recipe;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "maxtext";

/// Axes that are read; others must be 1.
const AXES: [&str; 6] = ["data", "fsdp", "expert", "context", "tensor", "tensor_sequence"];

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    Ok(imported_from(&document::parse(text, Form::Yaml, context)?, &Launched::default()))
}

/// Whether a document says architecture, degrees and batch, and leaves none to a model's own file.
pub(crate) fn is_whole(document: &Document) -> bool {
    let keys = ["decoder_block", "base_emb_dim", "ici_fsdp_parallelism", "per_device_batch_size"];
    keys.iter().all(|key| document.has(key))
}

/// Product of an axis inside and across slices; none where one of them takes the remaining devices.
fn axis(document: &Document, name: &str) -> Option<u32> {
    let size = |side: &str| match document.word(&format!("{side}_{name}_parallelism")).as_deref() {
        None => Some(1),
        Some("-1") => None,
        Some(_) => document.size(&format!("{side}_{name}_parallelism")).or(Some(1)),
    };
    size("ici")?.checked_mul(size("dcn")?)
}

/// Plan, workload and settings of a configuration.
pub(crate) fn imported_from(document: &Document, launched: &Launched) -> Imported {
    let mut imported = Imported::new(KIND, Family::Jax, "jax-2025");
    imported.model = model(document);
    let sizes = AXES.map(|name| axis(document, name));
    let product = sizes.iter().try_fold(1_u32, |product, size| product.checked_mul((*size)?));
    imported.world = product.or(launched.world);
    let rest = || {
        let given = sizes.iter().flatten().fold(1_u32, |product, size| product.saturating_mul(*size));
        imported.world.map_or(1, |world| (world / given).max(1))
    };
    let [data, fsdp, expert, context, tensor, sequence] = sizes.map(|size| size.unwrap_or_else(rest));
    if product.is_none() {
        let finding = Finding::warning("unresolved-world", "an axis is -1: what is left of the devices");
        document.note(finding.expected("the size of every axis, or --gpus"));
    }
    let plan = &mut imported.plan;
    let dp = data.saturating_mul(fsdp).saturating_mul(expert);
    plan.layout = Layout { tp: tensor.saturating_mul(sequence), cp: context, pp: 1, dp, ep: expert, etp: 1 };
    plan.sequence_parallel = sequence > 1;
    plan.cp_kind = CpKind::AllGather;
    plan.dispatcher = Dispatcher::AllToAll;
    let shards = fsdp.saturating_mul(expert).saturating_mul(context);
    plan.zero = if shards > 1 { ZeroStage::Three } else { ZeroStage::Zero };
    plan.shard_group = (shards > 1 && data > 1).then_some(shards);
    let policy = document.word("remat_policy").unwrap_or_default();
    let known = POLICIES.iter().find(|(_, name)| *name == policy.as_str()).map(|(recompute, _)| *recompute);
    plan.recompute = match (known, policy.as_str()) {
        (Some(recompute), _) => recompute,
        (None, OFFLOADED) => {
            plan.offload.activations = 1.0;
            Recompute::PerOp
        }
        (None, "minimal_flash") => Recompute::None, // the former name of `minimal_with_context`
        // Without a policy, JAX's checkpoint keeps a layer's input alone.
        (None, "none" | "") => Recompute::Full,
        (None, other) => {
            let place = document.place("remat_policy");
            let message = format!("`remat_policy: {other}` is priced as full recomputation, which takes longer");
            document.note(Finding::warning("not-modelled", message).at_maybe(place.as_ref()));
            Recompute::Full
        }
    };
    let share = document.real("per_device_batch_size").unwrap_or(12.0);
    let passes = document.size("gradient_accumulation_steps").unwrap_or(1);
    let each = share * f64::from(plan.layout.tp) * f64::from(plan.layout.cp);
    plan.micro_batch = (each.round() as u32).max(1);
    imported.work.global_batch = Some(plan.micro_batch.saturating_mul(dp).saturating_mul(passes));
    imported.work.seq_len = document.size("max_target_length");
    imported.work.recipe = Recipe { weight: 2.0, gradient: 4.0, master: 4.0, state: 8.0 };
    for key in document.keys("") {
        let other = key.ends_with("_parallelism")
            && !AXES.iter().any(|name| {
                key.ends_with(&format!("i_{name}_parallelism")) || key.ends_with(&format!("n_{name}_parallelism"))
            });
        if other && document.word(&key).is_some_and(|size| size != "1") {
            let place = document.place(&key);
            let finding = Finding::error("unread-setting", format!("`{key}` is a degree that is not read"));
            document
                .note(finding.at_maybe(place.as_ref()).expected("1, or give the plan to `meshwright explain --plan`"));
        }
    }
    if document.word("quantization").is_some_and(|format| !format.is_empty()) {
        let place = document.place("quantization");
        let finding = Finding::error("unread-setting", "`quantization` is not read");
        document.note(finding.at_maybe(place.as_ref()).expected("bf16 GEMMs, or `meshwright explain --precision`"));
    }
    imported.without_effect = document.unread().into_iter().map(|(path, _)| path).collect();
    for (key, path) in [
        ("tp", "ici_tensor_parallelism"),
        ("cp", "ici_context_parallelism"),
        ("ep", "ici_expert_parallelism"),
        ("zero", "ici_fsdp_parallelism"),
        ("mbs", "per_device_batch_size"),
        ("batch", "gradient_accumulation_steps"),
        ("seq", "max_target_length"),
        ("recompute", "remat_policy"),
    ] {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.findings = document.findings.take();
    imported
}

/// The model of a decoder that is read; by its name in the catalogue where the file names one.
fn model(document: &Document) -> Option<Model> {
    if let Some(name) = document.word("model_name").filter(|name| name != "default") {
        return known::of_hub(&name);
    }
    let decoder = document.word("decoder_block")?;
    let normed = document.switch("use_qk_norm").unwrap_or(false);
    if !["llama2", "qwen3", "mixtral", "qwen3_moe"].contains(&decoder.as_str()) {
        let place = document.place("decoder_block");
        let finding = Finding::warning("unknown-model", format!("the decoder `{decoder}` is not read"));
        document.note(finding.at_maybe(place.as_ref()).expected("give --model"));
        return None;
    }
    let size = |key: &str| document.size(key);
    let (hidden, heads) = (size("base_emb_dim")?, size("base_num_query_heads")?);
    let attention = Attention {
        qk_norm: if normed { QkNorm::PerHead } else { QkNorm::None },
        ..Attention::plain(heads, size("base_num_kv_heads")?, size("head_dim")?)
    };
    let (width, experts) = (size("base_mlp_dim")?, size("num_experts").unwrap_or(1));
    let ffn = if experts > 1 {
        Ffn::Moe(Moe::gated(experts, size("num_experts_per_tok")?, size("base_moe_mlp_dim").unwrap_or(width)))
    } else {
        Ffn::Dense(Mlp { intermediate: width, gated: true, bias: false })
    };
    let layers = size("base_num_decoder_layers")?;
    Some(known::named(Model {
        name: "the model of the file".into(),
        source: "this file".into(),
        hidden,
        vocab: size("vocab_size")?,
        seq_len: size("max_target_length").unwrap_or(2048),
        tied_embeddings: document.switch("logits_via_embedding").unwrap_or(false),
        learned_positions: 0,
        embedding_norm: false,
        head_bias: false,
        norm: Norm::Rms,
        dropout: document.switch("enable_dropout").unwrap_or(true),
        kinds: vec![Layer { mixer: Mixer::Attention(attention), ffn, norms: 2, extra_parameters: 0 }],
        order: vec![0; layers as usize],
        mtp_depth: 0,
        details: Details::default(),
    }))
}
