//! The launch that a script makes: launcher, GPUs, program, arguments.

use super::finding::{Finding, Place};
use crate::readers::shell::text::{Text, readable};
use crate::readers::shell::{Called, Ran};

/// A program with its launcher, arguments and environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The program: a script or a module.
    pub program: String,
    /// Arguments of the program.
    pub arguments: Vec<Text>,
    /// The launcher's options that were read, such as `--config_file`.
    pub options: Vec<(String, Text)>,
    /// Its launcher.
    pub launcher: Launcher,
    /// Variables that are set for it alone.
    pub own: Vec<(String, Text)>,
    /// First line of the command.
    pub line: u32,
    /// Number of nodes.
    pub nodes: Option<Text>,
    /// GPUs per node.
    pub per_node: Option<Text>,
    /// GPUs in all, where the launcher counts them so.
    pub processes: Option<Text>,
}

/// Launcher of the processes, the least certain to train first: of several launches of a script the last in this order
/// counts, and of two launchers around one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launcher {
    /// The program itself.
    Plain,
    /// `mpirun`, `mpiexec`.
    Mpi,
    /// `srun`.
    Slurm,
    /// ms-swift's `megatron sft` and `swift sft`, which start their processes themselves.
    Swift,
    /// A framework's own command, which does so too: `axolotl train`, `llamafactory-cli train`, `llmfoundry train`.
    Own,
    /// Primus' `primus-cli … -- train pretrain`, which starts `torchrun`.
    Primus,
    /// `composer`, one of which runs on each node.
    Composer,
    /// `torchrun`, `torch.distributed.run` and `.launch`.
    Torchrun,
    /// `deepspeed`.
    Deepspeed,
    /// `accelerate launch`.
    Accelerate,
}

/// Options of the launchers without a value.
const SWITCHES: &[&str] = &[
    "--standalone",
    "--no_python",
    "--no-python",
    "--run_path",
    "--run-path",
    "--use_env",
    "--use-env",
    "--no_local_rank",
    "--no_ssh_check",
    "--no_ssh",
    "--force_multi",
    "--save_pid",
    "--elastic_training",
    "--bind_cores_to_rank",
    "--multi_gpu",
    "--cpu",
    "--tpu",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_megatron_lm",
    "--use_parallelism_config",
    "--debug",
    "--quiet",
    "-q",
    "--ipex",
    "--use_xpu",
    "--downcast_bf16",
    "--enable_cpu_affinity",
    "--allow-run-as-root",
    "--exclusive",
    "--unbuffered",
    "--label",
    "-l",
    "-u",
    "--verbose",
    "-v",
    "--overcommit",
    "-O",
    "--no-container-mount-home",
    "--virtual-local-rank",
];

/// All launches of training programs of a script, the likeliest first.
pub fn launches(ran: &Ran) -> Vec<Launch> {
    let mut found: Vec<Launch> = ran.called.iter().filter_map(launch).collect();
    let weight = |launch: &Launch| {
        let flags = launch.arguments.iter().filter(|word| word.plain().starts_with("--")).count();
        (flags.min(MANY), launch.launcher)
    };
    found.sort_by_key(|launch| std::cmp::Reverse(weight(launch))); // stable: among equals the first of the script
    found
}

/// Fewest flags that make a launch of any program one of training.
const MANY: usize = 8;

/// Whether a word names a Python file.
fn is_program(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|extension| extension == "py")
}

/// ms-swift's commands that train.
fn trains(word: Option<&Text>) -> bool {
    word.is_some_and(|word| matches!(word.plain().as_str(), "pt" | "sft" | "rlhf"))
}

/// The launch of a command that a script ran; none where it launches nothing.
fn launch(called: &Called) -> Option<Launch> {
    let words: Vec<Text> = called.around.iter().chain(&called.words).cloned().collect();
    let found = Launch { own: called.own.clone(), ..of_words(&words, called.around.len(), called.line)? };
    // A program that takes a launch behind `--` and hands it to a cluster is what is around it.
    let dashes = words.iter().rposition(|word| word.plain() == "--");
    let handed = dashes.filter(|_| found.launcher == Launcher::Plain);
    handed.and_then(|at| of_words(&words, at + 1, called.line).filter(|_| at > 0)).or(Some(found))
}

/// The launch in words whose program is the word at `inner` or a later one.
fn of_words(words: &[Text], inner: usize, line: u32) -> Option<Launch> {
    let (at, found) = launcher(words, inner)?;
    let (launcher, rest) = behind(words, at, found)?;
    let has_no_options = matches!(launcher, Launcher::Plain | Launcher::Swift | Launcher::Own | Launcher::Primus);
    let (options, program) = split(rest, has_no_options);
    let (name, arguments) = program.split_first()?;
    if name.plain().starts_with('-') {
        return None; // `python -c`, `python -`: code on the command line
    }
    let mut launch = Launch {
        program: if matches!(launcher, Launcher::Swift | Launcher::Own | Launcher::Primus) {
            format!("{} {}", base(&words[at]), name.plain())
        } else {
            readable(&name.plain())
        },
        arguments: arguments.to_vec(),
        options,
        launcher,
        own: Vec::new(),
        line,
        nodes: None,
        per_node: None,
        processes: None,
    };
    read_scheduler_options(&words[..at], &mut launch);
    counted(&mut launch);
    Some(launch)
}

