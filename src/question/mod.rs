//! Questions: what to train on what, which plans to consider, and the answer as a document.
//!
//! The command line reads its flags into these types, and programs read JSON into them:
//!
//! ```
//! use meshwright::question::PlanQuestion;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let asked = r#"{"problem": {"model": "llama3-8b", "cluster": "dgx-h100-8"}, "plans": {"fix": ["tp=1..2"], "top": 3}}"#;
//! let question: PlanQuestion = serde_json::from_str(asked)?;
//! let document = question.answer(&|_done, _all| std::ops::ControlFlow::Continue(()))?.value;
//! assert!(document.contains("\"recommended\""));
//! # Ok(())
//! # }
//! ```

mod answer;
mod budget;
mod calibration;
mod defaults;
mod economy;
mod emit;
mod error;
mod explain;
mod graphs;
mod launch;
mod lint;
mod measured;
mod names;
mod noted;
#[cfg(feature = "cli")]
pub mod numbers;
mod options;
mod own_runs;
mod part;
mod place;
mod plan;
mod pooled;
pub mod recalibrated;
mod recipe;
mod refine;
mod replay;
mod run_python;
mod runs;
mod search;
mod subject;
#[cfg(feature = "programs")]
mod sweep;

pub use answer::{PlanAnswer, PlanQuestion};
pub use budget::{BudgetAnswer, BudgetQuestion, RecipeBudget};
pub use economy::{CheckpointMode, Economy, EconomyOptions, Minimised, terms};
pub use emit::{Chosen, EmitQuestion, FileOptions, FilesOrReasons, best_plans, folder_of, framework, release};
pub use error::QuestionError;
pub use explain::{ExplainQuestion, Explanation};
pub use graphs::Posed;
pub use launch::{ImportQuestion, LaunchFile};
pub use lint::{LintQuestion, LintResult};
pub use names::{Precision, Profile, Targets};
pub use noted::Noted;
pub use options::{FitChoice, Question, QuestionOptions};
pub use place::{PlaceOptions, entry};
pub use plan::PlanOptions;
pub use pooled::{PooledPlanAnswer, files, mixtures};
pub use recipe::recipe;
pub use refine::RefineOptions;
pub use replay::ReplayQuestion;
pub use runs::{PredictQuestion, RunConstants, ValidateQuestion, filters, validation};
pub use search::{Found, SearchInputs, counts};
pub use subject::Subject;
#[cfg(feature = "programs")]
pub use sweep::{SweepAnswer, tornado_of_cheapest};
