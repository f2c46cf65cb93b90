//! `--run-python`: configurations that must be run, and those that must not get far.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A recipe in a helper's hands: loops, formatted texts, dictionaries and closures set its degrees.
const HELPED: &str = "
import functools
from megatron.bridge.models import AutoBridge
from megatron.bridge.training.config import ConfigContainer, TrainingConfig

class Sizes:
    def __init__(self, **degrees):
        self.degrees = degrees

    def apply(self, model):
        for name, degree in self.degrees.items():
            setattr(model, f'{name}_model_parallel_size', degree)

def batches(tokens, *, of):
    return tokens // of

def train_config() -> ConfigContainer:
    cfg = ConfigContainer(model=AutoBridge.from_hf_pretrained('meta-llama/Meta-Llama-3-8B').to_megatron_provider(load_weights=False))
    Sizes(tensor=2, pipeline=4).apply(cfg.model)
    cfg.model.sequence_parallel = cfg.model.tensor_model_parallel_size > 1
    cfg.model.seq_length = max(length for length in (2048, 4096, 8192))
    sized = functools.partial(batches, of=cfg.model.seq_length)
    cfg.train = TrainingConfig(**{key: value for key, value in zip(('global_batch_size', 'micro_batch_size'), (sized(1 << 20), 1))})
    cfg.ddp.use_distributed_optimizer = True
    print('junk on the standard output')
    return cfg
";

fn written(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-python");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.py"));
    std::fs::write(&path, text).unwrap();
    path
}

fn imported(path: &Path, more: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let output = command.arg("import").arg(path).args(more).args(["--kind", "bridge", "--format", "json"]);
    let output = output.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, text)
}

/// Message of a file that is refused when it is run; none where there is no Python to run it.
fn refused(name: &str, body: &str) -> Option<String> {
    if !has_python() {
        return None;
    }
    let (output, text) = imported(&written(name, &format!("def config() -> C.Config:\n{body}\n")), &["--run-python"]);
    assert!(!output.status.success(), "{text}");
    Some(text)
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: no python3 here; no configuration was run");
    }
    found
}

#[test]
fn a_recipe_that_is_not_read_is_run() {
    let path = written("helped", HELPED);
    let (followed, text) = imported(&path, &[]);
    assert!(!followed.status.success() && text.contains("not-read"), "{text}");
    if !has_python() {
        return;
    }
    let (ran, text) = imported(&path, &["--run-python"]);
    assert!(ran.status.success(), "{text}");
    let plan = "tp=2 cp=1 pp=4 sp=on schedule=1f1b split=even zero=1 mbs=1 recompute=none";
    assert!(
        text.contains(plan) && text.contains("\"global_batch\": 128") && text.contains("\"seq_len\": 8192"),
        "{text}"
    );
    assert!(text.contains("\"catalogue_model\": \"llama3-8b\""), "{text}");
}

