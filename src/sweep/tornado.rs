//! Sensitivity of an option's cost to uncertain figures, as bars of a tornado chart.

use serde::Serialize;

use super::choice::Choice;
use super::file::Sweep;
use super::record::Totals;
use super::solve::{self, Solved};
use meshwright_engine::goodput::Mode;
use meshwright_engine::units::Seconds;

/// Bar of a tornado chart: cost of an option with one figure low, and with it high.
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

impl Bar {
    fn new(what: &str, [low, high]: [&str; 2], [low_usd, high_usd]: [f64; 2]) -> Self {
        Self { what: what.into(), low: low.into(), high: high.into(), low_usd, high_usd }
    }

    /// Absolute difference in dollars between the two ends.
    fn width(&self) -> f64 {
        (self.low_usd - self.high_usd).abs()
    }
}

/// Change of one figure of a sweep.
type Change = Box<dyn Fn(&mut Sweep)>;

/// Uncertain figure of a market: a low and a high value, each as its text and the change that sets it.
struct Uncertain {
    what: &'static str,
    values: [&'static str; 2],
    set: [Change; 2],
}

/// Uncertain figure whose low and high values are given as arguments of one setter.
fn uncertain<T: Copy + 'static>(
    what: &'static str,
    values: [(&'static str, T); 2],
    set: impl Fn(&mut Sweep, T) + Copy + 'static,
) -> Uncertain {
    let boxed = |value: T| -> Change { Box::new(move |sweep| set(sweep, value)) };
    Uncertain { what, values: values.map(|(text, _)| text), set: values.map(|(_, value)| boxed(value)) }
}

/// Share of the cost below which a bar is left out.
const NEGLIGIBLE: f64 = 1e-6;

/// Bars of an option, widest first. The plan stays fixed; only the bill is recomputed.
pub fn bars(sweep: &Sweep, choice: &Choice, solved: &[Solved]) -> Vec<Bar> {
    let totals = |sweep: &Sweep| solve::priced(sweep, choice, solved).ok().map(|(totals, _)| totals);
    let Some(usual) = totals(sweep) else { return Vec::new() };
    let cost = |change: &dyn Fn(&mut Sweep)| {
        let mut changed = sweep.clone();
        change(&mut changed);
        totals(&changed).map(|totals| totals.cost_usd)
    };
    let mut bars = bars_of_totals(&usual);
    bars.extend(uncertain_figures(choice).into_iter().filter_map(|Uncertain { what, values, set: [low, high] }| {
        Some(Bar::new(what, values, [cost(&low)?, cost(&high)?]))
    }));
    bars.retain(|bar| bar.width() > NEGLIGIBLE * usual.cost_usd);
    bars.sort_by(|a, b| b.width().total_cmp(&a.width()));
    bars
}

/// Bars of the two figures with intervals of their own in the totals: the price of a GPU-hour, and the step time.
fn bars_of_totals(usual: &Totals) -> Vec<Bar> {
    let hours = usual.gpu_hours;
    let (fast, slow) = (usual.days_low / usual.days, usual.days_high / usual.days);
    let beside = usual.cost_usd - usual.usd_per_gpu_hour * hours;
    let low_price = (usual.cost_low_usd - beside * fast) / (hours * fast);
    let high_price = (usual.cost_high_usd - beside * slow) / (hours * slow);
    let prices = [low_price, high_price];
    let change = |factor: f64| format!("{:+.0} %", (factor - 1.0) * 100.0).replace('-', "−");
    let [low, high] = prices.map(|price| format!("${price:.2}"));
    vec![
        Bar::new("price of a GPU-hour", [&low, &high], prices.map(|price| price * hours + beside)),
        Bar::new(
            "step time (error of the model)",
            [&change(fast), &change(slow)],
            [usual.cost_usd * fast, usual.cost_usd * slow],
        ),
    ]
}

/// Uncertain figures of the market, without those that the option itself chooses. Their ranges are assumptions, wide enough to show
/// which figure matters; only prices and step times have intervals of their own.
fn uncertain_figures(choice: &Choice) -> Vec<Uncertain> {
    let mut figures = vec![
        uncertain("failures", [("half", 0.5), ("three times", 3.0)], |sweep, factor| {
            let rates = &mut sweep.market.conditions.failures;
            for time in [&mut rates.gpu, &mut rates.node, &mut rates.switch] {
                time.value = time.value / factor;
            }
        }),
        uncertain("restart time", [("a third", 1.0 / 3.0), ("five times", 5.0)], |sweep, factor| {
            let restart = &mut sweep.market.conditions.failures.restart;
            restart.value = restart.value * factor;
        }),
        uncertain("maintenance each", [("0", Seconds::ZERO), ("2 h", Seconds::hours(2.0))], |sweep, time| {
            sweep.market.conditions.maintenance.lasts.value = time;
        }),
        uncertain("slowest device", [("none", 0.0), ("5 % slower", 0.05)], |sweep, share| {
            sweep.market.conditions.straggler = share;
        }),
    ];
    if choice.get("checkpoints").is_none() {
        figures.push(uncertain(
            "checkpoints",
            [("in memory", Mode::Memory), ("blocking", Mode::Sync)],
            |sweep, mode| sweep.market.conditions.checkpoints.mode = mode,
        ));
    }
    figures.push(uncertain("life of the machines", [("× 1.5", 1.5), ("÷ 1.5", 1.0 / 1.5)], |sweep, factor| {
        sweep.market.own.life.value = sweep.market.own.life.value * factor;
    }));
    if choice.get("electricity").is_none() {
        figures.push(uncertain("price of electricity", [("half", 0.5), ("double", 2.0)], |sweep, factor| {
            sweep.market.site.electricity.value = sweep.market.site.electricity.value * factor;
        }));
    }
    figures
}
