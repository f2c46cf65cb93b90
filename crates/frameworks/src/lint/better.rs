//! Faster alternatives: single changes of the plan or its software, and the best plan of the same framework.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::import::finding::Finding;
use crate::import::imported::Imported;
use crate::megatron::overlap::can_overlap_experts;
use crate::table::framework_of;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::{CpKind, Layout, Modules, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::{HbmProfile, Problem};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::{Dispatcher, Family, Overlap};
use meshwright_engine::units::{Seconds, percent, significant};
use meshwright_planner::advice::{Prudence, USUAL_RISK, advise};
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::limits::Obstacle;
use meshwright_planner::search::SearchOptions;
use meshwright_planner::space::{self, Restrictions, Unproven};

/// A change of the plan or of the software.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Another plan that differs in one setting.
    Plan(String),
    /// Another switch of the software.
    Software(String),
}

/// One change of the plan, with its gain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// The change.
    pub change: Change,
    /// Description in the framework's words.
    pub words: String,
    /// The key of the file that it changes.
    #[serde(skip)]
    key: &'static str,
    /// Step time saved, as a share of the step now.
    pub saves: f64,
    /// Step time with it, in seconds.
    pub step_time_s: f64,
    /// Peak memory with it, in GiB.
    pub peak_mem_gib: f64,
    /// Whether the plan fits only with it.
    pub makes_it_fit: bool,
}

/// Most changes that are named.
const MOST: usize = 6;
/// Least share of the step that a change is named for.
const LEAST: f64 = 0.01;
/// Spread of repeated measurements of one layout: from here a change shows (README).
const SHOWS: f64 = 0.04;
/// Error of the model between plans (specification §10.9): from here another plan is better, below it is a tie.
const TIE: f64 = 0.12;

/// Switches of the software, with the flag that makes each faster: `(setting, flag)`.
const SWITCHES: &[(&str, &str)] = &[
    ("overlap.dp", "--overlap-grad-reduce --overlap-param-gather (DeepSpeed: overlap_comm)"),
    ("overlap.tp", "--tp-comm-overlap (torchtitan: enable_async_tensor_parallel)"),
    ("overlap.ep", "--overlap-moe-expert-parallel-comm --delay-wgrad-compute"),
    ("overlap.pp", "interleaving, without --no-overlap-p2p-communication"),
    ("fused_cross_entropy", "--cross-entropy-loss-fusion"),
    ("fused_wgrad", "gradient accumulation fusion"),
    (
        "raw_vocabulary",
        "a vocabulary padded to a multiple of 8 (Transformers: resize_token_embeddings with pad_to_multiple_of)",
    ),
    ("transformer_engine", "--transformer-impl transformer_engine"),
    ("attention", "a fused attention backend"),
    ("cuda_graphs", "--cuda-graph-impl"),
    ("reduce_bytes", "--grad-reduce-in-bf16, if the run tolerates it"),
];

/// Single changes that save time, or that make the plan fit.
pub fn changes(problem: &Problem, imported: &Imported, plan: &Plan, now: &Evaluation) -> Vec<Suggestion> {
    let roomy = with_room(problem);
    let costs = Costs::new(&roomy);
    let fits_now = problem.fits(now.footprint.peak());
    let mut found: Vec<Suggestion> = neighbours(problem, plan)
        .into_iter()
        .filter(|other| other.plan != *plan && imported.family.runs(other.plan.schedule))
        .filter(|other| newly_refused(problem, imported, plan, &other.plan).is_none())
        .filter(|other| is_as_proven(problem, plan, &other.plan))
        .filter(|other| space::check(&costs, &other.plan).is_empty())
        .filter_map(|Neighbour { key, words, plan: other }| {
            let evaluation = costs.evaluate_simulated(&other);
            let is_sure = !fits_now || is_as_sure(problem, now, problem, &evaluation);
            is_sure.then(|| suggestion(Change::Plan(other.to_string()), words, key, now, &evaluation, !fits_now))
        })
        .collect();
    if fits_now {
        found.extend(software(problem, imported, plan, now));
    }
    found.retain(|change| change.saves >= LEAST || change.makes_it_fit);
    found.sort_by(|a, b| b.saves.total_cmp(&a.saves));
    found.dedup_by(|a, b| a.change == b.change);
    found.truncate(MOST);
    found
}

