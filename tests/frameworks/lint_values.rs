//! `lint` of values that are not of their flag's type.
#![cfg(feature = "cli")]

use super::lint::{file, json, out, run, script};

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
