//! Networks that a sweep compares without prices of their own.

use super::file::Sweep;
use super::product::AxisProduct;
use super::solve::usual_terms;
use meshwright_engine::money::PurchaseKind;

/// Kinds of purchase in which options with several networks cost the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpricedNetworks {
    /// Whether GPU-hours are rented at one price on networks that differ.
    pub rented: bool,
    /// Whether networks that differ are owned at one price.
    pub owned: bool,
}

/// Kinds of purchase in which the options of a sweep compare networks, by rates of NICs or oversubscription, at one price. Values of axes
/// multiply, so that rates have prices of their own where each has a table of options.
pub fn unpriced_networks(sweep: &Sweep) -> UnpricedNetworks {
    let varied = sweep.varied();
    let varies = |axis: &str| varied.iter().any(|(name, _)| *name == axis);
    let (rates, shapes) = (varies("nic"), varies("oversubscription"));
    let own = &sweep.market.own;
    let is_priced = |product: &AxisProduct| {
        let has = |axis: &str| !product.values(axis).is_empty();
        let one_rate = product.values("nic").len() <= 1;
        let rates_apart = one_rate && (has("nic_price") || has("port_price"));
        (!rates || rates_apart) && (!shapes || has("port_price") || own.port.is_some())
    };
    let mut found = UnpricedNetworks::default();
    // A stated price of a GPU-hour is that of its options.
    for product in sweep.products.iter().filter(|product| (rates || shapes) && product.values("price").is_empty()) {
        let usual = [usual_terms(&sweep.market).to_owned()];
        let named = product.values("terms");
        let names = if named.is_empty() { &usual } else { named };
        for terms in names.iter().filter_map(|name| sweep.market.terms.get(name)) {
            match terms.kind {
                PurchaseKind::Rent => found.rented = true,
                PurchaseKind::Own => found.owned |= !is_priced(product),
            }
        }
    }
    found
}
