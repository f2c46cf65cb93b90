//! Free constants of a fit: their keys, bounds and physical meaning.

use serde::Deserialize;
use toml::Value;

use super::bounds::Bounds;
use meshwright_planner::catalog::fits::Constant;
use meshwright_planner::catalog::{Overrides, parse_toml};

/// Built-in list of free constants.
pub const DEFAULT: &str = include_str!("../../../../clusters/fits/free/2026-11.toml");

/// Constants that are fitted together, because the same runs depend on them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantBlock {
    /// Name, for the report.
    pub name: String,
    /// Constants of the block.
    #[serde(rename = "constant")]
    pub constants: Vec<FreeConstant>,
}

/// Free constant of a fit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeConstant {
    /// Keys that it sets, as in a fit: `gpu.NAME.key`, `stack.NAME.key`.
    pub keys: Vec<String>,
    /// Least allowed value.
    pub low: f64,
    /// Largest allowed value.
    pub high: f64,
    /// Standard deviation of the prior, in the unit of the value (or of the factor).
    pub prior: f64,
    /// Key of the parent's constant, which is the mean of the prior; without one it is the present value.
    pub toward: Option<String>,
    /// Unit of the value, if it has one.
    pub unit: Option<String>,
    /// Whether it multiplies the values of the keys instead of replacing them.
    #[serde(default)]
    pub factor: bool,
    /// Mean of the prior, where it is neither the parent's nor the present value.
    pub mean: Option<f64>,
    /// Physical meaning of the constant.
    pub why: String,
}

/// Error in a file of free constants.
#[derive(Debug, thiserror::Error)]
pub enum FreeError {
    /// The file does not parse.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A constant cannot be fitted.
    #[error("`{key}`: {why}")]
    Constant {
        /// Key of the constant.
        key: String,
        /// Reason, as text.
        why: String,
    },
    /// No run tells anything of a constant.
    #[error("no constant is fitted: the prediction of no run depends on one that may change")]
    NoEffect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "source")]
    _source: String,
    block: Vec<ConstantBlock>,
}

/// Parses a file of free constants.
///
/// # Errors
///
/// The text does not parse, or the bounds of a constant are empty.
pub fn blocks(text: &str) -> Result<Vec<ConstantBlock>, FreeError> {
    let file: File = parse_toml(text)?;
    for free in file.block.iter().flat_map(|block| &block.constants) {
        let key = free.keys.first().cloned().unwrap_or_default();
        if free.keys.is_empty() {
            return Err(FreeError::Constant { key, why: "there are no `keys`".into() });
        }
        if !(free.low.is_finite() && free.high.is_finite() && free.low < free.high && free.low >= 0.0) {
            return Err(FreeError::Constant { key, why: format!("no range: {} to {}", free.low, free.high) });
        }
        if !(free.prior.is_finite() && free.prior > 0.0) {
            return Err(FreeError::Constant { key, why: format!("`prior` must be above 0, not {}", free.prior) });
        }
    }
    Ok(file.block)
}

/// Free constant with the values that its keys have before the fit.
#[derive(Clone, Debug)]
pub struct PlacedConstant {
    /// The constant as listed.
    pub free: FreeConstant,
    /// Index of its block.
    pub block: usize,
    /// Value of each key before the fit, in the constant's unit.
    base: Vec<f64>,
    /// Mean of the prior before the fit, in the constant's unit.
    mean: f64,
}

impl PlacedConstant {
    /// Looks up the present values of a constant's keys.
    ///
    /// # Errors
    ///
    /// A key names no number of the catalogue.
    pub fn new(free: &FreeConstant, block: usize, sets: &Overrides) -> Result<Self, FreeError> {
        let number = |key: &String| number_at(key, free.unit.as_deref(), sets);
        let base: Vec<f64> = free.keys.iter().map(number).collect::<Result<_, _>>()?;
        let mean = match (&free.toward, free.mean) {
            (Some(parent), _) => number(parent)?,
            (None, Some(mean)) => mean,
            (None, None) if free.factor => 1.0,
            (None, None) => base[0],
        };
        Ok(Self { free: free.clone(), block, base, mean })
    }

    /// Bounds of the value.
    pub fn bounds(&self) -> Bounds {
        Bounds { low: self.free.low, high: self.free.high }
    }

    /// Value from which the descent starts: the present value, or a factor of 1.
    pub fn start(&self) -> f64 {
        self.bounds().clamp(if self.free.factor { 1.0 } else { self.base[0] })
    }

    /// Mean of the prior before the fit.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Whether all keys have the starting value.
    pub fn is_shared(&self) -> bool {
        self.free.factor || self.base.iter().all(|value| (value - self.base[0]).abs() <= 1e-12)
    }

    /// Value of each key at `x`, as written to a fit: four significant digits, as the data support no more.
    pub fn values(&self, x: f64) -> Vec<(String, Value)> {
        self.numbers(x).map(|(key, number)| (key.clone(), self.with_unit(rounded(number)))).collect()
    }

