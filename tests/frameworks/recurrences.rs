//! Layers with a recurrence or a convolution over tokens: which frameworks run them, and what of them is split.

use crate::details::{emitted, written};

/// Frameworks that load the class train it, with whole layers on a rank; those that build decoders of their own have no such layer.
#[test]
fn short_convolutions_are_for_frameworks_that_load_their_class() {
    let loaded = emitted("accelerate", "lfm2-1.2b", "dp=512 zero=3 mbs=1");
    assert!(loaded.contains("lfm2-1.2b"), "{loaded}");
    for framework in ["megatron", "torchtitan", "nanotron", "olmo-core", "maxtext", "gpt-neox"] {
        let refused = emitted(framework, "lfm2-1.2b", "dp=512 zero=1 mbs=1");
        assert!(refused.contains("short convolutions"), "{framework}: {refused}");
    }
    let split = emitted("accelerate", "lfm2-1.2b", "tp=2 dp=256 zero=3 mbs=1");
    assert!(split.contains("no framework splits gated short convolutions"), "{split}");
}

/// Attention beside Mamba is for those frameworks too; a tensor-parallel degree divides the groups of Mamba, of which
/// most sizes have one.
#[test]
fn attention_beside_mamba_is_for_frameworks_that_load_its_class() {
    let loaded = emitted("accelerate", "falcon-h1-0.5b", "dp=512 zero=3 mbs=1");
    assert!(loaded.contains("falcon-h1-0.5b"), "{loaded}");
    for framework in ["megatron", "bridge", "torchtitan", "nanotron", "olmo-core", "maxtext", "gpt-neox"] {
        let refused = emitted(framework, "falcon-h1-0.5b", "dp=512 zero=1 mbs=1");
        assert!(refused.contains("attention beside Mamba"), "{framework}: {refused}");
    }
    let split = emitted("megatron", "falcon-h1-0.5b", "tp=2 dp=256 zero=1 mbs=1");
    assert!(split.contains("tp=2 does not divide the 1 groups of Mamba beside attention"), "{split}");
    for framework in ["accelerate", "deepspeed", "axolotl"] {
        for (plan, part) in
            [("tp=2 sp=off", "has no plan for tensor parallelism"), ("cp=2", "runs over whole sequences")]
        {
            let split = emitted(framework, "falcon-h1-34b", &format!("{plan} dp=256 zero=3 mbs=1"));
            assert!(split.contains(part), "{framework}: {split}");
        }
    }
}

/// Classes of transformers with a recurrence cut none of it, nor its sequences; Megatron's own layers are.
#[test]
fn a_recurrence_is_whole_in_its_class() {
    let split = [
        ("nemotron-h-56b", "tp=2 sp=off dp=256", "has no plan for tensor parallelism"),
        ("nemotron-h-56b", "cp=2 dp=256", "runs over whole sequences"),
        ("qwen3-next-80b-a3b", "cp=2 dp=256", "runs over whole sequences"),
    ];
    for (model, layout, part) in split {
        for framework in ["accelerate", "deepspeed", "axolotl"] {
            let refused = emitted(framework, model, &format!("{layout} zero=3 mbs=1"));
            assert!(refused.contains(part), "{framework}, {model}: {refused}");
        }
    }
    let megatron = written("megatron", "nemotron-h-56b", "tp=2 dp=256 zero=1 mbs=1 recompute=full");
    assert!(megatron.contains("--tensor-model-parallel-size 2"), "{megatron}");
    for (model, packages) in [("nemotron-h-56b", "mamba-ssm"), ("qwen3-next-80b-a3b", "flash-linear-attention")] {
        for framework in ["accelerate", "deepspeed", "axolotl", "llama-factory"] {
            let text = written(framework, model, "dp=512 zero=3 mbs=1 recompute=full");
            let installed = format!("find {packages} and causal-conv1d installed");
            assert!(text.contains(&installed), "{framework}: {text}");
        }
    }
}

/// Kimi Delta Attention is for those frameworks as well, and no rank shares it.
#[test]
fn kimi_linear_is_for_frameworks_that_load_its_class() {
    let loaded = emitted("accelerate", "kimi-linear-48b-a3b", "dp=512 zero=3 mbs=1 recompute=full");
    assert!(loaded.contains("kimi-linear-48b-a3b"), "{loaded}");
    for framework in ["megatron", "bridge", "torchtitan", "nanotron", "olmo-core", "maxtext", "gpt-neox"] {
        let refused = emitted(framework, "kimi-linear-48b-a3b", "dp=512 zero=1 mbs=1");
        assert!(refused.contains("Kimi Delta Attention"), "{framework}: {refused}");
    }
    let split = emitted("megatron", "kimi-linear-48b-a3b", "tp=2 dp=256 zero=1 mbs=1");
    assert!(split.contains("no class of Kimi Linear splits Kimi Delta Attention"), "{split}");
    let shared = emitted("megatron", "kimi-linear-48b-a3b", "cp=2 dp=256 zero=1 mbs=1");
    assert!(shared.contains("states of Kimi Delta Attention that ranks would exchange have no price"), "{shared}");
}
