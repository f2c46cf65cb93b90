//! Launch scripts: which framework is launched, and where its settings are.

use super::context::{Context, ImportError, Launched};
use super::finding::{Finding, Place, Severity};
use super::formats::{kind_of, refuse_program};
use super::imported::Imported;
use super::kind::FileKind;
use super::launch::{Launch, LaunchedGpus, Launcher, launches};
use super::masked::masked;
use super::named::{configuration, is_yaml, own_settings, own_yaml};
use super::{accelerated, known, titan, trainer};
use crate::axolotl::import as axolotl;
use crate::deepspeed::import as deepspeed;
use crate::framework::Framework;
use crate::gpt_neox::emit::PROGRAM;
use crate::gpt_neox::import as gpt_neox;
use crate::llama_factory::import as llama_factory;
use crate::llm_foundry::import as llm_foundry;
use crate::maxtext::import as maxtext;
use crate::megatron::import::{self as megatron, BF16_SHARDS};
use crate::megatron_bridge::import as bridge;
use crate::megatron_bridge::{MEGATRON_BRIDGE, primus};
use crate::ms_swift::import as ms_swift;
use crate::nanotron::import as nanotron;
use crate::olmo_core::OLMO_CORE;
use crate::olmo_core::import as olmo_core;
use crate::readers::document::{Document, Form};
use crate::readers::shell::text::Text;
use crate::readers::shell::{self, Ran};
use meshwright_engine::plan::ZeroStage;

/// Reads a script.
///
/// # Errors
/// A script that does not parse, launches nothing, or names a configuration that is not there.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let inputs = shell::Inputs {
        file: context.file,
        variables: context.variables,
        arguments: context.arguments,
        files: context.files,
    };
    let ran = shell::run(text, &inputs).map_err(|error| ImportError {
        file: context.file.into(),
        line: error.line,
        why: error.why,
        expected: String::new(),
    })?;
    masked(of_run(&ran, context), &ran.hidden)
}

/// Import of the command that a followed script launches.
fn of_run(ran: &Ran, context: &Context) -> Result<Imported, ImportError> {
    let found = launches(ran);
    let Some(launch) = found.first() else {
        if let Some(imported) = of_arrays(ran, context) {
            return Ok(imported);
        }
        let expected =
            "torchrun, deepspeed, accelerate launch, srun or python with a training program; other files: --kind";
        let error = ran.findings.iter().find(|finding| finding.level == Severity::Error);
        let line = error.and_then(|finding| finding.place.as_ref()).map_or(1, |place| place.line);
        let detail = error.map_or_else(String::new, |finding| format!(": {finding}"));
        let why = format!("nothing is launched by this script{detail}");
        return Err(ImportError { file: context.file.into(), line, why, expected: expected.into() });
    };
    let mut findings = ran.findings.clone();
    let differs = |other: &&Launch| other.arguments != launch.arguments && other.arguments.len() > 2;
    let others = found.iter().skip(1).filter(differs).count();
    if others > 0 {
        let place = Place { file: context.file.to_owned(), line: launch.line };
        let message = format!("{others} other launches; the one of `{}` is read", launch.program);
        findings.push(Finding::note("several-launches", message).at(&place));
    }
    if let Some(other) = OTHER_WORK.iter().find(|part| launch.program.to_lowercase().contains(**part)) {
        let place = Place { file: context.file.to_owned(), line: launch.line };
        let message =
            format!("`{}` does not train, by its name (`{other}`), and is priced as if it did", launch.program);
        findings.push(Finding::warning("not-training", message).at(&place));
    }
    let LaunchedGpus { all: world, per_node: gpus_per_node } = match launch.launcher {
        Launcher::Swift => ms_swift::gpus(launch, ran),
        Launcher::Primus => primus::gpus(launch, ran),
        Launcher::Own if launch.program.starts_with("llama") || launch.program.starts_with("lmf") => {
            ms_swift::gpus(launch, ran)
        } // variables of the same names
        _ => launch.gpus(context.file, &mut findings),
    };
    let connections = ran.variables.get("CUDA_DEVICE_MAX_CONNECTIONS").map(Text::plain);
    let launched = Launched {
        world,
        gpus_per_node,
        connections,
        in_script: true,
        release: context.release,
        ..Launched::default()
    };
    let mut imported = imported_from(launch, &launched, ran, context)?;
    findings.append(&mut imported.findings);
    imported.findings = findings;
    Ok(imported)
}