    /// Value of each key before the fit, rounded in the same way.
    pub fn before(&self) -> Vec<Value> {
        self.base.iter().map(|base| self.with_unit(rounded(*base))).collect()
    }

    /// Constants at `x`, without rounding and provenance, for an evaluation.
    pub(crate) fn exactly(&self, x: f64) -> impl Iterator<Item = Constant> + '_ {
        self.numbers(x).map(|(key, number)| Constant::plain(key.clone(), self.with_unit(number)))
    }

    /// Each key with its number at `x`.
    fn numbers(&self, x: f64) -> impl Iterator<Item = (&String, f64)> {
        let number = move |base: &f64| if self.free.factor { base * x } else { x };
        self.free.keys.iter().zip(&self.base).map(move |(key, base)| (key, number(base)))
    }

    /// Number as a value of a fit, with its unit if it has one.
    fn with_unit(&self, number: f64) -> Value {
        match &self.free.unit {
            Some(unit) => Value::String(format!("{number} {unit}")),
            None => Value::Float(number),
        }
    }
}

/// A number to four significant digits.
pub fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

/// Number at a key under the present overrides, in the unit of the constant.
fn number_at(key: &str, unit: Option<&str>, sets: &Overrides) -> Result<f64, FreeError> {
    let fail = |why: String| FreeError::Constant { key: key.to_owned(), why };
    let value = meshwright_planner::catalog::fits::value_at(key, sets).map_err(|error| fail(error.to_string()))?;
    let number = match (&value, unit) {
        (Some(Value::Float(number)), None) => Some(*number),
        (Some(Value::Integer(number)), None) => Some(*number as f64),
        (Some(Value::String(text)), Some(unit)) => {
            text.strip_suffix(unit).and_then(|number| number.trim().parse().ok())
        }
        (None, unit) => default_at(key, unit, sets),
        _ => None,
    };
    let unit = unit.map_or_else(String::new, |unit| format!(" in {unit}"));
    number.ok_or_else(|| fail(format!("is {value:?}, and not a number{unit}")))
}

/// Default value of a key that its file omits, from the parsed entry; times are in seconds.
fn default_at(key: &str, unit: Option<&str>, sets: &Overrides) -> Option<f64> {
    let mut keys = key.split('.');
    let (section, name) = (keys.next()?, keys.next()?);
    let entry = match section {
        "gpu" => serde_json::to_value(meshwright_planner::catalog::gpu_with(name, sets).ok()?).ok()?,
        _ => serde_json::to_value(meshwright_planner::catalog::stack(name, sets).ok()?).ok()?,
    };
    let number = keys.try_fold(&entry, |at, key| at.get(key))?.as_f64()?;
    match unit {
        None | Some("s") => Some(number),
        Some("ms") => Some(number * 1e3),
        Some("us") => Some(number * 1e6),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_constants_are_in_the_catalogue() {
        // With what the built-in fit states: the specification leaves some of them out.
        let sets = Overrides::default();
        for (at, block) in blocks(DEFAULT).unwrap().iter().enumerate() {
            for free in &block.constants {
                let placed =
                    PlacedConstant::new(free, at, &sets).unwrap_or_else(|error| panic!("{}: {error}", block.name));
                assert!(placed.is_shared(), "{}: {:?} have several values", block.name, free.keys);
                assert!(!free.why.is_empty());
            }
        }
    }

    #[test]
    fn units_and_factors_are_kept() {
        let free = |keys: &[&str], unit: Option<&str>, factor| FreeConstant {
            keys: keys.iter().map(ToString::to_string).collect(),
            low: 0.0,
            high: 5.0,
            prior: 0.1,
            toward: None,
            mean: None,
            unit: unit.map(ToOwned::to_owned),
            factor,
            why: "a test".into(),
        };
        let sets = Overrides::specification();
        let sync = PlacedConstant::new(
            &free(&["stack.megatron-deepspeed-2022.quirks.sync_per_layer"], Some("ms"), false),
            0,
            &sets,
        );
        let sync = sync.unwrap();
        assert!((sync.start() - 2.0).abs() < 1e-12);
        assert_eq!(sync.values(1.23456)[0].1, Value::String("1.235 ms".into()));
        let traffic = PlacedConstant::new(&free(&["stack.nemo-25.traffic"], None, true), 0, &sets).unwrap();
        assert_eq!(traffic.values(0.5)[0].1, Value::Float(0.52));
        let left_out =
            PlacedConstant::new(&free(&["stack.foundry-2023.fsdp_efficiency"], None, false), 0, &sets).unwrap();
        assert!((left_out.start() - 1.0).abs() < 1e-12, "what a file leaves out has its default");
        let none =
            PlacedConstant::new(&free(&["stack.foundry-2023.quirks.sync_per_layer"], Some("ms"), false), 0, &sets)
                .unwrap();
        assert!(none.start().abs() < 1e-12);
        assert!(PlacedConstant::new(&free(&["stack.nemo-25.name"], None, false), 0, &sets).is_err());
    }
}
