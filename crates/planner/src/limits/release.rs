//! Limits of a stack's release: the values of a plan's keys that it has, as the stack's file states them.

use super::obstacle::Obstacle;
use super::rule::{Rule, Value};
use meshwright_engine::plan::text::parse_plan;
use meshwright_engine::plan::{Layout, Plan};
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
    let stack = problem.stack();
    let text = if stack.limits.is_empty() { return None } else { plan.to_string() };
    stack.limits.iter().find_map(|limit| {
        let rule = Rule::parse(&limit.values).ok()?;
        let (key, value) = settings(&text).find(|(key, value)| *key == rule.key && !rule.matches(typed(value)))?;
        let instead = first_value(&limit.values).and_then(|value| with_value(problem, plan, key, value));
        Some(Obstacle { what: format!("{key}={value}"), why: limit.why.clone().into(), instead })
    })
}

/// Settings of a plan's text: keys with their values.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().filter_map(|item| item.split_once('='))
}

/// A value of a plan's text, by its kind.
fn typed(value: &str) -> Value<'_> {
    value.parse().map_or(Value::Word(value), Value::Number)
}

/// First of the values of a limit.
fn first_value(values: &str) -> Option<&str> {
    let (_, all) = values.split_once('=')?;
    all.split([',', '.']).next()
}

/// A plan with another value of a key; replicas take the ranks of context parallelism that it gives up.
fn with_value(problem: &Problem, plan: &Plan, key: &str, value: &str) -> Option<Plan> {
    let Layout { cp, dp, .. } = plan.layout;
    match (key, value) {
        ("cp", "1") => Some(Plan { layout: Layout { cp: 1, dp: dp * cp, ..plan.layout }, ..plan.clone() }),
        ("ep", "1") => Some(Plan { layout: Layout { ep: 1, ..plan.layout }, ..plan.clone() }),
        _ => {
            let text = plan.to_string();
            let changed = settings(&text).map(|(of, old)| format!("{of}={}", if of == key { value } else { old }));
            parse_plan(&changed.collect::<Vec<_>>().join(" "), problem).ok()
        }
    }
}
