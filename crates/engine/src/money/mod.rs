//! Cost of a job: rent or ownership, energy, emissions. Prices are data ([`Market`]), each with its source.

pub mod energy;
mod ranges;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Level};
use crate::cost::StepTime;
use crate::goodput::{Conditions, Goodput};
use crate::gpu::RentPrice;
use crate::problem::Problem;
use crate::sources::{Sourced, own_source};
use crate::suggest::nearest_hint;
use crate::units::{Joules, Seconds, Tokens, Usd, UsdPerHour, UsdPerWatt};

pub use energy::Site;

/// Price level of a device's rent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PriceLevel {
    /// Price under a favourable contract.
    Low,
    /// Typical price under a contract.
    #[default]
    Typical,
    /// Price on demand from a large cloud.
    High,
}

/// Purchase terms of GPUs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Kind of purchase: rented or owned.
    pub kind: PurchaseKind,
    /// Price level of the rent.
    #[serde(default)]
    pub level: PriceLevel,
    /// Discount as a share of the rent.
    pub discount: Option<Sourced<f64>>,
    /// Least time to pay for, once for all jobs.
    pub commitment: Option<Sourced<Seconds>>,
    /// Mean time until the spot market reclaims a node.
    pub interruption: Option<Sourced<Seconds>>,
    /// Storage cost per month of 30 days.
    pub storage_per_month: Option<Sourced<Usd>>,
    /// Cost of data egress, once.
    pub egress: Option<Sourced<Usd>>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Kind of purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PurchaseKind {
    /// Rented by the GPU-hour; electricity and spare nodes are in the price.
    Rent,
    /// Bought and depreciated over its life; electricity and spare nodes are extra.
    Own,
}

/// Costs of ownership besides the machines.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    /// Service life of the machines.
    pub life: Sourced<Seconds>,
    /// Residual value as a share of the purchase price.
    pub residual: Sourced<f64>,
    /// Cost of the network as a share of the machines, where neither of the two prices below is stated.
    pub network: Sourced<f64>,
    /// Price of the NIC of one GPU.
    pub nic: Option<Sourced<Usd>>,
    /// Price of one switch port at the rate of a NIC, with its optics and its share of a cable.
    pub port: Option<Sourced<Usd>>,
    /// Cost of the building per watt of critical load.
    pub facility: Sourced<UsdPerWatt>,
    /// Service life of the building.
    pub facility_life: Sourced<Seconds>,
    /// Share of the machines' life in which they are in use.
    pub utilisation: Sourced<f64>,
}

impl Own {
    /// Whether the prices of the network are stated.
    const fn prices_network(&self) -> bool {
        self.nic.is_some() || self.port.is_some()
    }

    /// Cost of a GPU's share of the network, where its prices are stated; a share of its machine elsewhere. A price that is left out adds
    /// nothing: a NIC may be in the price of the server. GPUs of one scale-up domain have no network.
    ///
    /// ```text
    /// C = nic + port·p          p: ports of a GPU
    /// ```
    fn network_of(&self, cluster: &Cluster, machine: Usd) -> Usd {
        if !self.prices_network() {
            return machine * self.network.value;
        }
        if cluster.levels.is_empty() {
            return Usd::ZERO;
        }
        let dollars = |price: &Option<Sourced<Usd>>| price.as_ref().map_or(Usd::ZERO, |price| price.value);
        dollars(&self.nic) + dollars(&self.port) * ports_per_gpu(cluster)
    }
}

/// Switch ports of a GPU's share of a cluster's network, each at the rate of its NIC: one for its own link, and both ends of its share of
/// the links between switches, of which an oversubscribed level has fewer.
///
/// ```text
/// p = 1 + Σ_{i≥2} 2·(bw_i/o_i)/bw_1          bw, o: bandwidth and oversubscription of a level (specification §3.4)
/// ```
pub fn ports_per_gpu(cluster: &Cluster) -> f64 {
    let Some((first, above)) = cluster.levels.split_first() else { return 0.0 };
    let links = |level: &Level| level.bandwidth.value / first.bandwidth.value / level.oversubscription;
    1.0 + above.iter().map(|level| 2.0 * links(level)).sum::<f64>()
}

/// Market: prices, power and failure rates of one date.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Market {
    /// Name as printed.
    pub name: String,
    /// Date of its figures, such as `2026-05`.
    pub date: String,
    /// Purchase terms by name.
    pub terms: BTreeMap<String, Terms>,
    /// Costs of ownership.
    pub own: Own,
    /// Site of the cluster.
    pub site: Site,
    /// Failures, maintenance and checkpoints.
    pub conditions: Conditions,
}

/// Error in a market or in its terms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The device has no rental price.
    #[error("{0} has no [price]: give one, such as `price = \"2.50 $/h\"`")]
    NoRent(String),
    /// The device has no purchase price.
    #[error("{0} has no purchase price: give one, such as `buy = \"30000 $\"`, or rent it")]
    NoPurchase(String),
    /// A share is out of its range, or a time is zero.
    #[error("{0}")]
    Invalid(String),
}

