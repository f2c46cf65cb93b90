//! Allowed ranges of a device's values.

use super::curves::{AttentionCurve, AttentionOccupancy, CollectiveCurve, GemmCurve};
use super::scale_up::ScaleUp;
use super::{Copies, Gpu, HostCopies, RentPrice};
use crate::range::{self, OutOfRange};

impl Gpu {
    /// Checks every number against the range of its kind.
    pub(super) fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self {
            name: _,
            names: _,
            vendor: _,
            year: _,
            processors,
            hbm,
            runtime_memory,
            hbm_bandwidth,
            hbm_efficiency,
            host_link,
            copies,
            superchip,
            nic,
            tdp,
            kernel_gap,
            contention,
            unaligned_gemm,
            basis: _,
            peak,
            gemm,
            attention,
            attention_occupancy,
            scale_up,
            collectives,
            collectives_source: _,
            price,
            calibrated: _,
            timed_gemms: _,
        } = self;
        range::check([
            ("processors", f64::from(processors.value), range::COUNT.at_least_one()),
            ("hbm", hbm.value.get(), range::MEMORY),
            ("hbm_bandwidth", hbm_bandwidth.value.get(), range::BANDWIDTH),
            ("hbm_efficiency", hbm_efficiency.value, range::EFFICIENCY),
            ("host_link", host_link.value.get(), range::BANDWIDTH),
            ("nic", nic.value.get(), range::BANDWIDTH),
            ("tdp", tdp.value.get(), range::POWER),
            ("kernel_gap", kernel_gap.value.get(), range::LATENCY),
            ("contention", contention.value, range::FACTOR),
        ])?;
        if let Some(factor) = unaligned_gemm {
            range::POSITIVE_FACTOR.check("unaligned_gemm", factor.value)?;
        }
        if let Some(memory) = runtime_memory {
            range::OPTIONAL_MEMORY.check("runtime_memory", memory.value.get())?;
        }
        if let Some(superchip) = superchip {
            range::MEMORY.check("superchip.memory", superchip.memory.get())?;
        }
        if let Some(copies) = copies {
            copies.check_ranges().map_err(|why| why.below("copies"))?;
        }
        for (kind, peak) in peak {
            let below = |why: OutOfRange| why.below(&format!("peak.{kind:?}").to_lowercase());
            range::COMPUTE.check("value", peak.value.get()).map_err(below)?;
        }
        for (format, curve) in gemm {
            curve.check_ranges().map_err(|why| why.below(&format!("gemm.{format}")))?;
        }
        for (kernel, curve) in attention {
            let below = |why: OutOfRange| why.below(&format!("attention.{kernel:?}").to_lowercase());
            curve.check_ranges().map_err(below)?;
        }
        attention_occupancy.check_ranges().map_err(|why| why.below("attention_occupancy"))?;
        scale_up.check_ranges().map_err(|why| why.below("scale_up"))?;
        for curve in collectives.values().flatten() {
            curve.check_ranges().map_err(|why| why.below("collectives"))?;
        }
        price.as_ref().map_or(Ok(()), RentPrice::check_ranges).map_err(|why| why.below("price"))
    }
}

impl GemmCurve {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { efficiency, half_depth, intensity_exponent, wave_exponent, sustained, source: _ } = self;
        range::check([
            ("efficiency", *efficiency, range::EFFICIENCY),
            ("half_depth", *half_depth, range::HALF_POINT),
            ("intensity_exponent", *intensity_exponent, range::EXPONENT),
            ("wave_exponent", *wave_exponent, range::EXPONENT),
            ("sustained", *sustained, range::SUSTAINED),
            ("efficiency · sustained", efficiency * sustained, range::EFFICIENCY),
        ])
    }
}

impl AttentionCurve {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { forward, backward, half_sequence, narrow_heads, source: _ } = self;
        range::check([
            ("forward", forward.get(), range::COMPUTE),
            ("backward", backward.get(), range::COMPUTE),
            ("half_sequence", *half_sequence, range::HALF_POINT),
            ("narrow_heads", *narrow_heads, range::POSITIVE_FACTOR),
        ])
    }
}

impl AttentionOccupancy {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { forward, backward, source: _ } = self;
        range::check([("forward", *forward, range::FACTOR), ("backward", *backward, range::FACTOR)])
    }
}

impl ScaleUp {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { gpus, topology: _, bandwidth, pair_bandwidth, axes, source: _ } = self;
        range::check([
            ("gpus", f64::from(*gpus), range::GPUS),
            ("bandwidth", bandwidth.get(), range::BANDWIDTH),
            ("pair_bandwidth", pair_bandwidth.get(), range::BANDWIDTH),
        ])?;
        axes.iter().try_for_each(|&axis| range::GPUS.check("axes", f64::from(axis)))
    }
}

impl CollectiveCurve {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { ranks, latency, bandwidth, half_size, exponent } = self;
        range::check([
            ("ranks", f64::from(*ranks), range::GPUS),
            ("latency", latency.get(), range::LATENCY),
            ("bandwidth", bandwidth.get(), range::BANDWIDTH),
            ("half_size", half_size.get(), range::MESSAGE),
            ("exponent", *exponent, range::EXPONENT),
        ])
    }
}

impl HostCopies {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { one_way, both_ways, source: _ } = self;
        for (name, Copies { out, back }) in [("one_way", one_way), ("both_ways", both_ways)] {
            range::check([("out", out.get(), range::BANDWIDTH), ("back", back.get(), range::BANDWIDTH)])
                .map_err(|why| why.below(name))?;
        }
        Ok(())
    }
}

impl RentPrice {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { low, typical, high, buy, source: _ } = self;
        range::check([
            ("low", low.get(), range::RENT),
            ("typical", typical.get(), range::RENT),
            ("high", high.get(), range::RENT),
            ("buy", buy.as_ref().map_or(0.0, |buy| buy.value.get()), range::MONEY),
        ])
    }
}
