//! Recomputation, formats of GEMMs and states, and kernels.

use super::reader::member;
use super::{at, is_object, placed};
use crate::import::finding::Finding;
use crate::import::imported::{Imported, NamedKernel};
use crate::olmo_core::{BLOCKS, MLPS};
use crate::readers::document::{CALLED, Document};
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::plan::{Modules, Recompute, ZeroStage};
use meshwright_engine::workload::{Optimizer, Recipe};

/// `TransformerActivationCheckpointingConfig`.
pub(super) fn recompute(document: &Document) -> Recompute {
    let path = at("ac_config");
    if !is_object(document, &path) {
        let _ = document.word(&path);
        return Recompute::None;
    }
    let mode = placed(document, "ac_config", "mode");
    let name = document.word(&mode).unwrap_or_else(|| "full".into());
    let modules = document.words(&at("ac_config.modules"));
    let interval = document.size(&at("ac_config.block_interval"));
    let budget = document.real(&at("ac_config.activation_memory_budget"));
    let place = document.place(&path);
    let note = |message: String| document.note(Finding::warning("not-modelled", message).at_maybe(place.as_ref()));
    if is_object(document, &at("pp_config")) && matches!(member(&name), "full" | "selected_blocks" | "selected_ops") {
        let message = format!("`{}` in a pipeline stops every stage but the first", member(&name));
        let expected = format!("selected_modules with modules={BLOCKS:?}");
        document.note(Finding::error("contradiction", message).at_maybe(place.as_ref()).expected(expected));
    }
    match member(&name) {
        "full" => Recompute::Full,
        "selected_ops" => Recompute::PerOp,
        "selected_blocks" => match interval {
            Some(1) => Recompute::Full,
            Some(2) => Recompute::EveryOther,
            Some(other) => {
                note(format!("one block of {other} recomputed is priced as every second"));
                Recompute::EveryOther
            }
            None => {
                document.wrong(&at("ac_config.block_interval"), "none", "a number of blocks");
                Recompute::None
            }
        },
        "selected_modules" if modules == [MLPS] => Recompute::Selective(Modules { mlp: true, ..Modules::default() }),
        "selected_modules" if modules == BLOCKS => Recompute::Full,
        "selected_modules" => {
            let message = format!("`{}` recomputes parts of blocks that no plan says", at("ac_config.modules"));
            document.note(Finding::error("unread-setting", message).at_maybe(place.as_ref()));
            Recompute::None
        }
        "budget" if budget.is_some_and(|budget| budget >= 1.0) => Recompute::None,
        "budget" if budget.is_some_and(|budget| budget <= 0.0) => Recompute::Full,
        "budget" => {
            note("a memory budget is priced as per-op recomputation".into());
            Recompute::PerOp
        }
        other => {
            document.wrong(&mode, other, "full, selected_blocks, selected_modules, selected_ops or budget");
            Recompute::None
        }
    }
}

