//! The plan to launch: what published runs show counts for a plan, and what none has shown against one.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwright::advice::{Advice, GivenUp, PreferredFor, Prudence, Reason, advise, unusual_settings};
use meshwright::catalog::{self, Overrides};
use meshwright::confidence::Confidence;
use meshwright::cost::Costs;
use meshwright::frameworks::launchable;
use meshwright::gpu::Format;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::search::SearchOptions;
use meshwright::space::{FEWEST_TOKENS, Restrictions, Unproven, check};
use meshwright::workload::{Adaptation, Workload, recipe};

use crate::random::{Spec, spec};

/// One sequence a GPU of a model on 512 H100 in a number format.
fn on_512(model: &'static str, seq_len: u32, format: Format) -> Problem {
    on_h100(model, seq_len, format, ("h100-512", 512), 512)
}

/// A model on H100, the GPUs of a cluster of the catalogue or more of them.
fn on_h100(
    model: &'static str,
    seq_len: u32,
    format: Format,
    (cluster, gpus): (&'static str, u32),
    global_batch: u32,
) -> Problem {
    let bf16 = spec(model, cluster, "nemo-25", global_batch, seq_len).problem();
    // the recipe of the stack, which reduces gradients in 16 bits
    let recipe = recipe("megatron-bf16-grads").unwrap();
    let workload = Workload { format, recipe, ..bf16.workload().clone() };
    let cluster = catalog::cluster(cluster, &Overrides::default()).unwrap().resized(gpus);
    Problem::new(bf16.model().clone(), cluster, workload, bf16.stack().clone(), HbmProfile::Normal).unwrap()
}

fn advice(problem: &Problem, risk: f64) -> Advice {
    let options = SearchOptions { top: 5, restrictions: launchable(problem) };
    advise(problem, &options, Prudence { risk, exotic: false }, &|_, _| ControlFlow::Continue(()))
}

/// NVIDIA ran Nemotron-4 340B on 512 H100 in bf16 (dgxc-0215): a launch that accepts a risk of 2 % may do the same, though the
/// model's errors would give it a larger one.
#[test]
fn a_published_plan_that_ran_on_these_gpus_is_recommended() {
    let problem = on_512("nemotron4-340b", 4096, Format::Bf16);
    let accepted = 0.02;
    let advice = advice(&problem, accepted);
    let (plan, run) = (advice.plan().unwrap(), advice.published.as_ref().unwrap());
    assert_eq!((run.layout.run.as_str(), run.shows_that_it_fits(&problem)), ("dgxc-0215", true));
    assert_eq!(plan.plan, run.evaluation.plan);
    assert!(Confidence::new(&problem, plan).oom_probability > accepted);
    assert!(advice.ranking.evaluations.is_sorted_by_key(|plan| plan.step.total().get()));
}

/// The fastest listed plan is not the recommended one: what that is preferred for is what `advise` decided by.
#[test]
fn a_plan_is_preferred_to_the_fastest_for_what_decided() {
    let mut decided = [0, 0];
    for (model, cluster, batch, seq_len) in [
        ("llama2-70b", "h200-1k", 1024, 4096),
        ("gpt3-175b", "b300-512", 512, 2048),
        ("llama2-70b", "mi300x-512", 512, 4096),
        ("llama3-405b", "h100-24576", 3072, 8192),
        ("gpt3-175b", "dgx-a100-1k", 1024, 2048),
        ("llama3-8b", "dgx-a100-1k", 1024, 8192),
    ] {
        let problem = spec(model, cluster, "nemo-25", batch, seq_len).problem();
        let advice = advice(&problem, Prudence::default().risk);
        let Some(preferred_for) = advice.preferred_for(&problem) else {
            assert_eq!(advice.recommended, 0, "{model} on {cluster}");
            continue;
        };
        let (row, plan) = (&advice.ranking.evaluations[0], advice.plan().unwrap());
        assert!(advice.recommended > 0 && row.step.total() <= plan.step.total());
        match &preferred_for {
            PreferredFor::Plainness(unlike) => {
                let counts = [&row.plan, &plan.plan].map(|plan| unusual_settings(&problem, plan).len());
                assert!(counts[0] > counts[1], "{model} on {cluster}: {counts:?}");
                assert_eq!(unlike.needs.len() - unlike.instead_of.len(), counts[0] - counts[1]);
                decided[0] += 1;
            }
            PreferredFor::Published => {
                let run = advice.published.as_ref().unwrap();
                assert!(run.has_degrees_of(&plan.plan) && !run.has_degrees_of(&row.plan));
                decided[1] += 1;
            }
            other => panic!("{model} on {cluster}: {other:?}"),
        }
    }
    assert!(decided.iter().all(|cases| *cases > 0), "{decided:?}");
}

/// A run in another number format, or on more GPUs, held other tensors: it does not show that a plan fits.
#[test]
fn a_run_of_other_tensors_shows_nothing_about_memory() {
    let problem = on_512("llama3-405b", 8192, Format::Bf16);
    let advice = advice(&problem, Prudence::default().risk);
    let run = advice.published.as_ref().unwrap();
    assert_ne!(run.layout.precision, problem.workload().precision());
    assert!(!run.shows_that_it_fits(&problem));
    assert!(Confidence::new(&problem, advice.plan().unwrap()).oom_probability <= Prudence::default().risk);
}

/// A run in whose states a parameter takes fewer bytes, or whose pipeline was not filled as far, held less.
#[test]
fn a_run_of_fewer_bytes_shows_nothing_about_memory() {
    let usual = on_512("nemotron4-340b", 4096, Format::Bf16);
    let advice = advice(&usual, 0.02);
    let run = advice.published.as_ref().unwrap();
    assert!(run.shows_that_it_fits(&usual));
    let with = |change: &dyn Fn(&mut Workload)| {
        let mut workload = usual.workload().clone();
        change(&mut workload);
        let (model, cluster) = (usual.model().clone(), usual.cluster().clone());
        Problem::new(model, cluster, workload, usual.stack().clone(), HbmProfile::Normal).unwrap()
    };
    assert!(!run.shows_that_it_fits(&with(&|workload| workload.recipe.master += 4.0)));
    assert!(run.shows_that_it_fits(&with(&|workload| workload.global_batch *= 4)), "a full pipeline keeps no more");
    let mut half_filled = run.clone();
    half_filled.layout.micro_batches = 8.0;
    assert!(!half_filled.shows_that_it_fits(&usual));
}

/// With a third of the sequences the model alone would split their 8,192 tokens over eight ranks.
#[test]
fn short_shards_of_a_sequence_are_declined() {
    let problem = spec("llama3-405b", "h100-24576", "nemo-25", 1024, 8192).problem();
    let advice = advice(&problem, Prudence::default().risk);
    let tokens = |cp: u32| problem.workload().seq_len / cp;
    assert!(tokens(advice.plan().unwrap().plan.layout.cp) >= FEWEST_TOKENS);
    let declined = advice.fastest.as_ref().unwrap();
    assert!(tokens(declined.evaluation.plan.layout.cp) < FEWEST_TOKENS);
    assert!(declined.reasons.iter().any(|reason| matches!(reason, Reason::Unproven(_))), "{:?}", declined.reasons);
}

/// A model's own code may wrap attention in DeepSpeed's Ulysses beside adapters, and the published runs of Ulysses train all weights, as
/// do those of AutoTP: by default no row splits sequences or matrices.
#[test]
fn adapters_of_deepspeed_are_beside_whole_layers() {
    let mut adapted = spec("llama3-8b", "dgx-h100-8", "deepspeed-2024", 128, 8192);
    adapted.adaptation = Adaptation::Lora;
    let problem = adapted.problem();
    let splits = |exotic: bool| {
        let options = SearchOptions { top: 5, restrictions: launchable(&problem) };
        let prudence = Prudence { exotic, ..Prudence::default() };
        let found = advise(&problem, &options, prudence, &|_, _| ControlFlow::Continue(()));
        assert!(found.plan().is_some());
        found.ranking.evaluations.iter().any(|row| row.plan.layout.cp > 1 || row.plan.layout.tp > 1)
    };
    assert!(splits(true) && !splits(false));
    let in_megatron = Spec { stack: "nemo-25", ..adapted }.problem();
    let named =
        |problem: &Problem| Unproven::on(problem).filter(|found| found.what.contains("beside adapters")).count();
    assert_eq!((named(&problem), named(&in_megatron)), (2, 0));
}

/// Most pipelines that are looked at for the plan that is nearest to 6 GB: with all layouts, it is 289,136.
const FEW: usize = 20_000;

/// Where nothing fits, the search for the nearest plan leaves out layouts whose states take more than the known best's memory
/// before their pipelines are bounded.
#[test]
fn the_nearest_plan_is_found_among_few_pipelines() {
    let problem = spec("mixtral-8x7b", "dgx-h100-64", "nemo-25", 128, 4096).set("gpu.hbm=6 GB").problem();
    let asked = AtomicUsize::new(0);
    let control = |_: u64, _: u64| {
        asked.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let options = SearchOptions { top: 5, restrictions: Restrictions::default() };
    let advice = advise(&problem, &options, Prudence::default(), &control);
    assert!(advice.ranking.evaluations.is_empty());
    let nearest = advice.ranking.nearest.unwrap();
    assert!(!check(&Costs::new(&problem), &nearest.plan).is_empty());
    let asked = asked.into_inner();
    assert!((1..FEW).contains(&asked), "{asked}");
}

/// On 100,000 H100 tensor parallelism over two nodes is the model's fastest of the 405B plans by 0.3 %, and no plainer
/// by the number of its settings: within run-to-run noise the plan that stays inside the node is recommended.
#[test]
fn tensor_parallelism_inside_the_domain_is_preferred() {
    let problem = on_h100("llama3-405b", 8192, Format::Bf16, ("h100-24576", 100_000), 3125);
    let advice = advised_inside(&problem);
    assert!(advice.plan().unwrap().step.total() / advice.ranking.evaluations[0].step.total() < 1.033);
}

/// Advice whose fastest plan has tensor parallelism over several domains, and whose recommended one inside one.
fn advised_inside(problem: &Problem) -> Advice {
    let advice = advice(problem, Prudence::default().risk);
    let (first, plan) = (&advice.ranking.evaluations[0], advice.plan().unwrap());
    assert!(first.plan.layout.tp > problem.cluster().scale_up.gpus, "{}", first.plan);
    assert!(plan.plan.layout.tp <= problem.cluster().scale_up.gpus, "{}", plan.plan);
    advice
}

/// Where the host is what a step waits for, more layouts than are compared take the same time, all of them over four nodes.
#[test]
fn tensor_parallelism_inside_the_domain_is_sought() {
    let problem = on_h100("qwen3-30b-a3b", 4096, Format::Bf16, ("dgx-h100-16k", 16_384), 2048);
    advised_inside(&problem);
}

/// Llama 3 70B on 12 GPUs fits with its optimizer on the hosts alone: the risk is kept, and chunks that no run has had
/// are left out.
#[test]
fn what_no_run_has_shown_is_given_up_as_far_as_memory_needs_it() {
    let problem = on_h100("llama3-70b", 8192, Format::Bf16, ("dgx-h100-64", 12), 132);
    let advice = advice(&problem, Prudence::default().risk);
    assert_eq!(advice.given_up, Some(GivenUp::Proof));
    for plan in &advice.ranking.evaluations {
        let used: Vec<&str> = Unproven::in_plan(&problem, &plan.plan).iter().map(|mechanism| mechanism.what).collect();
        assert_eq!(used, ["optimizer offload"], "{}", plan.plan);
        assert!(Confidence::new(&problem, plan).oom_probability <= Prudence::default().risk, "{}", plan.plan);
    }
}