#[test]
fn what_runs_is_what_is_read() {
    let text = "
def config() -> C.Config:
    cfg = C.Config(model=M(num_layers=8, hidden_size=512, num_attention_heads=8))
    cfg.model.tensor_model_parallel_size = 2
    cfg.train = T(global_batch_size=64, micro_batch_size=2)
    cfg.model.seq_length = 4 * 1024
    cfg.model.vocab_size = 32000
    cfg.mixed_precision = bf16_mixed()
    if cfg.model.sequence_parallel:
        cfg.rng.seed = 1
    return cfg
";
    // Names that come from nowhere are those of modules that are not there.
    let names = "from somewhere import C, M, T, bf16_mixed\n";
    let path = written("plain", &format!("{names}{text}"));
    let document = |more: &[&str]| {
        let (output, text) = imported(&path, more);
        assert!(!output.stdout.is_empty(), "{text}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    if has_python() {
        assert_eq!(document(&[]), document(&["--run-python"]));
    }
}

/// A configuration of torchtitan's whose registry is not there: both readers find what converts the model.
#[test]
fn converters_of_a_model_are_found_by_both_readers() {
    let text = "
from dataclasses import replace
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer, TrainingConfig, Head, MXFP8LinearConverter, LoRAConverter

def config() -> Trainer.Config:
    head = replace(Head(size=1), size=2)
    wide = isinstance(head, Head)
    training = TrainingConfig(local_batch_size=4 if wide else 1, seq_len=8192)
    converters = [MXFP8LinearConverter.Config(), LoRAConverter.Config(rank=4, target_modules=['wq'])]
    return Trainer.Config(model_spec=model_registry('8B', converters=converters), training=training)
";
    let path = written("titan", text);
    let document = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        let output = command.arg("import").arg(&path).args(more).args(["--format", "json"]).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    if !has_python() {
        return;
    }
    let ran = document(&["--run-python"]);
    assert_eq!(
        (ran["plan"]["micro_batch"].as_u64(), ran["work"]["format"].as_str()),
        (Some(4), Some("mxfp8")),
        "{ran}"
    );
    assert_eq!((ran["work"]["adaptation"].as_str(), ran["adapters"]["rank"].as_u64()), (Some("lora"), Some(4)));
    let followed = document(&[]);
    assert_eq!((&followed["work"]["format"], &followed["adapters"]), (&ran["work"]["format"], &ran["adapters"]));
}

/// A file that says why it has no answer: its name, the body of its function, and what the message has.
fn is_refused(name: &str, body: &str, message: &str) {
    let Some(text) = refused(name, body) else { return };
    assert!(text.contains(message) && text.contains(&format!("{name}.py:")), "{name}: {text}");
}

#[test]
fn hostile_files_end_with_a_sentence() {
    for (name, body, message) in [
        ("huge", "    return [0] * (1 << 40)", "MemoryError"),
        ("deep", "    return config()", "RecursionError"),
        (
            "junk",
            "    import os\n    [junk(os, fd) for fd in range(3, 40)]\n    os._exit(0)\n\ndef junk(os, fd):\n    try: \
            os.write(fd, b'junk')\n    except OSError: pass",
            "no answer that can be read",
        ),
        ("quiet", "    import os\n    os._exit(0)", "no answer: "),
        ("raises", "    raise ValueError('no such size')", "ValueError: no such size"),
        ("shell", "    import os\n    os.system('true')", "may not do this: os.system"),
        ("net", "    import socket\n    socket.create_connection(('127.0.0.1', 9))", "may not do this: socket."),
        ("writes", "    open('x', 'w')", "may not write x"),
        ("nothing", "    return 7", "no configuration in it"),
    ] {
        is_refused(name, body, message);
    }
}

/// The limit on the processor's time is the recorder's own, or that of whoever starts it where that is lower.
#[cfg(unix)]
#[test]
fn an_endless_file_ends_with_a_sentence() {
    if !has_python() {
        return;
    }
    let path = written("endless", "def config() -> C.Config:\n    while True: pass\n");
    let mut bash = Command::new("bash");
    bash.args(["-c", "ulimit -t 1; exec \"$0\" import \"$1\" --kind bridge --run-python"]);
    let output = bash.arg(env!("CARGO_BIN_EXE_meshwright")).arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("no answer: ") && text.contains("endless.py:"), "{text}");
}

#[test]
fn a_file_that_sleeps_is_stopped() {
    is_refused("asleep", "    import time\n    time.sleep(1000)", "was stopped");
}

#[test]
fn without_python_an_error_says_so() {
    let path = written("alone", HELPED);
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["import", path.to_str().unwrap(), "--run-python"])
        .env("PATH", "")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("`python3` cannot be started"), "{text}");
}

/// A document from elsewhere does not make this machine run a program.
#[test]
fn no_document_asks_for_it() {
    let asked = r#"{"file": "recipe.py", "run_python": true}"#;
    assert!(serde_json::from_str::<meshwright::question::LaunchFile>(asked).is_err());
}
