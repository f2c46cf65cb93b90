//! `lint` of single flags: values of another type, what is missing, and what it proposes.
#![cfg(feature = "cli")]

use super::lint::{GOOD, file, findings, json, out, run, script};

/// Malformed values are named with file, line, flag, the value that was read and the one that is expected, once each,
/// before what follows from them.
#[test]
fn malformed_values_are_named() {
    let slips = [
        ("--tensor-model-parallel-size two --global-batch-size 512", "--tensor-model-parallel-size", "two"),
        ("--pipeline-model-parallel-size 2.5 --global-batch-size 512", "--pipeline-model-parallel-size", "2.5"),
        ("--global-batch-size 5l2", "--global-batch-size", "5l2"),
        ("--num-layers x80 --global-batch-size 512", "--num-layers", "x80"),
    ];
    for (flags, flag, value) in slips {
        let path = script("malformed.sh", flags);
        let output = run(&["lint", path.to_str().unwrap(), "dgx-h100-1k", "--quick"]);
        let shown = out(&output).split_whitespace().collect::<Vec<&str>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{shown}");
        let line = format!(
            "error lint-malformed.sh:4 `{flag}` has the value `{value}`; a whole number expected [wrong-value]"
        );
        assert_eq!(shown.matches(&line).count(), 1, "{shown}");
        let (answer, _) = json(&path, &["--quick"]);
        assert_eq!(answer["findings"][0]["rule"], "wrong-value", "{answer}");
        assert_eq!(answer["findings"][0]["file"].as_str(), path.to_str(), "{answer}");
    }
    let bare = file("bare.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n  --tensor-model-parallel-size two\n");
    let (answer, code) = json(&bare, &["--quick"]);
    assert_eq!((code, answer["findings"][0]["line"].as_u64()), (1, Some(2)), "{answer}");
}

/// Masks of a data loader that causal attention does not read are a warning, and those that keep documents apart are none.
#[test]
fn a_mask_that_no_attention_reads_is_a_warning() {
    let (answer, code) = json(&script("mask.sh", GOOD), &["--quick"]);
    let found = findings(&answer, "attention-mask");
    assert_eq!((code, found.len(), &found[0]["level"]), (0, 1, &"warning".into()), "{answer}");
    assert!(found[0]["message"].as_str().unwrap().contains("a mask of 64 MiB"), "{found:?}");
    assert_eq!(found[0]["expected"], "--no-create-attention-mask-in-dataloader");
    for flag in ["--no-create-attention-mask-in-dataloader", "--reset-attention-mask"] {
        let (answer, _) = json(&script("masked.sh", &format!("{GOOD} {flag}")), &["--quick"]);
        assert!(findings(&answer, "attention-mask").is_empty(), "{flag}");
    }
}

/// Megatron's flags are proposed for Megatron, and only where its checks let them pass.
#[test]
fn expert_overlap_is_advised_where_it_runs() {
    let advises = |name: &str, more: &str| {
        let experts = "--num-layers 32 --hidden-size 2048 --num-attention-heads 16 --num-query-groups 4 --num-experts 64 --moe-router-topk 4 --moe-ffn-hidden-size 1024 --expert-model-parallel-size 16 \
                       --global-batch-size 2048 --moe-token-dispatcher-type alltoall --moe-grouped-gemm";
        let (answer, _) = json(&script(name, &format!("{experts} {more}")), &[]);
        let changes = answer["changes"].as_array().unwrap_or_else(|| panic!("{answer}"));
        changes.iter().any(|change| change["change"].to_string().contains("overlap.ep"))
    };
    let chunks = "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4";
    assert!(advises("beside.sh", chunks));
    assert!(!advises("flat.sh", "--pipeline-model-parallel-size 4"), "a pipeline without chunks cannot");
    let full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
    assert!(!advises("whole.sh", &format!("{chunks} {full}")), "whole layers that run again cannot");
}
