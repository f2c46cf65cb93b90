//! Quantities: their arithmetic, and text with a unit read into them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// Error of a text that is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}\n\nhint: write a number, a space and one of: {units}")]
pub struct ParseQuantityError {
    text: String,
    what: &'static str,
    units: String,
}

/// SI value of a number with one of `units`, given as names and SI values; `$` may precede the number. Not negative.
fn parse(text: &str, what: &'static str, units: &[(&str, f64)]) -> Result<f64, ParseQuantityError> {
    let bad = || ParseQuantityError {
        text: text.to_owned(),
        what,
        units: units.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let trimmed = text.trim();
    let dollar = trimmed.strip_prefix('$');
    let body = dollar.unwrap_or(trimmed);
    let split = number_length(body);
    let number: f64 = body[..split].trim().replace('_', "").parse().map_err(|_| bad())?;
    let suffix = body[split..].trim();
    let suffix = if dollar.is_some() { format!("${suffix}") } else { suffix.to_owned() };
    let scale = units.iter().find(|(name, _)| *name == suffix).map(|(_, scale)| *scale).ok_or_else(bad)?;
    let value = number * scale;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(bad()) }
}

/// Bytes of the number that a text begins with; `e` belongs to it where an exponent follows.
fn number_length(text: &str) -> usize {
    let begins_exponent = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
    let in_number = |at: usize, c: char| match c {
        'e' | 'E' => begins_exponent(&text[at + 1..]),
        c => c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | '_'),
    };
    text.char_indices().find(|&(at, c)| !in_number(at, c)).map_or(text.len(), |(at, _)| at)
}

/// Declares a quantity: its name, its name in messages, and its units with their SI values.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, [$(($unit:literal, $scale:expr)),+ $(,)?]) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub(super) f64);

        impl $name {
            /// Zero of the quantity.
            pub const ZERO: Self = Self(0.0);
            /// Creates the quantity from its SI value.
            pub const fn new(value: f64) -> Self {
                Self(value)
            }
            /// SI value, for printing, solvers and dimensionless curves.
            pub const fn get(self) -> f64 {
                self.0
            }
            /// Larger of two quantities.
            #[must_use]
            pub fn max(self, other: Self) -> Self {
                Self(if self.0 < other.0 { other.0 } else { self.0 })
            }
            /// Smaller of two quantities.
            #[must_use]
            pub fn min(self, other: Self) -> Self {
                Self(if other.0 < self.0 { other.0 } else { self.0 })
            }
            /// Quantity, or zero if it is negative.
            #[must_use]
            pub fn or_zero(self) -> Self {
                Self(if self.0 > 0.0 { self.0 } else { 0.0 })
            }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Mul<$name> for f64 {
            type Output = $name;
            fn mul(self, quantity: $name) -> $name {
                $name(self * quantity.0)
            }
        }
        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
        impl FromStr for $name {
            type Err = ParseQuantityError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse(text, $what, &[$(($unit, $scale)),+]).map(Self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                        f.write_str(concat!($what, " as text with its unit, such as \"1 "))?;
                        f.write_str([$($unit),+][0])?;
                        f.write_str("\"")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_any(Text)
            }
        }
    };
}

