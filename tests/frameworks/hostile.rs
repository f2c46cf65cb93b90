//! Files that are emitted of any texts: the same code, whatever a name holds.

use std::path::{Path, PathBuf};
use std::process::Command;

use meshwright::catalog;
use meshwright::cost::Costs;
use meshwright::emit::{EmittedFile, PoolsHeader, Request, emit, slurm};
use meshwright::frameworks::{
    ACCELERATE, AXOLOTL, DEEPSPEED, Framework, GPT_NEOX, LLAMA_FACTORY, LLM_FOUNDRY, MEGATRON, MEGATRON_BRIDGE,
    MS_SWIFT, NANOTRON, OLMO_CORE, TORCHTITAN,
};
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use proptest::prelude::*;
use saphyr_parser::Parser;

use crate::random::{seeded, spec};

/// Every framework, with a model and a plan that it runs.
fn cases() -> [(&'static Framework, &'static str, &'static str); 14] {
    [
        (&MEGATRON, "llama3-8b", "tp=4 pp=2"),
        (&MEGATRON, "qwen3-30b-a3b", "tp=2 pp=1 ep=4"),
        (&MEGATRON_BRIDGE, "llama3-8b", "tp=4 pp=2"),
        (&DEEPSPEED, "llama3-8b", "zero=3"),
        (&TORCHTITAN, "llama3-8b", "tp=2 pp=2 zero=3"),
        (&ACCELERATE, "llama3-8b", "zero=3"),
        (&NANOTRON, "qwen2.5-72b", "tp=8 pp=1 recompute=full"),
        (&DEEPSPEED, "llama3-8b", "zero=1 recompute=full"),
        (&AXOLOTL, "llama3-8b", "zero=3 recompute=full"),
        (&LLAMA_FACTORY, "llama3-8b", "zero=3 recompute=full"),
        (&GPT_NEOX, "llama3-8b", "tp=2 pp=2 zero=1 recompute=full"),
        (&MS_SWIFT, "llama3-8b", "tp=2 pp=2 zero=1 recompute=full"),
        (&LLM_FOUNDRY, "llama3-8b", "zero=3 recompute=full"),
        (&OLMO_CORE, "llama3-8b", "pp=2 zero=3 reshard=off recompute=full"),
    ]
}

/// Texts that end a comment, a string, a line or a file somewhere.
const HOSTILE: [&str; 28] = [
    "\n",
    "\r",
    "\r\n",
    "\u{b}",
    "\u{c}",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "\0",
    "\t",
    "'",
    "\"",
    "\\",
    "`touch PWNED`",
    "$(touch PWNED)",
    "touch PWNED",
    "; touch PWNED; ",
    "#",
    "# coding: latin-1",
    ": ",
    "- ",
    "{{",
    "}}",
    "{}",
    "'''",
    "\"\"\"",
    "import os; os.system('touch PWNED')",
    "---",
];

fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![3 => prop::sample::select(&HOSTILE[..]).prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat())
}

/// A problem whose names are all of a text.
fn named(model: &'static str, text: &str) -> Problem {
    let of = spec(model, "dgx-h100-64", "nemo-25", 128, 8192).problem();
    let (mut model, mut cluster, mut stack) = (of.model().clone(), of.cluster().clone(), of.stack().clone());
    for name in [&mut model.name, &mut model.source, &mut cluster.name, &mut cluster.source, &mut stack.name] {
        text.clone_into(name);
    }
    for name in [&mut stack.release, &mut stack.source, &mut cluster.gpu.name, &mut cluster.gpu.hbm.source] {
        text.clone_into(name);
    }
    cluster.levels.iter_mut().for_each(|level| text.clone_into(&mut level.name));
    Problem::new(model, cluster, of.workload().clone(), stack, of.hbm_profile()).unwrap()
}

fn files(case: (&'static Framework, &'static str, &str), text: &str) -> Vec<EmittedFile> {
    let (framework, model, plan) = case;
    let problem = named(model, text);
    let plan = parse_plan(plan, &problem).unwrap();
    let costs = Costs::new(&problem);
    let evaluation = costs.evaluate(&plan);
    let lines = [text.to_owned()];
    let pools = (!text.is_empty()).then_some(PoolsHeader { heading: text, lines: &lines });
    let request = Request { recipe: Some(text), pools, ..Request::new(&costs, &evaluation) };
    let mut files = emit(framework, &request).unwrap_or_else(|refusal| panic!("{refusal}"));
    files.retain(|file| file.name != slurm::JOB); // no text of the question is in it, and pools have none
    files
}

/// Lines of a file that are not comments.
fn code(text: &str) -> Vec<&str> {
    text.split('\n').filter(|line| !line.starts_with('#')).collect()
}

fn events(text: &str) -> Vec<String> {
    Parser::new_from_str(text)
        .map(|event| format!("{:?}", event.unwrap().0))
        .filter(|event| event != "Nothing")
        .collect()
}

