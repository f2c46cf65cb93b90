//! Parameters of the discrepancy model, fitted to published runs.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::stalls::Stalls;
use super::traits::TRAITS;
use crate::catalog::files::DISCREPANCY;
use crate::catalog::parse_toml;
use crate::median::upper_median;

/// Number of traits that enter linearly.
const LINEAR: usize = TRAITS.len();

/// Standard deviations of the coefficient of one trait.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraitSpread {
    /// Name of the trait.
    pub name: String,
    /// Standard deviation across stacks.
    pub across: f64,
    /// Standard deviation across the problems of a stack.
    pub within: f64,
}

/// Coefficients of a stack, as its published runs have narrowed them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StackCoefficients {
    /// Name of the stack.
    pub name: String,
    /// Number of runs.
    pub runs: u32,
    /// Factor on the deviations of its problems: within, smooth and own.
    pub scale: f64,
    /// Stalls of its runs, where they explain them better than a normal law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// Mean of each coefficient.
    pub mean: Vec<f64>,
    /// Covariance of the coefficients, row by row.
    pub covariance: Vec<Vec<f64>>,
}

/// Parameters of the discrepancy model, with their provenance.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiscrepancyTable {
    /// Name as printed.
    pub name: String,
    /// Day of the fit.
    pub date: String,
    /// Key of the source of the runs.
    pub source: String,
    /// Fit of the constants that the runs were predicted with, each without its own fold.
    pub fit: String,
    /// Number of runs.
    pub runs: u32,
    /// Number of problems that they belong to.
    pub problems: u32,
    /// Standard deviation of the smooth deviation.
    pub smooth: f64,
    /// Length scale of the smooth deviation, in powers of two of a degree.
    pub length: f64,
    /// Number of doublings of the GPUs over which the deviations of a problem decorrelate to 1/e.
    pub reach: f64,
    /// Standard deviation that a plan shares with no other.
    pub own: f64,
    /// Share of the variance of the memory error that plans of one problem have in common.
    pub memory_shared: f64,
    /// Share of runs that fail although their predicted memory is at most half of the device's.
    pub crashes: f64,
    /// Spreads of the coefficients, in the order of [`TRAITS`].
    pub traits: Vec<TraitSpread>,
    /// Coefficients of stacks with published runs.
    pub stacks: Vec<StackCoefficients>,
}

/// Parameters that every posterior uses.
pub fn built_in() -> &'static DiscrepancyTable {
    static TABLE: OnceLock<DiscrepancyTable> = OnceLock::new();
    TABLE.get_or_init(|| parse_toml(DISCREPANCY[0].1).expect("tests read the built-in parameters"))
}

impl DiscrepancyTable {
    /// Mean and covariance of the coefficients of a stack; those of an unknown stack where no run of it is published.
    pub fn coefficients(&self, stack: &str) -> (Vec<f64>, Vec<Vec<f64>>) {
        let known = self.stacks.iter().find(|of| of.name == stack);
        known.map_or_else(
            || {
                let variance =
                    |row: usize, column: usize| if row == column { self.traits[row].across.powi(2) } else { 0.0 };
                let covariance =
                    (0..LINEAR).map(|row| (0..LINEAR).map(|column| variance(row, column)).collect()).collect();
                (vec![0.0; LINEAR], covariance)
            },
            |of| (of.mean.clone(), of.covariance.clone()),
        )
    }

    /// Stalls of a stack; `None` where no published run shows any.
    pub fn stalls(&self, stack: &str) -> Option<&Stalls> {
        self.stacks.iter().find(|of| of.name == stack).and_then(|of| of.stalls.as_ref())
    }

    /// Factor on the deviations of a stack's problems; the median of all stacks where no run of it is published.
    pub fn scale(&self, stack: &str) -> f64 {
        let known = self.stacks.iter().find(|of| of.name == stack).map(|of| of.scale);
        known.or_else(|| upper_median(self.stacks.iter().map(|of| of.scale).collect())).unwrap_or(1.0)
    }

    /// Checks that every trait and every coefficient is there.
    ///
    /// # Errors
    ///
    /// A trait is missing or a number is not usable.
    pub fn check(&self) -> Result<(), String> {
        let named = self.traits.iter().map(|spread| spread.name.as_str()).eq(TRAITS);
        let positive =
            [self.smooth, self.length, self.reach, self.own].into_iter().all(|value| value > 0.0 && value.is_finite());
        let shares = [self.memory_shared, self.crashes].into_iter().all(|share| (0.0..=1.0).contains(&share));
        let whole = |of: &StackCoefficients| {
            let stalls = of.stalls.iter().flat_map(|of| of.rate.iter().chain(&of.seconds).chain([&of.spread]));
            of.scale > 0.0
                && stalls.copied().all(|value| value > 0.0 && value.is_finite())
                && of.mean.len() == LINEAR
                && of.covariance.len() == LINEAR
                && of.covariance.iter().all(|row| row.len() == LINEAR)
        };
        if !named {
            return Err(format!("the traits must be {}", TRAITS.join(", ")));
        }
        if !positive || !shares {
            return Err("scales must be above 0, shares between 0 and 1".into());
        }
        match self.stacks.iter().find(|of| !whole(of)) {
            Some(of) => Err(format!("{}: {LINEAR} coefficients with their covariance are needed", of.name)),
            None => Ok(()),
        }
    }
}
