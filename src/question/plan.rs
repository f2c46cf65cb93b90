//! Question of `plan`: the plans to consider, the objective that ranks them, the number to name.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};

use super::economy::EconomyOptions;
use super::error::QuestionError;
use super::place::PlaceOptions;
use super::refine::RefineOptions;
use meshwright_engine::problem::Problem;
use meshwright_engine::range::{self, OutOfRange};
use meshwright_engine::stack::Family;
use meshwright_engine::suggest::nearest_hint;
use meshwright_engine::units::Bytes;
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::space::Restrictions;

/// Plans that an answer names where the user does not say how many.
pub(super) const PLANS_SHOWN: u32 = 5;

/// Tolerance of a Pareto front where the user states none. It is less than the 90 % intervals of memory and step time span
/// ([docs/decisions/0019](../../docs/decisions/0019-tolerance-of-a-front.md)).
pub(super) const FRONT_TOLERANCE: f64 = 0.2;

/// Space and objective of `plan`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct PlanOptions {
    /// Keep only plans with this value: tp=8, ep=1..64
    ///
    /// Keys are those of a plan (`meshwright glossary`): schedule=1f1b, recompute=full.
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY=VALUE", help_heading = "Plans considered"))]
    pub fix: Vec<String>,
    /// Leave out plans with this value.
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY=VALUE", help_heading = "Plans considered"))]
    pub forbid: Vec<String>,
    /// Keep only plans that this framework's files can express.
    #[serde(rename = "for")]
    #[cfg_attr(feature = "cli", arg(long = "for", value_name = "FRAMEWORK", help_heading = "Plans considered"))]
    #[cfg_attr(feature = "cli", arg(long_help = framework_help()))]
    pub framework: Option<String>,
    /// Objective, time and money.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub economy: EconomyOptions,
    /// Also consider mechanisms that no published run has shown
    ///
    /// Such as activation offload over PCIe.
    #[cfg_attr(feature = "cli", arg(long, help_heading = "Plans considered"))]
    pub exotic: bool,
    /// Also consider plans that leave GPUs idle.
    #[cfg_attr(feature = "cli", arg(long, help_heading = "Plans considered"))]
    pub allow_idle: bool,
    /// Show the Pareto front of step time, memory and GPUs.
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "objective", help_heading = "Search"))]
    pub pareto: bool,
    /// Tolerance of the Pareto front, a share [default: 0.2]
    ///
    /// Every plan left out has one in the front that is worse by no more than this in each of step time, memory and GPUs. The
    /// fastest plan is in the front. 0 shows the whole front.
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", requires = "pareto", help_heading = "Search"))]
    #[cfg_attr(feature = "cli", arg(hide_short_help = true))]
    pub pareto_tolerance: Option<f64>,
    /// Stop after this many seconds, with the optimality gap
    #[cfg_attr(feature = "cli", arg(long, value_name = "SECONDS", help_heading = "Search"))]
    pub time_limit: Option<f64>,
    /// Stop at this much memory of this process, such as "16 GiB" [default: 4 GiB].
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE", help_heading = "Search", hide_short_help = true))]
    pub memory_limit: Option<Bytes>,
    /// Solve again with neighbouring degrees and better hardware
    ///
    /// Each degree one step lower and higher, and 10 % more of each hardware figure.
    #[cfg_attr(feature = "cli", arg(long, conflicts_with_all = ["pareto", "objective"], help_heading = "Search"))]
    pub sensitivity: bool,
    /// Condition the answer on measured runs: a CSV as `predict` and `validate` read it
    ///
    /// Runs of the model on the same kind of GPU, with any layout and number of GPUs. Plans are ranked by their step
    /// time given these runs.
    #[cfg_attr(feature = "cli", arg(long, value_name = "RUNS.csv", conflicts_with_all = ["pareto", "objective"]))]
    #[cfg_attr(feature = "cli", arg(help_heading = "Plans considered"))]
    pub measured: Option<PathBuf>,
    /// Number of plans to show.
    #[cfg_attr(feature = "cli", arg(long, value_name = "K", default_value_t = PLANS_SHOWN, help_heading = "Output"))]
    pub top: u32,
    /// Stages of their own.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub refine: RefineOptions,
    /// Order of the hosts.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub place: PlaceOptions,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            fix: Vec::new(),
            forbid: Vec::new(),
            framework: None,
            economy: EconomyOptions::default(),
            exotic: false,
            allow_idle: false,
            pareto: false,
            pareto_tolerance: None,
            time_limit: None,
            memory_limit: None,
            sensitivity: false,
            measured: None,
            top: PLANS_SHOWN,
            refine: RefineOptions::default(),
            place: PlaceOptions::default(),
        }
    }
}

