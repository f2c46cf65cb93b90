//! Primus: an experiment with every argument of the plan as an override, and a script that hands it to `primus-cli`.
//!
//! Source: [primus] `primus/core/launcher/parser.py`, `primus/configs/`, `runner/primus-cli-direct.sh`, commit
//! fd1eeabb. An override has the name under which Megatron's parser keeps its argument, and its value goes to Megatron
//! unread: no text becomes a number.

use super::limits::LIMITS;
use crate::emit::flags::{FlagSetting, FlagValue};
use crate::emit::header::lines;
use crate::emit::language::Yaml;
use crate::emit::launcher::{FIRST, NODE, Nodes, PORT, RequiredVariable, check_variables, environment, launch_script};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::megatron::emit::{ArgumentGroups, connections, rank_order};
use crate::sizes::Sizes;
use meshwright_planner::limits::Obstacle;

/// Name of the experiment.
const CONFIG: &str = "primus.yaml";

/// Release of Megatron core whose arguments Primus takes: that of the Megatron-LM in its `third_party` (d3528a21).
const CORE: &str = "0.16";

/// Megatron arguments that Primus sets under another name or with the opposite value; `{}` is the argument's value.
///
/// Source: [megatron-lm] `megatron/training/arguments.py`, commit d3528a21.
const OTHERS: &[(&str, &str)] = &[
    ("disable-bias-linear", "add_bias_linear: false"),
    ("no-gradient-accumulation-fusion", "gradient_accumulation_fusion: false"),
    ("no-overlap-p2p-communication", "overlap_p2p_comm: false"),
    ("no-bias-gelu-fusion", "bias_gelu_fusion: false"),
    ("no-bias-dropout-fusion", "bias_dropout_fusion: false"),
    ("norm-epsilon", "layernorm_epsilon: {}"),
    ("fp8-format", "fp8: {}"),
    ("fp4-format", "fp4: {}"),
];

/// Settings by which Primus' presets differ from Megatron's defaults: the argument, and the line that restores the default where
/// the argument is not given.
///
/// Source: [primus] `primus/configs/modules/megatron/{trainer_base,pre_trainer}.yaml`,
/// `primus/configs/models/megatron/language_model.yaml`.
const UNDONE: &[(&str, &str)] = &[
    ("swiglu", "swiglu: false"),
    ("disable-bias-linear", "add_bias_linear: true"),
    ("untie-embeddings-and-output-weights", "untie_embeddings_and_output_weights: false"),
    ("sequence-parallel", "sequence_parallel: false"),
    ("use-distributed-optimizer", "use_distributed_optimizer: false"),
    ("bf16", "bf16: false"),
];

/// Arguments that Megatron's parser evaluates from an expression to a list. Primus does not evaluate them.
const LISTS: &[&str] = &["window-size", "window-attn-skip-freq", "no-rope-freq", "moe-layer-freq"];

/// The script and the experiment.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = Sizes::of(request.costs.problem.model())?;
    let mut arguments = ArgumentGroups::new(&Request { release: Some(CORE), ..*request }, &sizes, None);
    for (.., group) in &mut arguments.groups {
        group.settings.retain(|setting| !setting.flag.starts_with("cuda-graph-"));
    }
    if request.costs.problem.stack().cuda_graphs {
        arguments.notes.push("no CUDA graphs are written, which the prediction assumed".into());
    }
    arguments.in_release(CORE)?;
    Ok(vec![script(request, &arguments.notes), experiment(request, &arguments)])
}

fn experiment(request: &Request, arguments: &ArgumentGroups) -> EmittedFile {
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &arguments.notes));
    text.comments([rank_order(request.evaluation.plan.order), "primus.sh runs it."]);
    text.fixed("work_group: meshwright\nuser_name: meshwright\nexp_name: plan");
    text.fixed(if request.steps.is_some() { "workspace: ./timing" } else { "workspace: ${SAVE}" });
    text.fixed("\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml");
    text.fixed("    model: language_model.yaml # of no model: every size is set below\n    overrides:");
    let settings = || arguments.groups.iter().flat_map(|(.., group)| &group.settings);
    for (_, what, group) in &arguments.groups {
        if !group.settings.is_empty() {
            text.line(snippet!("      # {}", Snippet::fixed(what)));
        }
        for setting in &group.settings {
            text.line(snippet!("      {}", written(setting)));
        }
    }
    text.fixed("      # what the presets above set otherwise");
    for (_, undone) in UNDONE.iter().filter(|(flag, _)| settings().all(|setting| setting.flag != *flag)) {
        text.line(snippet!("      {}", Snippet::fixed(undone)));
    }
    text.fixed("      add_position_embedding: true\n      finetune: false\n      dataloader_type: single");
    text.fixed("      # data, tokenizer, checkpoints and length of the run");
    text.fixed("      create_attention_mask_in_dataloader: false # attention makes its own");
    text.fixed("      manual_gc: true # on all ranks at once\n      manual_gc_interval: 100");
    match request.steps {
        Some(steps) => {
            text.fixed(
                "      mock_data: true\n      tokenizer_type: NullTokenizer\n      save: null\n      load: null",
            );
            text.line(snippet!("      train_iters: {}", steps));
        }
        None => text.fixed(TRAINING),
    }
    text.fixed("      # to be edited: learning rate and its decay");
    text.fixed("      lr: 0.0003\n      min_lr: 0.00003\n      lr_decay_style: cosine");
    text.line(snippet!("      lr_warmup_iters: {}", request.warm_up()));
    text.fixed("      clip_grad: 1.0\n      weight_decay: 0.1\n      log_interval: 1\n      eval_iters: 0");
    text.into_file(CONFIG)
}