/// Asserts that two files hold the same tree with the same values.
fn assert_same(one: &EmittedFile, other: &EmittedFile) {
    assert_eq!(one.name, other.name);
    assert!(catalog::is_one_line(&one.text.replace('\n', "")), "{}", one.text);
    assert_eq!(code(&one.text), code(&other.text));
    match Path::new(&one.name).extension().and_then(|extension| extension.to_str()) {
        Some("sh") => {
            assert!(one.text.starts_with("#!/usr/bin/env bash\n"));
            assert_eq!(shlex::split(&one.text), shlex::split(&other.text));
            assert!(shlex::split(&one.text).is_some_and(|words| words.len() > 3));
        }
        Some("yaml" | "yml") => assert_eq!(events(&one.text), events(&other.text)),
        Some("json") => assert_eq!(one.text, other.text),
        Some("py") => assert!(one.text.starts_with("# coding: utf-8\n")),
        other => panic!("a file that this law does not know: {other:?}"),
    }
}

proptest! {
    #![proptest_config(seeded(48))]

    #[test]
    fn any_text_leaves_the_code_as_it_is(text in hostile()) {
        for case in cases() {
            let (plain, odd) = (files(case, "a name"), files(case, &text));
            prop_assert_eq!(plain.len(), odd.len());
            for (one, other) in odd.iter().zip(&plain) {
                assert_same(one, other);
            }
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Writes the files of all cases, named by every hostile text in turn, into folders.
fn written(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut pairs = Vec::new();
    for (at, text) in HOSTILE.iter().chain(&[HOSTILE.concat().as_str()]).enumerate() {
        for (of, case) in cases().into_iter().enumerate() {
            let write = |kind: &str, files: Vec<EmittedFile>| {
                let into = folder.join(format!("{kind}-{at}-{of}"));
                std::fs::create_dir(&into).unwrap();
                let path = |file: &EmittedFile| into.join(&file.name);
                for file in &files {
                    std::fs::write(path(file), &file.text).unwrap();
                }
                files.iter().map(path).collect::<Vec<_>>()
            };
            let (odd, plain) = (write("odd", files(case, &format!("a{text}b"))), write("plain", files(case, "a name")));
            pairs.extend(odd.into_iter().zip(plain));
        }
    }
    pairs
}

/// Variables that launch scripts want.
const WANTED: [(&str, &str); 14] = [
    ("DATA", "data"),
    ("TOKENIZER", "tokenizer"),
    ("SAVE", "save"),
    ("LOAD", "load"),
    ("STEPS", "10"),
    ("MEGATRON_LM", "megatron"),
    ("MASTER_ADDR", "node"),
    ("NODE_RANK", "0"),
    ("NANOTRON", "nanotron"),
    ("GPT_NEOX", "gpt-neox"),
    ("MODEL", "a/b"),
    ("DATASET", "c"),
    ("OUTPUT", "out"),
    ("LLM_FOUNDRY", "llm-foundry"),
];

/// Python's own parser reads the same tree; bash runs the same commands, and nothing else.
#[test]
fn python_and_bash_read_the_same() {
    let folder = folder("hostile");
    let pairs = written(&folder);
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for program in ["torchrun", "deepspeed", "accelerate", "megatron", "composer"] {
        let stub = bin.join(program);
        std::fs::write(&stub, "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let is_a = |file: &Path, kind: &str| file.extension().is_some_and(|extension| extension == kind);
    let run =
        |file: &Path| Command::new("bash").arg(file).current_dir(&folder).env("PATH", &path).envs(WANTED).output();
    if run(Path::new("/dev/null")).is_err() {
        eprintln!("SKIPPED: no bash here; emitted scripts were not run");
    } else {
        for (odd, plain) in pairs.iter().filter(|(odd, _)| is_a(odd, "sh")) {
            let (odd, plain) = (run(odd).unwrap(), run(plain).unwrap());
            assert!(odd.status.success() && !odd.stdout.is_empty(), "{}", String::from_utf8_lossy(&odd.stderr));
            assert_eq!((odd.stdout, odd.stderr), (plain.stdout, plain.stderr));
        }
        assert!(!folder.join("PWNED").exists());
    }
    let judge = "import ast, sys\nfor line in sys.stdin:\n    odd, plain = line.rstrip('\\n').split('\\t')\n    \
                 trees = [ast.dump(ast.parse(open(path, 'rb').read())) for path in (odd, plain)]\n    \
                 assert trees[0] == trees[1] and len(trees[0]) > 1000, odd\nprint('same')\n";
    let lines = pairs
        .iter()
        .filter(|(odd, _)| is_a(odd, "py"))
        .map(|(odd, plain)| format!("{}\t{}\n", odd.display(), plain.display()))
        .collect::<Vec<_>>();
    std::fs::write(folder.join("pairs"), lines.concat()).unwrap();
    let list = std::fs::File::open(folder.join("pairs")).unwrap();
    match Command::new("python3").args(["-c", judge]).stdin(list).output() {
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "same\n", "{why}");
        }
        Err(_) => eprintln!("SKIPPED: no python3 here; emitted modules were not parsed by it"),
    }
}
