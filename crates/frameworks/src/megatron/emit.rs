//! Megatron-LM: one shell script with `torchrun` and every argument of `pretrain_gpt.py`.
//!
//! Names and meanings: [megatron-lm] `megatron/training/arguments.py`, release 0.19.2.

mod model;
mod plan;
mod release;

use super::flags::{Releases, names};
use super::hybrid::{Hybrid, is_hybrid};
use super::limits::LIMITS;
use crate::emit::flags::{FlagGroup, FlagSetting, FlagValue};
use crate::emit::language::Shell;
use crate::emit::launcher::{RequiredVariable, check_variables, environment, launch_script, torchrun_options};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::sizes::Sizes;
use meshwright_engine::plan::{Offload, Plan, RankOrder, ZeroStage};
use meshwright_planner::limits::Obstacle;

/// Arguments in groups: name of the group's shell array, its title, its flags.
pub(crate) struct ArgumentGroups {
    pub groups: Vec<(&'static str, &'static str, FlagGroup)>,
    /// Assumptions of the prediction that no argument expresses, and arguments that it does not model.
    pub notes: Vec<String>,
}

impl ArgumentGroups {
    /// The arguments of a plan that Megatron-LM can express.
    pub fn new(request: &Request, sizes: &Sizes, hybrid: Option<&Hybrid>) -> Self {
        let mut notes = Vec::new();
        let groups = vec![
            ("MODEL_ARGS", "architecture", model::architecture(request, sizes, hybrid, &mut notes)),
            ("PARALLEL_ARGS", "degrees, pipeline and sharding", plan::parallelism(request)),
            ("BATCH_ARGS", "batch and sequence", plan::batch(request)),
            ("PRECISION_ARGS", "number formats and optimizer", plan::precision(request, &mut notes)),
            ("MEMORY_ARGS", "recomputation and offloading", plan::memory(request, &mut notes)),
            ("KERNEL_ARGS", "kernels and overlap that the prediction assumed", plan::kernels(request, &mut notes)),
        ];
        Self { groups, notes }
    }

    /// Puts the arguments into the words of a release of Megatron core; gives the releases that take all of them.
    ///
    /// # Errors
    /// One obstacle for each argument that the release lacks, and in whose place it has nothing.
    pub fn in_release(&mut self, release: &str) -> Result<Releases, Vec<Obstacle>> {
        let groups = self.groups.iter_mut().map(|(_, _, group)| group);
        release::adapt(groups, release, &mut self.notes)
    }
}

/// Variables of a training run; a timing run needs the first.
const VARIABLES: &[RequiredVariable] = &[
    ("MEGATRON_LM", "a checkout of Megatron-LM"),
    ("DATA", "the prefix of a dataset that tools/preprocess_data.py wrote"),
    ("TOKENIZER", "a tokenizer of Hugging Face: a name or a folder"),
    ("SAVE", "a folder for checkpoints"),
    ("LOAD", "a folder of checkpoints to go on from: that of SAVE, which may be empty"),
    ("STEPS", "the number of steps"),
];

/// Arguments of a training run, which take the variables.
const TRAINING: [&str; 7] = [
    "--data-path \"$DATA\"",
    "--tokenizer-type HuggingFaceTokenizer",
    "--tokenizer-model \"$TOKENIZER\"",
    "--train-iters \"$STEPS\"",
    "--save \"$SAVE\"",
    "--load \"$LOAD\"",
    "--save-interval 1000",
];

/// Learning rate, before the steps over which it rises; to be edited.
const RATE: [&str; 3] = ["--lr 3e-4", "--min-lr 3e-5", "--lr-decay-style cosine"];

/// Arguments that a run needs in addition to the plan; to be edited.
///
/// * Causal attention makes its own mask. The data loader's takes the square of the sequence in bytes ([megatron-lm]
///   `core/datasets/gpt_dataset.py`).
/// * Python collects garbage on all ranks at once, as in the recipes behind the priced runs ([megatron-bridge] `recipes/common.py`): a
///   rank that collects alone keeps the others waiting.
const RUN: [&str; 9] = [
    "--no-create-attention-mask-in-dataloader",
    "--manual-gc",
    "--manual-gc-interval 100",
    "--clip-grad 1.0",
    "--weight-decay 0.1",
    "--log-interval 1",
    "--log-throughput",
    "--eval-interval 1000",
    "--eval-iters 0",
];

/// The one release with patterns of layers whose program and layers of hybrids have their former name. Source: [megatron-lm], its
/// root folder and `core/models/mamba/mamba_layer_specs.py`.
const LAST_OF_MAMBA: &str = "0.17";

/// The launch script of a plan that Megatron-LM can express.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let model = request.costs.problem.model();
    if is_hybrid(model) {
        let hybrid = Hybrid::of(model)?;
        return script(request, &hybrid.sizes, Some(&hybrid)).map(|script| vec![script]);
    }
    script(request, &Sizes::of(model)?, None).map(|script| vec![script])
}

/// The obstacle of an optimizer that a request names: offloading needs the precision-aware optimizer, which is Adam.
///
/// Source: [megatron-lm] `core/optimizer/optimizer_config.py`.
pub(crate) fn recipe_obstacle(request: &Request) -> Option<Obstacle> {
    let plan = &request.evaluation.plan;
    (request.recipe == Some("sgd") && plan.offload.optimizer > 0.0).then(|| Obstacle {
        what: format!("offload-optimizer={}", plan.offload.optimizer),
        why: "the hybrid device optimizer is Adam".into(),
        instead: Some(Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan.clone() }),
    })
}

