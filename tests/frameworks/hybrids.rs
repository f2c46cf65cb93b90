//! Hybrids of Mamba for Megatron: what CUDA graphs hold of them, and which of them are refused.

use crate::emit::{err, out, run};

/// Graphs hold what is priced and what the recipes of Nemotron 3 hold: attention, Mamba, the router and preprocessing.
#[test]
fn graphs_of_a_hybrid_hold_its_router() {
    let model = "tests/hf/nemotron-3-super-class.json";
    let graphs = |framework: &str, plan: &str| {
        let line = ["emit", framework, model, "gb200-nvl72-1152", "--gpus", "64", "--stack", "nemo-26", "--plan", plan];
        let text = out(&run(&line));
        text.lines().find(|line| line.contains("graph") && line.contains("modules")).expect(&text).trim().to_owned()
    };
    let plan = "tp=2 ep=64 pp=1 zero=1 mbs=1";
    let line = graphs("megatron", plan);
    assert!(line.ends_with("--cuda-graph-modules attn mamba moe_router moe_preprocess"), "{line}");
    let line = graphs("megatron-bridge", plan);
    assert!(line.ends_with(r#"= ["attn", "mamba", "moe_router", "moe_preprocess"]"#), "{line}");
    let line = graphs("megatron", &format!("{plan} recompute=moe"));
    assert!(line.ends_with("--cuda-graph-modules attn mamba"), "{line}");
}

/// Granite's layers are a mixer and experts each: they are refused for that, and not for the attention that some of them have.
#[test]
fn layers_of_two_parts_are_refused_as_such() {
    let model = "tests/hf/granite-4.0-h-small.json";
    let refused = err(&run(&["emit", "megatron", model, "dgx-h100-64", "--plan", "tp=8 pp=1"]));
    assert!(refused.contains("each letter of a pattern is a layer of one of them"), "{refused}");
    assert!(!refused.contains("no attention"), "{refused}");
}

/// Graphs of modules hold the MLP of dense layers where the stack's scope has it.
#[test]
fn graphs_of_dense_layers_hold_both_parts() {
    let modules = |set: &str| {
        let line = ["emit", "megatron", "llama3-8b", "dgx-h100-8", "--plan", "dp=8", "--set", "stack.cuda_graphs=true"];
        out(&run(&[&line[..], &["--set", set]].concat()))
    };
    assert!(modules("stack.graph_scope.mlp=true").contains("--cuda-graph-modules attn mlp\n"));
    assert!(modules("stack.graph_scope.mlp=false").contains("--cuda-graph-modules attn\n"));
}

/// A note names settings that the source of a model does not say; without rotary positions there is no base of them.
#[test]
fn models_without_positions_lack_no_rotary_base() {
    let notes = |model: &str| out(&run(&["emit", "megatron", model, "dgx-h100-64", "--plan", "tp=8 pp=1"]));
    let positionless = notes("nemotron-h-56b");
    assert!(!positionless.contains("rotary base") && positionless.contains("--norm-epsilon 0.00001"), "{positionless}");
    assert!(notes("llama2-7b").contains("does not say its rotary base, epsilon"));
    assert!(notes("llama3-8b").contains("--rotary-base 500000"));
}
