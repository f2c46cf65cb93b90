//! A device whose GEMMs were timed shape by shape: the search finds what a plain loop finds, whatever the times.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::brute_force::{both_ways, every_plan, small};
use crate::random::SplitMix;
use meshwright::cost::Costs;
use meshwright::gpu::{Format, Pass, TimedGemms};
use meshwright::kernel::{Call, GemmShape, Meter};
use meshwright::problem::Problem;
use meshwright::space::{Restrictions, Space};
use meshwright::units::Seconds;

/// GEMM of one launch: format, pass, and m, n, k and output bytes by their bits.
type Timed = (Format, Pass, [u64; 4]);

/// Notes the GEMMs of one launch.
#[derive(Debug, Default)]
struct Notes(Mutex<BTreeMap<Timed, [f64; 4]>>);

impl Meter for Notes {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        if let Call::Gemm { shape: GemmShape { m, n, k, batch, output_bytes }, format, pass } = *call
            && batch <= 1.0
        {
            let sizes = [m, n, k, output_bytes];
            self.0.lock().unwrap().insert((format, pass, sizes.map(f64::to_bits)), sizes);
        }
        predicted
    }
}

/// The problem on a device where two thirds of its GEMMs take 0.7 to 1.4 times what the curve says, and their number.
fn timed(problem: &Problem, restrictions: &Restrictions, numbers: &mut SplitMix) -> (Problem, usize) {
    let notes = Notes::default();
    let costs = Costs::new(problem);
    for plan in every_plan(&Space::new(&costs, restrictions)) {
        let _ = Costs::new(problem).metered(&notes).evaluate(&plan);
    }
    let seen = notes.0.into_inner().unwrap();
    let mut gemms = TimedGemms::default();
    for ((format, pass, _), sizes) in &seen {
        if numbers.below(3) > 0 {
            gemms.insert(*format, *pass, *sizes, 0.7 + 0.01 * numbers.below(70) as f64);
        }
    }
    (problem.changed(|cluster, _, _| cluster.gpu.timed_gemms = gemms).unwrap(), seen.len())
}

#[test]
fn the_search_is_exact_on_a_device_whose_gemms_were_timed() {
    let mut numbers = SplitMix::new(41);
    let (mut shapes, mut cut, mut moved) = (0, 0, 0);
    for _ in 0..30 {
        let (spec, restrictions) = small(&mut numbers);
        let problem = spec.problem();
        let (of_device, seen) = timed(&problem, &restrictions, &mut numbers);
        let plain = both_ways(&format!("{spec:?} {restrictions:?}"), &problem, &restrictions).1;
        let found = both_ways(&format!("timed {spec:?} {restrictions:?}"), &of_device, &restrictions).1;
        let best = |of: &meshwright::search::Ranking| of.evaluations.first().map(|best| best.step.total());
        shapes += seen;
        cut += found.cut_by_bound;
        moved += usize::from(best(&plain) != best(&found));
    }
    assert!(shapes > 300 && cut > 0 && moved > 10, "{shapes} shapes, {cut} plans cut, {moved} answers moved");
}