/// Formats of GEMMs, weights, gradients and states.
pub(super) fn formats(document: &Document, imported: &mut Imported) {
    let narrow = |path: &str| document.word(path).as_deref().map(|word| member(word) == "bfloat16");
    let gathered = narrow(&at("dp_config.param_dtype"));
    let cast = narrow(&at("autocast_precision")).unwrap_or(false);
    let own = narrow("model.dtype").unwrap_or(false);
    let copied = imported.plan.zero == ZeroStage::Zero && is_object(document, &at("dp_config"));
    let ddp =
        copied && document.word(&placed(document, "dp_config", "name")).is_some_and(|name| member(&name) == "ddp");
    if own || (ddp && gathered == Some(true)) {
        // Weights, gradients and moments; nothing is kept in fp32.
        imported.work.recipe = Recipe::HALF;
    } else if gathered != Some(true) && !cast {
        let message = "GEMMs in fp32 are priced as bf16";
        document.note(Finding::warning("not-modelled", message).at_maybe(document.place(&at("dp_config")).as_ref()));
    }
    optimizer(document, imported);
    let path = at("float8_config");
    if !is_object(document, &path) {
        let _ = document.word(&path);
        return;
    }
    let inner = |key: &str| format!("{path}.{key}");
    let _ = document.words(&inner("modules_to_ignore"));
    let class = document.word(&inner(&format!("ao.{CALLED}")));
    let gathers = document.switch(&inner("ao.enable_fsdp_float8_all_gather"));
    let recipe = document.word(&inner("ao_recipe"));
    if !document.switch(&inner("enabled")).unwrap_or(true) {
        return;
    }
    imported.work.format = if is_object(document, &inner("ao_mx")) {
        let element = document.word(&inner("ao_mx.elem_dtype"));
        if element.as_deref().map(member).is_some_and(|word| !word.contains("float8")) {
            document.wrong(&inner("ao_mx.elem_dtype"), element.as_deref().unwrap_or_default(), "8 bits");
        }
        Format::Mxfp8
    } else {
        Format::Fp8
    };
    let narrow = class.as_deref().map(member) == Some("recommended") || gathers.unwrap_or(false);
    imported.settings.put("fp8_all_gather", narrow, false);
    if recipe.as_deref().map(member).is_some_and(|recipe| recipe.starts_with("rowwise")) {
        imported.settings.scale_by_rows();
    }
}

/// States of the optimizer.
fn optimizer(document: &Document, imported: &mut Imported) {
    let path = at(&format!("optim.{CALLED}"));
    let class = document.word(&path);
    let place = document.place(&at("optim"));
    match class.as_deref().map(member) {
        Some("AdamWConfig" | "SkipStepAdamWConfig" | "AdamConfig") | None => {}
        Some("LionConfig" | "SkipStepLionConfig") => imported.work.recipe.state *= 0.5,
        Some("MuonConfig" | "NorMuonConfig" | "DionConfig") => {
            imported.work.optimizer = Optimizer::Muon;
            imported.work.recipe.state *= 0.5;
        }
        Some(other) => {
            let message = format!("`{other}` is priced as AdamW");
            document.note(Finding::warning("not-modelled", message).at_maybe(place.as_ref()));
        }
    }
    let dtype = document.word(&at("optim.dtype"));
    if dtype.as_deref().map(member) == Some("bfloat16") && imported.work.recipe.master > 0.0 {
        imported.work.recipe.state *= 0.5;
    }
}

/// Kernels of attention and of the loss.
pub(super) fn kernels(document: &Document, imported: &mut Imported) {
    let mut paths = vec!["model.block".to_owned()];
    paths.extend(document.keys("model.block").into_iter().map(|key| format!("model.block.{key}")));
    let backend = paths.iter().find_map(|path| {
        let _ = document.word(&format!("{path}.sequence_mixer.use_flash"));
        document.word(&format!("{path}.sequence_mixer.backend"))
    });
    match backend.as_deref().map(member) {
        Some("flash_2" | "torch") | None => {}
        Some("flash_3") => {
            imported.settings.put_word("attention", "fa3");
            imported.attention = Some(NamedKernel {
                kernel: AttentionKernel::Fa3,
                name: "`flash_3`".into(),
                place: document.place("model.block"),
                instead: "`flash_2`".into(),
            });
        }
        Some("te") => imported.settings.put_word("attention", "cudnn"),
        Some(other) => {
            let message = format!("attention by `{other}` is priced as flash-attn 2");
            document.note(Finding::warning("not-modelled", message).at_maybe(document.place("model.block").as_ref()));
        }
    }
    let loss = document.word("model.lm_head.loss_implementation");
    if let (Some("fused_linear"), Some(model)) = (loss.as_deref().map(member), &imported.model) {
        // Liger's kernel takes about as many parts as the vocabulary is hidden sizes.
        imported.settings.put("memory.loss_chunks", (model.vocab / model.hidden).max(2), 1);
    }
}