/// Arguments of Megatron that a script keeps for another to launch, such as `MODEL_ARGS=(--num-layers 32 …)`.
fn of_arrays(ran: &Ran, context: &Context) -> Option<Imported> {
    const FEWEST: usize = 3;
    let flags = |words: &[Text]| {
        let known =
            words.iter().map(Text::plain).filter(|word| crate::megatron::flags::flags().contains_key(word.as_str()));
        known.collect::<std::collections::BTreeSet<String>>()
    };
    let texts = ran.variables.iter().map(|(name, text)| (name, text.clone().quoted(false).words()));
    let lists = ran.arrays.iter().map(|(name, items)| (name, items.clone())).chain(texts);
    let mut lists: Vec<_> = lists.filter(|(_, words)| flags(words).len() >= FEWEST).collect();
    lists.sort_by_key(|(_, words)| std::cmp::Reverse(flags(words).len()));
    let (mut names, mut all): (Vec<&str>, Vec<Text>) = (Vec::new(), Vec::new());
    for (name, words) in &lists {
        if !flags(words).is_subset(&flags(&all)) {
            names.push(name);
            all.extend(words.iter().cloned());
        }
    }
    let line = all.first().and_then(Text::line)?.max(1);
    let list = megatron::Arguments::read(&all, context.file);
    let launched = Launched { release: context.release, ..Launched::default() };
    let mut imported = megatron::imported_from(list, &launched);
    let message = format!("nothing is launched by this script; what `{}` hold is read", names.join("`, `"));
    let place = Place { file: context.file.to_owned(), line };
    imported.findings.insert(0, Finding::note("assumed", message).at(&place).expected("lint the script that launches"));
    imported.findings.extend(ran.findings.iter().cloned());
    Some(imported)
}

/// Parts of names of programs that share a training program's arguments and do not train.
const OTHER_WORK: &[&str] = &["generat", "inference", "convert", "quantiz", "export", "ptq", "preprocess", "evaluat"];

