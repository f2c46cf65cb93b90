//! Number formats in emitted files: 16-bit halves, scaling recipes, 8-bit weights.

use super::emit::{err, folder, out, run};

#[test]
fn float16_is_written_and_read_as_float16() {
    for (framework, file, says, plan) in [
        ("megatron", "megatron.sh", "    --fp16", "tp=2"),
        ("megatron-bridge", "megatron_bridge.py", "get_mixed_precision_config(\"fp16_mixed\")", "tp=2"),
        ("deepspeed", "deepspeed.sh", "", "tp=1 zero=2"),
        ("accelerate", "accelerate.sh", "", "tp=1 zero=3"),
    ] {
        let folder = folder(&format!("fp16-{framework}"));
        let question = ["emit", framework, "llama3-8b", "dgx-h100-8", "--precision", "fp16", "--plan", plan];
        let written = run(&[&question[..], &["--out", folder.to_str().unwrap()]].concat());
        assert_eq!(written.status.code(), Some(0), "{}", err(&written));
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(says) && !text.contains("--bf16") && !text.contains("bf16_mixed"), "{text}");
        let read = run(&["import", path.to_str().unwrap(), "--format", "json"]);
        let read: serde_json::Value = serde_json::from_slice(&read.stdout).unwrap();
        assert_eq!(read["work"]["half"], "fp16", "{framework}: {read}");
    }
    for framework in ["torchtitan", "nanotron"] {
        let refused = run(&["emit", framework, "llama3-8b", "dgx-h100-8", "--precision", "fp16", "--plan", "tp=1"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(err(&refused).contains("--precision fp16: it scales no loss"), "{}", err(&refused));
    }
}

#[test]
fn weights_in_mxfp8_are_gathered_through_the_gradients() {
    let text = |framework: &str, options: &[&str], plan: &str| {
        let asked = ["emit", framework, "mistral-7b", "hgx-b200-512", "--gpus", "128", "--precision", "mxfp8"];
        let made = run(&[&asked[..], options, &["--plan", plan]].concat());
        assert_eq!(made.status.code(), Some(0), "{}", err(&made));
        out(&made)
    };
    let (sharded, replicated) = ("tp=1 pp=1 zero=3 shard=32", "tp=1 pp=1 zero=1");
    let unset = "reuse_grad_buf_for_mxfp8_param_ag = False";
    let wide = text("megatron-bridge", &["--optimizer", "megatron"], replicated);
    assert!(wide.contains("fp8_param_gather = False") && wide.contains(unset), "{wide}");
    for (plan, reuses) in [(replicated, true), (sharded, false)] {
        let bridge = text("megatron-bridge", &[], plan);
        assert!(bridge.contains("fp8_param_gather = True"), "NeMo's recipe is the default: {bridge}");
        assert_eq!(!bridge.contains(unset), reuses, "{bridge}");
        let megatron = text("megatron", &[], plan);
        assert!(megatron.contains("--fp8-param-gather"), "{megatron}");
        assert_eq!(megatron.contains("--reuse-grad-buf-for-mxfp8-param-ag"), reuses, "{megatron}");
    }
}

#[test]
fn eight_bit_weights_leave_their_optimizer_on_the_device_without_delayed_scaling() {
    let asked = |amax: &str| {
        let flags = ["--precision", "fp8", "--set", amax, "--plan", "tp=1 pp=1 zero=1 offload-optimizer=1"];
        run(&[&["emit", "megatron", "mistral-7b", "hgx-b200-512", "--gpus", "128"][..], &flags].concat())
    };
    let (current, delayed) = (asked("stack.amax_reduction=none"), asked("stack.amax_reduction=all"));
    assert!(err(&current).contains("beside 8-bit weights it needs delayed scaling"), "{}", err(&current));
    assert_eq!(delayed.status.code(), Some(0), "{}", err(&delayed));
}

#[test]
fn scaling_recipes_are_those_of_the_gpus_and_of_the_release() {
    let emitted = |cluster: &str, precision: &str, more: &[&str]| {
        let asked =
            ["emit", "megatron", "llama3-8b", cluster, "--gpus", "64", "--precision", precision, "--plan", "tp=1 pp=1"];
        run(&[&asked[..], more].concat())
    };
    for (cluster, precision, recipe, engine) in [
        ("dgx-h100-1k", "fp8-block", "--fp8-recipe blockwise", "2.3"),
        ("hgx-b200-512", "mxfp8", "--fp8-recipe mxfp8", "2.1"),
        ("hgx-b200-512", "nvfp4", "--fp4-recipe nvfp4", "2.8"),
        ("mi355x-512", "mxfp8", "--fp8-recipe mxfp8", "2.1"),
    ] {
        let text = out(&emitted(cluster, precision, &[]));
        assert!(text.contains(recipe), "{cluster} {precision}: {text}");
        assert!(text.contains(&format!("needs Transformer Engine {engine} or newer")), "{cluster} {precision}: {text}");
        assert_eq!(text.contains("NVTE_ROCM_ENABLE_MXFP8"), cluster == "mi355x-512", "{text}");
    }
    let cdna3 = emitted("mi300x-512", "mxfp8", &[]);
    assert!(err(&cdna3).contains("MXFP8 on Blackwell and on CDNA 4"), "{}", err(&cdna3));
    for (cluster, precision, release, first) in
        [("dgx-h100-1k", "fp8-block", "0.12", "0.13"), ("hgx-b200-512", "nvfp4", "0.14", "0.15")]
    {
        let refused = emitted(cluster, precision, &["--release", release]);
        assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
        let refusal = format!("it is of Megatron core {first} and later, not of {release}");
        assert!(err(&refused).contains(&refusal), "{}", err(&refused));
    }
}
