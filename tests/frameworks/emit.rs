//! Files for frameworks: refused with a reason and a way out, written whole, and the same from an earlier answer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A fresh folder for one test.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("emit-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    path
}

const SMALL: [&str; 5] = ["emit", "megatron", "llama3-8b", "dgx-h100-8", "--plan"];

fn small(plan: &str) -> Output {
    run(&[&SMALL[..], &[plan]].concat())
}

#[test]
fn flags_say_what_the_plan_says() {
    let text = out(&small("tp=2 pp=2 vpp=4 cp=2 cp-kind=allgather mbs=2 recompute=layernorm order=tp-cp-ep-pp-dp"));
    for flag in [
        "--tensor-model-parallel-size 2",
        "--sequence-parallel",
        "--context-parallel-size 2",
        "--cp-comm-type all_gather",
        "--pipeline-model-parallel-size 2",
        "--num-virtual-stages-per-pipeline-rank 4",
        "--use-distributed-optimizer",
        "--micro-batch-size 2",
        "--recompute-modules layernorm",
        "--num-query-groups 8",
        "# predicted by meshwright",
    ] {
        assert!(text.contains(flag), "{flag} in\n{text}");
    }
}

#[test]
fn the_rank_order_is_a_flag_where_it_is_not_the_default() {
    let flag = "--use-tp-pp-dp-mapping";
    assert!(out(&small("tp=2 pp=2 order=tp-cp-ep-pp-dp")).contains(flag));
    let plain = out(&small("tp=2 pp=2"));
    assert!(plain.contains("torchrun") && !plain.contains(flag), "{plain}");
}

/// With as many stages as layers there is one split and very many beginnings of others: it took minutes.
#[test]
fn stages_of_one_layer_are_refined_at_once() {
    let since = std::time::Instant::now();
    let refined =
        ["emit", "megatron", "qwen3-32b", "dgx-h100-64", "--gpus", "32", "--refine", "--plan", "tp=2 pp=4 vpp=16"];
    let output = run(&refined);
    assert!(output.status.success(), "{}", err(&output));
    assert!(out(&output).contains("--pipeline-model-parallel-layout"), "{}", out(&output));
    assert!(since.elapsed().as_secs() < 60, "{:?}", since.elapsed());
}

#[test]
fn chunks_of_a_layout_are_counted_where_overlap_is_checked_first() {
    let plan = "tp=2 pp=4 ep=2 vpp=6 split=cost-balanced dispatcher=deepep";
    let question =
        ["emit", "megatron-bridge", "qwen3-30b-a3b", "dgx-h100-64", "--stack", "deepseek-v3", "--plan", plan];
    let folder = folder("chunks");
    let written = run(&[&question[..], &["--out", folder.to_str().unwrap()]].concat());
    assert!(written.status.success(), "{}", err(&written));
    let path = folder.join("megatron_bridge.py");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("pipeline_model_parallel_layout") && text.contains("virtual_pipeline_model_parallel_size = 6"),
        "{text}"
    );
    let read = run(&["import", path.to_str().unwrap(), "--format", "json"]);
    assert_eq!(read.status.code(), Some(0), "{}", out(&read));
    assert!(out(&read).contains("vpp=6"), "{}", out(&read));
    let learned = [
        "emit",
        "megatron",
        "megatron-530b",
        "dgx-h100-1k",
        "--gpus",
        "128",
        "--set",
        "model.mtp_depth=1",
        "--plan",
        "tp=8 pp=16",
    ];
    assert!(err(&run(&learned)).contains("learned positions"), "{}", err(&run(&learned)));
}