/// An argument as its namespace has it.
fn written(setting: &FlagSetting) -> Snippet<Yaml> {
    let value = match &setting.value {
        FlagValue::On => true.into(),
        FlagValue::Word(word) if LISTS.contains(&setting.flag) => list(unfolded(word).iter().map(String::as_str)),
        FlagValue::Word(word) => value(word),
        FlagValue::Words(words) => list(words.iter().map(String::as_str)),
    };
    match OTHERS.iter().find(|(flag, _)| *flag == setting.flag) {
        Some((_, other)) if other.contains("{}") => Snippet::filled(other, &[value]),
        Some((_, other)) => Snippet::fixed(other),
        None => snippet!("{}: {}", setting.flag.replace('-', "_").as_str(), value),
    }
}

fn list<'w>(words: impl Iterator<Item = &'w str>) -> Snippet<Yaml> {
    snippet!("[{}]", Snippet::joined(words.map(value), ", "))
}

/// A number, or a text.
fn value(word: &str) -> Snippet<Yaml> {
    let real = || word.parse::<f64>().ok().filter(|_| word.ends_with(|c: char| c.is_ascii_digit()));
    match word.parse::<u64>() {
        Ok(whole) => whole.into(),
        Err(_) => real().map_or_else(|| word.into(), Into::into),
    }
}

/// Items of `127,0`, of `[0,1,1]` and of `([0]*3+[1]*58)`.
fn unfolded(word: &str) -> Vec<String> {
    let sum = word.trim_start_matches('(').trim_end_matches(')');
    let part = |part: &str| {
        let (items, times) = part.split_once('*').unwrap_or((part, "1"));
        let items: Vec<String> = items.trim_matches(['[', ']']).split(',').map(str::to_owned).collect();
        let times = times.parse().unwrap_or(1);
        std::iter::repeat_n(items, times).flatten()
    };
    sum.split('+').flat_map(part).collect()
}

/// Settings of a training run, which take the variables; Primus puts checkpoints below the workspace.
const TRAINING: &str = "      train_data_path: ${DATA}
      tokenizer_type: HuggingFaceTokenizer
      tokenizer_model: ${TOKENIZER}
      save: ${SAVE}
      load: ${LOAD}
      exit_on_missing_checkpoint: false
      save_interval: 1000
      train_iters: ${STEPS}";

/// Variables of a training run; a timing run needs the first.
const VARIABLES: &[RequiredVariable] = &[
    ("PRIMUS", "a checkout of Primus with its third_party/Megatron-LM"),
    ("DATA", "the prefix of a dataset that tools/preprocess_data.py of Megatron-LM wrote"),
    ("TOKENIZER", "a tokenizer of Hugging Face: a name or a folder"),
    ("SAVE", "a folder for checkpoints and logs"),
    ("LOAD", "a folder of checkpoints to go on from: SAVE/meshwright/meshwright/plan/checkpoints, which may be empty"),
    ("STEPS", "the number of steps"),
];

fn script(request: &Request, notes: &[String]) -> EmittedFile {
    let Nodes { count: nodes, gpus_each } = Nodes::of_request(request);
    let mut text = launch_script(
        &LIMITS,
        request,
        notes,
        [
            "Run it in this folder, once a node, in Primus' container or environment; under Slurm: sbatch \
            launch.sbatch. What follows",
            "its name goes to Primus, such as --lr 0.0001.",
        ],
    );
    check_variables(&mut text, if request.steps.is_some() { &VARIABLES[..1] } else { VARIABLES });
    environment(&mut text, request);
    if request.steps.is_none() {
        text.comments(["The YAML takes these."]);
        text.fixed("export DATA TOKENIZER SAVE LOAD STEPS\n");
    }
    if let Some(connections) = connections(request) {
        text.line(snippet!("export CUDA_DEVICE_MAX_CONNECTIONS={}", connections));
    }
    text.comments(["From these its launcher starts torchrun."]);
    text.line(snippet!("export NNODES={} GPUS_PER_NODE={}", nodes, gpus_each));
    let meeting = if nodes > 1 { [NODE, FIRST, PORT] } else { ["0", "localhost", PORT] };
    for (name, value) in ["NODE_RANK", "MASTER_ADDR", "MASTER_PORT"].into_iter().zip(meeting) {
        text.line(snippet!("export {}={}", Snippet::fixed(name), Snippet::fixed(value)));
    }
    text.line(snippet!("\n\"$PRIMUS\"/runner/primus-cli direct -- train pretrain --config {} \"$@\"", CONFIG));
    text.into_file("primus.sh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_unfolded() {
        assert_eq!(unfolded("127,0"), ["127", "0"]);
        assert_eq!(unfolded("[0,1,0]"), ["0", "1", "0"]);
        assert_eq!(unfolded("([0]+[1]*3)"), ["0", "1", "1", "1"]);
    }
}
