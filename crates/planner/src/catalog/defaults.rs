//! Entries of the catalogue that apply where the user names none.

/// Name of the default market: prices, power and failures of one date.
pub const MARKET: &str = "market-2026";

/// Name of the default software stack for devices of a vendor.
pub fn stack(vendor: &str) -> &'static str {
    if vendor.eq_ignore_ascii_case("google") { "jax-2025" } else { "nemo-25" }
}
