//! GEMMs that were timed on the device itself.

use std::collections::BTreeMap;

use super::format::Format;
use super::pass::Pass;

/// GEMM of one launch: format, pass, and m, n, k and output bytes by their bits.
type Key = (Format, Pass, [u64; 4]);

/// Measured times of GEMMs over those of the device's curve, by shape.
///
/// A curve cannot say which of its kernels a library chooses for a shape. Shapes that were not timed have the curve's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedGemms(BTreeMap<Key, f64>);

impl TimedGemms {
    fn key(format: Format, pass: Pass, sizes: [f64; 4]) -> Key {
        (format, pass, sizes.map(f64::to_bits))
    }

    /// Forgets all shapes of a format, whose curve is another now.
    pub fn forget(&mut self, format: Format) {
        self.0.retain(|(known, ..), _| *known != format);
    }

    /// Sets the ratio of a shape's measured time to the curve's; `sizes` are m, n, k and bytes moved per output element.
    pub fn insert(&mut self, format: Format, pass: Pass, sizes: [f64; 4], ratio: f64) {
        self.0.insert(Self::key(format, pass, sizes), ratio);
    }

    /// Ratio of a shape's measured time to the curve's; 1 if it was not timed.
    pub fn ratio(&self, format: Format, pass: Pass, sizes: [f64; 4]) -> f64 {
        if self.0.is_empty() {
            return 1.0;
        }
        self.0.get(&Self::key(format, pass, sizes)).copied().unwrap_or(1.0)
    }
}
