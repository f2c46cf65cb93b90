//! Reasons why a framework cannot express a plan.

use std::borrow::Cow;
use std::fmt;

use meshwright_engine::plan::Plan;

/// One property of a plan or model that a framework cannot express.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    /// The property, as the plan or the model writes it.
    pub what: String,
    /// The reason, in the framework's terms.
    pub why: Cow<'static, str>,
    /// The plan without it; none where no plan helps.
    pub instead: Option<Plan>,
}

impl Obstacle {
    /// An obstacle of a plan, with the nearest plan without it.
    #[allow(clippy::unnecessary_wraps)] // what a rule returns
    pub fn of_plan(what: impl Into<String>, why: impl Into<Cow<'static, str>>, instead: Plan) -> Option<Self> {
        Some(Self { what: what.into(), why: why.into(), instead: Some(instead) })
    }

    /// An obstacle of the model or the workload, which no plan removes.
    pub fn of_model(what: impl Into<String>, why: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), why: why.into(), instead: None }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}