impl Market {
    /// Purchase terms by name.
    ///
    /// # Errors
    ///
    /// The market has no terms of the name; the text lists those it has.
    pub fn terms_named(&self, name: &str) -> Result<&Terms, String> {
        self.terms.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.terms.keys().map(String::as_str).collect();
            let near = nearest_hint(name, names.iter().copied());
            format!("{} has no terms `{name}`{near}\n\nhint: there are: {}", self.name, names.join(", "))
        })
    }

    /// Validates the market.
    ///
    /// # Errors
    ///
    /// Names the field that is out of its range.
    pub fn check(&self) -> Result<(), MoneyError> {
        if self.terms.is_empty() {
            return Err(MoneyError::Invalid("there are no [terms]".into()));
        }
        self.check_ranges().map_err(|why| MoneyError::Invalid(why.to_string()))
    }

    /// Conditions of a job under these terms.
    pub fn conditions(&self, terms: &Terms) -> Conditions {
        Conditions {
            spot: terms.interruption.clone().or_else(|| self.conditions.spot.clone()),
            ..self.conditions.clone()
        }
    }
}

/// Price of one GPU-hour with its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Price used for the bill.
    pub usual: UsdPerHour,
    /// Low end of the range.
    pub low: UsdPerHour,
    /// High end of the range.
    pub high: UsdPerHour,
}

impl Rate {
    /// Price without a range.
    pub const fn fixed(price: UsdPerHour) -> Self {
        Self { usual: price, low: price, high: price }
    }
}

/// Cost of a GPU-hour under given terms, for a busy GPU and for a spare.
///
/// ```text
/// rent   price·(1 − discount)
/// own    [buy·(1 + network)·(1 − residual)/life + facility·(TDP + host)/facility life]/utilisation     electricity beside
///        buy + nic + port·p in place of buy·(1 + network) where the prices of the network are stated
/// ```
///
/// Source: specification §7.4.
///
/// # Errors
/// The device has no such price.
pub fn rate(market: &Market, terms: &Terms, cluster: &Cluster, price: Option<UsdPerHour>) -> Result<Rate, MoneyError> {
    if let Some(price) = price {
        return Ok(Rate::fixed(price));
    }
    let listed = cluster.gpu.price.as_ref();
    match terms.kind {
        PurchaseKind::Rent => {
            let RentPrice { low, typical, high, .. } =
                listed.ok_or_else(|| MoneyError::NoRent(cluster.gpu.name.clone()))?;
            let off = 1.0 - terms.discount.as_ref().map_or(0.0, |discount| discount.value);
            let usual = match terms.level {
                PriceLevel::Low => *low,
                PriceLevel::Typical => *typical,
                PriceLevel::High => *high,
            };
            Ok(Rate { usual: usual * off, low: *low * off, high: *high * off })
        }
        PurchaseKind::Own => {
            let buy = listed
                .and_then(|price| price.buy.as_ref())
                .ok_or_else(|| MoneyError::NoPurchase(cluster.gpu.name.clone()))?
                .value;
            let own = &market.own;
            let machines = (buy + own.network_of(cluster, buy)) * (1.0 - own.residual.value);
            let building = own.facility.value * market.site.critical_load(cluster);
            let hourly = machines.spread_over(own.life.value) + building.spread_over(own.facility_life.value);
            Ok(Rate::fixed(hourly / own.utilisation.value))
        }
    }
}

/// Bill of a job: time, dollars and energy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bill {
    /// Time from the first step to the last, interruptions included.
    pub time: Seconds,
    /// GPU-hours to pay for.
    pub gpu_hours: f64,
    /// Cost of the GPUs, or their share of the purchase.
    pub gpus: Usd,
    /// Cost of electricity, unless the rent includes it.
    pub electricity: Usd,
    /// Cost of storage and egress.
    pub storage: Usd,
    /// Total cost.
    pub total: Usd,
    /// Total cost with the low price of a GPU-hour.
    pub low: Usd,
    /// Total cost with the high price of a GPU-hour.
    pub high: Usd,
    /// Energy at the wall.
    pub energy: Joules,
    /// Emissions in kilograms of CO2.
    pub carbon_kg: f64,
}

/// Time to train `tokens`, interruptions included.
///
/// ```text
/// t = tokens/(B·s) · T / η          specification §7.4
/// ```
pub fn time_to_train(problem: &Problem, step: Seconds, goodput: &Goodput, tokens: Tokens) -> Seconds {
    step * (tokens.get() / problem.workload().tokens_per_step() / goodput.effective)
}

/// Days of one month of storage.
const MONTH: f64 = 30.0;

/// Prices that a job is billed at.
#[derive(Clone, Copy, Debug)]
pub struct Prices<'a> {
    /// Market, of which energy has its price and emissions.
    pub market: &'a Market,
    /// Terms of purchase.
    pub terms: &'a Terms,
    /// Price of a GPU-hour under these terms.
    pub rate: Rate,
}

/// Bill of a job that trains `tokens`; commitments are added where the jobs of an option are summed.
pub fn bill(problem: &Problem, prices: Prices, step: &StepTime, goodput: &Goodput, tokens: Tokens) -> Bill {
    let Prices { market, terms, rate } = prices;
    let cluster = problem.cluster();
    let time = time_to_train(problem, step.total(), goodput, tokens);
    let spare_gpus = match terms.kind {
        PurchaseKind::Rent => 0.0,
        PurchaseKind::Own => f64::from(goodput.spares) * f64::from(cluster.gpus_per_node),
    };
    let gpu_hours = (f64::from(cluster.gpus) + spare_gpus) * time.as_hours();
    let energy = market.site.energy(cluster, step, goodput, time);
    let electricity = match terms.kind {
        PurchaseKind::Rent => Usd::ZERO,
        PurchaseKind::Own => market.site.electricity.value * energy,
    };
    let dollars = |extra: &Option<Sourced<Usd>>| extra.as_ref().map_or(Usd::ZERO, |extra| extra.value);
    let storage = dollars(&terms.storage_per_month) * (time.as_days() / MONTH) + dollars(&terms.egress);
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