/// Import of one launch by the reader of the framework that its program or its files belong to; Megatron's where none is
/// recognised.
fn imported_from(launch: &Launch, launched: &Launched, ran: &Ran, context: &Context) -> Result<Imported, ImportError> {
    let has = |start: &str| launch.arguments.iter().any(|word| word.plain().starts_with(start));
    if launch.launcher == Launcher::Swift || launch.program.contains("swift/cli/") {
        return of_swift(launch, launched, ran, context);
    }
    if launch.program.ends_with("deepy.py") || launch.program.ends_with(PROGRAM) {
        let words: Vec<String> = launch.arguments.iter().map(Text::plain).collect();
        return gpt_neox::of_launch(&words, launched, context);
    }
    if launch.program.contains("maxtext")
        && let Some(file) = launch.arguments.iter().find(|word| is_yaml(&word.plain()))
        && let Ok(document) = configuration(file, Form::Yaml, ran, context)
        && maxtext::is_whole(&document)
    {
        return Ok(maxtext::imported_from(&document, launched));
    }
    if launch.program.starts_with("axolotl")
        && let Some(document) = own_yaml(launch, ran, context)
    {
        let mut imported = axolotl::imported_from(&document?, launched, context)?;
        if let Some((_, file)) = launch.options.iter().find(|(name, _)| name == "__config_file") {
            let place = Place { file: context.file.to_owned(), line: launch.line };
            let message = format!("`{}` is not read: axolotl's own YAML says how it shards", file.plain());
            imported.findings.push(Finding::warning("unread-file", message).at(&place));
        }
        return Ok(imported);
    }
    if let Some(document) = llm_foundry_of(launch, ran, context) {
        if let Some(version) = ran.variables.get("FSDP_VERSION").filter(|version| version.plain() != "1") {
            let why = format!("`FSDP_VERSION={}`: Composer's settings of FSDP 2 are not read", version.plain());
            let line = version.line().unwrap_or(launch.line);
            return Err(ImportError { file: context.file.into(), line, why, expected: "FSDP 1".into() });
        }
        return llm_foundry::imported_from(document?, launched);
    }
    if let Some(document) = llama_factory_of(launch, ran, context) {
        let engine = accelerated::engine(launch, launched, ran, context)?;
        return llama_factory::imported_from(&document?, launched, engine, context);
    }
    if let Some(imported) = of_program(launch, launched, context) {
        return imported;
    }
    refuse_program(&launch.program, context.file, launch.line)?;
    if trainer::preset(launch).is_some() {
        return Ok(trainer::imported_from(launch, launched, context.file));
    }
    let deepspeed = launch.argument(&["--deepspeed_config", "--deepspeed-config"]).or_else(|| {
        launch.argument(&["--deepspeed"]).filter(|value| !value.plain().starts_with('-') && !value.plain().is_empty())
    });
    if let Some(file) = deepspeed.filter(|_| !has("--num-layers")) {
        let document = configuration(&file, Form::Json, ran, context)?;
        let mut imported = deepspeed::imported_from(&document, launched);
        trainer::fill(&mut imported, launch, None, context.file);
        return Ok(imported);
    }
    if launch.launcher == Launcher::Accelerate {
        let mut imported = accelerated::of_launch(launch, launched, ran, context)?;
        let steps = ran.variables.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
        let steps = steps.and_then(|text| text.plain().parse().ok());
        trainer::fill(&mut imported, launch, steps, context.file);
        return Ok(imported);
    }
    if launch.program.contains("torchtitan") || has("--job.config") {
        return titan::of_launch(launch, launched, ran, context);
    }
    let yaml = launch.argument(&["--config-file", "--config_file", "--config"]).filter(|file| is_yaml(&file.plain()));
    if let Some(file) = yaml {
        let document = configuration(&file, Form::Yaml, ran, context)?;
        return Ok(if document.has("parallelism") {
            nanotron::imported_from(&document, launched)
        } else {
            of_bridge(document, launch, launched)
        });
    }
    if launch.arguments.iter().any(|word| override_of(&word.plain()).is_some_and(|(path, _)| bridge::is_setting(path)))
    {
        return Ok(of_bridge(Document::empty(launch.line, context.file), launch, launched));
    }
    let list = megatron::Arguments::read(&launch.arguments, context.file);
    let own = list.is_megatrons();
    if !own && (launch.launcher == Launcher::Deepspeed || trainer::is_trainer(launch)) {
        return Ok(trainer::imported_from(launch, launched, context.file));
    }
    if let Some((text, inner)) = python_program(launch, &MEGATRON_BRIDGE, context).filter(|_| !own) {
        return bridge::of_program(&text, &inner, launched);
    }
    if !own && launch.arguments.iter().all(|word| word.missing().is_empty()) {
        let why = format!("`{}` is launched with no argument that says how it trains", launch.program);
        let expected =
            "what it trains is in its code or its own file: import that; Megatron's arguments alone: --kind megatron";
        return Err(ImportError { file: context.file.into(), line: launch.line, why, expected: expected.into() });
    }
    let mut imported = megatron::imported_from(list, launched);
    if let Some(file) = launch.argument(&["--deepspeed_config", "--deepspeed-config"]) {
        overlay(&mut imported, &file, launched, ran, context);
    }
    Ok(imported)
}

/// Adds the sharding and offloading of the JSON that Megatron-DeepSpeed's flags name.
fn overlay(imported: &mut Imported, file: &Text, launched: &Launched, ran: &Ran, context: &Context) {
    let document = match configuration(file, Form::Json, ran, context) {
        Ok(document) => document,
        Err(error) => {
            let place = Place { file: error.file.clone(), line: error.line };
            imported.findings.push(Finding::warning("unread-file", error.why).at(&place).expected(error.expected));
            return;
        }
    };
    let mut beside = deepspeed::imported_from(&document, &Launched { world: imported.world, ..launched.clone() });
    // Stage 0 of both shards with bf16, and another of the JSON counts.
    if beside.plan.zero == ZeroStage::Zero && imported.findings.iter().any(|finding| finding.message == BF16_SHARDS) {
        beside.plan.zero = ZeroStage::One;
    } else {
        imported.findings.retain(|finding| finding.message != BF16_SHARDS);
    }
    let stage = imported.places.get("zero-stage").cloned();
    if stage.is_some() && imported.plan.zero != beside.plan.zero {
        let message = format!(
            "--zero-stage {} and stage {} of the JSON",
            u8::from(imported.plan.zero),
            u8::from(beside.plan.zero)
        );
        imported
            .findings
            .push(Finding::warning("contradiction", message).at_maybe(stage.as_ref()).expected("the JSON's counts"));
    }
    imported.plan.zero = beside.plan.zero;
    imported.plan.offload.optimizer = imported.plan.offload.optimizer.max(beside.plan.offload.optimizer);
    let errors =
        beside.findings.into_iter().filter(|finding| finding.level == Severity::Error && finding.rule != "world-size");
    imported.findings.extend(errors);
    imported.unknown.extend(beside.unknown);
}

