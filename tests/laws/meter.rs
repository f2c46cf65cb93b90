//! Every kernel of a layer passes the meter, and what the meter says is the price.

use std::sync::Mutex;

use crate::random::{Spec, spec};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::kernel::{Call, Meter};
use meshwright::plan::text::parse_plan;
use meshwright::problem::Problem;
use meshwright::units::Seconds;

/// Meter that records the calls with their predicted times.
#[derive(Debug, Default)]
struct Record(Mutex<Vec<(Call, Seconds)>>);

impl Meter for Record {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        self.0.lock().unwrap().push((*call, predicted));
        predicted
    }
}

/// Meter under which every kernel takes twice as long.
#[derive(Debug)]
struct Twice;

impl Meter for Twice {
    fn time(&self, _: &Call, predicted: Seconds) -> Seconds {
        predicted * 2.0
    }
}

fn problem(model: &'static str, format: Format) -> Problem {
    Spec { format, ..spec(model, "dgx-h100-64", "nemo-25", 64, 4096) }.problem()
}

#[test]
fn the_kernels_of_a_layer_add_up_to_its_price() {
    for (model, format, plan) in [
        ("llama3-70b", Format::Bf16, "tp=8 pp=8"),
        ("llama3-8b", Format::Fp8, "tp=1 pp=1"),
        ("deepseek-v3", Format::Fp8Block, "tp=1 pp=8 ep=8"),
    ] {
        let problem = problem(model, format);
        let plan = parse_plan(plan, &problem).unwrap();
        for kind in 0..problem.model().kinds.len() {
            let record = Record::default();
            let cost = Costs::new(&problem).metered(&record).layer(kind, &plan);
            let seen: Seconds = record.0.lock().unwrap().iter().map(|(_, time)| *time).sum();
            let priced = cost.forward + cost.dgrad + cost.wgrad;
            // The price also holds what hidden communication costs the kernels beside it.
            assert!(seen <= priced * (1.0 + 1e-12), "{model}: {seen} of {priced}");
            assert!(seen.get() > 0.85 * priced.get(), "{model}: {seen} of {priced}");
        }
    }
}

#[test]
fn what_the_meter_says_is_the_price() {
    let problem = problem("llama3-8b", Format::Bf16);
    let plan = parse_plan("tp=1 pp=1", &problem).unwrap();
    let once = Costs::new(&problem).layer(0, &plan);
    let twice = Costs::new(&problem).metered(&Twice).layer(0, &plan);
    for (once, twice) in [(once.forward, twice.forward), (once.dgrad, twice.dgrad), (once.wgrad, twice.wgrad)] {
        assert!((twice / once - 2.0).abs() < 1e-12, "{once} {twice}");
    }
}
