//! Plans by release: what the Megatron core of a stack does not have yet is refused, with the nearest plan without it.

use crate::random::{plans, spec};
use meshwright::catalog;
use meshwright::cost::Costs;
use meshwright::emit::{Request, emit};
use meshwright::frameworks::{MEGATRON, launchable, release_refusal};
use meshwright::import::{self, Context, FileKind};
use meshwright::limits::release_obstacle;
use meshwright::search::{SearchOptions, search};
use meshwright::space::parse_plan;
use meshwright::workload::Optimizer;

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
    ("llama3-8b", "nemo-24", "zero=3", Some("zero=3: Megatron-FSDP came with Megatron core 0.14; NeMo 24.x has 0.9")),
    ("llama3-8b", "nemo-25", "zero=3", None),
    ("llama3-8b", "nemo-24", "zero=1 offload-optimizer=1", Some("offload-optimizer=1: `--optimizer-cpu-offload`")),
    ("mixtral-8x7b", "nemo-24", "tp=2 ep=8 etp=1 zero=1", Some("etp=1: another tensor parallelism of experts")),
    ("mixtral-8x7b", "nemo-24", "tp=2 ep=4 etp=2 zero=1 dispatcher=deepep", Some("dispatcher=deepep: DeepEP")),
    ("mixtral-8x7b", "nemo-25", "tp=2 ep=8 etp=1 zero=1 dispatcher=deepep", None),
    ("mixtral-8x7b", "megatron-2022", "ep=8 zero=1", Some("ep=8: expert parallelism")),
];

/// Asserts that a reason begins as expected, or that there is none where none is.
fn assert_begins(found: Option<&str>, expected: Option<&str>, case: &str) {
    match (found, expected) {
        (Some(found), Some(start)) => assert!(found.starts_with(start), "{case}: {found}"),
        _ => assert_eq!(found, expected, "{case}"),
    }
}

#[test]
fn features_of_later_releases_are_refused() {
    for (model, stack, text, expected) in CASES {
        let problem = spec(model, "dgx-h100-64", stack, 128, 4096).problem();
        let plan = parse_plan(text, &problem).unwrap();
        let found = MEGATRON.limits.plan_obstacle(&problem, &plan).map(|obstacle| obstacle.to_string());
        assert_begins(found.as_deref(), *expected, &format!("{stack} {text}"));
        if found.is_some() {
            let near = MEGATRON.limits.nearest(&problem, &plan).unwrap();
            assert_eq!(MEGATRON.limits.plan_obstacle(&problem, &near), None, "{near}");
        }
    }
}

/// Every plan that an old stack's search names is written for its framework, and random plans have a nearest one
/// without later features.
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

/// Model, stack, plan, and why the release does not run it; none where it does.
const STATED: &[(&str, &str, &str, Option<&str>)] = &[
    (
        "mixtral-8x7b",
        "torchtitan-2024",
        "ep=8 zero=3",
        Some("ep=8: expert parallelism came to torchtitan in July 2025"),
    ),
    ("mixtral-8x7b", "torchtitan-2025", "ep=8 zero=3", None),
    ("llama3-8b", "torchtitan-2024", "cp=2 cp-kind=allgather zero=3", None),
    ("llama3-8b", "megatron-deepspeed-2022", "tp=2 sp=on", Some("sp=on: BLOOM's code has no sequence parallelism")),
    (
        "llama3-8b",
        "megatron-deepspeed-2022",
        "recompute=core_attn",
        Some("recompute=core_attn: BLOOM's code recomputes"),
    ),
    ("llama3-8b", "megatron-deepspeed-2023", "tp=2 sp=on recompute=core_attn", None),
    ("llama3-8b", "megatron-deepspeed-2023", "cp=2 cp-kind=a2a", Some("cp=2: DeepSpeed-Ulysses came in August 2023")),
    ("llama3-8b", "foundry-2023", "tp=2 zero=3", Some("tp=2: tensor parallelism came to llm-foundry")),
];

/// The limits that a stack's file states, whether or not files are written for its framework.
#[test]
fn what_a_stack_says_its_release_lacks_is_refused() {
    for (model, stack, text, expected) in STATED {
        let problem = spec(model, "dgx-h100-64", stack, 128, 4096).problem();
        let plan = parse_plan(text, &problem).unwrap();
        let found = release_obstacle(&problem, &plan);
        assert_begins(found.as_deref(), *expected, &format!("{stack} {text}"));
        let refusal = found.map(|found| format!("{} cannot run {found}", problem.stack().name));
        assert_eq!(release_refusal(&problem, &plan), refusal);
    }
}