/// The first obstacle of another plan that the file's own plan does not meet.
fn newly_refused(problem: &Problem, imported: &Imported, plan: &Plan, other: &Plan) -> Option<Obstacle> {
    let limits = framework_of(imported)?.limits;
    let own = limits.plan_obstacles(problem, plan);
    let kept = |obstacle: &Obstacle| own.iter().any(|known| known.what == obstacle.what);
    limits.plan_obstacles(problem, other).into_iter().find(|obstacle| !kept(obstacle))
}

/// Whether another plan uses no mechanism without a published run that the file's own does not use.
fn is_as_proven(problem: &Problem, plan: &Plan, other: &Plan) -> bool {
    let own = Unproven::in_plan(problem, plan);
    Unproven::in_plan(problem, other).iter().all(|found| own.iter().any(|known| known.what == found.what))
}

/// Whether another price has an accepted probability of running out of memory, or none larger than that of the file's own.
fn is_as_sure(problem: &Problem, now: &Evaluation, other: &Problem, then: &Evaluation) -> bool {
    let risk = |problem, evaluation| Confidence::new(problem, evaluation).oom_probability;
    let taken = risk(other, then);
    taken <= USUAL_RISK || taken <= risk(problem, now)
}

fn suggestion(
    change: Change,
    words: String,
    key: &'static str,
    now: &Evaluation,
    then: &Evaluation,
    fits: bool,
) -> Suggestion {
    Suggestion {
        change,
        words,
        key,
        saves: 1.0 - then.step.total() / now.step.total(),
        step_time_s: then.step.total().get(),
        peak_mem_gib: then.footprint.peak().as_gib(),
        makes_it_fit: fits,
    }
}

/// The problem with a lower memory ceiling, so that a proposed plan fills 92 % of the memory at most.
fn with_room(problem: &Problem) -> Problem {
    let profile = match problem.hbm_profile() {
        HbmProfile::Tight => HbmProfile::Normal,
        other => other,
    };
    let (model, workload, stack) = (problem.model().clone(), problem.workload().clone(), problem.stack().clone());
    Problem::new(model, problem.cluster().clone(), workload, stack, profile).unwrap_or_else(|_| problem.clone())
}

/// Plan that differs from another in one setting.
struct Neighbour {
    /// Key of the setting.
    key: &'static str,
    /// The change in words.
    words: String,
    plan: Plan,
}

