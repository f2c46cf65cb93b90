//! Formatting of quantities: three significant digits and a unit of suitable size.

use std::fmt;

use super::quantity::{Bytes, BytesPerSec, FlopsPerSec, Seconds, Usd, UsdPerHour};

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            d if d >= 999.5e6 => (self.0 / 1e9, " B"),
            d if d >= 999.5e3 => (self.0 / 1e6, " M"),
            d if d >= 9_999.5 => (self.0 / 1e3, " k"),
            _ => return write!(f, "${:.0}", self.0),
        };
        let digits = if value.abs() >= 99.95 {
            0
        } else if value.abs() >= 9.995 {
            1
        } else {
            2
        };
        write!(f, "${value:.digits$}{unit}")
    }
}

impl fmt::Display for UsdPerHour {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "${:.2}/h", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 >= 0.05 * 1_073_741_824.0 {
            write!(f, "{:.1} GiB", self.as_gib())
        } else {
            write!(f, "{:.1} MiB", self.0 / 1_048_576.0)
        }
    }
}

/// Two sizes of memory with as many decimals as tell them apart: `73.31 GiB` and `73.30 GiB`.
pub fn apart(a: Bytes, b: Bytes) -> [String; 2] {
    let short = [a, b].map(|size| size.to_string());
    if a == b || short[0] != short[1] {
        return short;
    }
    let shown = |decimals: usize| [a, b].map(|size| format!("{:.decimals$} GiB", size.as_gib()));
    (2..=MOST_DECIMALS).map(shown).find(|[a, b]| a != b).unwrap_or(short)
}

/// Decimals of a GiB that show a byte.
const MOST_DECIMALS: usize = 10;

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (value, unit) = match self.0 {
            0.0 => (0.0, "s"),
            s if s < 1e-3 => (s * 1e6, "us"),
            s if s < 1.0 => (s * 1e3, "ms"),
            s if s < 3600.0 => (s, "s"),
            s if s < 172_800.0 => (s / 3600.0, "h"),
            s => (s / 86400.0, "d"),
        };
        let digits = if value == 0.0 || value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        write!(f, "{value:.digits$} {unit}")
    }
}

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 >= 1e12 { write!(f, "{:.2} TB/s", self.0 / 1e12) } else { write!(f, "{:.1} GB/s", self.0 / 1e9) }
    }
}

impl fmt::Display for FlopsPerSec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:.0} TFLOP/s", self.as_tflops())
    }
}

/// Count with a magnitude: `405.9 B`, `13.5 k`.
pub fn count(n: f64) -> String {
    match n.abs() {
        a if a >= 1e12 => format!("{:.2} T", n / 1e12),
        a if a >= 1e9 => format!("{:.1} B", n / 1e9),
        a if a >= 1e6 => format!("{:.1} M", n / 1e6),
        a if a >= 1e4 => format!("{:.1} k", n / 1e3),
        _ => format!("{n}"),
    }
}

/// Number with three significant digits.
pub fn significant(value: f64) -> String {
    let digits = match value.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Share as a percentage with one decimal; a share that rounds to zero has no sign.
pub fn percent(share: f64) -> String {
    match format!("{:.1} %", share * 100.0) {
        zero if zero == "-0.0 %" => "0.0 %".into(),
        text => text,
    }
}

/// Share as a percentage without decimals; a share below half a percent, but for none at all, reads `< 1 %`.
pub fn whole_percent(share: f64) -> String {
    if share > 0.0 && share < 0.005 { "< 1 %".into() } else { format!("{:.0} %", share * 100.0) }
}

/// Whole number with a comma between groups of three digits: `1,838,870,304`.
pub fn thousands(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_of_three() {
        let shown = [0_u32, 999, 1000, 24_576, 1_838_870_304].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "24,576", "1,838,870,304"]);
    }

    #[test]
    fn sizes_that_differ_are_told_apart() {
        let gib = |sizes: [f64; 2]| apart(Bytes::gib(sizes[0]), Bytes::gib(sizes[1]));
        assert_eq!(gib([80.0, 73.3]), ["80.0 GiB", "73.3 GiB"]);
        assert_eq!(gib([73.31, 73.3]), ["73.31 GiB", "73.30 GiB"]);
        assert_eq!(gib([73.3001, 73.3]), ["73.3001 GiB", "73.3000 GiB"]);
        assert_eq!(gib([73.3, 73.3]), ["73.3 GiB", "73.3 GiB"]);
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(significant(1234.5), "1234");
        assert_eq!(significant(12.345), "12.3");
        assert_eq!(significant(1.2345), "1.23");
        assert_eq!(significant(0.0), "0");
        assert_eq!(percent(0.4321), "43.2 %");
        assert_eq!(percent(-0.0004), "0.0 %");
    }
}
