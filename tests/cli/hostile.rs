//! Input made to do harm: names that are code, files without an end, secrets, lines that are not what they seem.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::sweep::{SMALL, folder, text, written};

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(folder).output().unwrap()
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Message with which a command refuses its input: exit code 2, nothing on stdout, and these words in it.
fn refused(folder: &Path, args: &[&str], words: &[&str]) -> String {
    let output = run(folder, args);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{args:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{args:?} does not say `{word}`: {message}");
    }
    message
}

const PLAN: [&str; 2] = ["--plan", "tp=4 pp=2"];

#[test]
fn a_name_of_several_lines_is_no_name() {
    let folder = folder("hostile-names");
    let copy = |from: &str, to: &str| {
        let toml = std::fs::read_to_string(repository(from)).unwrap();
        let name = toml.lines().find(|line| line.starts_with("name = ")).unwrap();
        std::fs::write(folder.join(to), toml.replace(name, "name = \"L\\ntouch PWNED\\n#\"")).unwrap();
    };
    copy("models/llama3-8b.toml", "m.toml");
    copy("clusters/stacks/nemo-25.toml", "s.toml");
    copy("clusters/dgx-h100-64.toml", "c.toml");
    let emit = |model: &str, cluster: &str, more: &[&str], words: &[&str]| {
        let args = [&["emit", "megatron", model, cluster], &PLAN[..], &["--out", "o"], more].concat();
        refused(&folder, &args, words);
    };
    emit("m.toml", "dgx-h100-64", &[], &["m.toml", "`name`", "one line of printable characters"]);
    emit("llama3-8b", "dgx-h100-64", &["--stack", "s.toml"], &["s.toml", "`name`"]);
    emit("llama3-8b", "c.toml", &[], &["c.toml", "`name`"]);
    let config = folder.join("L\ntouch PWNED\n#");
    std::fs::create_dir(&config).unwrap();
    std::fs::copy(repository("tests/hf/llama-3.1-8b.json"), config.join("config.json")).unwrap();
    emit(config.to_str().unwrap(), "dgx-h100-64", &[], &["config.json", "the name of its folder"]);
    emit("llama3-8b", "dgx-h100-64", &["--set", "model.name=a\u{202e}b"], &["--set", "one line"]);

    let explained = [&["explain", "llama3-8b", "dgx-h100-64"], &PLAN[..], &["--format", "json"]].concat();
    let mut document: serde_json::Value = serde_json::from_slice(&run(&folder, &explained).stdout).unwrap();
    let from = ["emit", "megatron", "--from", "d.json"];
    document["arguments"]["options"]["set"] = serde_json::json!(["model.name=L\ntouch PWNED\n#"]);
    std::fs::write(folder.join("d.json"), document.to_string()).unwrap();
    refused(&folder, &from, &["d.json", "`arguments.options.set`", "one line of printable characters"]);
    document["arguments"]["options"]["set"] = serde_json::json!([]);
    document["arguments"]["model"] = "llama9".into();
    std::fs::write(folder.join("d.json"), document.to_string()).unwrap();
    refused(&folder, &from, &["d.json", "there is no model `llama9`"]);
    assert!(!folder.join("o").exists() && !folder.join("PWNED").exists());
}

/// The command line that `import` prints is to be pasted into a shell.
#[test]
fn a_printed_command_line_runs_nothing_else() {
    let folder = folder("hostile-command");
    let script = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
                  --seq-length 4096 --vocab-size 32000 --micro-batch-size 1 --global-batch-size 64 --bf16\n";
    std::fs::write(folder.join("x.sh"), script).unwrap();
    let output = run(&folder, &["import", "x.sh", "--cluster", "$(touch PWNED)`touch PWNED`", "--model", "llama3-8b"]);
    let printed = text(&output.stdout);
    assert!(printed.contains("'$(touch PWNED)`touch PWNED`'"), "{printed}");
}

