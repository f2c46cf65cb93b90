//! Plans over pools that can be launched: they keep the rules of one cluster on every pool, and `emit` writes the recommended one.

use meshwright::advice::{PooledAdvice, unproven_in};
use meshwright::confidence::MixtureConfidence;
use meshwright::emit::EmittedFile;
use meshwright::frameworks::MEGATRON;
use meshwright::pools::{Distribution, Pooled};
use meshwright::question::{EmitQuestion, PlanOptions, Question, Subject, files};
use meshwright::search::TIE;
use std::ops::ControlFlow;

/// Question about a model on two pools, each a cluster of the catalogue with a number of GPUs.
fn question(model: &str, pools: [(&str, u32); 2]) -> Question {
    let pool = |(cluster, gpus): (&str, u32)| {
        format!("[[pool]]\nname = \"{cluster}\"\ncluster = \"{cluster}\"\ngpus = {gpus}\n")
    };
    let text = format!(
        "name = \"two\"\nsource = \"meshwright-estimates\"\n{}{}[[link]]\nbetween = [\"{}\", \"{}\"]\nefficiency = 0.75\n\
         bandwidth = {{ value = \"200 Gb/s\", source = \"meshwright-estimates\" }}\n",
        pool(pools[0]),
        pool(pools[1]),
        pools[0].0,
        pools[1].0
    );
    let question = serde_json::json!({"model": model, "cluster": "two.toml", "options": {"texts": {"two.toml": text}}});
    serde_json::from_value(question).unwrap()
}

fn pools_of(question: &Question) -> Pooled {
    match question.subject(None).unwrap().value {
        Subject::Pools(pooled) => *pooled,
        Subject::Cluster(posed) => panic!("{} is one cluster", posed.of_recipe().cluster().name),
    }
}

fn advise(pooled: &Pooled, plans: &PlanOptions, risk: f64) -> PooledAdvice {
    plans.solve_over_pools(pooled, None, risk, &|_, _| ControlFlow::Continue(())).unwrap().value.advice
}

fn emitted(question: &Question) -> Result<Vec<EmittedFile>, Vec<String>> {
    let question = EmitQuestion {
        framework: "megatron".into(),
        problem: question.clone(),
        plan: None,
        refine: false,
        steps: None,
        release: None,
    };
    question.answer().unwrap().value
}

const PAIRS: [(&str, [(&str, u32); 2]); 6] = [
    ("llama3-8b", [("h100-512", 16), ("h200-1k", 8)]),
    ("llama3-70b", [("h100-512", 32), ("h200-1k", 16)]),
    ("llama3-70b", [("hgx-b200-512", 16), ("dgx-h100-1k", 16)]),
    ("llama3-405b", [("hgx-b200-512", 64), ("dgx-h100-1k", 64)]),
    ("qwen3-30b-a3b", [("h100-512", 16), ("h200-1k", 16)]),
    ("deepseek-v2", [("hgx-b200-512", 32), ("dgx-h100-1k", 32)]),
];

#[test]
fn recommended_plans_over_pools_are_launched_by_the_files_that_emit_writes() {
    for (model, pools) in PAIRS {
        let question = question(model, pools);
        let pooled = pools_of(&question);
        let advice = advise(&pooled, &PlanOptions::default(), 0.05);
        assert_eq!(advice.given_up, None, "{model} on {pools:?} fits with room to spare");
        let recommended = advice.mixture().unwrap_or_else(|| panic!("{model} on {pools:?} has a plan"));
        for mixture in &advice.answer.mixtures {
            let plan = &mixture.plan;
            for problem in pooled.joined() {
                let obstacles = MEGATRON.limits.plan_obstacles(problem, plan);
                assert!(obstacles.is_empty(), "{model} on {pools:?}, {plan}: {obstacles:?}");
            }
            if let Distribution::Stages { refined, .. } = &mixture.distribution {
                assert!(refined.staged.recomputes_uniformly(), "one set of flags for all stages: {plan}");
            }
            let risk = MixtureConfidence::new(&pooled, mixture).oom_probability;
            assert!(risk <= 0.05, "{model} on {pools:?}, {plan}: {risk}");
            assert!(unproven_in(&pooled, mixture).is_empty(), "{model} on {pools:?}, {plan}");
        }
        let fastest = advice.answer.mixtures[0].step.total();
        assert!(recommended.step.total() <= fastest * (1.0 + TIE), "{model} on {pools:?}");
        let named = |plan: &dyn std::fmt::Display| plan.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let (written, slower) =
            files(&MEGATRON, &pooled, &advice.by_preference(), "megatron-bf16-grads", None).unwrap();
        assert_eq!(slower, None, "{model} on {pools:?}: the recommended row is the one that is written");
        let script = &written[0].text;
        let header: Vec<&str> = script.lines().take_while(|line| line.starts_with('#')).collect();
        let header = named(&header.join(" ").replace("# ", " "));
        assert!(header.contains(&format!("plan: {}", named(&recommended.plan))), "{header}\n{}", recommended.plan);
        if ["llama3-8b", "qwen3-30b-a3b"].contains(&model) {
            assert_eq!(
                &emitted(&question).unwrap()[0].text,
                script,
                "`emit` without a plan writes the recommended one"
            );
        }
    }
}

