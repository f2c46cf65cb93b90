//! Inputs of the search of one shape.

use super::pipelines::Pipelines;
use super::state::SearchState;
use super::stop::Stop;
use super::tables::Tables;
use crate::space::Space;
use meshwright_engine::cost::Costs;

/// Branch-and-bound search of the plans of one shape.
pub(super) struct Explorer<'e> {
    pub costs: &'e Costs<'e>,
    pub space: &'e Space<'e>,
    pub tables: &'e Tables<'e>,
    pub pipelines: Pipelines<'e>,
    /// Rank of the shape in the order of the space.
    pub rank: u32,
    /// Incumbents and critical paths at the start of the batch.
    pub known: &'e SearchState,
    pub stop: &'e Stop<'e>,
}
