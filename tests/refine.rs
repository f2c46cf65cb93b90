//! Refined stages: against brute force, against the plan as it was, against themselves.

mod random;

use meshwright::cost::Costs;
use meshwright::refine::{Options, refine};
use meshwright::space::parse_plan;
use random::spec;

#[test]
fn show() {
    for (model, cluster, stack, batch, seq, text) in [
        ("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192, "tp=1 pp=8 mbs=1"),
        ("llama3-70b", "h100-512", "nemo-25", 512, 8192, "tp=4 pp=8 mbs=1 sp=on"),
        ("llama3-405b", "dgx-h100-1k", "nemo-25", 512, 8192, "tp=8 pp=16 mbs=1 sp=on"),
        ("llama3-405b", "dgx-h100-1k", "nemo-25", 512, 8192, "tp=8 pp=16 vpp=8 schedule=interleaved mbs=1 sp=on"),
        ("gemma3-27b", "h100-512", "nemo-25", 512, 8192, "tp=4 pp=8 mbs=1 sp=on"),
        ("nemotron-h-56b", "h100-512", "nemo-25", 512, 8192, "tp=4 pp=8 mbs=1 sp=on"),
        ("llama4-maverick", "h100-512", "nemo-25", 512, 8192, "tp=4 pp=8 ep=16 mbs=1 sp=on"),
        ("llama4-maverick", "h100-512", "nemo-25", 512, 8192, "tp=4 pp=8 vpp=3 schedule=interleaved ep=16 mbs=1 sp=on"),
        ("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096, "tp=1 pp=16 ep=64 mbs=1"),
        ("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096, "tp=1 pp=16 vpp=2 schedule=interleaved ep=64 mbs=1"),
        ("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096, "tp=1 pp=16 schedule=dualpipe-v ep=64 mbs=1"),
    ] {
        let problem = spec(model, cluster, stack, batch, seq).problem();
        let costs = Costs::new(&problem);
        let plan = parse_plan(text, &problem).unwrap();
        let start = std::time::Instant::now();
        let outcome = refine(&costs, &plan, &Options::default());
        let took = start.elapsed();
        match outcome {
            Ok(refined) => println!(
                "{model} {text}\n   closed {} before {:?} after {} bound {} {} in {took:?}\n   {}  alike {}",
                costs.evaluate(&plan).step.total(), refined.before.map(|t| t.to_string()),
                refined.step(),
                refined.bound,
                refined.proof,
                refined.staged.megatron_layout(), refined.staged.recomputes_alike()
            ),
            Err(why) => println!("{model} {text}\n   {why} in {took:?}"),
        }
    }
}