/// Note on flags that the Megatron core of the stack may not take: it lacks some of the file's, or is older than all
/// whose flags are known. None where it takes them.
fn note_on_core(request: &Request, releases: Releases) -> Option<String> {
    let stack = request.costs.problem.stack();
    let core = stack.megatron_core?.to_string();
    let its_release = Releases::named(&core);
    if its_release.is_empty() {
        let oldest = names().first()?;
        return Some(format!(
            "{} has Megatron core {core}, and flags are known from {oldest} on: check them there",
            stack.name
        ));
    }
    let takes_all = !its_release.and(releases).is_empty();
    (!takes_all)
        .then(|| format!("{} has Megatron core {core}, which lacks some: --release {core} writes its own", stack.name))
}

fn script(request: &Request, sizes: &Sizes, hybrid: Option<&Hybrid>) -> Result<EmittedFile, Vec<Obstacle>> {
    let mut arguments = ArgumentGroups::new(request, sizes, hybrid);
    let release = request.release.or_else(|| names().last().copied()).unwrap_or_default();
    let releases = arguments.in_release(release)?;
    arguments.notes.push(format!("every flag is one of Megatron core {releases}; --release writes those of another"));
    arguments.notes.extend(note_on_core(request, releases));
    let plan = &request.evaluation.plan;
    let mut text = launch_script(
        &LIMITS,
        request,
        &arguments.notes,
        [rank_order(plan.order), "Run it once a node; under Slurm: sbatch launch.sbatch"],
    );
    check_variables(&mut text, if request.steps.is_some() { &VARIABLES[..1] } else { VARIABLES });
    environment(&mut text, request);
    if let Some(connections) = connections(request) {
        text.line(snippet!("export CUDA_DEVICE_MAX_CONNECTIONS={}\n", connections));
    }
    torchrun_options(&mut text, request);
    let mut arrays = vec!["DISTRIBUTED_ARGS"];
    for (name, what, group) in &arguments.groups {
        if !group.settings.is_empty() {
            text.line(snippet!("\n# {}", Snippet::fixed(what)));
            text.array(name, group.settings.iter().map(written));
            arrays.push(*name);
        }
    }
    text.fixed("\n# To be edited: learning rate and its decay.");
    let run = match request.steps {
        Some(steps) => vec![
            Snippet::fixed("--mock-data"),
            Snippet::fixed("--tokenizer-type NullTokenizer"),
            snippet!("--train-iters {}", steps),
        ],
        None => TRAINING.map(Snippet::fixed).into(),
    };
    let warm_up = snippet!("--lr-warmup-iters {}", request.warm_up());
    text.array(
        "RUN_ARGS",
        run.into_iter().chain(RATE.map(Snippet::fixed)).chain([warm_up]).chain(RUN.map(Snippet::fixed)),
    );
    arrays.push("RUN_ARGS");
    let items = |name: &&'static str| snippet!("\"${{}[@]}\"", Snippet::fixed(name));
    let program = match hybrid {
        None => "pretrain_gpt.py",
        Some(_) if release == LAST_OF_MAMBA => "pretrain_mamba.py",
        Some(_) => "pretrain_hybrid.py",
    };
    let arguments = Snippet::joined(arrays[1..].iter().map(items), " \\\n    ");
    text.line(snippet!(
        "\ntorchrun {} \"$MEGATRON_LM\"/{} \\\n    {} \"$@\"",
        items(&arrays[0]),
        Snippet::fixed(program),
        arguments
    ));
    Ok(text.into_file("megatron.sh"))
}

/// Comment on the order of ranks.
pub(crate) const fn rank_order(order: RankOrder) -> &'static str {
    match order {
        RankOrder::PipelineOutermost => {
            "Rank order tp-cp-ep-dp-pp: neighbouring ranks share tensors, stages lie farthest apart."
        }
        RankOrder::DataOutermost => {
            "Rank order tp-cp-ep-pp-dp: neighbouring ranks share tensors, replicas lie farthest apart."
        }
    }
}

/// Flag as the user types it, for messages.
fn written_text(setting: &FlagSetting) -> String {
    let words = match &setting.value {
        FlagValue::On => Vec::new(),
        FlagValue::Word(word) => vec![word.as_str()],
        FlagValue::Words(words) => words.iter().map(String::as_str).collect(),
    };
    [&[setting.flag][..], &words].concat().join(" ").replacen("", "--", 1)
}

/// Flag as the user types it.
fn written(setting: &FlagSetting) -> Snippet<Shell> {
    let flag = Snippet::fixed(setting.flag);
    match &setting.value {
        FlagValue::On => snippet!("--{}", flag),
        FlagValue::Word(word) => snippet!("--{} {}", flag, word.as_str()),
        FlagValue::Words(words) => {
            snippet!("--{} {}", flag, Snippet::joined(words.iter().map(|word| word.as_str().into()), " "))
        }
    }
}

/// Hardware queues: one, so that collectives start before the GEMMs that hide them; FSDP and batch-level expert overlap
/// want more.
///
/// Source: [megatron-lm] `arguments.py`: tp or cp before Blackwell needs 1, FSDP must not have 1.
pub(crate) fn connections(request: &Request) -> Option<u32> {
    let plan = &request.evaluation.plan;
    if plan.zero >= ZeroStage::Two {
        Some(8)
    } else if plan::overlaps_experts(request) {
        Some(32)
    } else {
        (plan.layout.tp > 1 || plan.layout.cp > 1).then_some(1)
    }
}
