//! Plans that their owners ran, on their own stacks: they fit.

use crate::random::{self, Spec};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::plan::text::parse_plan;

/// Memory of the fullest rank in GiB, and whether it is within the default share of the device.
fn memory(spec: &Spec, plan: &str) -> (f64, bool) {
    let mut problem = spec.problem();
    let recipe = meshwright::workload::recipe(problem.stack().usual_recipe(problem.workload().format)).unwrap();
    problem = problem.changed(|_, workload, _| workload.recipe = recipe).unwrap();
    let costs = Costs::new(&problem);
    let plan = parse_plan(plan, &problem).unwrap();
    let device = costs.fullest(&plan).peak();
    (device.as_gib(), device <= problem.hbm_budget())
}

/// Source: [llama3-infrastructure] §3.3.2 and table 4: 16 M tokens a step, gradients and optimizer states sharded.
#[test]
fn llama_3_405b_fits_as_meta_ran_it() {
    let spec = random::spec("llama3-405b", "dgx-h100-16k", "meta-llama3", 2048, 8192);
    let (gib, fits) = memory(&spec, "tp=8 pp=16 dp=128 schedule=interleaved vpp=8 zero=2 mbs=1");
    assert!(fits && (70.0..75.0).contains(&gib), "{gib}");
}

/// Source: [deepseek-v3] §3.
#[test]
fn deepseek_v3_fits_as_its_authors_ran_it() {
    let mut spec = random::spec("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096);
    spec.format = Format::Fp8Block;
    let plan = "pp=16 ep=64 dp=128 schedule=dualpipe zero=1 mbs=1 recompute=layernorm+act+mla_up_proj";
    let (gib, fits) = memory(&spec, plan);
    assert!(fits && (60.0..72.0).contains(&gib), "{gib}");
}