quantity!(
    /// A number of bytes. `f64`, because an element may weigh 0.5625 bytes; exact to 2^53.
    Bytes, "a size", [
        ("GB", 1e9), ("GiB", 1_073_741_824.0), ("MB", 1e6), ("MiB", 1_048_576.0), ("TB", 1e12), ("TiB", 1_099_511_627_776.0),
        ("kB", 1e3), ("KiB", 1024.0), ("B", 1.0),
    ]
);
quantity!(
    /// A number of floating-point operations; one multiply-add is two.
    Flops, "a number of operations", [("FLOP", 1.0), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15), ("EFLOP", 1e18)]
);
quantity!(
    /// A duration, in seconds.
    Seconds, "a duration", [
        ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3600.0), ("d", 86400.0),
        ("y", 31_557_600.0),
    ]
);
quantity!(
    /// A bandwidth: per device, one direction.
    BytesPerSec, "a bandwidth", [
        ("TB/s", 1e12), ("GB/s", 1e9), ("Gb/s", 1.25e8), ("Tb/s", 1.25e11), ("MB/s", 1e6), ("Mb/s", 1.25e5), ("B/s", 1.0),
    ]
);
quantity!(
    /// A rate of computation.
    FlopsPerSec, "a rate of computation", [("TFLOP/s", 1e12), ("PFLOP/s", 1e15), ("GFLOP/s", 1e9), ("FLOP/s", 1.0)]
);
quantity!(
    /// Electric power, in watts.
    Watts, "a power", [("W", 1.0), ("kW", 1e3), ("MW", 1e6)]
);
quantity!(
    /// A price of time: US dollars for one hour.
    UsdPerHour, "a price", [("$/h", 1.0)]
);
quantity!(
    /// An amount of US dollars.
    Usd, "an amount of money", [
        ("$", 1.0), ("k$", 1e3), ("M$", 1e6), ("B$", 1e9), ("$k", 1e3), ("$M", 1e6), ("$B", 1e9),
    ]
);
quantity!(
    /// A price of building: US dollars for one watt of critical load.
    UsdPerWatt, "a price of power capacity", [("$/W", 1.0), ("M$/MW", 1.0), ("$M/MW", 1.0)]
);
quantity!(
    /// A price of electricity: US dollars for one joule.
    UsdPerJoule, "a price of electricity", [("$/kWh", 1.0 / 3.6e6), ("$/MWh", 1.0 / 3.6e9)]
);
quantity!(
    /// Energy, in joules.
    Joules, "an energy", [("MWh", 3.6e9), ("kWh", 3.6e6), ("GWh", 3.6e12), ("J", 1.0)]
);
quantity!(
    /// Emissions per energy: kilograms of CO2 for one joule.
    KgPerJoule, "a carbon intensity", [("kg/kWh", 1.0 / 3.6e6), ("g/kWh", 1e-3 / 3.6e6)]
);
quantity!(
    /// A number of tokens.
    Tokens, "a number of tokens", [("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3), ("tokens", 1.0)]
);

impl Bytes {
    /// Size in GiB (2^30 bytes), for printing and for solvers, which need coefficients near 1.
    pub fn as_gib(self) -> f64 {
        self.0 / 1_073_741_824.0
    }
    /// Size of `n` GiB.
    pub fn gib(n: f64) -> Self {
        Self(n * 1_073_741_824.0)
    }
}

impl Usd {
    /// Cost per hour if the amount is spread over `life`.
    pub fn spread_over(self, life: Seconds) -> UsdPerHour {
        UsdPerHour(self.0 / life.as_hours())
    }
}

impl Watts {
    /// Power in MW, for printing and for solvers.
    pub fn as_megawatts(self) -> f64 {
        self.0 / 1e6
    }
}

impl Joules {
    /// Energy in MWh, for printing.
    pub fn as_mwh(self) -> f64 {
        self.0 / 3.6e9
    }
}

impl Seconds {
    /// Duration in hours, for printing and for prices.
    pub fn as_hours(self) -> f64 {
        self.0 / 3600.0
    }
    /// Duration in days, for printing and for solvers.
    pub fn as_days(self) -> f64 {
        self.0 / 86400.0
    }
    /// Duration of `n` hours.
    pub fn hours(n: f64) -> Self {
        Self(n * 3600.0)
    }
    /// Duration of `n` days.
    pub fn days(n: f64) -> Self {
        Self(n * 86400.0)
    }
    /// Duration of `n` microseconds.
    pub fn micros(n: f64) -> Self {
        Self(n * 1e-6)
    }
}

impl BytesPerSec {
    /// Bandwidth of `n` GB/s.
    pub fn gbytes(n: f64) -> Self {
        Self(n * 1e9)
    }
}

impl FlopsPerSec {
    /// Rate in TFLOP/s, for printing.
    pub fn as_tflops(self) -> f64 {
        self.0 / 1e12
    }
}

impl Div<BytesPerSec> for Bytes {
    type Output = Seconds;
    fn div(self, bandwidth: BytesPerSec) -> Seconds {
        Seconds(self.0 / bandwidth.0)
    }
}

impl Div<FlopsPerSec> for Flops {
    type Output = Seconds;
    fn div(self, rate: FlopsPerSec) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<Seconds> for Flops {
    type Output = FlopsPerSec;
    fn div(self, time: Seconds) -> FlopsPerSec {
        FlopsPerSec(self.0 / time.0)
    }
}

impl Mul<Seconds> for Watts {
    type Output = Joules;
    fn mul(self, time: Seconds) -> Joules {
        Joules(self.0 * time.0)
    }
}

impl Mul<Joules> for UsdPerJoule {
    type Output = Usd;
    fn mul(self, energy: Joules) -> Usd {
        Usd(self.0 * energy.0)
    }
}

impl Mul<Watts> for UsdPerWatt {
    type Output = Usd;
    fn mul(self, power: Watts) -> Usd {
        Usd(self.0 * power.0)
    }
}

/// Emissions in kilograms of CO2.
impl Mul<Joules> for KgPerJoule {
    type Output = f64;
    fn mul(self, energy: Joules) -> f64 {
        self.0 * energy.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gigabits_are_not_gigabytes() {
        assert_eq!("400 Gb/s".parse(), Ok(BytesPerSec::gbytes(50.0)));
        assert_eq!("80 GB".parse(), Ok(Bytes::new(80e9)));
        assert_eq!("2.5e-3 s".parse(), Ok(Seconds::new(2.5e-3)));
        assert_eq!("$2.95/h".parse(), Ok(UsdPerHour::new(2.95)));
        assert_eq!(("2 M$".parse(), "$2 M".parse()), (Ok(Usd::new(2e6)), Ok(Usd::new(2e6))));
        assert_eq!("15.6 T".parse(), Ok(Tokens::new(15.6e12)));
        assert_eq!((Usd::new(5.33e6).to_string(), Usd::new(999.7e3).to_string()), ("$5.33 M".into(), "$1.00 M".into()));
    }

    #[test]
    fn a_wrong_unit_names_the_right_ones() {
        let error = "50 GBps".parse::<BytesPerSec>().unwrap_err().to_string();
        assert!(error.starts_with("`50 GBps` is not a bandwidth"), "{error}");
        assert!(error.contains("`GB/s`"), "{error}");
        assert!(
            "50".parse::<Bytes>().is_err() && "-1 GB".parse::<Bytes>().is_err() && "NaN s".parse::<Seconds>().is_err()
        );
    }
}
