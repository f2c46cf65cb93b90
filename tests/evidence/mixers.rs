//! Mixers that published runs have, and the intervals of models with others.

use std::collections::BTreeSet;

use crate::accuracy::path;
use crate::random::workload;
use meshwright::catalog::{self, Overrides};
use meshwright::confidence::{Confidence, StackRuns, Table, table};
use meshwright::cost::Footprint;
use meshwright::gpu::Format;
use meshwright::model::MixerKind;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::units::{Bytes, Seconds};

/// Models with mixers that no published run has, the files of their configurations, and how a sentence names the mixers.
const WITHOUT_RUNS: [(&str, &str); 6] = [
    ("tests/hf/qwen3-next-80b-a3b.json", "gated delta rules"),
    ("tests/hf/qwen3.5-27b.json", "gated delta rules"),
    ("tests/hf/falcon-h1-34b.json", "attention beside Mamba-2 blocks"),
    ("tests/hf/kimi-linear-48b-a3b.json", "Kimi Delta Attention"),
    ("tests/hf/lfm2-1.2b.json", "gated short convolutions"),
    ("models/deepseek-v3.2.toml", "sparse attention"),
];

/// Stacks with and without published runs.
const STACKS: [&str; 4] = ["nemo-26", "torchtitan-2025", "megatron-2021", "meta-llama3"];

/// Problem on H100s; none where the stack has no kernels for the model.
fn problem(model: &str, stack: &str) -> Option<Problem> {
    let sets = Overrides::default();
    let file = path(model);
    let model = catalog::model(if file.exists() { file.to_str().unwrap() } else { model }, &sets).unwrap();
    let (cluster, stack) = (catalog::cluster("dgx-h100-64", &sets).unwrap(), catalog::stack(stack, &sets).unwrap());
    Problem::new(model, cluster, workload(64, 4096, Format::Bf16), stack, HbmProfile::Normal).ok()
}

/// Intervals of a step of a second and a peak of 40 GiB.
fn intervals(problem: &Problem, table: &Table) -> Confidence {
    let footprint = Footprint { context: Bytes::gib(40.0), ..Footprint::default() };
    Confidence::from(problem, &footprint, Seconds::new(1.0), table)
}

/// The built-in intervals as they would be if runs had every mixer.
fn with_all_mixers() -> Table {
    use MixerKind::{Attention, AttentionMamba, DeltaNet, KimiDelta, Mamba, Mla, ShortConv, SparseMla};
    let mixers = vec![Attention, Mla, SparseMla, Mamba, DeltaNet, KimiDelta, ShortConv, AttentionMamba];
    Table { mixers, ..table().clone() }
}

#[test]
fn models_with_mixers_without_runs_have_wider_intervals_that_say_why() {
    let all = with_all_mixers();
    for (model, mixers) in WITHOUT_RUNS {
        let problems: Vec<Problem> = STACKS.into_iter().filter_map(|stack| problem(model, stack)).collect();
        assert!(!problems.is_empty(), "no stack runs {model}");
        for problem in problems {
            let (sure, without_rule) = (intervals(&problem, table()), intervals(&problem, &all));
            let (name, stack) = (&problem.model().name, &problem.stack().name);
            assert!(
                sure.step.low <= without_rule.step.low && sure.step.high >= without_rule.step.high,
                "{name}, {stack}"
            );
            assert!(
                sure.peak.low <= without_rule.peak.low && sure.peak.high >= without_rule.peak.high,
                "{name}, {stack}"
            );
            assert!(sure.oom_probability >= without_rule.oom_probability, "{name}, {stack}");
            let known = table().stacks.include(stack, problem.model().is_moe());
            assert_eq!(sure.step.high > without_rule.step.high, known, "{name}, {stack}");
            let sentence = sure.doubts().unwrap();
            assert!(sentence.starts_with(&format!("No published run has {mixers}: ")), "{name}: {sentence}");
            assert!(sure.class_in_words().contains(&format!("{mixers} without data")), "{name}");
            assert_eq!(without_rule.doubts(), None, "{name}");
        }
    }
}

/// Every other model of the catalogue has mixers of published runs alone, and its intervals are as they would be without the rule.
#[test]
fn models_with_mixers_of_published_runs_have_the_same_intervals() {
    let (all, mut mixers) = (with_all_mixers(), BTreeSet::new());
    let sparse = ["deepseek-v3.2", "glm-5"];
    for model in catalog::model_names().into_iter().filter(|name| !sparse.contains(name)) {
        for problem in STACKS.into_iter().filter_map(|stack| problem(model, stack)) {
            let sure = intervals(&problem, table());
            assert_eq!(sure, intervals(&problem, &all), "{model}");
            assert_eq!((sure.doubts(), sure.class_in_words()), (None, sure.class.to_string()), "{model}");
            mixers.extend(problem.model().mixer_kinds());
        }
    }
    assert_eq!(
        mixers.into_iter().collect::<Vec<_>>(),
        table().mixers,
        "Nemotron-H has Mamba-2 blocks, DeepSeek-V3 MLA"
    );
}

/// Scripts on PyTorch FSDP and DeepSpeed are no framework's: their intervals are nowhere narrower than those of a framework, and say why.
#[test]
fn generic_stacks_have_the_intervals_of_other_scripts() {
    let of = |stack| {
        let problem = problem("llama3-8b", stack).unwrap();
        let sure = intervals(&problem, table());
        (sure.class.stack, table().time(sure.class).interval(), sure.doubts())
    };
    let (own, framework, none) = of("torchtitan-2025");
    assert_eq!((own, none), (StackRuns::Own, None));
    for stack in ["fsdp-eager-2023", "fsdp-compiled-2024", "deepspeed-2024"] {
        let (generic, interval, doubts) = of(stack);
        assert_eq!(generic, StackRuns::Generic, "{stack}");
        assert!(interval.low < framework.low && interval.high > framework.high, "{stack}: {interval:?}");
        assert!(doubts.is_some_and(|why| why.contains("scripts on this stack differ")), "{stack}");
    }
}
