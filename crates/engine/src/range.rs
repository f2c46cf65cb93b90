//! Allowed ranges of quantities, by kind. Every reader checks its values against them, so that no count overflows and no price
//! is infinite.

use std::fmt;

use crate::units::thousands;

/// Allowed range of a kind of quantity, in SI units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    least: f64,
    most: f64,
    /// Name and size of the unit in messages.
    unit: (&'static str, f64),
}

/// Error of a value outside the range of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {why}")]
pub struct OutOfRange {
    key: String,
    why: String,
}

const PLAIN: (&str, f64) = ("", 1.0);
const GIB: (&str, f64) = (" GiB", 1_073_741_824.0);
const GB_PER_S: (&str, f64) = (" GB/s", 1e9);

/// GPUs of a cluster or of a part of it: forty times the largest catalogue cluster.
pub const GPUS: Range = Range::new(1.0, 1_048_576.0);
/// Sequences of one step.
pub const BATCH: Range = Range::new(1.0, 1_048_576.0);
/// Tokens of a sequence: ten times the longest context of a released model.
pub const SEQUENCE: Range = Range::new(1.0, 134_217_728.0);
/// Layers of a model: four times the deepest that was trained on more than a node.
pub const LAYERS: Range = Range::new(1.0, 512.0);
/// Number of multi-token-prediction layers.
pub const MTP_LAYERS: Range = Range::new(0.0, 64.0);
/// Parameters of a model: a thousand times the largest that was trained, and exact in a 64-bit float.
pub(crate) const PARAMETERS: Range = Range::new(0.0, 1e15);
/// Hidden size of a model.
pub const HIDDEN: Range = Range::new(1.0, 1_048_576.0);
/// Entries of a vocabulary, rows of a position table, or width of an MLP.
pub const WIDTH: Range = Range::new(0.0, 16_777_216.0);
/// Heads, groups, experts, ranks and dimensions of a layer.
pub const PARTS: Range = Range::new(0.0, 65_536.0);
/// Processors of a device, nodes held back.
pub const COUNT: Range = Range::new(0.0, 1_048_576.0);
/// Chunks of a micro-batch's tokens.
pub(crate) const CHUNKS: Range = Range::new(1.0, 65_536.0);
/// ZeRO stage, by number.
pub(crate) const ZERO_STAGE: Range = Range::new(0.0, 3.0);
/// Plans or options in an answer.
pub const SHOWN: Range = Range::new(1.0, 10_000.0);
/// Share of a whole.
pub const SHARE: Range = Range::new(0.0, 1.0);
/// Share of a peak that is reached.
pub(crate) const EFFICIENCY: Range = Range::new(0.001, 1.0);
/// Rate of a whole step relative to that of a large matmul alone.
pub(crate) const SUSTAINED: Range = Range::new(0.001, 1.25);
/// Exponent of an efficiency curve.
pub(crate) const EXPONENT: Range = Range::new(0.0, 8.0);
/// Factor on a cost, or ratio of two.
pub const FACTOR: Range = Range::new(0.0, 100.0);
/// Factor on a cost that is not zero.
pub(crate) const POSITIVE_FACTOR: Range = Range::new(0.001, 100.0);
/// Ratio of a larger to a smaller quantity.
pub const RATIO: Range = Range::new(1.0, 1000.0);
/// Load of the busiest expert rank relative to the mean.
pub const IMBALANCE: Range = Range::new(1.0, 65_536.0);
/// Matmul depth or sequence length at which half of a rate is reached.
pub(crate) const HALF_POINT: Range = Range::new(0.0, 1e6);
/// Kernel launches of a layer.
pub const LAUNCHES: Range = Range::new(0.0, 10_000.0);
/// Bytes of one element.
pub(crate) const ELEMENT: Range = Range::new(0.0, 64.0);
/// Bytes of one element that is sent.
pub(crate) const SENT_ELEMENT: Range = Range::new(0.1, 64.0);
/// Memory of a device, a host or a buffer.
pub const MEMORY: Range = Range { least: 1e6, most: 1_125_899_906_842_624.0, unit: GIB };
/// Memory that may be zero.
pub(crate) const OPTIONAL_MEMORY: Range = Range { least: 0.0, ..MEMORY };
/// Size at which a collective reaches half of its bandwidth.
pub(crate) const MESSAGE: Range = Range { least: 0.0, most: 1e12, unit: (" MB", 1e6) };
/// Bandwidth of one device or link.
pub const BANDWIDTH: Range = Range { least: 1e6, most: 1e15, unit: GB_PER_S };
/// Bandwidth of a storage system.
pub const STORAGE: Range = Range { least: 1e3, most: 1e18, unit: GB_PER_S };
/// Rate of computation of one device.
pub(crate) const COMPUTE: Range = Range { least: 1e9, most: 1e18, unit: (" TFLOP/s", 1e12) };
/// Latency, gap or wait of one operation.
pub(crate) const LATENCY: Range = Range { least: 0.0, most: 60.0, unit: (" s", 1.0) };
/// Span of a job, of a life, or between two events.
pub const SPAN: Range = Range { least: 1.0, most: 3_155_760_000_000.0, unit: (" h", 3600.0) };
/// Span that may be zero.
pub const PAUSE: Range = Range { least: 0.0, ..SPAN };
/// Time limit of a search.
pub const TIME_LIMIT: Range = Range { least: 0.0, most: 31_557_600.0, unit: (" s", 1.0) };
/// Power of one device or host.
pub const POWER: Range = Range { least: 0.0, most: 1e6, unit: (" W", 1.0) };
/// Power of a building.
pub const SITE_POWER: Range = Range { least: 0.0, most: 1e12, unit: (" MW", 1e6) };
/// Price of a GPU-hour.
pub const RENT: Range = Range { least: 0.0, most: 1e6, unit: (" $/h", 1.0) };
/// Amount of money.
pub const MONEY: Range = Range { least: 0.0, most: 1e15, unit: (" $", 1.0) };
/// Price of a watt of building.
pub(crate) const BUILDING: Range = Range { least: 0.0, most: 1e6, unit: (" $/W", 1.0) };
/// Price of electric energy.
pub const ELECTRICITY: Range = Range { least: 0.0, most: 1e6 / 3.6e6, unit: (" $/kWh", 1.0 / 3.6e6) };
/// Emissions of electric energy.
pub(crate) const CARBON: Range = Range { least: 0.0, most: 1000.0 / 3.6e6, unit: (" kg/kWh", 1.0 / 3.6e6) };
/// Tokens of a training run.
pub const TOKENS: Range = Range { least: 1.0, most: 1e18, unit: (" tokens", 1.0) };
/// Training runs of a workload.
pub const RUNS: Range = Range::new(1e-6, 1e6);

