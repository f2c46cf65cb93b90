//! Attention over chosen keys: files of Megatron-LM and Megatron-Bridge, and what refuses it by name.

use crate::random::{Spec, plans, spec};
use meshwright::cost::Costs;
use meshwright::emit::{Request, emit};
use meshwright::frameworks::{Framework, MEGATRON, MEGATRON_BRIDGE, MS_SWIFT, TORCHTITAN};
use meshwright::gpu::Format;
use meshwright::import::{self, Context, Imported};
use meshwright::model::{Mixer, Model};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::space::{check, parse_plan};

fn of(model: &'static str) -> Spec {
    spec(model, "h200-1k", "nemo-26", 1024, 4096)
}

fn read_back(framework: &'static Framework, problem: &Problem, plan: &Plan) -> Imported {
    let costs = Costs::new(problem);
    let evaluation = costs.evaluate(plan);
    let files = emit(framework, &Request::new(&costs, &evaluation)).unwrap();
    let beside = |name: &str| files.iter().find(|file| file.name == name).map(|file| file.text.clone());
    let context = Context { files: &beside, ..Context::alone(&files[0].name) };
    import::read(&files[0].text, import::kind_of(&files[0].name, &files[0].text).unwrap(), &context).unwrap()
}

fn mixers(model: &Model) -> Vec<&Mixer> {
    model.order.iter().map(|&kind| &model.kinds[kind].mixer).collect()
}

/// The plan and the indexer of every layer, whichever plan, with layers that share keys and without.
#[test]
fn files_read_back_with_their_indexer() {
    for name in ["deepseek-v3.2", "glm-5"] {
        let problem = of(name).problem();
        let costs = Costs::new(&problem);
        for framework in [&MEGATRON, &MEGATRON_BRIDGE] {
            assert!(framework.limits.problem_obstacles(&problem).is_empty(), "{name}");
            let nearest =
                plans(&problem, 30, 11).into_iter().filter_map(|plan| framework.limits.nearest(&problem, &plan));
            let legal = |plan: &Plan| check(&costs, plan).iter().all(|why| why.rule() == "out-of-memory");
            let mut tried = 0;
            for plan in nearest.filter(legal) {
                let imported = read_back(framework, &problem, &plan);
                assert!(imported.unknown.is_empty(), "{plan}: {:?}", imported.unknown);
                assert_eq!(imported.on(problem.cluster().gpus).to_string(), plan.to_string());
                let model = imported.model.as_ref().unwrap();
                assert_eq!(mixers(model), mixers(problem.model()), "{framework} {name}");
                assert_eq!(imported.stack, "nemo-26");
                tried += 1;
            }
            assert!(tried >= 10, "{framework} {name}: {tried}");
        }
    }
}

/// GLM 5.2, whose layers 7, 11, 15 ... choose keys for the three behind them.
#[test]
fn layers_that_share_keys_are_an_interval_and_an_offset() {
    let problem = of("glm-5").problem();
    let mut model = problem.model().clone();
    let mut shared = model.kinds[1].clone();
    if let Mixer::Mla(mla) = &mut shared.mixer {
        mla.indexer.as_mut().unwrap().shared = true;
    }
    model.kinds.push(shared);
    for layer in 4..=78_usize {
        model.order[layer - 1] = if (layer - 3).is_multiple_of(4) { 1 } else { 2 };
    }
    let (cluster, workload, stack) = (problem.cluster().clone(), problem.workload().clone(), problem.stack().clone());
    let problem = Problem::new(model, cluster, workload, stack, problem.hbm_profile()).unwrap();
    let parts = |split: &str| check(&Costs::new(&problem), &parse_plan(split, &problem).unwrap());
    let plan = parse_plan("tp=1 ep=32 pp=4 mbs=1 recompute=full split=first-6", &problem).unwrap();
    for framework in [&MEGATRON, &MEGATRON_BRIDGE] {
        let imported = read_back(framework, &problem, &plan);
        assert_eq!(mixers(imported.model.as_ref().unwrap()), mixers(problem.model()));
    }
    for parted in ["tp=1 ep=32 pp=4 mbs=1 split=even", "tp=1 ep=32 pp=4 mbs=1 split=cost-balanced"] {
        assert!(parts(parted).iter().any(|why| why.rule() == "split"), "{parted}");
    }
    assert!(parts("tp=1 ep=32 pp=4 mbs=1 split=first-6").iter().all(|why| why.rule() != "split"));
}

#[test]
fn what_cannot_run_it_says_so() {
    let problem = of("deepseek-v3.2").problem();
    let costs = Costs::new(&problem);
    let plan = parse_plan("tp=1 ep=32 pp=8 mbs=1 recompute=full", &problem).unwrap();
    let evaluation = costs.evaluate(&plan);
    for (release, runs) in [("0.15", false), ("0.16", false), ("0.18", false), ("0.19", true), ("0.20", true)] {
        let request = Request { release: Some(release), ..Request::new(&costs, &evaluation) };
        match emit(&MEGATRON, &request) {
            Ok(_) => assert!(runs, "{release}"),
            Err(why) => {
                let reason = why.to_string();
                assert!(!runs && reason.contains("--dsa-kernel-backend cudnn"), "{release}: {reason}");
            }
        }
    }
    for framework in [&MS_SWIFT, &TORCHTITAN] {
        let found = framework.limits.problem_obstacles(&problem);
        assert!(found.iter().any(|why| why.to_string().contains("index_topk = 2048")), "{framework}: {found:?}");
    }
    let narrow = Spec { format: Format::Fp8Block, ..of("deepseek-v3.2") }.problem();
    let plan = parse_plan("tp=1 ep=32 pp=8 mbs=1 recompute=mla_up_proj+moe", &narrow).unwrap();
    let found = MEGATRON.limits.plan_obstacle(&narrow, &plan).unwrap();
    assert_eq!(found.instead.unwrap().recompute.to_string(), "moe");
}

/// Other kernels and losses than those that are priced are read with a warning; an indexer without its sizes is an error.
#[test]
fn other_kernels_and_losses_are_warned_of() {
    let problem = of("glm-5").problem();
    let plan = parse_plan("tp=1 ep=32 pp=8 mbs=1 recompute=full", &problem).unwrap();
    let costs = Costs::new(&problem);
    let evaluation = costs.evaluate(&plan);
    let files = emit(&MEGATRON, &Request::new(&costs, &evaluation)).unwrap();
    let read = |from: &str, to: &str| {
        let text = files[0].text.replace(from, to);
        assert_ne!(text, files[0].text, "{from}");
        let context = Context::alone(&files[0].name);
        let imported = import::read(&text, import::kind_of(&files[0].name, &text).unwrap(), &context).unwrap();
        imported.findings.iter().map(|finding| format!("{} {}", finding.rule, finding.message)).collect::<Vec<_>>()
    };
    for (from, to, says) in [
        ("--dsa-kernel-backend cudnn", "--dsa-kernel-backend tilelang", "not-modelled kernels `tilelang`"),
        ("--dsa-kernel-backend cudnn", "", "not-modelled kernels `none`"),
        ("--dsa-indexer-use-sparse-loss", "", "not-modelled the loss of the indexer over all keys"),
        ("--dsa-indexer-loss-coeff 0.001", "", "not-modelled an indexer without a loss"),
        ("--dsa-indexer-topk 2048", "", "missing-flag an indexer without"),
    ] {
        let found = read(from, to);
        assert!(found.iter().any(|finding| finding.starts_with(says)), "{from}: {found:?}");
    }
}
