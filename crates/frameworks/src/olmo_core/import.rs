//! OLMo-core's programs: degrees, formats and batches of the train module, and the model, whose functions are followed and not run.
//!
//! Source: [olmo-core] `train/train_module/transformer/config.py`, `distributed/parallel/`, `float8/`, `optim/`, release 2.5.0.

mod blocks;
mod factories;
mod formats;
mod layout;
mod library;
mod model;
mod program;
mod reader;
mod sizes;
mod stages;
mod tree;

use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::Imported;
use crate::readers::document::{CALLED, Document};
use library::OlmoCore;
use meshwright_engine::stack::Family;
use meshwright_engine::suggest::{is_slip, nearest};

pub(crate) use program::Arguments;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "olmo-core";

/// Fields of `TransformerTrainModuleConfig`.
const TRAIN_MODULE: &str = "rank_microbatch_size max_sequence_length optim max_grad_norm scheduler compile_model \
float8_config pp_config \
    dp_config tp_config cp_config ep_config ac_config z_loss_multiplier state_dict_save_opts state_dict_load_opts load_key_mapping \
    autocast_precision label_ignore_index";

/// Fields of its parts.
const PARTS: &[(&str, &str)] = &[
    ("dp_config", "name param_dtype reduce_dtype num_replicas shard_degree wrapping_strategy prefetch_factor"),
    ("tp_config", "degree enable_async"),
    ("cp_config", "degree ring uly head_stride"),
    ("ep_config", "degree"),
    ("pp_config", "degree schedule style split_points"),
    ("ac_config", "mode block_interval modules activation_memory_budget determinism_check"),
    ("float8_config", "ao ao_recipe ao_mx modules_to_ignore enabled"),
];

/// Reads a program.
///
/// # Errors
/// A program that does not parse, or gives no configuration.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let words: Vec<(String, u32)> = context.arguments.iter().map(|word| (word.clone(), 1)).collect();
    of_launch(text, context, &Arguments::of(&words), &Launched::default())
}

/// Reads a program with the arguments of its launch line.
///
/// # Errors
/// Those of [`read`].
pub(crate) fn of_launch(
    text: &str,
    context: &Context,
    arguments: &Arguments,
    launched: &Launched,
) -> Result<Imported, ImportError> {
    let library = OlmoCore { world: launched.world, gpus_per_node: launched.gpus_per_node };
    let document = program::read(text, context, &library, arguments)?;
    Ok(imported_from(&document, launched, text))
}

fn at(key: &str) -> String {
    format!("train_module.{key}")
}

/// Whether the value is an object.
fn is_object(document: &Document, path: &str) -> bool {
    !document.keys(path).is_empty() || document.has(&format!("{path}.{CALLED}"))
}

fn imported_from(document: &Document, launched: &Launched, text: &str) -> Imported {
    let compiled = document.switch(&at("compile_model")).unwrap_or(false);
    let stack = if compiled { "torchtitan-2024" } else { "torchtitan-eager" };
    let mut imported = Imported::new(KIND, Family::Torchtitan, stack);
    imported.world = launched.world;
    imported.gpus_per_node = launched.gpus_per_node;
    if let Some(read) = model::read(document) {
        imported.model = Some(read.model);
        imported.work.drops_tokens = read.drops_tokens;
    }
    if !is_object(document, "train_module") {
        let finding = Finding::error("unread-setting", "`train_module` is not read, and decides the step");
        document.note(finding.at_maybe(document.place("train_module").as_ref()).expected("constants"));
    }
    unknown_fields(document);
    layout::layout(document, launched, &mut imported);
    batch(document, &mut imported);
    stages::pipeline(document, &mut imported);
    imported.plan.recompute = formats::recompute(document);
    formats::formats(document, &mut imported);
    formats::kernels(document, &mut imported);
    beaker(document, text);
    for (key, path) in [
        ("tp", "tp_config.degree"),
        ("pp", "pp_config.degree"),
        ("cp", "cp_config.degree"),
        ("ep", "ep_config.degree"),
        ("zero", "dp_config"),
        ("vpp", "pp_config.schedule"),
        ("recompute", "ac_config"),
        ("mbs", "rank_microbatch_size"),
        ("seq", "max_sequence_length"),
    ] {
        imported.places.extend(document.place(&at(path)).map(|place| (key.to_owned(), place)));
    }
    let batch = document.place("data_loader.global_batch_size");
    imported.places.extend(batch.map(|place| ("batch".to_owned(), place)));
    imported.without_effect = unread(document);
    imported.findings.extend(document.findings.take());
    imported
}

