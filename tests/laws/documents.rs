//! Packed documents: attention that stays within them costs what the documents cost as sequences; kernels that compute whole sequences
//! cost the same whatever is packed.

use crate::random::{Spec, spec};
use meshwright::cost::{Costs, Evaluation};
use meshwright::space::parse_plan;

fn price(of: &Spec, document_len: Option<u32>, plan: &str) -> Evaluation {
    let problem = Spec { document_len, ..of.clone() }.problem();
    Costs::new(&problem).evaluate_simulated(&parse_plan(plan, &problem).unwrap())
}

/// Grouped queries, windows, latent attention, context parallelism.
#[test]
fn documents_cost_what_they_cost_as_sequences() {
    for (model, plan) in [
        ("llama3-8b", "tp=2 sp=on dp=32 zero=1"),
        ("llama3-8b", "cp=4 cp-kind=p2p dp=16 zero=1"),
        ("gpt-oss-20b", "ep=4 dp=64 zero=1"),
        ("deepseek-v2", "pp=4 ep=8 dp=16 zero=1"),
        ("gemma3-27b", "tp=8 sp=on dp=8 zero=1"),
    ] {
        let packed = price(&spec(model, "dgx-h100-64", "nemo-25", 64, 8192), Some(2048), &format!("{plan} mbs=1"));
        let apart = price(&spec(model, "dgx-h100-64", "nemo-25", 256, 2048), None, &format!("{plan} mbs=4"));
        let (packed, apart) = (packed.step.total().get(), apart.step.total().get());
        assert!((packed / apart - 1.0).abs() < 1e-12, "{model} {plan}: {packed} {apart}");
    }
}

#[test]
fn shorter_documents_never_cost_more_and_whole_sequences_the_same() {
    let llama = spec("llama3-8b", "dgx-h100-64", "nemo-25", 64, 8192);
    let time = |length| price(&llama, length, "tp=2 sp=on dp=32 zero=1").step.total().get();
    let times = [None, Some(8192), Some(4096), Some(1024), Some(100), Some(1)].map(time);
    assert_eq!(times[0].to_bits(), times[1].to_bits());
    assert_eq!(time(Some(10_000)).to_bits(), times[0].to_bits(), "a document ends with its sequence");
    assert!(times[1..].is_sorted_by(|long, short| long > short), "{times:?}");
}

/// Attention that writes its scores, and splash attention on TPUs, compute what the mask takes away again.
#[test]
fn kernels_of_whole_sequences_gain_nothing() {
    for (of, plan) in [
        (spec("llama3-8b", "dgx-h100-64", "megatron-2022", 64, 8192), "tp=2 sp=on dp=32 zero=1"),
        (spec("llama3-8b", "tpu-v5p-1024", "jax-2025", 1024, 8192), "dp=1024 zero=3"),
    ] {
        let [whole, packed] = [None, Some(512)].map(|length| price(&of, length, plan).step.total().get());
        assert_eq!(whole.to_bits(), packed.to_bits(), "{}", of.stack);
    }
}
