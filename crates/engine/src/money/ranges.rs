//! Allowed ranges of a market's values.

use super::{Market, Own, Site, Terms};
use crate::goodput::{Checkpoints, Conditions, Failures, Maintenance};
use crate::range::{self, OutOfRange};
use crate::sources::Sourced;
use crate::units::{BytesPerSec, Seconds, Usd};

impl Market {
    /// Checks every number against the range of its kind.
    pub(super) fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { name: _, date: _, terms, own, site, conditions } = self;
        for (name, terms) in terms {
            terms.check_ranges().map_err(|why| why.below(&format!("terms.{name}")))?;
        }
        own.check_ranges().map_err(|why| why.below("own"))?;
        site.check_ranges().map_err(|why| why.below("site"))?;
        conditions.check_ranges().map_err(|why| why.below("conditions"))
    }
}

impl Terms {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { kind: _, level: _, discount, commitment, interruption, storage_per_month, egress, source: _ } = self;
        let money = |amount: &Option<Sourced<Usd>>| amount.as_ref().map_or(0.0, |amount| amount.value.get());
        range::check([
            ("discount", discount.as_ref().map_or(0.0, |share| share.value), range::SHARE),
            ("commitment", commitment.as_ref().map_or(0.0, |span| span.value.get()), range::PAUSE),
            ("interruption", interruption.as_ref().map_or(range::SPAN.least(), |span| span.value.get()), range::SPAN),
            ("storage_per_month", money(storage_per_month), range::MONEY),
            ("egress", money(egress), range::MONEY),
        ])
    }
}

impl Own {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { life, residual, network, nic, port, facility, facility_life, utilisation } = self;
        let money = |amount: &Option<Sourced<Usd>>| amount.as_ref().map_or(0.0, |amount| amount.value.get());
        range::check([
            ("life", life.value.get(), range::SPAN),
            ("residual", residual.value, range::SHARE),
            ("network", network.value, range::FACTOR),
            ("nic", money(nic), range::MONEY),
            ("port", money(port), range::MONEY),
            ("facility", facility.value.get(), range::BUILDING),
            ("facility_life", facility_life.value.get(), range::SPAN),
            ("utilisation", utilisation.value, range::EFFICIENCY),
        ])
    }
}

impl Site {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { pue, host_x86, host_grace, electricity, carbon } = self;
        range::check([
            ("pue", pue.value, range::RATIO),
            ("host_x86", host_x86.value.get(), range::POWER),
            ("host_grace", host_grace.value.get(), range::POWER),
            ("electricity", electricity.value.get(), range::ELECTRICITY),
            ("carbon", carbon.value.get(), range::CARBON),
        ])
    }
}

impl Conditions {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { failures, maintenance, checkpoints, spares, straggler, spot } = self;
        let Failures { gpu, node, switch, hardware, restart, repair } = failures;
        let Maintenance { every, lasts } = maintenance;
        let Checkpoints { mode: _, storage_per_gpu, storage, barrier, interval } = checkpoints;
        let span = |span: Option<Seconds>| span.map_or(range::SPAN.least(), Seconds::get);
        range::check([
            ("failures.gpu", gpu.value.get(), range::SPAN),
            ("failures.node", node.value.get(), range::SPAN),
            ("failures.switch", switch.value.get(), range::SPAN),
            ("failures.hardware", hardware.value, range::EFFICIENCY),
            ("failures.restart", restart.value.get(), range::PAUSE),
            ("failures.repair", repair.value.get(), range::PAUSE),
            ("maintenance.every", every.value.get(), range::SPAN),
            ("maintenance.lasts", lasts.value.get(), range::PAUSE),
            ("checkpoints.storage_per_gpu", storage_per_gpu.value.get(), range::STORAGE),
            ("checkpoints.storage", storage.map_or(range::STORAGE.least(), BytesPerSec::get), range::STORAGE),
            ("checkpoints.barrier", barrier.value.get(), range::PAUSE),
            ("checkpoints.interval", span(*interval), range::SPAN),
            ("spares", f64::from(spares.unwrap_or_default()), range::COUNT),
            ("straggler", *straggler, range::FACTOR),
            ("spot", span(spot.as_ref().map(|spot| spot.value)), range::SPAN),
        ])
    }
}