/// Plans recommended on stacks that state limits keep to them.
#[test]
fn recommended_plans_keep_to_stated_limits() {
    for stack in
        ["torchtitan-2024", "megatron-deepspeed-2022", "megatron-deepspeed-2023", "internevo-2023", "foundry-2023"]
    {
        for (model, seq_len) in [("llama2-13b", 4096), ("llama3-8b", 65_536), ("mixtral-8x7b", 4096)] {
            let problem = spec(model, "dgx-h100-64", stack, 128, seq_len).problem();
            let options = SearchOptions { top: 5, restrictions: launchable(&problem) };
            for evaluation in search(&problem, &options, &|_, _| {}).evaluations {
                assert_eq!(release_obstacle(&problem, &evaluation.plan), None, "{stack}: {}", evaluation.plan);
            }
        }
    }
}

/// A stack of one's own states limits too, and a value that no plan has is named.
#[test]
fn a_stack_of_ones_own_states_limits() {
    let limited = |values: &str| {
        let file = std::env::temp_dir().join(format!("limits-{}-{}.toml", std::process::id(), values.len()));
        let text = format!(
            "like = \"nemo-25\"\nname = \"Ours\"\n\n[[limits]]\nvalues = \"{values}\"\nwhy = \"ours\"\nsource = \"own\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let stack = catalog::stack(file.to_str().unwrap(), &catalog::Overrides::default());
        std::fs::remove_file(file).unwrap();
        stack
    };
    assert_eq!(limited("tp=1..4").unwrap().limits[0].values, "tp=1..4");
    let error = limited("cpp=1").unwrap_err().to_string();
    assert!(error.contains("limits: there is no `cpp` to fix or forbid"), "{error}");
}

/// Files whose flags the stack's Megatron core may lack say so.
#[test]
fn files_say_what_the_stacks_core_may_lack() {
    let note = |model: &'static str, stack: &'static str, text: &str, release: Option<&'static str>| {
        let problem = spec(model, "dgx-h100-64", stack, 128, 4096).problem();
        let costs = Costs::new(&problem);
        let evaluation = costs.evaluate(&parse_plan(text, &problem).unwrap());
        let files = emit(&MEGATRON, &Request { release, ..Request::new(&costs, &evaluation) }).unwrap();
        let note = files[0].text.lines().find(|line| line.contains(" has Megatron core ")).unwrap_or_default();
        note.trim_start_matches("# note: ").to_owned()
    };
    let experts = "tp=2 ep=8 etp=1 zero=1 dispatcher=deepep";
    assert_eq!(
        note("mixtral-8x7b", "nemo-25", experts, None),
        "NeMo 25.x has Megatron core 0.15, which lacks some: --release 0.15 writes its own"
    );
    assert_eq!(note("mixtral-8x7b", "nemo-25", experts, Some("0.15")), "");
    assert_eq!(note("llama3-8b", "nemo-25", "tp=2 zero=1", None), "");
    assert_eq!(
        note("llama3-8b", "nemo-24", "tp=2 zero=1", None),
        "NeMo 24.x has Megatron core 0.9, and flags are known from 0.12 on: check them there"
    );
}

/// Muon came with core 0.16, and with the distributed optimizer and its overlaps in 0.18: scripts are refused, read ones found.
#[test]
fn muon_is_sharded_from_the_release_that_does() {
    let plain = spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192).problem();
    let muon = plain.changed(|_, workload, _| {
        workload.optimizer = Optimizer::Muon;
        workload.recipe.state = 4.0;
    });
    let problem = muon.unwrap();
    let costs = Costs::new(&problem);
    let evaluation = costs.evaluate(&parse_plan("zero=1", &problem).unwrap());
    for (release, is_refused) in [("0.16", true), ("0.17", true), ("0.18", false)] {
        let files = emit(&MEGATRON, &Request { release: Some(release), ..Request::new(&costs, &evaluation) });
        assert_eq!(files.is_err(), is_refused, "{release}");
        let why = files.err().map_or_else(String::new, |refusal| refusal.to_string());
        assert_eq!(
            why.contains("--optimizer muon --use-distributed-optimizer: Megatron core 0.18"),
            is_refused,
            "{why}"
        );
    }
    let script =
        "torchrun --nproc_per_node 8 pretrain_gpt.py --optimizer muon --use-distributed-optimizer --num-layers 2\n";
    let found = |script: &str, release| {
        let context = Context { release: Some(release), ..Context::alone("run.sh") };
        let imported = import::read(script, FileKind::Script, &context).unwrap();
        imported
            .findings
            .iter()
            .any(|finding| finding.rule == "release" && finding.message.contains("--optimizer muon"))
    };
    assert!(found(script, "0.17") && !found(script, "0.18") && !found(&script.replace("muon", "adam"), "0.17"));
}