/// Plans that differ in one setting.
fn neighbours(problem: &Problem, plan: &Plan) -> Vec<Neighbour> {
    let mut list = Vec::new();
    let Layout { tp, cp, pp, dp, ep, etp } = plan.layout;
    let mut add = |key, words: String, plan: Plan| list.push(Neighbour { key, words, plan });
    let laid = |layout: Layout| Plan {
        layout,
        sequence_parallel: plan.sequence_parallel || (layout.tp > 1 && tp == 1),
        ..plan.clone()
    };
    let halved = |n: u32| n.is_multiple_of(2).then_some(n / 2);
    for micro_batch in [halved(plan.micro_batch), plan.micro_batch.checked_mul(2)].into_iter().flatten() {
        add("mbs", format!("micro-batch {micro_batch} for {}", plan.micro_batch), Plan { micro_batch, ..plan.clone() });
    }
    if let Some(half) = halved(tp) {
        let sequence_parallel = plan.sequence_parallel && half > 1;
        let layout = Layout { tp: half, dp: dp * 2, etp: etp.min(half), ..plan.layout };
        add("tp", format!("tp {half} and dp {} for {tp} and {dp}", dp * 2), Plan { sequence_parallel, ..laid(layout) });
    }
    if let Some(half) = halved(dp) {
        add(
            "tp",
            format!("tp {} and dp {half} for {tp} and {dp}", tp * 2),
            laid(Layout { tp: tp * 2, dp: half, ..plan.layout }),
        );
        add(
            "pp",
            format!("pp {} and dp {half} for {pp} and {dp}", pp * 2),
            laid(Layout { pp: pp * 2, dp: half, ..plan.layout }),
        );
    }
    if let Some(half) = halved(pp) {
        let schedule = if half == 1 { Schedule::OneFOneB } else { plan.schedule };
        let layout = Layout { pp: half, dp: dp * 2, ..plan.layout };
        add("pp", format!("pp {half} and dp {} for {pp} and {dp}", dp * 2), Plan { schedule, ..laid(layout) });
    }
    if let Some(half) = halved(cp) {
        add(
            "cp",
            format!("cp {half} and dp {} for {cp} and {dp}", dp * 2),
            laid(Layout { cp: half, dp: dp * 2, ..plan.layout }),
        );
    }
    if problem.model().is_moe() {
        for other in [halved(ep), ep.checked_mul(2)].into_iter().flatten() {
            add("ep", format!("ep {other} for {ep}"), laid(Layout { ep: other, ..plan.layout }));
        }
        if etp > 1 {
            add("etp", format!("etp 1 for {etp}"), laid(Layout { etp: 1, ..plan.layout }));
            add(
                "etp",
                format!("etp 1 and ep {} for {etp} and {ep}", ep * etp),
                laid(Layout { etp: 1, ep: ep * etp, ..plan.layout }),
            );
        }
        for dispatcher in [Dispatcher::AllToAll, Dispatcher::DeepEp] {
            add("dispatcher", format!("dispatcher {dispatcher}"), Plan { dispatcher, ..plan.clone() });
        }
    }
    if pp > 1 {
        let most = problem.model().layers() / pp;
        for virtual_stages in (2..=most).filter(|chunks| most.is_multiple_of(*chunks)) {
            add(
                "vpp",
                format!("{virtual_stages} chunks per pipeline rank"),
                Plan { schedule: Schedule::Interleaved { virtual_stages }, ..plan.clone() },
            );
        }
        add("vpp", "1F1B without chunks".into(), Plan { schedule: Schedule::OneFOneB, ..plan.clone() });
        for order in [RankOrder::PipelineOutermost, RankOrder::DataOutermost] {
            add("order", format!("rank order {order}"), Plan { order, ..plan.clone() });
        }
    }
    if tp > 1 && !plan.sequence_parallel {
        add("sp", "sequence parallelism".into(), Plan { sequence_parallel: true, ..plan.clone() });
    }
    if cp > 1 {
        for cp_kind in [CpKind::Ring, CpKind::AllGather, CpKind::AllToAll] {
            add("cp-kind", format!("cp-kind {cp_kind}"), Plan { cp_kind, ..plan.clone() });
        }
    }
    for Neighbour { key, words, plan } in sharded(plan) {
        add(key, words, plan);
    }
    let none = Modules::default();
    let cheap =
        Modules { layernorm: true, act: problem.model().is_moe(), mla_up_proj: problem.model().has_mla(), ..none };
    for recompute in [
        Recompute::None,
        Recompute::Selective(cheap),
        Recompute::Selective(Modules { mlp: true, ..none }),
        Recompute::PerOp,
        Recompute::Full,
    ] {
        add("recompute", format!("recompute {recompute} for {}", plan.recompute), Plan { recompute, ..plan.clone() });
    }
    list
}

/// Plans that differ in ZeRO stage, shard group or resharding.
fn sharded(plan: &Plan) -> Vec<Neighbour> {
    let mut list = Vec::new();
    let mut add = |key, words: String, plan: Plan| list.push(Neighbour { key, words, plan });
    for zero in [ZeroStage::One, ZeroStage::Two, ZeroStage::Three] {
        if plan.layout.pp == 1 || zero == ZeroStage::One || plan.zero == ZeroStage::Three {
            add("zero", format!("ZeRO {}", u8::from(zero)), Plan { zero, shard_group: None, ..plan.clone() });
        }
    }
    if plan.zero == ZeroStage::Three {
        let reshard_after_forward = !plan.reshard_after_forward;
        let words = if reshard_after_forward { "weights freed after" } else { "weights kept from" };
        add("reshard", format!("{words} the forward pass"), Plan { reshard_after_forward, ..plan.clone() });
    }
    list
}

