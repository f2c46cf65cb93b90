//! Plans by release: what the Megatron core of a stack does not have yet is refused, with the nearest plan without it.

use crate::random::{plans, spec};
use meshwright::cost::Costs;
use meshwright::emit::{Request, emit};
use meshwright::frameworks::{MEGATRON, launchable};
use meshwright::search::{SearchOptions, search};
use meshwright::space::parse_plan;

/// Model, stack, plan, and the obstacle's first words; none where the release has it.
const CASES: &[(&str, &str, &str, Option<&str>)] = &[
    (
        "llama3-8b",
        "megatron-2021",
        "tp=2 zero=0 sp=on",
        Some("sp=on: sequence parallelism came with Megatron core 0.1;"),
    ),
    ("llama3-8b", "megatron-2021", "tp=2 zero=0 sp=off", None),
    ("llama3-8b", "megatron-2021", "tp=2 sp=off zero=1", Some("zero=1: the distributed optimizer")),
    ("llama3-8b", "megatron-2022", "tp=2 zero=1 sp=on recompute=core_attn", None),
    ("llama3-8b", "megatron-2022", "cp=2 cp-kind=p2p zero=1", Some("cp=2: context parallelism")),
    ("llama3-8b", "megatron-lm-2023", "cp=2 cp-kind=p2p zero=1", None),
    ("llama3-8b", "megatron-lm-2024", "cp=2 cp-kind=a2a zero=1", Some("cp-kind=a2a: `--cp-comm-type`")),
    ("llama3-8b", "megatron-lm-2024", "recompute=mlp zero=1", Some("recompute=mlp: `--recompute-modules`")),
    ("llama3-8b", "megatron-lm-2024", "pp=2 split=first-15 zero=1", Some("split=first-15: other layers")),
    ("llama3-8b", "nemo-24", "pp=2 split=first-15 zero=1", None),
    ("llama3-8b", "nemo-24", "pp=2 split=Et*14|t*18L zero=1", Some("split=")),
    ("llama3-8b", "nemo-24", "zero=3", Some("zero=3: Megatron-FSDP came with Megatron core 0.12; NeMo 24.x has 0.9")),
    ("llama3-8b", "nemo-25", "zero=3", None),
    ("llama3-8b", "nemo-24", "zero=1 offload-optimizer=1", Some("offload-optimizer=1: `--optimizer-cpu-offload`")),
    ("mixtral-8x7b", "nemo-24", "tp=2 ep=8 etp=1 zero=1", Some("etp=1: another tensor parallelism of experts")),
    ("mixtral-8x7b", "nemo-24", "tp=2 ep=4 etp=2 zero=1 dispatcher=deepep", Some("dispatcher=deepep: DeepEP")),
    ("mixtral-8x7b", "nemo-25", "tp=2 ep=8 etp=1 zero=1 dispatcher=deepep", None),
    ("mixtral-8x7b", "megatron-2022", "ep=8 zero=1", Some("ep=8: expert parallelism")),
];

#[test]
fn features_of_later_releases_are_refused() {
    for (model, stack, text, obstacle) in CASES {
        let problem = spec(model, "dgx-h100-64", stack, 128, 4096).problem();
        let plan = parse_plan(text, &problem).unwrap();
        let found = MEGATRON.limits.plan_obstacle(&problem, &plan).map(|obstacle| obstacle.to_string());
        match obstacle {
            None => assert_eq!(found, None, "{stack} {text}"),
            Some(start) => {
                let found = found.unwrap_or_else(|| panic!("{stack} has {text}"));
                assert!(found.starts_with(start), "{stack} {text}: {found}");
                let near = MEGATRON.limits.nearest(&problem, &plan).unwrap();
                assert_eq!(MEGATRON.limits.plan_obstacle(&problem, &near), None, "{near}");
            }
        }
    }
}

/// Every plan that an old stack's search names is written for its framework, and random plans have a nearest one without later features.
#[test]
fn old_stacks_name_plans_of_their_release() {
    for stack in ["megatron-2021", "megatron-2022", "megatron-lm-2023", "megatron-lm-2024", "nemo-24", "simumax-2025"] {
        for model in ["llama2-13b", "mixtral-8x7b"] {
            let problem = spec(model, "dgx-h100-64", stack, 128, 4096).problem();
            let costs = Costs::new(&problem);
            let options = SearchOptions { top: 3, restrictions: launchable(&problem) };
            let ranking = search(&problem, &options, &|_, _| {});
            assert!(!ranking.evaluations.is_empty(), "{stack} {model}");
            for evaluation in &ranking.evaluations {
                assert!(emit(&MEGATRON, &Request::new(&costs, evaluation)).is_ok(), "{stack}: {}", evaluation.plan);
            }
            for plan in plans(&problem, 40, 7) {
                let near = MEGATRON.limits.nearest(&problem, &plan).unwrap_or_else(|| panic!("{stack}: {plan}"));
                assert_eq!(MEGATRON.limits.plan_obstacle(&problem, &near), None, "{near}");
            }
        }
    }
}
