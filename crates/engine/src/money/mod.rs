//! What a job costs: rent or ownership, energy, emissions. Prices are data ([`Market`]), each with its source.

pub mod energy;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cost::StepTime;
use crate::goodput::{Conditions, Goodput};
use crate::gpu::Price;
use crate::problem::Problem;
use crate::sources::{Sourced, own_source};
use crate::units::{Joules, Seconds, Tokens, Usd, UsdPerHour, UsdPerWatt};

pub use energy::Site;

/// Which of a device's three prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A good contract.
    Low,
    /// The usual.
    #[default]
    Typical,
    /// On demand from a large cloud.
    High,
}

/// How GPUs are had.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Rented or owned.
    pub kind: Kind,
    /// Price that the rent starts from.
    #[serde(default)]
    pub level: Level,
    /// Share taken off it.
    pub discount: Option<Sourced<f64>>,
    /// Least time that is paid for, once for all jobs.
    pub commitment: Option<Sourced<Seconds>>,
    /// Mean time until the market takes a node back.
    pub interruption: Option<Sourced<Seconds>>,
    /// Storage, per month of 30 days.
    pub storage_per_month: Option<Sourced<Usd>>,
    /// Data carried out, once.
    pub egress: Option<Sourced<Usd>>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Rented or owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By the GPU-hour; electricity and spare nodes are in the price.
    Rent,
    /// Bought, written off over its life; electricity and spare nodes come on top.
    Own,
}

/// What owning costs beside the machines.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    /// Life of the machines.
    pub life: Sourced<Seconds>,
    /// Share of their price that is left at its end.
    pub residual: Sourced<f64>,
    /// Network as a share of the machines.
    pub network: Sourced<f64>,
    /// Building, for each watt of critical load.
    pub facility: Sourced<UsdPerWatt>,
    /// Life of the building.
    pub facility_life: Sourced<Seconds>,
    /// Share of the machines' life in which they work for someone.
    pub utilisation: Sourced<f64>,
}

/// Prices, power and failures of one date: everything about money that is data.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Market {
    /// Name as printed.
    pub name: String,
    /// When its figures were taken: `2026-05`.
    pub date: String,
    /// How GPUs can be had, by name.
    pub terms: BTreeMap<String, Terms>,
    /// Ownership.
    pub own: Own,
    /// The building.
    pub site: Site,
    /// Failures, maintenance, checkpoints.
    pub conditions: Conditions,
}

/// A market that contradicts itself, or terms that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// No rent is known.
    #[error("{0} has no [price]: give one, such as `price = \"2.50 $/h\"`")]
    NoRent(String),
    /// No purchase price is known.
    #[error("{0} has no purchase price: give one, such as `buy = \"30000 $\"`, or rent it")]
    NoPurchase(String),
    /// A share out of its range or a time of nothing.
    #[error("{0}")]
    Invalid(String),
}

impl Market {
    /// Checks what every bill would trip over.
    ///
    /// # Errors
    /// Names the field that is out of its range.
    pub fn check(&self) -> Result<(), MoneyError> {
        let invalid = |text: String| Err(MoneyError::Invalid(text));
        let share = |name: &str, value: f64| {
            if (0.0..=1.0).contains(&value) {
                Ok(())
            } else {
                invalid(format!("`{name}` is {value}, and is a share from 0 to 1"))
            }
        };
        share("own.residual", self.own.residual.value)?;
        share("own.utilisation", self.own.utilisation.value)?;
        share("conditions.failures.hardware", self.conditions.failures.hardware.value)?;
        let failures = &self.conditions.failures;
        let above_zero = [
            ("own.utilisation", self.own.utilisation.value),
            ("own.life", self.own.life.value.get()),
            ("own.facility_life", self.own.facility_life.value.get()),
            ("conditions.failures.gpu", failures.gpu.value.get()),
            ("conditions.failures.node", failures.node.value.get()),
            ("conditions.failures.switch", failures.switch.value.get()),
            ("conditions.failures.hardware", failures.hardware.value),
            ("conditions.maintenance.every", self.conditions.maintenance.every.value.get()),
            ("conditions.checkpoints.storage_per_gpu", self.conditions.checkpoints.storage_per_gpu.value.get()),
        ];
        if let Some((name, _)) = above_zero.iter().find(|(_, value)| *value <= 0.0) {
            return invalid(format!("`{name}` must be above 0"));
        }
        if self.site.pue.value < 1.0 {
            return invalid(format!(
                "`site.pue` is {}, and no building draws less than its machines",
                self.site.pue.value
            ));
        }
        if self.terms.is_empty() {
            return invalid("there are no [terms]".into());
        }
        for (name, terms) in &self.terms {
            share(&format!("terms.{name}.discount"), terms.discount.as_ref().map_or(0.0, |d| d.value))?;
            if terms.interruption.as_ref().is_some_and(|time| time.value.get() <= 0.0) {
                return invalid(format!("`terms.{name}.interruption` must be above 0"));
            }
        }
        Ok(())
    }