/// Switches that the file has on the slower side of the nearest stack.
fn software(problem: &Problem, imported: &Imported, plan: &Plan, now: &Evaluation) -> Vec<Suggestion> {
    let is_of_core = imported.family == Family::Megatron;
    let switched = |(setting, flag): &(&str, &str)| {
        let mut better = problem.stack().clone();
        match *setting {
            "overlap.dp" if !better.overlap.dp => better.overlap.dp = true,
            "overlap.ep" if problem.stack().overlap.ep <= 0.0 && is_of_core && can_overlap_experts(problem, plan) => {
                better.overlap.ep = Overlap::share_beside_micro_batches(better.graphed_experts);
            }
            "cuda_graphs" if !better.cuda_graphs && is_of_core => better.cuda_graphs = true,
            "raw_vocabulary" if better.raw_vocabulary => better.raw_vocabulary = false,
            "transformer_engine" | "attention" if !problem.cluster().gpu.runs(AttentionKernel::Fa2) => return None,
            _ => {
                // Back to the catalogue's own side, where the file left it.
                let left =
                    imported.settings.items().iter().find(|item| item.starts_with(&format!("stack.{setting}=")))?;
                let others: Vec<&String> = imported.settings.items().iter().filter(|item| *item != left).collect();
                better = catalog::stack(imported.stack, &Overrides::parse(others).ok()?).ok()?;
                if *setting == "overlap.pp" && plan.schedule.virtual_stages() < 2 {
                    return None;
                }
            }
        }
        let other = problem.changed(|_, _, stack| *stack = better).ok()?;
        let limits = framework_of(imported).map(|framework| framework.limits);
        let obstacles = |of: &Problem| limits.map_or(0, |limits| limits.problem_obstacles(of).len());
        let refuses = |of: &Problem| limits.is_some_and(|limits| limits.plan_obstacle(of, plan).is_some());
        let is_refused = obstacles(&other) > obstacles(problem) || (refuses(&other) && !refuses(problem));
        let then = Costs::new(&other).evaluate_simulated(plan);
        let is_possible = !is_refused && is_as_sure(problem, now, &other, &then);
        is_possible.then(|| {
            suggestion(Change::Software((*setting).to_owned()), (*flag).to_owned(), "software", now, &then, false)
        })
    };
    SWITCHES.iter().filter_map(switched).collect()
}

/// The plan that `plan` recommends for the same framework, where it is faster than this.
pub fn best(problem: &Problem, imported: &Imported, now: &Evaluation) -> Option<Evaluation> {
    let mut restrictions = Restrictions::default();
    match framework_of(imported) {
        Some(framework) => restrictions.for_limits(framework.limits, problem),
        None => restrictions.for_family(imported.family),
    }
    let options = SearchOptions { top: 1, restrictions };
    let advice = advise(&with_room(problem), &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
    let best = advice.plan()?;
    (!problem.fits(now.footprint.peak()) || best.step.total() < now.step.total() * (1.0 - LEAST)).then(|| best.clone())
}

/// Finding that names the recommended plan and the time that it saves, or that it fits where the file's own does not.
pub fn finding(problem: &Problem, best: &Evaluation, now: &Evaluation) -> Finding {
    if !problem.fits(now.footprint.peak()) {
        let message = format!("the recommended plan fits and takes {}: {}", best.step.total(), best.plan);
        return Finding::warning("faster-plan", message)
            .expected("the file's own does not fit: take this or one near it");
    }
    let share = 1.0 - best.step.total() / now.step.total();
    let message = format!("the recommended plan takes {} for {}: {}", best.step.total(), now.step.total(), best.plan);
    let finding =
        if share >= TIE { Finding::warning("faster-plan", message) } else { Finding::note("faster-plan", message) };
    let advice =
        if share >= TIE { "time it and two or three more" } else { "within the model's ±12 % it is a tie: time both" };
    finding.costing(share).expected(advice)
}

impl Suggestion {
    /// Finding that names the change and the time that it saves.
    pub fn finding(&self, imported: &Imported, now: &Evaluation) -> Finding {
        let message = if self.makes_it_fit {
            format!(
                "{}: it fits, with {} GiB, in {} a step",
                self.words,
                significant(self.peak_mem_gib),
                Seconds::new(self.step_time_s)
            )
        } else {
            format!(
                "{}: {} for {}, {} saved",
                self.words,
                Seconds::new(self.step_time_s),
                now.step.total(),
                percent(self.saves)
            )
        };
        let shows = self.saves >= SHOWS || self.makes_it_fit;
        let finding =
            if shows { Finding::warning("faster-setting", message) } else { Finding::note("faster-setting", message) };
        finding.at_maybe(imported.places.get(self.key)).costing(self.saves)
    }
}
