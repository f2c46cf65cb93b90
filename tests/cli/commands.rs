//! The binary as its user meets it: exit codes, data on stdout, talk on stderr, bad input named.
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

pub fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_str(&out(output)).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

/// A file that this test may spoil.
pub fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path
}

/// Bad input: code 2, nothing on stdout, and these words on stderr.
pub fn refused(args: &[&str], words: &[&str]) {
    let output = run(args);
    let talk = err(&output);
    assert_eq!(code(&output), 2, "{args:?}: {talk}");
    assert_eq!(out(&output), "", "{args:?}");
    assert!(talk.lines().any(|line| line.starts_with("error: ")), "{talk}");
    for word in words {
        assert!(talk.contains(word), "{args:?} does not say `{word}`: {talk}");
    }
}

const SMALL: [&str; 3] = ["plan", "llama3-8b", "dgx-h100-8"];

#[test]
fn a_plan_is_data_on_stdout_and_talk_on_stderr() {
    let output = run(&SMALL);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("tp=") && out(&output).contains("Recommended"), "{}", out(&output));
    assert!(err(&output).contains("assumed: ") && err(&output).contains("--global-batch 128"), "{}", err(&output));
    assert!(!out(&output).contains("assumed"));
    assert!(out(&output).lines().all(|line| line.chars().count() <= 100), "{}", out(&output));
    assert_eq!(out(&output).matches("Recommended").count(), 1, "{}", out(&output));
}

#[test]
fn settings_that_a_framework_chooses_are_assumed_and_a_user_may_change_them() {
    let fixed = ["--fix", "zero=3", "--fix", "mbs=1", "--fix", "recompute=full", "--fix", "cp=1", "--fix", "tp=1"];
    let plan = |more: &[&str]| run(&[&SMALL[..], &fixed, more].concat());
    let (fused, at_once) = ("stack.memory.updates_at_once=false", "stack.memory.updates_at_once=true");
    for framework in ["axolotl", "llama-factory"] {
        let usual = plan(&["--for", framework]);
        assert!(err(&usual).contains(&format!("--stack fsdp-eager-2023, --set {fused},")), "{}", err(&usual));
        assert_eq!(out(&usual), out(&plan(&["--for", framework, "--set", fused])));
        assert_ne!(out(&usual), out(&plan(&["--for", framework, "--set", at_once])));
    }
    let accelerate = plan(&["--for", "accelerate"]);
    assert_eq!(code(&accelerate), 0, "{}", err(&accelerate));
    assert!(!err(&accelerate).contains("--set"), "its script is the user's: {}", err(&accelerate));
}

