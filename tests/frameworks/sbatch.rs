//! Slurm jobs of emitted files, run by bash under stand-ins of Slurm and of the launchers: two nodes, up to the launched command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `srun`: the command behind its options, once for each of two nodes. `scontrol`: their names. Launchers: their arguments.
const STUBS: [(&str, &str); 4] = [
    (
        "srun",
        "#!/usr/bin/env bash\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
         for node in 0 1; do SLURM_NODEID=$node \"$@\" || exit $?; done\n",
    ),
    (
        "scontrol",
        // Long lists come in parts: whoever stops reading after the first name ends the writer, and with `pipefail` the job.
        "#!/bin/sh\n[ \"$1 $2\" = 'show hostnames' ] && [ \"$3\" = 'gpu[07-08]' ] || exit 1\n\
         printf 'gpu07\\n'; sleep 0.1; printf 'gpu08\\n'\n",
    ),
    ("torchrun", "#!/bin/sh\nprintf '%s ' \"$@\" >> \"$CALLS\"\necho >> \"$CALLS\"\n"),
    ("accelerate", "#!/bin/sh\nprintf '%s ' \"$@\" >> \"$CALLS\"\necho >> \"$CALLS\"\n"),
];

/// Folder of jobs, and their environment.
#[derive(Clone)]
struct Slurm {
    folder: PathBuf,
    variables: BTreeMap<&'static str, String>,
}