/// Risk and mechanisms that the limits leave out are there when these are lifted.
#[test]
fn risk_and_mechanisms_without_runs_are_let_in_where_they_are_asked_for() {
    let pooled = pools_of(&question("llama3-70b", [("h100-512", 32), ("h200-1k", 16)]));
    let ranked = |plans: &PlanOptions, risk: f64| {
        let mixtures = advise(&pooled, plans, risk).answer.mixtures;
        let largest = mixtures.iter().map(|mixture| MixtureConfidence::new(&pooled, mixture).oom_probability);
        let unproven = mixtures.iter().filter(|mixture| !unproven_in(&pooled, mixture).is_empty()).count();
        (largest.fold(0.0, f64::max), unproven, mixtures[0].step.total())
    };
    let prudent = ranked(&PlanOptions::default(), 0.05);
    let bold = ranked(&PlanOptions::default(), 0.5);
    let exotic = ranked(&PlanOptions { exotic: true, ..PlanOptions::default() }, 0.5);
    assert!(prudent.0 <= 0.05 && prudent.1 == 0, "{prudent:?}");
    assert!(bold.0 > 0.05 && bold.1 == 0 && bold.2 < prudent.2, "{bold:?} after {prudent:?}");
    assert!(exotic.1 > 0 && exotic.2 <= bold.2, "{exotic:?} after {bold:?}");
}

/// Racks have hosts of 4 GPUs and servers of 8: the plans are ranked, and no files are written, for a reason that says what to do.
#[test]
fn unlike_hosts_are_planned_and_refused_with_what_to_do() {
    let racks = question("llama3-8b", [("gb200-nvl72-1152", 8), ("dgx-h100-1k", 8)]);
    let advice = advise(&pools_of(&racks), &PlanOptions::default(), 0.05);
    assert!(advice.mixture().is_some());
    let why = emitted(&racks).unwrap_err().join("\n");
    for word in ["hosts of pool gb200-nvl72-1152 have 4 GPUs", "those of pool dgx-h100-1k 8", "train on one of them"] {
        assert!(why.contains(word), "`{word}` is not in: {why}");
    }
    let part = question("llama3-8b", [("dgx-h100-1k", 8), ("h200-1k", 4)]);
    let why = emitted(&part).unwrap_err().join("\n");
    assert!(why.contains("`gpus` of that pool must be a multiple of 8"), "{why}");
    let vendors =
        question("llama3-8b", [("mi300x-512", 64), ("dgx-h100-1k", 64)]).subject(None).unwrap_err().to_string();
    assert!(
        vendors.contains("no collective library runs over both") && vendors.contains("plans each alone"),
        "{vendors}"
    );
}

/// All ranks read the same flags: graphs that the recipes of one pool's hosts have are left out of the mixture, not of that pool alone.
#[test]
fn graphs_of_some_pools_are_left_out_of_all() {
    let racks = pools_of(&question("qwen3-30b-a3b", [("gb200-nvl72-1152", 72), ("dgx-h100-1k", 72)]));
    assert!(racks.joined().iter().all(|problem| !problem.stack().cuda_graphs));
    assert_eq!(racks.separate().iter().map(|problem| problem.stack().cuda_graphs).collect::<Vec<_>>(), [true, false]);
}