#[test]
fn a_fixed_degree_that_divides_nothing_is_explained() {
    let output = run(&["plan", "llama3-8b", "dgx-h100-8", "--gpus", "7", "--fix", "tp=7"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("--fix tp=7: tp=7 does not divide the 32 heads"), "{}", err(&output));
}

#[test]
fn a_key_far_from_all_gets_no_suggestion() {
    let output = run(&[&SMALL[..], &["--fix", "quux=7"]].concat());
    assert_eq!(code(&output), 2);
    assert!(
        !err(&output).contains("did you mean") && err(&output).contains("the keys are: tp, cp"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_folder_without_a_config_is_named_once() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let output = run(&["plan", folder, "dgx-h100-8"]);
    assert_eq!(err(&output).matches("No such file").count(), 1, "{}", err(&output));
}

#[test]
fn plan_json_adds_up() {
    let output = run(&[&SMALL[..], &["--format", "json", "--top", "2"]].concat());
    let answer = json(&output);
    assert_eq!(answer["schema"], 1);
    let plans = answer["plans"].as_array().unwrap();
    assert!(!plans.is_empty() && plans.len() <= 2);
    for plan in plans {
        let degree = |name: &str| plan[name].as_u64().unwrap();
        assert_eq!(degree("tp") * degree("cp") * degree("pp") * degree("dp"), 8);
        let sum = |name: &str| plan[name].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum::<f64>();
        let figure = |name: &str| plan[name].as_f64().unwrap();
        assert!((sum("terms") / figure("step_time_s") - 1.0).abs() < 1e-9);
        assert!((sum("memory") / figure("peak_mem_gib") - 1.0).abs() < 1e-9);
        let tokens = 128.0 * 8192.0 / 8.0 / figure("step_time_s");
        assert!((tokens / figure("tokens_per_s_per_gpu") - 1.0).abs() < 1e-9);
        assert!((0.0..1.0).contains(&figure("mfu")) && figure("headroom_gib") >= 0.0);
    }
    assert!(answer["considered"].as_u64() >= answer["evaluated"].as_u64());
    assert!(answer["rejected"].is_object());
}

#[test]
fn every_form_of_a_plan_is_well_formed() {
    let markdown = run(&[&SMALL[..], &["--format", "markdown"]].concat());
    assert!(out(&markdown).contains("\n| --- |"), "{}", out(&markdown));
    let sheet = run(&[&SMALL[..], &["--format", "csv"]].concat());
    let mut reader = csv::Reader::from_reader(&sheet.stdout[..]);
    assert!(reader.headers().unwrap().iter().any(|column| column == "terms.compute_s"));
    assert!(reader.records().all(|row| row.is_ok()));
}

#[test]
fn a_model_that_fits_nowhere_is_code_1_with_the_nearest_miss() {
    let output = run(&["plan", "llama3-405b", "dgx-h100-8"]);
    assert_eq!(code(&output), 1, "{}", err(&output));
    assert_eq!(out(&output), "");
    for word in ["no feasible plan", "out-of-memory", "weights and gradients alone", "hint: "] {
        assert!(err(&output).contains(word), "{}", err(&output));
    }
    let output = run(&["plan", "llama3-8b", "dgx-h100-8", "--gpus", "1", "--seq-len", "131072"]);
    assert_eq!(code(&output), 1, "{}", err(&output));
    for word in ["no feasible plan", "out-of-memory", "nearest miss: ", "GiB", "hint: "] {
        assert!(err(&output).contains(word), "{}", err(&output));
    }
}

#[test]
fn explain_adds_up_and_says_why_not() {
    let output = run(&["explain", "llama3-8b", "dgx-h100-8", "--plan", "tp=4 cp=1 pp=2", "--format", "json"]);
    let answer = json(&output);
    assert_eq!(answer["schema"], 1);
    assert_eq!(answer["ranks"].as_array().unwrap().len(), 2);
    assert_eq!(code(&output) == 0, answer["runs"].as_bool().unwrap(), "{}", err(&output));

    let output = run(&["explain", "llama3-405b", "dgx-h100-8", "--plan", "tp=8"]);
    assert_eq!(code(&output), 1, "{}", err(&output));
    assert!(out(&output).contains("Memory by pipeline rank") && out(&output).contains("out-of-memory"));
    refused(&["explain", "llama3-8b", "dgx-h100-8", "--plan", "tq=8"], &["--plan", "tq"]);
    refused(&["explain", "llama3-8b", "dgx-h100-8", "--plan", "tp=banana"], &["--plan", "banana"]);
    let zero = run(&["explain", "llama3-8b", "dgx-h100-8", "--plan", "tp=0"]);
    assert!([1, 2].contains(&code(&zero)), "{}", err(&zero));
}

#[test]
fn unknown_names_suggest_the_nearest() {
    refused(&["plan", "llama3-8B-", "dgx-h100-8"], &["did you mean `llama3-8b`?", "hint: "]);
    refused(&["plan", "meta-llama/Llama-3.1-8B", "dgx-h100-8"], &["hf download", "nearest name is `llama3-8b`"]);
    refused(&["plan", "llama3-8b", "dgx-h100-9"], &["did you mean `dgx-h100-8`?"]);
    for (asked, meant) in [("h100_512", "h100-512"), ("H100-512", "h100-512"), ("dgx h100 8", "dgx-h100-8")] {
        refused(&["plan", "llama3-8b", asked], &[&format!("did you mean `{meant}`?")]);
    }
    refused(&["plan", "Llama3_8B", "dgx-h100-8"], &["did you mean `llama3-8b`?"]);
    refused(&["budget", "llama3-8b", "--gpu", "H100_SXM"], &["did you mean `h100-sxm`?"]);
    for (asked, meant) in
        [("h100-8", "8xh100-sxm"), ("8 A100", "8xa100-80-sxm"), ("4090:8", "8xrtx-4090"), ("8xh100sx", "8xh100-sxm")]
    {
        refused(&["plan", "llama3-8b", asked], &[&format!("did you mean `{meant}`?")]);
    }
    refused(&[&SMALL[..], &["--stack", "nemo25"]].concat(), &["did you mean `nemo-25`?"]);
    refused(&[&SMALL[..], &["--optimizer", "megatorn"]].concat(), &["did you mean `megatron`?"]);
    refused(&[&SMALL[..], &["--for", "megatorn"]].concat(), &["megatorn", "megatron"]);
    refused(&["gpus", "h100sxm"], &["did you mean `h100-sxm`?"]);
    refused(&["budget", "llama3-8b", "--optimizer", "adam"], &["no optimizer recipe `adam`"]);
}

#[test]
fn impossible_problems_are_named() {
    refused(&[&SMALL[..], &["--gpus", "0"]].concat(), &["`--gpus` is 0", "from 1 to"]);
    refused(&[&SMALL[..], &["--global-batch", "0"]].concat(), &["`--global-batch` is 0"]);
    refused(&[&SMALL[..], &["--seq-len", "0"]].concat(), &["`--seq-len` is 0"]);
    refused(&[&SMALL[..], &["--imbalance", "0.5"]].concat(), &["`--imbalance` is 0.5", "from 1 to"]);
    refused(&[&SMALL[..], &["--precision", "nvfp4"]].concat(), &["nvfp4", "hint: "]);
    refused(&[&SMALL[..], &["--precision", "fp7"]].concat(), &["fp7", "bf16"]);
    refused(&[&SMALL[..], &["--gpus", "-3"]].concat(), &["-3"]);
    refused(&[&SMALL[..], &["--fix", "tp"]].concat(), &["--fix tp"]);
    refused(&[&SMALL[..], &["--top", "0"]].concat(), &["--top"]);
    refused(&[&SMALL[..], &["--set", "gpu.hbm=141 GBps"]].concat(), &["gpu.hbm", "GiB"]);
}

#[test]
fn malformed_files_are_named_with_line_and_column() {
    let toml = file("bad.toml", "name = \"x\"\nhidden = = 3\n");
    refused(&["models", toml.to_str().unwrap()], &["bad.toml", "line 2"]);
    refused(&["plan", toml.to_str().unwrap(), "dgx-h100-8"], &["bad.toml", "line 2, column"]);
    let json = file("bad.json", "{\n  \"model_type\": \"llama\",,\n}\n");
    refused(&["models", json.to_str().unwrap()], &["bad.json:2:25"]);
    let unknown = file("unknown.json", "{\"model_type\": \"quux\", \"architectures\": [\"QuuxForCausalLM\"]}");
    refused(&["models", unknown.to_str().unwrap()], &["unknown.json", "quux"]);
    let runs = file("bad.csv", "id,model\n\"a\",b,c,d\n");
    refused(&["predict", "--runs", runs.to_str().unwrap()], &["bad.csv", "header", "gpus_total"]);
    let header = "id,framework,gpu,gpus_total,layers,hidden,heads,vocab,seq_len,tp,pp,global_batch\n";
    let cell = file("cell.csv", &format!("{header}a,megatron,h100-sxm,8,32,banana,32,32000,4096,1,1,8\n"));
    refused(&["predict", "--runs", cell.to_str().unwrap()], &["cell.csv: line 2, column `hidden`", "banana"]);
    let short = file("short.csv", &format!("{header}a,megatron\n"));
    refused(&["predict", "--runs", short.to_str().unwrap()], &["short.csv", "line: 2"]);
    refused(&["predict", "--runs", "no/such/file.csv"], &["no/such/file.csv"]);
}

/// The reason why fields make no model is told once, not again as the cause of itself.
#[test]
fn an_impossible_config_is_refused_in_one_sentence() {
    let config = std::fs::read_to_string("tests/hf/llama-3.1-8b.json").unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["num_key_value_heads"] = 5.into();
    let path = file("odd-heads.json", &config.to_string());
    let output = run(&["models", path.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert_eq!(err(&output).matches("32 heads are not a multiple of 5 kv_heads").count(), 1, "{}", err(&output));
}

#[test]
fn a_config_json_gives_exact_parameters() {
    let output = run(&["models", "tests/hf/llama-3.1-8b.json", "--format", "json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let answer = json(&output);
    assert_eq!(answer["schema"], 1);
    assert_eq!(answer["parameters"]["total"], 8_030_261_248_u64);
    assert_eq!(answer["parameters"]["active"], 8_030_261_248_u64);
    assert_eq!(answer["parameters"]["embedding"], 525_336_576);
    assert_eq!(answer["layers"], 32);
}

#[test]
fn lists_and_entries_in_every_form() {
    for list in ["models", "clusters", "gpus", "stacks"] {
        for form in ["table", "json", "markdown", "csv"] {
            let output = run(&[list, "--format", form]);
            assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{list} {form}");
            assert!(out(&output).lines().count() > 5, "{list} {form}");
        }
    }
    for (list, name) in
        [("clusters", "h100-24576"), ("gpus", "h100-sxm"), ("stacks", "nemo-25"), ("models", "deepseek-v3")]
    {
        assert_eq!(json(&run(&[list, name, "--format", "json"]))["schema"], 1);
        let table = out(&run(&[list, name]));
        assert!(table.contains("source") && !table.contains("key: "), "{name}: {table}");
    }
}

#[test]
fn a_budget_is_the_primers_arithmetic() {
    let args = ["budget", "llama3-8b", "--optimizer", "deepspeed", "--seq-len", "4096", "--format", "json"];
    let answer = json(&run(&args));
    let budget = &answer["budgets"][0];
    let states = 16.0 * answer["parameters"]["total"].as_f64().unwrap();
    assert!((budget["states_bytes"].as_f64().unwrap() / states - 1.0).abs() < 1e-12);
    let kept = 12.0 * 32.0 * 4096.0 * 4096.0 * 2.0;
    assert!((budget["activations_gib"].as_f64().unwrap() * 1024_f64.powi(3) / kept - 1.0).abs() < 1e-12);
    assert_eq!(budget["fewest_gpus"].as_u64().unwrap(), ((states + kept) / 80e9).ceil() as u64);
    assert!(out(&run(&["budget", "llama3-405b"])).contains("fp8-compressed"));
}

#[test]
fn help_version_completions_and_manual_are_answers() {
    for args in [&["--help"][..], &["--version"], &["completions", "bash"], &["man"], &["plan", "--help"]] {
        let output = run(args);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{args:?}");
        assert!(out(&output).contains("meshwright") || args.len() > 1, "{args:?}");
    }
    assert_eq!(code(&run(&["plam"])), 2);
    assert!(err(&run(&["plam"])).contains("plan"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = command(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
}

#[test]
fn tokens_make_a_bill_and_energy_has_its_own_best_plan() {
    let ask = |objective: &str| {
        let output =
            run(&[&SMALL[..], &["--tokens", "1 T", "--objective", objective, "--format", "json", "--top", "2"]]
                .concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        json(&output)
    };
    let (soonest, frugal) = (ask("time-to-train"), ask("energy"));
    let figure = |answer: &Value, name: &str| answer["bills"][0][name].as_f64().unwrap();
    let days = 1e12 / (128.0 * 8192.0) * soonest["plans"][0]["step_time_s"].as_f64().unwrap() / 86400.0;
    assert!((figure(&soonest, "days") * figure(&soonest, "effective") / days - 1.0).abs() < 1e-9);
    assert!((figure(&soonest, "cost_usd") / (figure(&soonest, "gpu_hours") * 2.95) - 1.0).abs() < 1e-9);
    assert!(figure(&frugal, "energy_mwh") <= figure(&soonest, "energy_mwh"));
    assert!(figure(&frugal, "days") >= figure(&soonest, "days"));
    let cheap = run(&[&SMALL[..], &["--tokens", "1 T", "--price", "1 $/h"]].concat());
    assert!(out(&cheap).contains("Interrupted every"), "{}", out(&cheap));
}

#[test]
fn money_without_sense_is_refused() {
    let with = |more: &[&'static str]| [&SMALL[..], more].concat();
    refused(&with(&["--objective", "cost"]), &["--tokens"]);
    refused(&with(&["--tokens", "1 T", "--terms", "sport"]), &["did you mean `spot`", "contract"]);
    refused(&with(&["--tokens", "1 T", "--set", "market.site.pue=0.5"]), &["`site.pue` is 0.5", "from 1 to"]);
    let priceless = ["plan", "llama3-8b", "mi300x-512", "--gpus", "8", "--tokens", "1 T", "--terms", "own"];
    refused(&priceless, &["purchase price"]);
    for price in ["2.95", "2.95/h", "-1 $/h"] {
        let price = format!("--price={price}");
        let output = run(&[&SMALL[..], &["--tokens", "1 T", &price]].concat());
        assert_eq!(code(&output), 2);
        assert!(err(&output).contains("is not a price") && err(&output).contains("$/h"), "{}", err(&output));
    }
}
