//! Questions from JSON: the document is that of the command line, byte for byte.

use std::ops::ControlFlow;
use std::process::Command;

use meshwright::question::{PlanQuestion, QuestionError};

fn answer(question: &str) -> Result<String, QuestionError> {
    let question: PlanQuestion = serde_json::from_str(question).unwrap();
    Ok(question.answer(&|_, _| ControlFlow::Continue(()))?.value)
}

fn printed(line: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(line.split_whitespace()).output().unwrap();
    assert!(!output.stdout.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_document_is_what_the_command_line_prints() {
    let questions = [
        ("plan llama3-8b dgx-h100-8 --format json", r#"{"problem": {"model": "llama3-8b", "cluster": "dgx-h100-8"}}"#),
        (
            "plan llama3-70b h100-512 --gpus 64 --fix tp=8 --for megatron --tokens 15T --sensitivity --top 2 --format json",
            r#"{
                "problem": {"model": "llama3-70b", "cluster": "h100-512", "options": {"gpus": 64}},
                "plans": {"fix": ["tp=8"], "for": "megatron", "economy": {"tokens": "15T"}, "sensitivity": true, "top": 2}
            }"#,
        ),
        (
            "plan llama3-405b dgx-h100-8 --no-refine --format json",
            r#"{
                "problem": {"model": "llama3-405b", "cluster": "dgx-h100-8"},
                "plans": {"refine": {"no_refine": true}}
            }"#,
        ),
    ];
    for (line, question) in questions {
        assert_eq!(printed(line), answer(question).unwrap(), "{line}");
    }
}

/// `emit` without a plan writes what `plan --for` of the same framework recommends, and names it.
#[test]
fn files_without_a_named_plan_are_those_of_the_recommended_one() {
    let best: serde_json::Value =
        serde_json::from_str(&printed("plan llama3-70b dgx-h100-64 --for torchtitan --format json")).unwrap();
    let rank = usize::try_from(best["recommended"]["rank"].as_u64().unwrap()).unwrap();
    let recommended = best["plans"][rank - 1]["plan"].as_str().unwrap();
    let emit = |more: &[&str]| {
        let args = ["emit", "torchtitan", "llama3-70b", "dgx-h100-64"];
        Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).args(more).output().unwrap()
    };
    let (unnamed, named) = (emit(&[]), emit(&["--plan", recommended]));
    assert_eq!(unnamed.stdout, named.stdout);
    assert!(unnamed.status.success() && !unnamed.stdout.is_empty());
    let told = String::from_utf8(unnamed.stderr).unwrap();
    assert!(told.contains(&format!("the recommended plan: --plan \"{recommended}\"")), "{told}");
    let args = ["emit", "megatron", "llama3-405b", "dgx-h100-8"];
    let none = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8(none.stderr).unwrap().contains("no plan runs: `plan --for megatron` says why"));
}

#[test]
fn texts_stand_for_files() {
    let config = r#"{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048}"#;
    let cluster = std::fs::read_to_string("clusters/dgx-h100-8.toml").unwrap().replace("DGX H100, 8 GPUs", "mine");
    let asked = |texts: serde_json::Value| {
        let problem = serde_json::json!({"model": "config.json", "cluster": "mine.toml", "options": {"texts": texts}});
        answer(&serde_json::json!({ "problem": problem }).to_string())
    };
    let document = asked(serde_json::json!({"config.json": config, "mine.toml": cluster})).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["problem"]["cluster"], "mine");
    assert!(document["plans"][0]["step_time_s"].as_f64().unwrap() > 0.0);
    let broken = asked(serde_json::json!({"config.json": config, "mine.toml": "gpus = "})).unwrap_err();
    assert!(broken.to_string().starts_with("mine.toml"), "{broken}");
    let absent = asked(serde_json::json!({"mine.toml": "gpus = 8"})).unwrap_err();
    assert!(absent.to_string().contains("config.json"), "{absent}");
}

#[test]
fn mfu_of_adapters_counts_two_passes_of_three() {
    let work = |lora: bool| {
        let question = serde_json::json!({
            "problem": {"model": "llama3-8b", "cluster": "dgx-h100-8", "options": {"lora": lora, "global_batch": 64}},
            "plans": {"fix": ["tp=2", "pp=1", "cp=1"], "top": 1, "refine": {"no_refine": true}}
        });
        let document: serde_json::Value = serde_json::from_str(&answer(&question.to_string()).unwrap()).unwrap();
        let plan = &document["plans"][0];
        plan["mfu"].as_f64().unwrap() * plan["step_time_s"].as_f64().unwrap()
    };
    let ratio = work(true) / work(false);
    assert!((ratio - 2.0 / 3.0).abs() < 1e-9, "{ratio}");
}

/// Tensor parallelism gathers the tokens of a micro-batch; a ring of four sends a quarter of them in bf16, keys and values.
#[test]
fn collectives_are_listed_with_payload_and_bandwidth() {
    let asked = "explain llama3-70b h100-512 --plan tp=8,cp=4,pp=4,vpp=5 --collectives --format json";
    let document: serde_json::Value = serde_json::from_str(&printed(asked)).unwrap();
    let all = document["transfers"].as_array().unwrap();
    let one = |group: &str, kind: &str| {
        let found = all.iter().find(|transfer| transfer["group"] == group && transfer["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} of {group} in {document}")).clone()
    };
    let gathered = one("tensor parallel", "all-gather");
    assert_eq!((gathered["ranks"].as_u64(), gathered["stride"].as_u64()), (Some(8), Some(1)));
    assert_eq!(gathered["payload_bytes"].as_f64(), Some(2048.0 * 8192.0 * 2.0));
    let number = |transfer: &serde_json::Value, key: &str| transfer[key].as_f64().unwrap();
    let bus = number(&gathered, "payload_bytes") / number(&gathered, "time_s") * 7.0 / 8.0 / 1e9;
    assert!((number(&gathered, "bus_gb_per_s") / bus - 1.0).abs() < 1e-12, "{gathered}");
    let ring = one("context parallel", "send");
    assert_eq!(
        ring["payload_bytes"].as_f64(),
        Some(2048.0 * 2.0 * 128.0 * 2.0),
        "one head of keys and of values a rank"
    );
    assert_eq!(ring["level"], "leaf");
    assert!(number(&one("pipeline", "send"), "time_s") > 0.0);
    let shown = printed("explain llama3-8b dgx-h100-8 --collectives");
    assert!(shown.contains("Transfers that the step is priced from") && shown.contains("bus GB/s"), "{shown}");
    assert!(!printed("explain llama3-8b dgx-h100-8").contains("bus GB/s"));
}

#[test]
fn weights_that_are_held_twice_are_named() {
    let answer = |flags: &str| {
        let lines = printed(&format!("plan llama3-8b dgx-h100-8 --fix zero=1 {flags}"));
        lines.split_whitespace().collect::<Vec<&str>>().join(" ")
    };
    let twice = answer("--precision fp8 --optimizer megatron-bf16-grads");
    assert!(twice.contains("`--optimizer fp8-primary` holds them in 8 alone and frees"), "{twice}");
    for flags in ["", "--precision fp8", "--precision fp8 --stack torchtitan-2025"] {
        let once = answer(flags);
        assert!(!once.contains("held in 16 bits and in 8"), "{flags}: {once}");
    }
}