    /// What interrupts a job under these terms.
    pub fn conditions(&self, terms: &Terms) -> Conditions {
        Conditions {
            spot: terms.interruption.clone().or_else(|| self.conditions.spot.clone()),
            ..self.conditions.clone()
        }
    }
}

/// Price of one GPU-hour, and its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// What is reckoned with.
    pub usual: UsdPerHour,
    /// From.
    pub low: UsdPerHour,
    /// To.
    pub high: UsdPerHour,
}

impl Rate {
    /// One price, without a range.
    pub const fn fixed(price: UsdPerHour) -> Self {
        Self { usual: price, low: price, high: price }
    }
}

/// What an option's GPUs cost by the hour: of a GPU at work, and of one that stands by.
///
/// ```text
/// rent   price·(1 − discount)
/// own    [buy·(1 + network)·(1 − residual)/life + facility·(TDP + host)/facility life]/utilisation     electricity beside
/// ```
///
/// Source: specification §7.4.
///
/// # Errors
/// When the device has no such price.
pub fn rate(market: &Market, terms: &Terms, cluster: &Cluster, price: Option<UsdPerHour>) -> Result<Rate, MoneyError> {
    if let Some(price) = price {
        return Ok(Rate::fixed(price));
    }
    let listed = cluster.gpu.price.as_ref();
    match terms.kind {
        Kind::Rent => {
            let Price { low, typical, high, .. } =
                listed.ok_or_else(|| MoneyError::NoRent(cluster.gpu.name.clone()))?;
            let off = 1.0 - terms.discount.as_ref().map_or(0.0, |discount| discount.value);
            let usual = match terms.level {
                Level::Low => *low,
                Level::Typical => *typical,
                Level::High => *high,
            };
            Ok(Rate { usual: usual * off, low: *low * off, high: *high * off })
        }
        Kind::Own => {
            let buy = listed
                .and_then(|price| price.buy.as_ref())
                .ok_or_else(|| MoneyError::NoPurchase(cluster.gpu.name.clone()))?
                .value;
            let own = &market.own;
            let machines = buy * ((1.0 + own.network.value) * (1.0 - own.residual.value));
            let building = own.facility.value * market.site.critical_load(cluster);
            let hourly = machines.spread_over(own.life.value) + building.spread_over(own.facility_life.value);
            Ok(Rate::fixed(hourly / own.utilisation.value))
        }
    }
}

/// What a job takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bill {
    /// From the first step to the last, interruptions and all.
    pub time: Seconds,
    /// GPU-hours that are paid for.
    pub gpu_hours: f64,
    /// GPUs, or their share of what was bought.
    pub gpus: Usd,
    /// Electricity, where it is not in the rent.
    pub electricity: Usd,
    /// Storage and data carried out.
    pub storage: Usd,
    /// All of it.
    pub total: Usd,
    /// With every GPU-hour at its low price.
    pub low: Usd,
    /// With every GPU-hour at its high price.
    pub high: Usd,
    /// At the wall.
    pub energy: Joules,
    /// Emitted, in kilograms of CO2.
    pub carbon_kg: f64,
}

/// Time for `tokens`, with all that interrupts.
///
/// ```text
/// t = tokens/(B·s) · T / η          specification §7.4
/// ```
pub fn time_to_train(problem: &Problem, step: Seconds, goodput: &Goodput, tokens: Tokens) -> Seconds {
    let workload = problem.workload();
    let per_step = f64::from(workload.global_batch) * f64::from(workload.seq_len);
    step * (tokens.get() / per_step / goodput.effective)
}

/// Days of one month of storage.
const MONTH: f64 = 30.0;

/// The bill of a job of so many tokens; commitments count where the jobs of an option are added up.
pub fn bill(
    problem: &Problem,
    (market, terms): (&Market, &Terms),
    rate: Rate,
    (step, goodput): (&StepTime, &Goodput),
    tokens: Tokens,
) -> Bill {
    let cluster = problem.cluster();
    let time = time_to_train(problem, step.total(), goodput, tokens);
    let spare_gpus = match terms.kind {
        Kind::Rent => 0.0,
        Kind::Own => f64::from(goodput.spares) * f64::from(cluster.gpus_per_node),
    };
    let gpu_hours = (f64::from(cluster.gpus) + spare_gpus) * time.as_hours();
    let energy = market.site.energy(cluster, step, goodput, time);
    let electricity = match terms.kind {
        Kind::Rent => Usd::ZERO,
        Kind::Own => market.site.electricity.value * energy,
    };
    let of = |extra: &Option<Sourced<Usd>>| extra.as_ref().map_or(Usd::ZERO, |extra| extra.value);
    let storage = of(&terms.storage_per_month) * (time.as_days() / MONTH) + of(&terms.egress);
    let gpus = |rate: UsdPerHour| Usd::new(rate.get() * gpu_hours);
    let beside = electricity + storage;
    Bill {
        time,
        gpu_hours,
        gpus: gpus(rate.usual),
        electricity,
        storage,
        total: gpus(rate.usual) + beside,
        low: gpus(rate.low) + beside,
        high: gpus(rate.high) + beside,
        energy,
        carbon_kg: market.site.carbon.value * energy,
    }
}
