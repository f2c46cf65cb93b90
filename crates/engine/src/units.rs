//! Quantities with units: bytes divided by bytes per second are seconds.
//!
//! Values are SI inside and text with a unit outside. Only this module adds or removes the unit of a quantity.

mod quantity;
mod shown;

pub use quantity::{
    Bytes, BytesPerSec, Flops, FlopsPerSec, Joules, KgPerJoule, ParseQuantityError, Seconds, Tokens, Usd, UsdPerHour,
    UsdPerJoule, UsdPerWatt, Watts,
};
pub use shown::{apart, count, percent, significant, thousands, whole_percent};
