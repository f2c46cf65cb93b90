//! Limits of a stack's release: the values of a plan's keys that it has, as the stack's file states them.

use super::rule::{Rule, Value};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Stack;

/// Checks that the limits of a stack are values that a plan can have.
///
/// # Errors
///
/// Names the unknown key, or the value that the key cannot have.
pub(crate) fn check(stack: &Stack) -> Result<(), String> {
    stack
        .limits
        .iter()
        .try_for_each(|limit| Rule::parse(&limit.values).map(|_| ()).map_err(|why| format!("limits: {why}")))
}

/// First setting of a plan that the release of the problem's stack lacks, with the reason.
pub fn release_obstacle(problem: &Problem, plan: &Plan) -> Option<String> {
    let limits = &problem.stack().limits;
    let text = if limits.is_empty() { return None } else { plan.to_string() };
    limits.iter().find_map(|limit| {
        let rule = Rule::parse(&limit.values).ok()?;
        let mut settings = text.split_whitespace().filter_map(|item| item.split_once('='));
        let (key, value) = settings.find(|(key, value)| *key == rule.key && !rule.matches(typed(value)))?;
        Some(format!("{key}={value}: {}", limit.why))
    })
}

/// A value of a plan's text, by its kind.
fn typed(value: &str) -> Value<'_> {
    value.parse().map_or(Value::Word(value), Value::Number)
}