impl Slurm {
    /// A cluster of two nodes whose jobs start in a fresh folder.
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sbatch-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        let bin = folder.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for (program, text) in STUBS {
            let path = bin.join(program);
            std::fs::write(&path, text).unwrap();
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let variables = [
            ("PATH", path.as_str()),
            ("CALLS", folder.join("calls").to_str().unwrap()),
            ("SLURM_JOB_NODELIST", "gpu[07-08]"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_SUBMIT_DIR", folder.to_str().unwrap()),
            ("CONTAINER", "none"),
        ]
        .map(|(name, value)| (name, value.to_owned()));
        Self { variables: variables.into(), folder }
    }

    /// Texts of all emitted files.
    fn texts(&self) -> String {
        let files =
            std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    fn emit(&self, framework: &str, more: &[&str]) {
        let out = self.folder.to_str().unwrap();
        let asked =
            ["emit", framework, "llama3-8b", "dgx-h100-1k", "--gpus", "16", "--global-batch", "64", "--out", out];
        let done = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(asked).args(more).output().unwrap();
        assert!(done.status.success(), "{framework}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn run(&self, job: &str) -> Output {
        let job = self.folder.join(job);
        Command::new("bash").arg(job).env_clear().envs(&self.variables).current_dir("/").output().unwrap()
    }

    /// Launched commands of a job that must succeed, one a node.
    fn launched(&self, job: &str) -> Vec<String> {
        let _ = std::fs::remove_file(self.folder.join("calls"));
        let done = self.run(job);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read_to_string(self.folder.join("calls")).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Asserts that two nodes meet on the first, and differ in their number alone.
fn meet(calls: &[String]) {
    let [first, second] = calls else { panic!("{calls:?}") };
    let (zero, one) = (first.replace("rank 0", "rank N"), second.replace("rank 1", "rank N"));
    assert_eq!(zero, one);
    assert!(zero.contains("rank N") && zero.contains(" gpu07 ") && zero.contains(" 24711 "), "{zero}");
    assert!(!zero.contains("localhost"), "{zero}");
}

const FRAMEWORKS: [(&str, &str, &str); 6] = [
    ("megatron", "tp=4 pp=2", "pretrain_gpt.py --num-layers 32"),
    ("megatron-bridge", "tp=4 pp=2", "megatron_bridge.py"),
    ("deepspeed", "zero=3", "train.py --deepspeed --deepspeed_config ds_config.json"),
    ("torchtitan", "zero=3", "-m torchtitan.train --module torchtitan_plan --config train"),
    ("accelerate", "zero=3", "launch --config_file accelerate.yaml"),
    ("nanotron", "tp=4 pp=2 zero=1", "run_train.py --config-file nanotron.yaml"),
];

#[test]
fn jobs_launch_every_framework_on_both_nodes() {
    for (framework, plan, launched) in FRAMEWORKS {
        let mut slurm = Slurm::new(framework);
        slurm.emit(framework, &["--plan", plan, "--steps", "4321"]);
        assert!(slurm.texts().contains("4321"), "{framework} does not say how many steps it runs");
        let checkouts = [("MEGATRON_LM", "/m"), ("NANOTRON", "/n")];
        slurm.variables.extend(checkouts.map(|(name, value)| (name, value.to_owned())));
        let calls = slurm.launched("launch.sbatch");
        meet(&calls);
        assert!(calls[0].contains(launched), "{framework}: {}", calls[0]);
        for variable in ["CONTAINER", "SLURM_JOB_NODELIST"] {
            let mut without = slurm.clone();
            without.variables.remove(variable);
            let failed = without.run("launch.sbatch");
            let message = String::from_utf8_lossy(&failed.stderr).into_owned();
            assert!(!failed.status.success() && message.contains(variable), "{framework} {variable}: {message}");
        }
    }
}

#[test]
fn what_training_needs_fails_with_a_sentence_while_it_is_not_set() {
    let mut slurm = Slurm::new("unset");
    slurm.emit("megatron", &["--plan", "tp=4 pp=2"]);
    for (name, value) in [
        ("MEGATRON_LM", "/m"),
        ("DATA", "/data/my text"),
        ("TOKENIZER", "a/b"),
        ("SAVE", "/save"),
        ("LOAD", "/save"),
        ("STEPS", "100"),
    ] {
        let failed = slurm.run("launch.sbatch");
        let message = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && message.contains(&format!("set {name} to ")), "{name}: {message}");
        slurm.variables.insert(name, value.to_owned());
    }
    let calls = slurm.launched("launch.sbatch");
    meet(&calls);
    assert!(calls[0].contains("--data-path /data/my text") && calls[0].contains("--train-iters 100"), "{}", calls[0]);
    let mut alone = slurm.clone();
    alone.variables.insert("NODE_RANK", "0".to_owned());
    let message = String::from_utf8_lossy(&alone.run("megatron.sh").stderr).into_owned();
    assert!(message.contains("set MASTER_ADDR to the host name of the first node"), "{message}");
    slurm.emit("nanotron", &["--plan", "tp=4 pp=2 zero=1", "--force"]);
    slurm.variables.insert("NANOTRON", "/n".to_owned());
    let message = String::from_utf8_lossy(&slurm.run("launch.sbatch").stderr).into_owned();
    assert!(message.contains("dataset_folder: TO_BE_SET") && message.contains("nanotron.yaml: set these"), "{message}");
    slurm.emit("gpt-neox", &["--plan", "tp=4 pp=1 zero=1", "--force"]);
    let message = String::from_utf8_lossy(&slurm.run("launch.sbatch").stderr).into_owned();
    assert!(message.contains("set GPT_NEOX to a checkout"), "{message}");
    slurm.variables.insert("GPT_NEOX", "/x".to_owned());
    let message = String::from_utf8_lossy(&slurm.run("launch.sbatch").stderr).into_owned();
    assert!(message.contains("data_path: TO_BE_SET") && message.contains("gpt_neox.yml: set these"), "{message}");
    assert!(!message.contains("To be edited"), "a comment is no mark: {message}");
    slurm.emit("llm-foundry", &["--plan", "zero=3", "--force"]);
    let message = String::from_utf8_lossy(&slurm.run("launch.sbatch").stderr).into_owned();
    assert!(message.contains("set LLM_FOUNDRY to a checkout"), "{message}");
    slurm.variables.insert("LLM_FOUNDRY", "/x".to_owned());
    let message = String::from_utf8_lossy(&slurm.run("launch.sbatch").stderr).into_owned();
    assert!(message.contains("local: TO_BE_SET") && message.contains("llm_foundry.yaml: set these"), "{message}");
    slurm.emit("olmo-core", &["--plan", "zero=3", "--force"]);
    slurm.variables.remove("TOKENIZER");
    let message = String::from_utf8_lossy(&slurm.run("launch.sbatch").stderr).into_owned();
    assert!(message.contains("set TOKENIZER to the tokenizer that they were made with"), "{message}");
}

#[test]
fn an_array_runs_each_of_the_best_plans_in_its_folder() {
    let mut slurm = Slurm::new("array");
    slurm.emit("megatron", &["--top", "3", "--steps", "20"]);
    slurm.variables.insert("MEGATRON_LM", "/m".to_owned());
    let text = |name: &str| std::fs::read_to_string(slurm.folder.join(name)).unwrap();
    assert!(text("array.sbatch").contains("#SBATCH --array=0-2\n"));
    let plans: Vec<String> = (1..=3).map(|rank| text(&format!("plan-{rank}/megatron.sh"))).collect();
    assert!(plans[0] != plans[1] && plans[1] != plans[2]);
    let mut launched = Vec::new();
    for task in 0..3 {
        slurm.variables.insert("SLURM_ARRAY_TASK_ID", task.to_string());
        let calls = slurm.launched("array.sbatch");
        meet(&calls);
        launched.push(calls[0].clone());
    }
    assert!(launched[0] != launched[1] && launched[1] != launched[2]);
}
