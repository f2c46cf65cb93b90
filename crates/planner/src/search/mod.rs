//! Exact search for the best plans of the whole space, with a certificate of optimality.
//!
//! ```text
//! shapes by ascending layer bound  →  by the least flow bound of their pipelines that fit  →  layouts by the layer bound of
//! the GPUs that they use  →  pipelines by ascending flow bound  →  groups of recomputations, cut by the least time and memory
//! of each  →  shardings, cut by their bound
//! the remaining plans are simulated on their real stages and ranked by that
//! ```
//!
//! Every bound is a lower bound of the simulated time (`tests/laws/staged.rs`), and a shape, a pipeline or a sharding is cut only
//! if its bound exceeds the cutoff. So the answer is that of evaluating every plan, and the [`Certificate`] counts the
//! plans that each bound and rule excludes; the counts sum to the size of the space, which is known in advance.

mod bounded;
mod cache;
mod certificate;
mod critical;
mod dominated;
mod driver;
mod exchanges;
mod explore;
mod explorer;
mod first_layers;
mod flow;
mod frontier;
mod group_bounds;
mod groups;
mod incumbents;
mod layout_bounds;
mod layouts;
mod leaves;
mod menus;
mod neighbours;
mod on_host;
mod open;
mod opened;
mod options;
mod pareto;
mod pipelines;
mod ranking;
mod recomputed;
mod state;
mod stop;
mod tables;
mod verdict;
mod whatif;

pub use certificate::{BoundCount, Certificate, RuleCount, SearchProof};

pub use driver::{LimitedSearches, SearchLimits, search, search_for, search_with};
pub use incumbents::TieLimits;
pub use meshwright_engine::schedule::replays::Replays;
pub use neighbours::{ChangedOptimum, TIE, nearest_feasible, plainer, plainer_by, sensitivity};
pub use options::{Control, Goal, Objective, SearchOptions};
pub use ranking::{NearMiss, Ranking};
pub use whatif::WhatIfs;