#[test]
fn what_megatron_does_not_run_of_a_hybrid_is_refused() {
    let (why, near) = way_out("megatron", "nemotron-h-56b", "tp=16 pp=1");
    assert!(why.contains("8 groups") && near.starts_with("tp=8"), "{why}");
    let (why, near) = way_out("megatron", "nemotron-h-56b", "tp=8 pp=4 recompute=layernorm");
    assert!(why.contains("fused with the projections") && near.contains("recompute=none"), "{why}");
    let (why, near) = way_out("megatron-bridge", "nemotron-h-56b", "tp=8 pp=4 vpp=2");
    assert!(why.contains("no virtual stages") && near.contains("pp=4") && near.contains("schedule=1f1b"), "{why}");
    for framework in ["torchtitan", "nanotron"] {
        let refused = run(&["emit", framework, "nemotron-h-56b", "dgx-h100-64", "--plan", "tp=8 pp=1"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(err(&refused).contains("Mamba"), "{}", err(&refused));
    }
    let written = run(&["emit", "megatron", "nemotron-h-56b", "dgx-h100-64", "--plan", "tp=8 pp=2 split=first-60"]);
    let text = out(&written);
    assert!(text.contains("pretrain_hybrid.py") && text.contains("|-M*-") && !text.contains("--num-layers"), "{text}");
    for (release, layers) in [("0.17", "mamba"), ("0.18", "hybrid")] {
        let former = ["emit", "megatron", "nemotron-h-56b", "dgx-h100-64", "--plan", "tp=8 pp=2", "--release", release];
        let text = out(&run(&former));
        let spec = format!("--spec megatron.core.models.{layers}.{layers}_layer_specs {layers}_stack_spec");
        assert!(text.contains(&spec) && text.contains(&format!("pretrain_{layers}.py")), "{release}: {text}");
    }
}

#[test]
fn an_optimizer_known_by_name_alone_is_not_written_as_another() {
    let sgd = [&SMALL[..], &["tp=2 zero=1 offload-optimizer=0.25", "--optimizer", "sgd"]].concat();
    let refused = run(&sgd);
    assert_eq!(refused.status.code(), Some(1));
    let refusal = err(&refused).replace('\n', " ");
    assert!(refusal.contains("offload-optimizer=0.25: the hybrid device optimizer is Adam"), "{refusal}");
    assert!(!refusal.split("--plan").nth(1).unwrap().contains("offload"), "{refusal}");
}

#[test]
fn uneven_stages_are_a_layout() {
    let text = out(&run(&["emit", "megatron", "llama3-405b", "h100-24576", "--plan", "tp=8 pp=16"]));
    assert!(text.contains("--pipeline-model-parallel-layout 'Et*7|(t*8|)*14t*7L'"), "{text}");
}

#[test]
fn what_cannot_be_said_is_refused_with_a_way_out() {
    for (plan, named) in [
        ("pp=2 schedule=zb-v", "1F1B"),
        ("recompute=act", "moe_act"),
        ("recompute=per-op", "recompute"),
        ("recompute=every-other", "recompute"),
        ("zero=3 reshard=off", "reshard"),
        ("zero=0 offload-optimizer=0.5", "offload"),
        ("offload-activations=0.3", "offload"),
        ("zero=3 offload-activations=0.25", "Megatron-FSDP"),
    ] {
        let output = small(plan);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""), "{plan}");
        let refusal = err(&output);
        assert!(
            refusal.contains("no Megatron-LM files are written for this") && refusal.contains(named),
            "{plan}: {refusal}"
        );
        let near = refusal.split("--plan \"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(small(near).status.code(), Some(0), "{plan}: {near}: {}", err(&small(near)));
    }
    let bloom = run(&["emit", "megatron", "bloom-176b", "dgx-h100-64", "--plan", "tp=8 pp=8"]);
    assert_eq!(bloom.status.code(), Some(1));
    assert!(err(&bloom).contains("ALiBi"), "{}", err(&bloom));
    let illegal = small("tp=3");
    assert_eq!(illegal.status.code(), Some(1));
    assert!(err(&illegal).contains("does not run"), "{}", err(&illegal));
}

/// Refusal of a plan, and the plan that it names instead.
pub fn way_out(framework: &str, model: &str, plan: &str) -> (String, String) {
    let refused = run(&["emit", framework, model, "dgx-h100-64", "--plan", plan]);
    let text = err(&refused);
    let near = text.split("--plan \"").nth(1).unwrap_or_else(|| panic!("{text}")).split('"').next().unwrap().to_owned();
    let written = run(&["emit", framework, model, "dgx-h100-64", "--plan", &near]);
    assert!(written.status.success(), "{near}: {}", err(&written));
    (text, near)
}

#[test]
fn groups_that_megatron_does_not_build_are_refused() {
    let (why, near) = way_out("megatron", "qwen3-8b", "tp=2 pp=2 cp=2 order=tp-cp-ep-pp-dp");
    assert!(why.contains("8 replicas and expert groups 16") && !near.contains("order="), "{why}");
    let (_, near) = way_out("megatron", "qwen3-30b-a3b", "tp=4 pp=2 ep=2 etp=1 order=tp-cp-ep-pp-dp");
    assert!(!near.contains("order="), "{near}");
    let same =
        ["emit", "megatron", "qwen3-30b-a3b", "dgx-h100-64", "--plan", "tp=4 pp=2 ep=4 etp=1 order=tp-cp-ep-pp-dp"];
    assert!(run(&same).status.success(), "as many replicas of both");
    let (why, near) = way_out("megatron", "gpt-oss-20b", "tp=2 pp=1 ep=4 etp=2");
    assert!(why.contains("experts with biases") && near.contains("etp=1"), "{why}");
    let (_, near) = way_out("deepspeed", "qwen3-30b-a3b", "tp=2 pp=1 zero=1");
    assert!(near.starts_with("tp=1"), "experts beside tensor parallelism want sequences split: {near}");
}

#[test]
fn devices_without_cuda_or_rocm_are_refused() {
    for framework in ["megatron", "megatron-bridge", "deepspeed", "torchtitan", "accelerate", "nanotron"] {
        let refused = run(&["emit", framework, "llama3-8b", "tpu-v5p-1024", "--plan", "tp=1 pp=1"]);
        assert_eq!(refused.status.code(), Some(1), "{framework}");
        assert!(err(&refused).contains("CUDA or ROCm"), "{framework}: {}", err(&refused));
    }
}

#[test]
fn stages_that_were_chosen_are_written_where_a_framework_can_say_them() {
    let plan = |framework: &str, plan: &str| {
        run(&["emit", framework, "llama3-70b", "dgx-h100-64", "--plan", plan, "--refine"])
    };
    let megatron = plan("megatron", "tp=8 pp=4 recompute=full");
    assert_eq!(megatron.status.code(), Some(0), "{}", err(&megatron));
    let text = out(&megatron);
    let layout = text.split("# stages: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    assert!(text.contains(&format!("--pipeline-model-parallel-layout '{layout}'")), "{text}");
    let even = out(&run(&["emit", "megatron", "llama3-70b", "dgx-h100-64", "--plan", "tp=8 pp=4 recompute=full"]));
    assert!(!even.contains("--pipeline-model-parallel-layout"), "{even}");
    for framework in ["deepspeed", "accelerate", "nanotron"] {
        let output = plan(framework, "pp=4");
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{framework}");
        assert!(err(&output).contains("layers to individual stages"), "{}", err(&output));
    }
}

#[test]
fn flags_are_those_of_the_release() {
    let emitted = |more: &[&str]| {
        let asked =
            ["emit", "megatron", "deepseek-v3", "h800-2048", "--steps", "9", "--plan", "pp=16 ep=64 dispatcher=deepep"];
        run(&[&asked, more].concat())
    };
    let newest = out(&emitted(&[]));
    assert!(
        newest.contains("--moe-flex-dispatcher-backend deepep") && newest.contains("Megatron core 0.16 and later"),
        "{newest}"
    );
    assert!(newest.contains("--moe-router-fusion"), "{newest}");
    let before = out(&emitted(&["--release", "core_r0.13"]));
    assert!(!before.contains("--moe-router-fusion") && before.contains("fused routers"), "{before}");
    let older = out(&emitted(&["--release", "core_v0.14.1"]));
    assert!(older.contains("--moe-enable-deepep") && !older.contains("flex-dispatcher-backend"), "{older}");
    assert!(older.contains("# release: Megatron-LM 0.14\n"), "{older}");
    let refused = emitted(&["--release", "core_r0.12"]);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    assert!(err(&refused).contains("--pipeline-model-parallel-layout"), "{}", err(&refused));
    assert!(err(&refused).contains("it is of Megatron core 0.13 and later, not of 0.12"), "{}", err(&refused));
    let unknown = emitted(&["--release", "0.9"]);
    assert!(
        err(&unknown).contains("no release `0.9` of Megatron-LM is known\n\nhint: there are: 0.12, 0.13"),
        "{}",
        err(&unknown)
    );
    let other = run(&["emit", "deepspeed", "llama3-8b", "dgx-h100-8", "--plan", "zero=3", "--release", "0.1"]);
    assert!(err(&other).contains("no release `0.1` of DeepSpeed is known"), "{}", err(&other));
}

/// A file that is in the way is named before the search, which prints its answer first.
#[test]
fn what_is_in_the_way_is_named_before_the_search() {
    let folder = folder("in-the-way");
    std::fs::create_dir_all(folder.join("plan-1")).unwrap();
    let out_folder = folder.to_str().unwrap();
    for (framework, script) in [("megatron", "megatron.sh"), ("megatron-bridge", "megatron_bridge.sh")] {
        std::fs::write(folder.join(script), "mine").unwrap();
        std::fs::write(folder.join("plan-1").join(script), "mine").unwrap();
        for command in [
            &["plan", "llama3-8b", "dgx-h100-8", "--emit", framework, "--out", out_folder][..],
            &["emit", framework, "llama3-8b", "dgx-h100-8", "--top", "2", "--out", out_folder],
        ] {
            let refused = run(command);
            assert_eq!((refused.status.code(), out(&refused)), (Some(2), String::new()), "{}", err(&refused));
            assert!(err(&refused).contains(&format!("{script} already exists")), "{}", err(&refused));
        }
        assert_eq!(std::fs::read_to_string(folder.join(script)).unwrap(), "mine");
    }
}

#[test]
fn the_prediction_stands_with_its_interval() {
    let text = out(&small("tp=2"));
    let line = text.lines().skip_while(|line| !line.contains("predicted by meshwright")).take(3).collect::<String>();
    assert!(line.contains(" to ") && line.contains("runs out of memory with a chance of"), "{line}");
    assert!(text.contains("nine runs of ten"), "{text}");
}

#[test]
fn names_suggest_the_nearest() {
    let output = run(&["emit", "megatorn", "llama3-8b", "dgx-h100-8", "--plan", "tp=2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("did you mean `megatron`?"), "{}", err(&output));
    assert_eq!(run(&["emit", "megatron", "llama3-8b"]).status.code(), Some(2));
    assert_eq!(run(&["emit", "megatron", "--from", "no/such.json"]).status.code(), Some(2));
}

#[test]
fn nothing_is_overwritten_without_force() {
    let folder = folder("force");
    let into = folder.to_str().unwrap();
    let write = |plan: &str, more: &[&str]| run(&[&SMALL[..], &[plan, "--out", into], more].concat());
    assert_eq!(write("tp=2", &[]).status.code(), Some(0));
    let path = folder.join("megatron.sh");
    let first = std::fs::read_to_string(&path).unwrap();
    let again = write("tp=4", &[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(err(&again).contains("megatron.sh") && err(&again).contains("--force"), "{}", err(&again));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
    assert_eq!(write("tp=4", &["--force"]).status.code(), Some(0));
    assert_ne!(std::fs::read_to_string(&path).unwrap(), first);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "no temporary file stays");
    let under_a_file = path.join("below");
    let output = run(&[&SMALL[..], &["tp=2", "--out", under_a_file.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("below"), "{}", err(&output));
}

#[test]
fn an_earlier_answer_gives_the_same_files() {
    let folder = folder("from");
    let into = folder.to_str().unwrap();
    let args =
        ["plan", "llama3-8b", "dgx-h100-8", "--emit", "megatron", "--out", into, "--format", "json", "--top", "2"];
    let planned = run(&args);
    assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let both = ["megatron.sh", "launch.sbatch"].map(|name| format!("==> {name} <==\n{}", text(name)));
    let written = both.join("\n");
    let document = folder.join("plan.json");
    let answer: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    let recommended = answer["recommended"]["rank"].as_u64().unwrap();
    std::fs::write(&document, planned.stdout).unwrap();
    let from = |rank: &str| run(&["emit", "megatron", "--from", document.to_str().unwrap(), "--rank", rank]);
    assert_eq!(out(&from(&recommended.to_string())), written);
    assert_ne!(out(&from(if recommended == 1 { "2" } else { "1" })), written);
    assert_eq!(from("9").status.code(), Some(2));
}

/// Megatron asserts that a rate rises for fewer steps than a run has.
#[test]
fn short_timing_runs_warm_up_for_less() {
    let warm_up = |framework: &str, steps: &str| {
        let text = out(&run(&["emit", framework, "llama3-8b", "dgx-h100-8", "--plan", "tp=2 pp=2", "--steps", steps]));
        let line = text.lines().find(|line| line.contains("lr-warmup-iters") || line.contains("lr_warmup_iters"));
        line.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
    };
    assert_eq!(warm_up("megatron", "3"), "--lr-warmup-iters 2");
    assert_eq!(warm_up("megatron", "50"), "--lr-warmup-iters 5");
    assert!(warm_up("bridge", "1").starts_with("cfg.scheduler.lr_warmup_iters = 0"));
}

/// Neither Transformer Engine nor FlashAttention runs before Ampere: no file asks for them there.
#[test]
fn files_for_volta_ask_for_no_kernel_of_ampere() {
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/checks/clusters/jean-zay-v100.toml");
    for (framework, asked, never) in [
        ("megatron", "--transformer-impl local", "transformer_engine"),
        ("axolotl", "attn_implementation: sdpa", "flash_attention_2"),
        ("llama-factory", "flash_attn: sdpa", "fa2"),
        ("llm-foundry", "attn_impl: torch", "attn_impl: flash"),
    ] {
        let folder = folder(&format!("volta-{framework}"));
        let path = folder.to_str().unwrap();
        let made = run(&["emit", framework, "llama2-7b", cluster, "--gpus", "32", "--out", path]);
        assert!(made.status.success(), "{framework}: {}", err(&made));
        let files =
            std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let text: String = files.collect();
        assert!(text.contains(asked) && !text.contains(never), "{framework}: {text}");
    }
    let script = folder_of("volta-megatron").join("megatron.sh");
    let linted = out(&run(&["lint", script.to_str().unwrap(), cluster]));
    let complains = linted.contains("fused attention") || linted.contains("transformer_engine");
    assert!(linted.contains("V100") && !complains, "{linted}");
}

/// The folder that a test has made.
fn folder_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("emit-{name}"))
}

/// Where ranks meet and how NCCL works decides no plan: files that are written here are linted without a word on it.
#[test]
fn variables_of_the_launcher_are_no_note() {
    let folder = folder("launcher-variables");
    let path = folder.to_str().unwrap();
    assert!(run(&["emit", "megatron", "llama3-8b", "dgx-h100-64", "--out", path]).status.success());
    let linted = out(&run(&["lint", folder.join("megatron.sh").to_str().unwrap(), "dgx-h100-64"]));
    assert!(linted.contains("no errors, no warnings") && !linted.contains("taken as not set"), "{linted}");
}

/// Llama 3 8B is recommended Megatron-FSDP, which Megatron core 0.13 lacks: files for it have a plan that it runs.
#[test]
fn an_older_release_has_a_plan_that_it_runs() {
    let made = run(&["emit", "megatron", "llama3-8b", "dgx-h100-64", "--release", "core_r0.13"]);
    assert!(made.status.success(), "{}", err(&made));
    assert!(err(&made).contains("zero=1") && !out(&made).contains("megatron-fsdp"), "{}", err(&made));
}