/// Last part of the path that a word is.
fn base(word: &Text) -> String {
    readable(&word.plain()).rsplit('/').next().unwrap_or_default().to_owned()
}

/// Place of the first launcher among words, or of Python or a Python file; the program that is called is the word at `inner`.
fn launcher(words: &[Text], inner: usize) -> Option<(usize, Launcher)> {
    let is_python = |name: &str| name.starts_with("python") || name == "$PYTHON" || name == "$PYTHON_PATH";
    let is_behind_dashes = words.get(inner.wrapping_sub(1)).is_some_and(|word| word.plain() == "--");
    let first = if is_behind_dashes { inner } else { 0 };
    words.iter().enumerate().skip(first).find_map(|(place, word)| {
        let next = words.get(place + 1);
        let launcher = match base(word).as_str() {
            "torchrun" | "msrun" => Launcher::Torchrun,
            "deepspeed" | "deepspeed.pt" => Launcher::Deepspeed,
            "accelerate" => Launcher::Accelerate,
            "composer" => Launcher::Composer,
            "megatron" | "swift" if trains(next) => Launcher::Swift,
            "axolotl" | "llamafactory-cli" | "lmf" | "llmfoundry"
                if next.is_some_and(|word| word.plain() == "train") =>
            {
                Launcher::Own
            }
            "primus-cli" if words[place..].iter().any(|word| word.plain() == "pretrain") => Launcher::Primus,
            name if is_python(name) => Launcher::Plain,
            name if place == inner && is_program(name) => Launcher::Plain,
            _ => return None,
        };
        Some((place, launcher))
    })
}

/// The launcher at a place, or the one that Python runs there as a module, and the words behind it; none for a command
/// of `accelerate` that launches nothing.
fn behind(words: &[Text], at: usize, found: Launcher) -> Option<(Launcher, &[Text])> {
    let rest = &words[at + 1..];
    match found {
        Launcher::Accelerate => {
            let (_, rest) = rest.split_first().filter(|(word, _)| word.plain() == "launch")?;
            Some((found, rest))
        }
        Launcher::Plain => {
            let mut rest = if is_program(&base(&words[at])) { &words[at..] } else { rest };
            while rest.first().is_some_and(|word| matches!(word.plain().as_str(), "-u" | "-O" | "-X")) {
                rest = &rest[1..];
            }
            let is_module = rest.first().is_some_and(|word| word.plain() == "-m");
            let module = rest.get(1).filter(|_| is_module).map(Text::plain).unwrap_or_default();
            let launcher = match module.as_str() {
                "torch.distributed.run" | "torch.distributed.launch" | "torch.distributed.torchrun" => {
                    Launcher::Torchrun
                }
                "deepspeed.launcher.runner" => Launcher::Deepspeed,
                "accelerate.commands.launch" => Launcher::Accelerate,
                _ => return Some((found, rest)),
            };
            Some((launcher, &rest[2..]))
        }
        Launcher::Mpi
        | Launcher::Slurm
        | Launcher::Swift
        | Launcher::Own
        | Launcher::Primus
        | Launcher::Composer
        | Launcher::Torchrun
        | Launcher::Deepspeed => Some((found, rest)),
    }
}

/// The launcher's options, and the rest from the program on; `has_no_options`: the first word is the program.
fn split(words: &[Text], has_no_options: bool) -> (Vec<(String, Text)>, &[Text]) {
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.plain();
        if text == "-m" || text == "--module" {
            return (options, &words[at + 1..]);
        }
        if !text.starts_with('-') || has_no_options {
            return (options, &words[at..]);
        }
        let line = word.line().unwrap_or(1);
        if let Some((name, value)) = text.split_once('=') {
            options.push((name.replace('-', "_"), Text::on(value, line)));
            at += 1;
        } else if SWITCHES.contains(&text.as_str()) {
            options.push((text.replace('-', "_"), Text::default()));
            at += 1;
        } else {
            options.push((text.replace('-', "_"), words.get(at + 1).cloned().unwrap_or_default()));
            at += 2;
        }
    }
    (options, &words[words.len()..])
}

/// Reads nodes and tasks off the commands around the launcher.
fn read_scheduler_options(words: &[Text], launch: &mut Launch) {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.plain();
        match text.rsplit('/').next() {
            Some("srun") => launch.launcher = launch.launcher.max(Launcher::Slurm),
            Some("mpirun" | "mpiexec" | "orterun") => launch.launcher = launch.launcher.max(Launcher::Mpi),
            Some(_) | None => {}
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(Text::on(value, word.line().unwrap_or(1)))),
            None => (text.clone(), words.get(at + 1).cloned()),
        };
        match name.as_str() {
            "-N" | "--nodes" | "--num_nodes" => launch.nodes = value,
            "-n" | "--ntasks" | "-np" | "--np" => launch.processes = value,
            "--ntasks-per-node" | "--npernode" | "--gpus-per-node" => launch.per_node = value,
            _ => {}
        }
        at += 1;
    }
}

