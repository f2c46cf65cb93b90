//! Limits of a stack's release: the values of a plan's keys that it has, as the stack's file states them.

use super::obstacle::Obstacle;
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

/// First limit of the stack's release that a plan does not keep to, as an obstacle.
pub fn release_obstacle(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let limits = &problem.stack().limits;
    let text = if limits.is_empty() { return None } else { plan.to_string() };
    let settings = || text.split_whitespace().filter_map(|item| Some((item, item.split_once('=')?)));
    limits.iter().find_map(|limit| {
        let rule = Rule::parse(&limit.values).ok()?;
        let lacks = |(key, value): (&str, &str)| key == rule.key && !rule.matches(typed(value));
        let (setting, _) = settings().find(|(_, pair)| lacks(*pair))?;
        Some(Obstacle::of_model(setting, limit.why.clone()))
    })
}

/// A value of a plan's text, by its kind.
fn typed(value: &str) -> Value<'_> {
    value.parse().map_or(Value::Word(value), Value::Number)
}