impl PlanOptions {
    /// Checks every number against the range of its kind.
    pub(super) fn check_ranges(&self) -> Result<(), OutOfRange> {
        let count = |count: Option<u32>| f64::from(count.unwrap_or_default());
        let memory = self.memory_limit.map_or(range::MEMORY.least(), Bytes::get);
        range::check([
            ("--top", f64::from(self.top), range::SHOWN),
            ("--refine", count(self.refine.refine), range::COUNT),
            ("--place", count(self.place.place), range::COUNT),
            ("--pareto-tolerance", self.pareto_tolerance.unwrap_or_default(), range::SHARE),
            ("--time-limit", self.time_limit.unwrap_or_default(), range::TIME_LIMIT),
            ("--memory-limit", memory, range::MEMORY),
        ])
    }

    /// Restrictions of a search for plans on a problem: of its framework, or else of that of its stack; where `is_captured`, to plans
    /// that CUDA graphs hold.
    ///
    /// # Errors
    ///
    /// As [`PlanOptions::restrictions`].
    pub fn restrictions_on(
        &self,
        framework: Option<&'static Framework>,
        problem: &Problem,
        is_captured: bool,
    ) -> Result<Restrictions, QuestionError> {
        let mut restrictions = self.restrictions(framework.or(self.default_launcher(problem).0), problem)?;
        if is_captured {
            frameworks::graphs::keep_captured(&mut restrictions, problem);
        }
        Ok(restrictions)
    }

    /// Restrictions of the space: those that the user names, those of the framework whose files the plans must suit, and where no
    /// framework is named, those of the stack's release.
    ///
    /// # Errors
    ///
    /// A `fix` or `forbid` is no setting of a plan, or no framework has the name.
    pub fn restrictions(
        &self,
        limited_to: Option<&'static Framework>,
        problem: &Problem,
    ) -> Result<Restrictions, QuestionError> {
        self.restrictions_on_all(limited_to, std::slice::from_ref(problem))
    }

    /// Restrictions to the plans that each of several problems allows, such as the pools of one question.
    ///
    /// # Errors
    ///
    /// As for [`PlanOptions::restrictions`].
    pub(super) fn restrictions_on_all(
        &self,
        limited_to: Option<&'static Framework>,
        problems: &[Problem],
    ) -> Result<Restrictions, QuestionError> {
        let mut restrictions = Restrictions::default();
        for item in &self.fix {
            restrictions.fix(item).map_err(|why| QuestionError::refused(format!("--fix {item}: {why}")))?;
        }
        for item in &self.forbid {
            restrictions.forbid(item).map_err(|why| QuestionError::refused(format!("--forbid {item}: {why}")))?;
        }
        if self.allow_idle {
            restrictions.allow_idle();
        }
        match (&self.framework, limited_to) {
            (_, Some(framework)) => restrictions.for_limits_on_all(framework.limits, problems),
            (Some(name), None) => restrictions.for_family(family(name)?),
            (None, None) if frameworks::of_stack_on_all(problems).is_none() => {
                for problem in problems {
                    frameworks::keep_settings(&mut restrictions, problem);
                }
            }
            (None, None) => {}
        }
        if self.framework.is_none() {
            for problem in problems {
                restrictions.for_release(problem);
            }
        }
        Ok(restrictions)
    }

    /// Framework whose files the plans must suit where none is named: that of the stack. A note says if it cannot train the
    /// model, which leaves the plans unrestricted by files.
    pub fn default_launcher(&self, problem: &Problem) -> (Option<&'static Framework>, Option<String>) {
        self.default_launcher_on_all(std::slice::from_ref(problem))
    }

    /// [`PlanOptions::default_launcher`] of several problems, such as the pools of one question.
    pub(super) fn default_launcher_on_all(&self, problems: &[Problem]) -> (Option<&'static Framework>, Option<String>) {
        if self.framework.is_some() {
            return (None, None);
        }
        let launcher = frameworks::of_stack_on_all(problems);
        let of_family = frameworks::of_family(problems[0].stack().family).next();
        let note = of_family.filter(|_| launcher.is_none()).map(|framework| {
            let obstacles = problems.iter().map(|problem| framework.limits.problem_obstacles(problem));
            let obstacles = obstacles.max_by_key(Vec::len).unwrap_or_default();
            let why: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
            format!(
                "no {framework} files are written for this model ({}); plans keep to the settings of {framework}",
                why.join("; ")
            )
        });
        (launcher, note)
    }
}

/// Long help of `--for`.
#[cfg(feature = "cli")]
fn framework_help() -> String {
    format!(
        "Keep only plans that this framework's files can express\n\n{}; `any` allows every setting. By default the \
        framework of the stack.",
        frameworks::name_list()
    )
}

/// Framework by name; `any` allows every schedule.
fn family(name: &str) -> Result<Family, QuestionError> {
    if name == "any" {
        return Ok(Family::Internal);
    }
    let from: StrDeserializer<NameError> = name.into_deserializer();
    Family::deserialize(from).map_err(|_| {
        let near = nearest_hint(name, frameworks::names());
        QuestionError::refused(format!(
            "--for {name}: there is no such framework{near}\n\nhint: there are: {}, and any",
            frameworks::name_list()
        ))
    })
}
