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

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
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
    refused(&["plan", "llama3-8b", "dgx-h100-9"], &["did you mean `dgx-h100-8`?"]);
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
        assert!(out(&run(&[list, name])).contains("source"), "{name}");
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

const POOLS: &str = "name = \"two\"\nsource = \"meshwright-estimates\"\n\
    [[pool]]\nname = \"old\"\ncluster = \"dgx-h100-8\"\n[[pool]]\nname = \"new\"\ncluster = \"h200-1k\"\ngpus = 8\n\
    [[link]]\nbetween = [\"old\", \"new\"]\nbandwidth = { value = \"100 Gb/s\", source = \"meshwright-estimates\" }\n\
    efficiency = 0.75\n";

#[test]
fn pools_of_heterogeneous_gpus_are_planned_together() {
    let path = file("pools.toml", POOLS);
    let path = path.to_str().unwrap();
    let output = run(&["plan", "llama3-8b", path, "--format", "json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let answer = json(&output);
    assert_eq!(answer["question"]["gpus"], 16);
    assert_eq!(answer["mixing_pays"], true);
    assert_eq!(answer["alone"].as_array().unwrap().len(), 2);
    let best = &answer["plans"][0];
    assert_eq!(best["pools"].as_array().unwrap().len(), 2);
    assert!(best["step_time_s"].as_f64() < answer["alone"][0]["step_time_s"].as_f64());
    let table = run(&["plan", "llama3-8b", path]);
    assert!(out(&table).contains("each pool alone") && out(&table).contains("less than pool"), "{}", out(&table));
    for (args, word) in [
        (vec!["explain", "llama3-8b", path, "--trace", "x.json"], "--trace"),
        (vec!["plan", "llama3-8b", path, "--no-refine"], "always optimised"),
        (vec!["clusters", path], "pools of heterogeneous GPUs"),
        (vec!["plan", "llama3-8b", path, "--gpus", "8"], "--gpus"),
        (vec!["plan", "llama3-8b", path, "--pareto"], "--pareto"),
        (vec!["plan", "llama3-8b", path, "--set", "cluster.gpus=8"], "which pool"),
    ] {
        refused(&args, &[word]);
    }
    let plan = best["plan"].as_str().unwrap();
    let explained = json(&run(&["explain", "llama3-8b", path, "--plan", plan, "--format", "json"]));
    assert!(explained["plans"].as_array().unwrap().iter().any(|way| way["step_time_s"] == best["step_time_s"]));
    let split = "tp=8 pp=2 dp=1 sp=on schedule=1f1b zero=1 split=first-15";
    let staged = json(&run(&["explain", "llama3-8b", path, "--plan", split, "--format", "json"]));
    let ways = staged["plans"].as_array().unwrap();
    assert_eq!(ways.len(), 2, "either pool may come first");
    assert!(ways.iter().all(|way| way["way"] == "stages") && ways.iter().any(|way| way["pools"][0]["layers"] == 15));
    let none = run(&["plan", "llama3-405b", path]);
    assert_eq!(code(&none), 1, "{}", err(&none));
    assert_eq!(out(&none), "");
    let ended = run(&["plan", "llama3-8b", path, "--time-limit", "0"]);
    assert_eq!(code(&ended), 1, "{}", out(&ended));
    assert!(err(&ended).contains("ended at its limit"), "{}", err(&ended));
}

/// Files of a plan over pools say whose hosts come first, and read back as the plan.
#[test]
fn plans_over_pools_are_written_with_their_hosts() {
    let path = file("emitted-pools.toml", POOLS);
    let path = path.to_str().unwrap();
    let folder = std::env::temp_dir().join(format!("meshwright-pools-{}", std::process::id()));
    let split = "tp=8 pp=2 dp=1 sp=on schedule=1f1b zero=1 split=last-15";
    let output = run(&["emit", "megatron", "llama3-8b", path, "--plan", split]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let script = out(&output);
    let of_pools = |first: &str, second: &str| {
        format!("# node rank 0: pool {first}\n# node rank 1: pool {second}")
            .replace("old", "old (H100 SXM5 80GB)")
            .replace("new", "new (H200 SXM 141GB)")
    };
    assert!(script.contains(&of_pools("old", "new")) || script.contains(&of_pools("new", "old")), "{script}");
    for word in
        ["$SLURM_HOSTFILE", "--nnodes 2", "--pipeline-model-parallel-layout 'Et*17|t*15L'", "stage 1, 15 layers"]
    {
        assert!(script.contains(word), "{word}: {script}");
    }
    let made = ["plan", "llama3-8b", path, "--format", "json", "--emit", "megatron", "--out", folder.to_str().unwrap()];
    let planned = run(&made);
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    let best = json(&planned)["plans"][0]["plan"].as_str().unwrap().to_owned();
    let script = folder.join("megatron.sh");
    assert!(std::fs::read_to_string(&script).unwrap().contains(&format!("plan: {}", &best[..40])));
    let read = run(&["import", script.to_str().unwrap()]);
    assert!(out(&read).contains(&best), "{best}: {}", out(&read));
    // The same from the document.
    let document = file("pools.json", &out(&planned));
    let again = run(&["emit", "megatron", "--from", document.to_str().unwrap()]);
    assert_eq!(out(&again), std::fs::read_to_string(&script).unwrap(), "{}", err(&again));
    std::fs::remove_dir_all(folder).unwrap();
    // What cannot be listed.
    let part = file("part.toml", &POOLS.replace("gpus = 8", "gpus = 4"));
    let output = run(&["emit", "megatron", "llama3-8b", part.to_str().unwrap(), "--plan", "tp=4 pp=3 dp=1 sp=on"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("do not fill whole hosts of 8"), "{}", err(&output));
    let refined = run(&["emit", "megatron", "llama3-8b", path, "--plan", split, "--refine"]);
    assert!(err(&refined).contains("always optimised"), "{}", err(&refined));
}

#[test]
fn one_pool_is_answered_as_its_cluster() {
    let own = "name = \"mine\"\nsource = \"meshwright-estimates\"\n";
    let gpus = "gpu = \"h100-sxm\"\ngpus = 8\ngpus_per_node = 8\nhost = \"x86\"\n";
    let cluster = file("one-cluster.toml", &format!("{own}{gpus}"));
    let pool = file("one-pool.toml", &format!("{own}[[pool]]\nname = \"a\"\n{gpus}"));
    for format in ["table", "json"] {
        let answer = |path: &PathBuf| out(&run(&["plan", "llama3-8b", path.to_str().unwrap(), "--format", format]));
        let (of_cluster, of_pool) = (answer(&cluster), answer(&pool));
        assert_eq!(of_cluster.replace("one-cluster.toml", "one-pool.toml"), of_pool);
        assert!(of_pool.len() > 500);
    }
}

/// One pool answers as its cluster does, byte for byte; several are answered for or refused in plain words, by every command that
/// takes a cluster.
#[test]
fn pools_are_answered_for_or_refused() {
    let one =
        file("one-pool.toml", "name = \"x\"\nsource = \"y\"\n[[pool]]\nname = \"all\"\ncluster = \"dgx-h100-64\"\n");
    let one = one.to_str().unwrap();
    for command in
        [vec!["plan", "llama3-8b"], vec!["plan", "llama3-8b", "--format", "json"], vec!["explain", "llama3-8b"]]
    {
        let [of_pool, of_cluster] = [one, "dgx-h100-64"].map(|cluster| {
            let output = run(&[&command[..2], &[cluster], &command[2..]].concat());
            assert_eq!(code(&output), 0, "{}", err(&output));
            out(&output).replace(one, "dgx-h100-64")
        });
        assert_eq!(of_pool, of_cluster, "{command:?}");
    }
    let two = file(
        "two-pools.toml",
        "name = \"x\"\nsource = \"y\"\n[[pool]]\nname = \"a\"\ncluster = \"dgx-h100-64\"\n[[pool]]\nname = \"b\"\ncluster = \
         \"h200-1k\"\ngpus = 64\n[[link]]\nbetween = [\"a\", \"b\"]\nefficiency = 0.75\nbandwidth = { value = \"100 Gb/s\", \
         source = \"y\" }\n",
    );
    let two = two.to_str().unwrap();
    let output = run(&["plan", "llama3-8b", two]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let script = file("of-pools.sh", "torchrun pretrain_gpt.py --num-layers 32\n");
    for command in [
        vec!["clusters", two],
        vec!["lint", script.to_str().unwrap(), two],
        vec!["plan", "llama3-8b", two, "--pareto"],
        vec!["plan", "llama3-8b", two, "--sensitivity"],
        vec!["plan", "llama3-8b", two, "--tokens", "1 T"],
        vec!["plan", "llama3-8b", two, "--refine", "3"],
        vec!["explain", "llama3-8b", two, "--why-not", "tp=8"],
    ] {
        let output = run(&command);
        assert_ne!(code(&output), 0, "{command:?}");
        assert!(err(&output).contains("pools of heterogeneous GPUs"), "{command:?}: {}", err(&output));
    }
}

/// Memory that a plan places on hosts: refused over their capacity, and named where the capacity is unknown.
#[test]
fn hosts_of_unknown_memory_are_told_of() {
    let fixed = ["--fix", "pp=1", "--fix", "zero=3", "--fix", "recompute=none", "--fix", "offload-activations=1"];
    let sets = [&["--global-batch", "8", "--for", "any"], &fixed[..]].concat();
    let of = |more: &[&str]| run(&[&["plan", "llama3-8b", "h100-24576", "--gpus", "8"], &sets[..], more].concat());
    let unknown = of(&[]);
    assert_eq!(code(&unknown), 0, "{}", err(&unknown));
    assert!(err(&unknown).contains("the memory of the hosts is unknown"), "{}", err(&unknown));
    let known = of(&["--set", "cluster.host_memory=2 TB"]);
    assert_eq!((code(&known), out(&known)), (0, out(&unknown)));
    assert!(!err(&known).contains("memory of the hosts is unknown"), "{}", err(&known));
    let small = of(&["--set", "cluster.host_memory=8 GB"]);
    assert_eq!(code(&small), 1);
    assert!([out(&small), err(&small)].concat().contains("host-memory"), "{}{}", out(&small), err(&small));
}