#[test]
fn a_sweep_named_as_a_comment_keeps_its_page() {
    let folder = folder("hostile-page");
    let small =
        SMALL.replace("{ from = 8, to = 32, times = 2 }", "8").replace("\"small\"", "\"<!--<script> & </script>\"");
    let out = folder.join("out");
    let file = written(&folder, &small);
    let made = run(&folder, &["sweep", &file, "--out", out.to_str().unwrap(), "--format", "markdown"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(!text(&made.stdout).contains('<'), "{}", text(&made.stdout));
    let page = std::fs::read_to_string(out.join("page.html")).unwrap();
    for tag in ["<script", "</script", "<!--"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(page.contains("&lt;!--&lt;script&gt;"), "the name is there");
}

#[test]
fn values_of_a_sourced_file_are_not_repeated() {
    let folder = folder("hostile-secrets");
    let elsewhere = folder.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let secrets = elsewhere.join("file.env");
    std::fs::write(
        &secrets,
        "export TOKEN=hunter2secret\nKEYS=(AKIAsecret 'two secrets')\nLAYERS=32\n--hunter3secret\n",
    )
    .unwrap();
    let script = format!(
        "source {}\ncase \"$TOKEN\" in x) ;; esac\ntorchrun --nproc-per-node 8 pretrain_gpt.py --num-layers $LAYERS \
         --hidden-size 4096 --num-attention-heads $TOKEN --seq-length 4096 --vocab-size 32000 --micro-batch-size 1 \
         --global-batch-size 64 --bf16 --wandb-kee $TOKEN --recompute-granularity $TOKEN --transformer-impl \"${{KEYS[1]}}\" \
         $TOKEN --lr=${{KEYS[0]}}x --optimizer ${{TOKEN}} --wandb-ked run_$TOKEN --wandb-kez ${{TOKEN:0:11}} \
         --wandb-kei ${{TOKEN^^}} --wandb-kex ${{TOKEN%et}} --wandb-kew ${{TOKEN}}x --wandb-kev \"a $TOKEN\"\n",
        secrets.display()
    );
    std::fs::write(folder.join("x.sh"), script).unwrap();
    let mut message = String::new();
    for format in ["table", "json", "sarif", "markdown", "csv"] {
        let output = run(&folder, &["lint", "x.sh", "dgx-h100-8", "--quick", "--format", format]);
        message += &(text(&output.stdout) + &text(&output.stderr));
    }
    for format in ["table", "json", "markdown", "csv"] {
        let output = run(&folder, &["import", "x.sh", "--format", format]);
        message += &(text(&output.stdout) + &text(&output.stderr));
    }
    assert!(message.contains('…'), "{message}");
    assert!(
        !message.to_lowercase().contains("secr"),
        "{}",
        message.lines().filter(|line| line.to_lowercase().contains("secr")).collect::<String>()
    );
}

#[test]
fn returns_at_line_ends_are_found() {
    let folder = folder("hostile-returns");
    let script = "#!/bin/bash\r\ntorchrun --nproc-per-node 8 pretrain_gpt.py \\\r\n--num-layers 32 --hidden-size 4096 \
                  --num-attention-heads 32 --seq-length 4096 --vocab-size 32000 --micro-batch-size 1 --bf16\r\n";
    std::fs::write(folder.join("x.sh"), script).unwrap();
    let output = run(&folder, &["lint", "x.sh", "dgx-h100-8", "--quick", "--format", "sarif"]);
    let sarif: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let found = results.iter().find(|result| result["ruleId"] == "line-ends").unwrap();
    assert_eq!(found["locations"][0]["physicalLocation"]["region"]["startLine"], 1);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn keys_of_json_stand_once() {
    let folder = folder("hostile-keys");
    let config = std::fs::read_to_string(repository("tests/hf/llama-3.1-8b.json")).unwrap();
    std::fs::write(folder.join("twice.json"), config.replacen('{', "{\n\"vocab_size\": 7,", 1)).unwrap();
    refused(&folder, &["models", "twice.json"], &["twice.json:", "the key `vocab_size` stands twice"]);
    std::fs::write(folder.join("d.json"), r#"{"schema": 1, "schema": 2}"#).unwrap();
    refused(&folder, &["emit", "megatron", "--from", "d.json"], &["d.json", "the key `schema` stands twice"]);
    std::fs::write(folder.join("ds.json"), r#"{"train_batch_size": 8, "train_batch_size": 9}"#).unwrap();
    refused(&folder, &["import", "ds.json", "--kind", "deepspeed"], &["ds.json", "train_batch_size"]);
}

/// Every reader, with a path in the place of its file.
const READERS: [&[&str]; 14] = [
    &["models", "PATH"],
    &["plan", "llama3-8b", "PATH"],
    &["plan", "llama3-8b", "dgx-h100-8", "--stack", "PATH"],
    &["plan", "llama3-8b", "dgx-h100-8", "--fit", "PATH"],
    &["plan", "llama3-8b", "dgx-h100-8", "--calibration", "PATH"],
    &["emit", "megatron", "--from", "PATH"],
    &["import", "PATH"],
    &["lint", "PATH", "dgx-h100-8"],
    &["sweep", "PATH"],
    &["predict", "--runs", "PATH"],
    &["validate", "--runs", "PATH"],
    &["fit", "--runs", "PATH"],
    &["runs", "from-log", "PATH"],
    &["measure", "--probe", "PATH", "--gpu", "h100-sxm"],
];

fn with_path(args: &[&str], path: &str) -> Vec<String> {
    args.iter().map(|word| word.replace("PATH", path)).collect()
}

/// A file that is too long, none, a folder, or no text: each is refused in a sentence that names it.
#[test]
fn every_refusal_names_its_file() {
    let folder = folder("hostile-files");
    std::fs::write(folder.join("binary.toml"), [0xff; 2000]).unwrap();
    std::fs::create_dir(folder.join("folder.toml")).unwrap();
    for args in READERS {
        for path in ["absent.toml", "folder.toml", "binary.toml"] {
            if (path, args[0]) == ("folder.toml", "models") {
                continue; // a folder of a config.json
            }
            let args = with_path(args, path);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let message = refused(&folder, &args, &[path]);
            assert_eq!(message.matches(path).count(), 1, "{args:?} names its file more than once: {message}");
        }
    }
    let small = SMALL.replace("\"1 B\"", "\"0 B\"");
    let file = written(&folder, &small);
    refused(&folder, &["sweep", &file], &["sweep.toml: workload.llama3-8b.tokens"]);
}

#[cfg(unix)]
#[test]
fn input_without_an_end_ends_with_a_sentence() {
    let folder = folder("hostile-endless");
    for args in READERS {
        if matches!(args[0], "measure") || args.contains(&"--calibration") {
            continue; // up to a gigabyte of samples
        }
        let args = with_path(args, "/dev/zero");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = run(&folder, &args);
        let message = text(&output.stderr);
        let ended = output.status.code() == Some(2) && message.contains("/dev/zero");
        assert!(ended, "{args:?}: {:?} {message}", output.status);
    }
    let made = Command::new("mkfifo").arg(folder.join("pipe.toml")).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no mkfifo here; a pipe that nobody writes to was not read");
        return;
    }
    let waiting =
        [&["models", "pipe.toml"][..], &["predict", "--runs", "pipe.toml"], &["runs", "from-log", "pipe.toml"]];
    let spawn = |args: &&[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(*args).current_dir(&folder).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    };
    for child in waiting.iter().map(spawn).collect::<Vec<_>>() {
        let output = child.wait_with_output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("pipe.toml") && message.contains("gave nothing for 10 s"), "{message}");
    }
}

/// Memory of `predict` does not grow with its rows: 10,000 took 110 MiB when all were held, and 100,000 took 932 MiB.
#[cfg(target_os = "linux")]
#[test]
fn rows_are_predicted_as_they_are_read() {
    const MOST_KIB: u64 = 64 << 10;
    let folder = folder("hostile-rows");
    let published = std::fs::read_to_string(repository("tests/published/runs.csv")).unwrap();
    let mut lines = published.split_inclusive('\n');
    let header = lines.next().unwrap();
    let row = lines.next().unwrap();
    std::fs::write(folder.join("runs.csv"), header.to_owned() + &row.repeat(10_000)).unwrap();
    let out = std::fs::File::create(folder.join("out.jsonl")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["predict", "--runs", "runs.csv"])
        .current_dir(&folder)
        .stdout(out)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let high = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = peak.max(high.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(peak > 0 && peak < MOST_KIB, "{peak} KiB");
    let written = std::fs::read_to_string(folder.join("out.jsonl")).unwrap();
    assert_eq!(written.lines().count(), 10_000);
    println!("{peak} KiB");
}
