//! Colours of terms, tenants and passes: after Okabe and Ito, distinguishable with colour blindness, on light and dark ground.
//!
//! `web/src/colours.ts` has the same for the page; a test compares them.

use meshwright_engine::cost::{Tenant, Term};
use meshwright_engine::schedule::slot::Pass;

/// Exposed data-parallel exchange and optimizer, after the pipeline.
pub const AFTER: &str = "#c9567f";
/// Colours of series in the order in which they are first named.
pub const SERIES: [&str; 8] = ["#2a7f9e", "#d98a00", "#1a936f", "#c9567f", "#7d66b3", "#8c6d46", "#5f6670", "#6fb7d0"];

/// Colour of a term of the step.
pub const fn of_term(term: Term) -> &'static str {
    match term {
        Term::Compute => "#2a7f9e",
        Term::Recompute => "#6fb7d0",
        Term::TpComm => "#d98a00",
        Term::CpComm => "#b8860b",
        Term::EpComm => "#c9567f",
        Term::AmaxComm => "#8c6d46",
        Term::Host => "#8a8f98",
        Term::PipelineBubble => "#b0b6bf",
        Term::PpComm => "#7d66b3",
        Term::Stragglers => "#5f6670",
        Term::DpComm => "#1a936f",
        Term::Optimizer => "#66b48f",
        Term::Offload => "#a35d3a",
    }
}

/// Colour of a tenant of memory.
pub const fn of_tenant(tenant: Tenant) -> &'static str {
    match tenant {
        Tenant::Weights => "#1f6f8b",
        Tenant::Gradients => "#6fb7d0",
        Tenant::Optimizer => "#1a936f",
        Tenant::Activations => "#e09f3e",
        Tenant::Transient => "#c9567f",
        Tenant::Caches => "#b9a44c",
        Tenant::Fragmentation => "#9aa0a8",
        Tenant::Context => "#646b75",
    }
}

/// Colour of a pass.
pub const fn of_pass(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "#56a3c9",
        Pass::Backward | Pass::Input => "#e09f3e",
        Pass::Wgrad => "#1a936f",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_same_colours() {
        let page = include_str!("../../../web/src/colours.ts");
        let terms = Term::ALL.iter().map(|term| (format!("{}_s", term.key()), of_term(*term)));
        let tenants = Tenant::ALL.iter().map(|tenant| (format!("{}_gib", tenant.key()), of_tenant(*tenant)));
        for (key, colour) in terms.chain(tenants) {
            assert!(page.contains(&format!("{key}: \"{colour}\"")), "{key} {colour}");
        }
        let passes = [("F", Pass::Forward), ("B", Pass::Backward), ("I", Pass::Input), ("W", Pass::Wgrad)];
        for (key, pass) in passes {
            let line = page.lines().find(|line| line.trim_start().starts_with(&format!("{key}: ["))).unwrap();
            assert!(line.contains(of_pass(pass)), "{key}");
        }
        assert!(page.contains(AFTER));
    }
}