impl Range {
    const fn new(least: f64, most: f64) -> Self {
        Self { least, most, unit: PLAIN }
    }

    /// Smallest allowed value.
    pub const fn least(self) -> f64 {
        self.least
    }

    /// Largest allowed value.
    pub const fn most(self) -> f64 {
        self.most
    }

    /// Range from above zero, for a count that must be there.
    #[must_use]
    pub(crate) const fn at_least_one(self) -> Self {
        Self { least: 1.0, ..self }
    }

    /// Checks the value of a key.
    ///
    /// # Errors
    ///
    /// Names the key, the value and the range where the value is outside or no number.
    pub fn check(self, key: &str, value: f64) -> Result<(), OutOfRange> {
        if value >= self.least && value <= self.most {
            return Ok(());
        }
        Err(OutOfRange { key: key.to_owned(), why: format!("is {}, and must be {self}", self.text(value)) })
    }

    /// Value in the unit of the range.
    fn text(self, value: f64) -> String {
        let (unit, scale) = self.unit;
        let value = value / scale;
        let size = value.abs();
        let number = match size {
            whole if whole.fract() == 0.0 && whole < 1e15 => thousands(whole as u64),
            _ if size == 0.0 || (1e-3..1e9).contains(&size) => size.to_string(),
            _ => format!("{size:e}"),
        };
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{number}{unit}")
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "from {} to {}", self.text(self.least), self.text(self.most))
    }
}

impl OutOfRange {
    /// Key of the value.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Value and range, to be read after the key.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Error with the key below another.
    #[must_use]
    pub fn below(self, outer: &str) -> Self {
        Self { key: format!("{outer}.{}", self.key), ..self }
    }
}

/// Checks values by key, each against its range.
///
/// # Errors
///
/// The first value that is outside.
pub fn check<'k>(values: impl IntoIterator<Item = (&'k str, f64, Range)>) -> Result<(), OutOfRange> {
    values.into_iter().try_for_each(|(key, value, range)| range.check(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_key_the_value_and_the_range() {
        let why = |range: Range, value| range.check("x.y", value).unwrap_err().to_string();
        assert_eq!(why(BATCH, 2_147_483_647.0), "`x.y` is 2,147,483,647, and must be from 1 to 1,048,576");
        assert_eq!(why(EFFICIENCY, 1.5), "`x.y` is 1.5, and must be from 0.001 to 1");
        assert_eq!(why(BANDWIDTH, 0.0), "`x.y` is 0 GB/s, and must be from 0.001 GB/s to 1,000,000 GB/s");
        assert_eq!(why(SHARE, -0.25), "`x.y` is -0.25, and must be from 0 to 1");
        assert!(SHARE.check("x", f64::NAN).is_err() && SHARE.check("x", 1.0).is_ok());
    }
}