/// Reads nodes and processes off the launcher's own options, which win over the commands around it.
fn counted(launch: &mut Launch) {
    let option = |names: &[&str]| {
        launch.options.iter().rfind(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.clone())
    };
    let (one, line) = (|line| Some(Text::on("1", line)), launch.line);
    match launch.launcher {
        Launcher::Torchrun => {
            // One torchrun runs on each node: what srun counts are nodes.
            launch.nodes = option(&["__nnodes"]).or_else(|| launch.nodes.take()).or_else(|| one(line));
            launch.per_node = option(&["__nproc_per_node", "__local_worker_num"])
                .or_else(|| option(&["__worker_num"]))
                .or_else(|| one(line));
            launch.processes = option(&["__worker_num"]); // MindSpore's msrun counts all of them
        }
        Launcher::Composer => {
            launch.per_node = option(&["__nproc", "_n"]);
            launch.processes = option(&["__world_size"]);
            launch.nodes = one(line);
        }
        Launcher::Deepspeed => {
            let hosts = option(&["__hostfile", "_H", "_hostfile"]);
            launch.nodes = option(&["__num_nodes"]).or_else(|| if hosts.is_some() { None } else { one(line) });
            launch.per_node =
                option(&["__num_gpus"]).or_else(|| option(&["__include", "_i"]).and_then(|text| included(&text)));
            launch.processes = None;
        }
        Launcher::Accelerate => {
            launch.processes = option(&["__num_processes"]);
            launch.nodes = option(&["__num_machines"]);
        }
        Launcher::Slurm | Launcher::Mpi | Launcher::Swift | Launcher::Primus | Launcher::Plain => {}
        Launcher::Own => {
            let own = |names: &[&str]| launch.argument(names);
            let (nodes, each) = (own(&["--nnodes", "--num_machines"]), own(&["--nproc_per_node", "--nproc-per-node"]));
            launch.processes = own(&["--num_processes", "--num-processes"]);
            launch.nodes = nodes.or_else(|| one(line));
            launch.per_node = each;
        }
    }
}

/// GPUs of `--include localhost:0,1,2`.
fn included(text: &Text) -> Option<Text> {
    let list = text.plain();
    let (_, gpus) = list.split_once(':')?;
    Some(Text::on(&gpus.split(',').count().to_string(), text.line().unwrap_or(1)))
}

/// GPUs of a launch, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchedGpus {
    pub all: Option<u32>,
    pub per_node: Option<u32>,
}

impl Launch {
    /// GPUs of the launch, as far as they are known, with findings on the unknown ones.
    pub fn gpus(&self, file: &str, findings: &mut Vec<Finding>) -> LaunchedGpus {
        let mut number = |text: Option<&Text>, what: &str| {
            let text = text?;
            let plain = text.plain();
            let value = plain.trim().parse::<u32>().ok().filter(|n| *n > 0);
            if value.is_none() {
                let place = Place { file: file.to_owned(), line: text.line().unwrap_or(self.line).max(1) };
                let names: Vec<String> =
                    text.missing().iter().map(|name| name.trim_start_matches('$').to_owned()).collect();
                let expected = if names.is_empty() {
                    "a number; the cluster's own is taken".to_owned()
                } else {
                    format!("give --var {}=N; the cluster's own is taken", names.join("=N --var "))
                };
                let finding = Finding::warning("unresolved-world", format!("{what}: `{}`", readable(&plain)));
                findings.push(finding.at(&place).expected(expected));
            }
            value
        };
        let per_node = number(self.per_node.as_ref(), "the GPUs per node are not known");
        let nodes = number(self.nodes.as_ref(), "the number of nodes is not known");
        let processes = number(self.processes.as_ref(), "the number of processes is not known");
        let all = match (processes, nodes, per_node) {
            (Some(processes), ..) => Some(processes),
            (None, Some(nodes), Some(each)) => nodes.checked_mul(each),
            (None, ..) => None,
        };
        LaunchedGpus { all, per_node }
    }

    /// The value of one of the program's own arguments, `--name value` or `--name=value`.
    pub fn argument(&self, names: &[&str]) -> Option<Text> {
        for (at, word) in self.arguments.iter().enumerate() {
            let text = word.plain();
            if names.contains(&text.as_str()) {
                return self.arguments.get(at + 1).cloned();
            }
            if let Some((_, value)) = text.split_once('=').filter(|(name, _)| names.contains(name)) {
                return Some(Text::on(value, word.line().unwrap_or(1)));
            }
        }
        None
    }
}