/// Settings that nothing asked for, but for those of data, evaluation and checkpoints.
fn unread(document: &Document) -> Vec<String> {
    let apart =
        ["trainer", "launch", "dataset.", "run_name", "init_seed", "load_path", "load_trainer_state", "backend"];
    let left = document.unread().into_iter().map(|(path, _)| path);
    left.filter(|path| !apart.iter().any(|apart| path.starts_with(apart)) && !path.contains(CALLED)).collect()
}

/// Fields that the classes do not have, which they refuse.
fn unknown_fields(document: &Document) {
    let own = document.keys("train_module").into_iter().map(|key| (at(&key), key, TRAIN_MODULE));
    let inner = PARTS.iter().flat_map(|(part, known)| {
        let keys = document.keys(&at(part)).into_iter();
        keys.map(move |key| (at(&format!("{part}.{key}")), key, *known))
    });
    for (path, key, known) in own.chain(inner) {
        let is_place = key.parse::<u32>().is_ok();
        if is_place || known.split_whitespace().any(|known| known == key) {
            continue;
        }
        let near = nearest(&key, known.split_whitespace()).filter(|near| is_slip(&key, near));
        let expected = near.map_or_else(|| "its name in release 2.5".into(), |near| format!("did you mean `{near}`?"));
        let finding =
            Finding::error("unknown-key", format!("`{path}`: OLMo-core refuses fields that it does not have"));
        document.note(finding.at_maybe(document.place(&path).as_ref()).expected(expected));
    }
}

/// Path of a field that may be given by its place in a call.
fn placed(document: &Document, part: &str, key: &str) -> String {
    let (named, first) = (at(&format!("{part}.{key}")), at(&format!("{part}.0")));
    if !document.has(&named) && document.has(&first) { first } else { named }
}

/// Batches in tokens over the tokens of a sequence.
fn batch(document: &Document, imported: &mut Imported) {
    let longest = document.size(&at("max_sequence_length"));
    let _ = document.word("dataset.max_target_sequence_length");
    let mut paths = vec!["dataset.sequence_length".to_owned()];
    paths.extend((0..document.count("dataset").unwrap_or(0)).map(|place| format!("dataset.{place}.sequence_length")));
    let own: Vec<u32> = paths.iter().filter_map(|path| document.size(path)).collect();
    let length = own.first().copied().or(longest);
    imported.work.seq_len = length;
    let Some(length) = length else {
        document.note(Finding::error("missing-flag", "`max_sequence_length` is not given"));
        return;
    };
    if own.iter().any(|other| *other != length) || longest.is_some_and(|longest| longest < length) {
        let message = format!("sequences of {length} tokens, and `max_sequence_length` or other data say otherwise");
        document.note(Finding::error("contradiction", message).at_maybe(document.place(&paths[0]).as_ref()));
    }
    let sequences = |path: &str| {
        let tokens = document.number(path);
        if tokens.is_none() && !document.has(path) {
            document.note(Finding::error("missing-flag", format!("`{path}` is not given")));
        }
        let tokens = tokens?;
        let whole = tokens.is_multiple_of(length) && tokens > 0;
        if !whole {
            let message = format!("`{path}` of {tokens} tokens is no multiple of sequences of {length}");
            document.note(Finding::error("does-not-divide", message).at_maybe(document.place(path).as_ref()));
        }
        whole.then(|| tokens / length)
    };
    imported.plan.micro_batch = sequences(&at("rank_microbatch_size")).unwrap_or(1);
    imported.work.global_batch = sequences("data_loader.global_batch_size");
    let ranks = u64::from(imported.plan.layout.dp) * u64::from(imported.plan.micro_batch);
    if let Some(whole) = imported.work.global_batch.filter(|_| imported.world.is_some())
        && !u64::from(whole).is_multiple_of(ranks)
    {
        let message = format!("a batch of {whole} sequences is not divided by micro-batches of all ranks, {ranks}");
        let place = document.place("data_loader.global_batch_size");
        document.note(Finding::error("does-not-divide", message).at_maybe(place.as_ref()));
    }
}

/// Warnings about settings for Beaker, which is not available.
fn beaker(document: &Document, text: &str) {
    let asked = text
        .lines()
        .zip(1_u32..)
        .find(|(line, _)| line.trim_start().starts_with("if") && line.contains("common.launch"));
    if let Some((_, line)) = asked {
        let message = "`common.launch` is read as None, as it is away from Beaker; on some of its clusters \
        micro-batches are other ones";
        let place = crate::import::finding::Place { file: document.file().to_owned(), line };
        document.note(Finding::warning("assumed", message).at(&place));
    }
}