/// A launch of ms-swift, by its command or by the program below it.
fn of_swift(launch: &Launch, launched: &Launched, ran: &Ran, context: &Context) -> Result<Imported, ImportError> {
    refuse_program(&launch.program, context.file, launch.line)?;
    let is_megatrons = launch.program.contains("megatron");
    if let Some(document) = own_yaml(launch, ran, context) {
        return ms_swift::imported_from(None, &document?, is_megatrons, launched, context);
    }
    if is_megatrons {
        return Ok(ms_swift::of_words(&launch.arguments, launch.line, launched, context.file));
    }
    let engine = accelerated::engine(launch, launched, ran, context)?;
    ms_swift::imported_from(engine, &own_settings(launch, context), false, launched, context)
}

/// The settings of a launch of LLaMA-Factory: its command, its module, or its `train.py` with a file of its format.
fn llama_factory_of(launch: &Launch, ran: &Ran, context: &Context) -> Option<Result<Document, ImportError>> {
    let program = launch.program.as_str();
    if matches!(program, "llamafactory-cli train" | "lmf train" | "llamafactory.launcher") {
        return own_yaml(launch, ran, context).or_else(|| Some(Ok(own_settings(launch, context))));
    }
    if !program.ends_with("train.py") {
        return None;
    }
    let document = own_yaml(launch, ran, context)?;
    let is_its = |document: &Document| document.has("finetuning_type") || document.has("cutoff_len");
    document.as_ref().is_ok_and(is_its).then_some(document)
}

/// The settings of a launch of llm-foundry: its command, or its `train.py` with a file of its format.
fn llm_foundry_of(launch: &Launch, ran: &Ran, context: &Context) -> Option<Result<Document, ImportError>> {
    if launch.program != "llmfoundry train" && !launch.program.ends_with("train.py") {
        return None;
    }
    let document = own_yaml(launch, ran, context)?;
    let is_its = document.as_ref().map_or(launch.launcher == Launcher::Composer, llm_foundry::is_its);
    is_its.then_some(document)
}

/// Text of the launched program with its own context, where it is a framework's Python file in the folder of the script.
fn python_program<'c>(
    launch: &'c Launch,
    framework: &'static Framework,
    context: &Context<'c>,
) -> Option<(String, Context<'c>)> {
    let program = launch.program.as_str();
    let is_python = std::path::Path::new(program).extension().is_some_and(|end| end == "py");
    let text = (context.files)(program).filter(|_| is_python)?;
    let is_its = kind_of(program, &text).ok()? == FileKind::Of(framework);
    is_its.then(|| (text, Context { files: context.files, ..Context::alone(program) }))
}

/// Launch of a program of OLMo-core in the folder of the script.
fn of_program(launch: &Launch, launched: &Launched, context: &Context) -> Option<Result<Imported, ImportError>> {
    let (text, inner) = python_program(launch, &OLMO_CORE, context)?;
    let words = launch.arguments.iter().filter(|word| word.missing().is_empty());
    let words: Vec<(String, u32)> = words.map(|word| (word.plain(), word.line().unwrap_or(launch.line))).collect();
    Some(olmo_core::of_launch(&text, &inner, &olmo_core::Arguments::of(&words), launched))
}

/// `model.tensor_model_parallel_size=4`, with Hydra's `+` or without.
fn override_of(word: &str) -> Option<(&str, &str)> {
    let (path, value) = word.trim_start_matches('+').split_once('=')?;
    let plain = (path.contains('.') || path == "mixed_precision")
        && path.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    (plain && path.starts_with(|c: char| c.is_ascii_lowercase())).then_some((path, value))
}

fn of_bridge(mut document: Document, launch: &Launch, launched: &Launched) -> Imported {
    for word in &launch.arguments {
        let text = word.plain();
        if let Some((path, value)) = override_of(&text).filter(|_| word.missing().is_empty()) {
            document.put(path, value, word.line().unwrap_or(launch.line));
        }
    }
    let mut launched = launched.clone();
    let recipe = launch.argument(&["--recipe", "--recipe-name", "--recipe_name"]).map(|name| name.plain());
    launched.model = recipe.as_deref().and_then(known::of_recipe);
    if let (Some(recipe), Some(model)) = (&recipe, &launched.model) {
        let message =
            format!("the recipe `{recipe}` is read as the model {}; what else it sets is not read", model.name);
        document.note(Finding::warning("not-read", message).expected("repeat what it sets as overrides"));
    }
    bridge::imported_from(&document, &mut launched)
}
