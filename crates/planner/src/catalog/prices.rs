//! Built-in markets: prices, power and failure rates of one date.

/// Name and TOML text of each market, sorted by name.
pub const PRICES: &[(&str, &str)] = &[("market-2026", include_str!("../../../../clusters/prices/market-2026.toml"))];

/// Name of the default market.
pub const USUAL: &str = "market-2026";
