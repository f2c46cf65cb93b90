//! Programs of one plan, one for each share on the host: the search space that an earlier one prunes from a later one changes no
//! answer.

use super::check;
use crate::random::spec;
use meshwright::cost::Costs;
use meshwright::plan::Offload;
use meshwright::refine::{Options, refine};
use meshwright::space::parse_plan;

/// Solved together, programs stop at what others found, and are left out where memory limits nothing; solved alone,
/// each is searched whole. Ceilings go from ample, where no share on the host helps, to those under which only a share
/// on the host fits.
#[test]
fn offloads_together_find_what_each_finds_alone() {
    let offloads: Vec<Offload> = [0.0, 0.5, 1.0].map(|optimizer| Offload { optimizer, activations: 0.0 }).to_vec();
    let (mut ample, mut offloaded) = (0, 0);
    for (layers, text) in [
        ("d*5", "tp=1 pp=2 mbs=1 zero=1"),
        ("d*6", "tp=1 pp=2 mbs=1 zero=1 schedule=zb-h1"),
        ("d*6", "tp=1 pp=2 mbs=1 zero=1 schedule=interleaved vpp=2"),
    ] {
        let base = spec("llama3-8b", "dgx-h100-64", "nemo-25", 8, 4096).gpus(2).set(format!("model.layers={layers}"));
        for hbm in [400, 90, 50, 40, 32, 26, 22, 18] {
            let problem = base.set(format!("gpu.hbm={hbm} GB")).problem();
            let plan = parse_plan(text, &problem).unwrap();
            let costs = Costs::new(&problem);
            let of = |offloads: Vec<Offload>| refine(&costs, &plan, &Options { offloads, ..Options::default() });
            let alone =
                offloads.iter().filter_map(|&offload| of(vec![offload]).ok()).map(|refined| refined.step().get());
            let least = alone.reduce(f64::min);
            let together = of(offloads.clone());
            assert_eq!(together.as_ref().ok().map(|refined| refined.step().get()), least, "{plan} {hbm} GB");
            let Ok(refined) = together else { continue };
            check(&problem, &plan, &refined);
            let is_offloaded = refined.staged.offload.iter().any(|offload| *offload != Offload::NONE);
            (ample, offloaded) = (ample + usize::from(!is_offloaded), offloaded + usize::from(is_offloaded));
        }
    }
    assert!(ample > 5 && offloaded > 2, "{ample} without a share on the host, {offloaded} with one");
}
