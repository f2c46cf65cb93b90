//! Cartesian products of axes: the options of a sweep, counted and checked before any search.

use toml::Table;

use super::choice::{AXES, Changes, Choice};
use super::error::{MOST_OPTIONS, SweepError};
use super::task::{format, mode};
use super::{axis, machine};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::money::Market;
use meshwright_engine::range::{self, Range};
use meshwright_engine::suggest::nearest_hint;
use meshwright_engine::units::{BytesPerSec, Usd, UsdPerHour, UsdPerJoule};
use meshwright_planner::catalog::{self, Overrides};

/// Cartesian product of axes.
#[derive(Clone, Debug)]
pub(super) struct AxisProduct {
    pub axes: Vec<(&'static str, Vec<String>)>,
}

impl AxisProduct {
    /// Number of combinations of the axes with the given effect.
    pub fn count(&self, changes: Changes) -> u64 {
        let is_axis = |key: &str| AXES.iter().any(|(name, kind)| *name == key && *kind == changes);
        self.axes.iter().filter(|(key, _)| is_axis(key)).map(|(_, values)| values.len() as u64).product()
    }

    /// Values of an axis; none where the options do not name it.
    pub fn values(&self, axis: &str) -> &[String] {
        self.axes.iter().find(|(key, _)| *key == axis).map_or(&[], |(_, values)| values)
    }
}

/// The `n`th option of a product; the last axis varies fastest.
pub(super) fn decoded(product: &AxisProduct, mut n: u64) -> Choice {
    let mut choice: Vec<(&'static str, String)> = Vec::with_capacity(product.axes.len());
    for (key, values) in product.axes.iter().rev() {
        let at = n % values.len() as u64;
        n /= values.len() as u64;
        choice.push((key, values[at as usize].clone()));
    }
    choice.reverse();
    Choice(choice)
}

/// Reads a table of axes.
///
/// # Errors
///
/// Names an invalid key or value, or a missing axis.
pub(super) fn product(table: &Table) -> Result<AxisProduct, SweepError> {
    for key in table.keys() {
        if !AXES.iter().any(|(name, _)| name == key) {
            let near = nearest_hint(key, AXES.iter().map(|(name, _)| *name));
            let names: Vec<&str> = AXES.iter().map(|(name, _)| *name).collect();
            return Err(SweepError::value(
                "options",
                format!("unknown field `{key}`{near}\n\nhint: there are: {}", names.join(", ")),
            ));
        }
    }
    let mut axes = Vec::new();
    for (name, _) in AXES {
        if let Some(value) = table.get(*name) {
            let mut values = axis::values(&format!("options.{name}"), value)?;
            let mut seen = std::collections::BTreeSet::new();
            values.retain(|value| seen.insert(value.clone()));
            axes.push((*name, values));
        }
    }
    let has = |name: &str| axes.iter().any(|(key, _)| *key == name);
    match (has("gpu"), has("cluster")) {
        (false, false) => Err(SweepError::value("options", "needs `gpu` with `gpus`, or `cluster`")),
        (true, true) => Err(SweepError::value(
            "options",
            "has both `gpu` and `cluster`: a cluster has its own GPU; write two [[options]]",
        )),
        (true, false) if !has("gpus") => Err(SweepError::value("options.gpu", "needs `gpus`, how many of them")),
        _ => Ok(AxisProduct { axes }),
    }
}

/// Refuses products that are empty or too large.
///
/// # Errors
///
/// Lists the axes with their number of values.
pub(super) fn counted(products: &[AxisProduct]) -> Result<(), SweepError> {
    if products.is_empty() {
        return Err(SweepError::Empty("there are no [options]".into()));
    }
    let mut all: u128 = 0;
    for product in products {
        if let Some((key, _)) = product.axes.iter().find(|(_, values)| values.is_empty()) {
            return Err(SweepError::Empty(format!("`options.{key}` is an empty list")));
        }
        all += product.axes.iter().fold(1_u128, |count, (_, values)| count.saturating_mul(values.len() as u128));
    }
    if all > u128::from(MOST_OPTIONS) {
        let axes = |product: &AxisProduct| {
            product.axes.iter().map(|(key, values)| format!("{key} {}", values.len())).collect::<Vec<_>>().join(" × ")
        };
        let axes = products.iter().map(axes).collect::<Vec<_>>().join("; ");
        return Err(SweepError::TooMany { count: all.to_string(), axes });
    }
    Ok(())
}

/// Checks every value of every axis, and returns the clusters that the options start from.
pub(super) fn checked(product: &AxisProduct, market: &Market, sets: &Overrides) -> Result<Vec<Cluster>, SweepError> {
    let mut clusters = Vec::new();
    for (key, values) in &product.axes {
        let path = format!("options.{key}");
        for value in values {
            let named = |error: &dyn std::fmt::Display| SweepError::value(&path, error);
            match *key {
                "cluster" => clusters.push(catalog::cluster(value, sets)?),
                "gpu" => clusters.push(catalog::fat_tree_of(1, value, sets)?),
                "gpus" | "scale_up" => {
                    machine::whole(value).map_err(|why| named(&why))?;
                }
                "oversubscription" | "pue" => {
                    machine::ratio(value).map_err(|why| named(&why))?;
                }
                "spares" => {
                    let nodes: u32 =
                        value.parse().map_err(|_| named(&format!("`{value}` is not a number of nodes")))?;
                    within(&path, f64::from(nodes), range::COUNT)?;
                }
                "nic" | "storage" => {
                    let range = if *key == "nic" { range::BANDWIDTH } else { range::STORAGE };
                    within(&path, value.parse::<BytesPerSec>().map_err(|e| named(&e))?.get(), range)?;
                }
                "stack" => {
                    catalog::stack(value, sets)?;
                }
                "precision" => {
                    format(value).map_err(|why| named(&why))?;
                }
                "checkpoints" => {
                    mode(value).map_err(|why| named(&why))?;
                }
                "terms" => {
                    market.terms_named(value).map_err(|why| named(&why))?;
                }
                "price" => {
                    let price = value.parse::<UsdPerHour>().map_err(|e| named(&currency(&e)))?.get();
                    positive(&path, price)?;
                    within(&path, price, range::RENT)?;
                }
                "buy" | "nic_price" | "port_price" => {
                    let price = value.parse::<Usd>().map_err(|e| named(&currency(&e)))?.get();
                    if *key == "buy" {
                        positive(&path, price)?;
                    }
                    within(&path, price, range::MONEY)?;
                }
                _ => {
                    let price = value.parse::<UsdPerJoule>().map_err(|e| named(&currency(&e)))?.get();
                    within(&path, price, range::ELECTRICITY)?;
                }
            }
        }
    }
    Ok(clusters)
}

fn currency(error: &meshwright_engine::units::ParseQuantityError) -> String {
    error.to_string().replacen("\n\nhint:", ": a price has a currency\n\nhint:", 1)
}

/// Largest number of GPUs of an option.
pub(super) fn most_gpus(product: &AxisProduct) -> Option<u32> {
    let (_, values) = product.axes.iter().find(|(key, _)| *key == "gpus")?;
    values.iter().filter_map(|value| machine::whole(value).ok()).max()
}

/// Refuses a value outside the range of its kind.
pub(super) fn within(key: &str, value: f64, range: Range) -> Result<(), SweepError> {
    range.check(key, value).map_err(|why| SweepError::value(key, why.why()))
}

/// Refuses a value that is not above 0.
pub(super) fn positive(key: &str, value: f64) -> Result<(), SweepError> {
    if value > 0.0 { Ok(()) } else { Err(SweepError::value(key, "must be above 0")) }
}
