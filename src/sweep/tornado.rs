//! Sensitivity of an option's cost to uncertain figures, as bars of a tornado chart.

use serde::Serialize;

use super::choice::Choice;
use super::file::Sweep;
use super::solve::{self, Solved};
use meshwright_engine::goodput::Mode;
use meshwright_engine::units::Seconds;

/// Bar of a tornado chart: cost with one figure low, and with it high.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Name of the figure.
    pub what: String,
    /// Low value, as text.
    pub low: String,
    /// High value, as text.
    pub high: String,
    /// Dollars at the low value.
    pub low_usd: f64,
    /// Dollars at the high value.
    pub high_usd: f64,
}

/// Bars of an option, widest first. The plan stays fixed; only the bill is recomputed.
pub fn bars(sweep: &Sweep, choice: &Choice, solved: &[Solved]) -> Vec<Bar> {
    let cost = |change: &dyn Fn(&mut Sweep)| {
        let mut changed = sweep.clone();
        change(&mut changed);
        solve::priced(&changed, choice, solved).ok().map(|(totals, _)| totals)
    };
    let Some(usual) = cost(&|_| {}) else { return Vec::new() };
    let mut bars = Vec::new();
    let mut bar = |what: &str, low: &str, high: &str, low_usd: Option<f64>, high_usd: Option<f64>| {
        if let (Some(low_usd), Some(high_usd)) = (low_usd, high_usd)
            && (low_usd - high_usd).abs() > 1e-6 * usual.cost_usd
        {
            bars.push(Bar { what: what.into(), low: low.into(), high: high.into(), low_usd, high_usd });
        }
    };
    let of = |change: &dyn Fn(&mut Sweep)| cost(change).map(|totals| totals.cost_usd);
    let hours = usual.gpu_hours;
    let (fast, slow) = (usual.days_low / usual.days, usual.days_high / usual.days);
    let beside = usual.cost_usd - usual.usd_per_gpu_hour * hours;
    let low_price = (usual.cost_low_usd - beside * fast) / (hours * fast);
    let high_price = (usual.cost_high_usd - beside * slow) / (hours * slow);
    bar(
        "price of a GPU-hour",
        &format!("${low_price:.2}"),
        &format!("${high_price:.2}"),
        Some(low_price * hours + beside),
        Some(high_price * hours + beside),
    );
    let change = |factor: f64| format!("{:+.0} %", (factor - 1.0) * 100.0).replace('-', "−");
    bar(
        "step time (error of the model)",
        &change(fast),
        &change(slow),
        Some(usual.cost_usd * fast),
        Some(usual.cost_usd * slow),
    );
    let failures = |factor: f64| {
        move |sweep: &mut Sweep| {
            let rates = &mut sweep.market.conditions.failures;
            for time in [&mut rates.gpu, &mut rates.node, &mut rates.switch] {
                time.value = time.value / factor;
            }
        }
    };
    bar("failures", "half", "three times", of(&failures(0.5)), of(&failures(3.0)));
    let restart = |factor: f64| {
        move |sweep: &mut Sweep| {
            let restart = &mut sweep.market.conditions.failures.restart;
            restart.value = restart.value * factor;
        }
    };
    bar("restart time", "a third", "five times", of(&restart(1.0 / 3.0)), of(&restart(5.0)));
    let lasts = |time: Seconds| move |sweep: &mut Sweep| sweep.market.conditions.maintenance.lasts.value = time;
    bar("maintenance each", "0", "2 h", of(&lasts(Seconds::ZERO)), of(&lasts(Seconds::hours(2.0))));
    let straggler = |share: f64| move |sweep: &mut Sweep| sweep.market.conditions.straggler = share;
    bar("slowest device", "none", "5 % slower", of(&straggler(0.0)), of(&straggler(0.05)));
    if choice.get("checkpoints").is_none() {
        let mode = |mode: Mode| move |sweep: &mut Sweep| sweep.market.conditions.checkpoints.mode = mode;
        bar("checkpoints", "in memory", "blocking", of(&mode(Mode::Memory)), of(&mode(Mode::Sync)));
    }
    let life =
        |factor: f64| move |sweep: &mut Sweep| sweep.market.own.life.value = sweep.market.own.life.value * factor;
    bar("life of the machines", "× 1.5", "÷ 1.5", of(&life(1.5)), of(&life(1.0 / 1.5)));
    if choice.get("electricity").is_none() {
        let power = |factor: f64| {
            move |sweep: &mut Sweep| {
                sweep.market.site.electricity.value = sweep.market.site.electricity.value * factor;
            }
        };
        bar("price of electricity", "half", "double", of(&power(0.5)), of(&power(2.0)));
    }
    bars.sort_by(|a, b| (b.high_usd - b.low_usd).abs().total_cmp(&(a.high_usd - a.low_usd).abs()));
    bars
}
