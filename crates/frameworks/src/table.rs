//! The table of frameworks: a framework is a folder, and a row here.

use crate::accelerate::ACCELERATE;
use crate::axolotl::AXOLOTL;
use crate::deepspeed::DEEPSPEED;
use crate::framework::Framework;
use crate::gpt_neox::GPT_NEOX;
use crate::import::imported::Imported;
use crate::llama_factory::LLAMA_FACTORY;
use crate::llm_foundry::LLM_FOUNDRY;
use crate::maxtext::MAXTEXT;
use crate::megatron::MEGATRON;
use crate::megatron_bridge::MEGATRON_BRIDGE;
use crate::ms_swift::MS_SWIFT;
use crate::nanotron::NANOTRON;
use crate::olmo_core::OLMO_CORE;
use crate::primus::PRIMUS;
use crate::torchtitan::TORCHTITAN;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, release_obstacle};
use meshwright_planner::space::Restrictions;

/// All frameworks. Of several claims to a file that are equally strong, the first row's counts.
pub static FRAMEWORKS: [&Framework; 14] = [
    &MEGATRON,
    &MEGATRON_BRIDGE,
    &DEEPSPEED,
    &TORCHTITAN,
    &ACCELERATE,
    &NANOTRON,
    &MAXTEXT,
    &AXOLOTL,
    &LLAMA_FACTORY,
    &GPT_NEOX,
    &MS_SWIFT,
    &LLM_FOUNDRY,
    &OLMO_CORE,
    &PRIMUS,
];

/// The framework of that name or alias.
pub fn named(name: &str) -> Option<&'static Framework> {
    FRAMEWORKS.into_iter().find(|framework| framework.name() == name || framework.aliases.contains(&name))
}

/// Names on the command line.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    FRAMEWORKS.into_iter().map(Framework::name)
}

/// Names of all frameworks, with commas between.
pub fn name_list() -> String {
    names().collect::<Vec<_>>().join(", ")
}

/// Frameworks of a family that are taken where nothing else is named.
pub fn of_family(family: Family) -> impl Iterator<Item = &'static Framework> {
    FRAMEWORKS.into_iter().filter(move |framework| framework.family() == family && framework.stands_for_family)
}

/// The framework whose files launch plans of a problem's stack: the first of the stack's family that can train the model.
/// None of families that no file is written for, or where no framework of the family can.
pub fn of_stack(problem: &Problem) -> Option<&'static Framework> {
    of_stack_on_all(std::slice::from_ref(problem))
}

/// The framework whose files launch plans of the stack of several problems, such as the pools of one question: the first of the
/// stack's family that can train the model on each of them.
pub fn of_stack_on_all(problems: &[Problem]) -> Option<&'static Framework> {
    let trains =
        |framework: &&Framework| problems.iter().all(|problem| framework.limits.problem_obstacles(problem).is_empty());
    of_family(problems.first()?.stack().family).find(trains)
}

/// Restricts plans to those that the stack's release has and its files can launch; where they cannot say the model, to
/// their settings. On stacks without files the release alone bounds plans.
pub fn keep_launchable(restrictions: &mut Restrictions, problem: &Problem) {
    match of_stack(problem) {
        Some(framework) => restrictions.for_limits(framework.limits, problem),
        None => keep_settings(restrictions, problem),
    }
    restrictions.for_release(problem);
}

/// Keeps plans to the settings that the files of a problem's stack have; nothing is left out on stacks without files.
pub fn keep_settings(restrictions: &mut Restrictions, problem: &Problem) {
    if let Some(framework) = of_family(problem.stack().family).next() {
        restrictions.for_settings(framework.limits, problem);
    }
}

/// Why the release of a problem's stack does not run a plan, as a clause with its subject; none where it does.
pub fn release_refusal(problem: &Problem, plan: &Plan) -> Option<String> {
    Some(format!("{} cannot run {}", problem.stack().name, release_obstacle(problem, plan)?))
}

/// Why the files of a framework cannot express a plan, as a clause with its subject; none where they can.
pub fn files_refusal(limits: &Limits, problem: &Problem, plan: &Plan) -> Option<String> {
    Some(format!("{limits} cannot run {}", limits.plan_obstacle(problem, plan)?))
}

/// Why the release of a problem's stack does not run a plan, or why the files of its framework cannot express it, as a clause with its
/// subject; none where nothing speaks against it.
pub fn refusal(problem: &Problem, plan: &Plan) -> Option<String> {
    let of_files = || files_refusal(of_stack(problem)?.limits, problem, plan);
    release_refusal(problem, plan).or_else(of_files)
}

/// Restrictions to plans that the files of a problem's stack can launch.
pub fn launchable(problem: &Problem) -> Restrictions {
    let mut restrictions = Restrictions::default();
    keep_launchable(&mut restrictions, problem);
    restrictions
}

/// The framework that an imported file belongs to: that of its kind if its files set up the engine of the imported family, else the
/// first of the family. None of families that no file is written for.
pub fn framework_of(imported: &Imported) -> Option<&'static Framework> {
    let of_kind =
        |framework: &&Framework| framework.reader.kind == imported.kind && framework.limits.sets_up(imported.family);
    FRAMEWORKS.into_iter().find(of_kind).or_else(|| of_family(imported.family).next())
}
