//! The built-in markets: prices, power, failures of one date.

/// Name and text of each, sorted by name.
pub const PRICES: &[(&str, &str)] = &[("market-2026", include_str!("../../../../clusters/prices/market-2026.toml"))];

/// The market that is taken where none is named.
pub const USUAL: &str = "market-2026";
