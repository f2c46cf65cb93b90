//! Answers as somebody reads them once: what they say is said once, is true of what they show, and can be launched.

use std::path::PathBuf;
use std::process::{Command, Output};

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(line.split_whitespace()).output().unwrap()
}

/// Text that the command prints on stdout, with each line break and indentation as one space. It is never empty, so that it is
/// an answer in which a word is missing, not a refusal.
fn words(line: &str) -> String {
    let output = run(line);
    let text = String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!text.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    text
}

fn talk(line: &str) -> String {
    String::from_utf8(run(line).stderr).unwrap()
}

/// Text on stderr of a command that is answered.
fn talk_beside_answer(line: &str) -> String {
    let output = run(line);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {text}");
    text
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Llama 3 70B on 12 GPUs fits with its optimizer on the hosts alone: every row is a line, and what no run has shown and does not
/// help it to fit is left out.
#[test]
fn plans_that_need_an_unproven_mechanism_need_no_other() {
    let text = words("plan llama3-70b dgx-h100-64 --gpus 12");
    assert!(!text.contains("#: "), "records: {text}");
    assert!(text.contains(
        "Every plan that fits uses a mechanism that no published run has shown. This one has optimizer offload"
    ));
    assert!(!text.contains("chunks on a pipeline rank"), "{text}");
    assert!(text.contains(", 5 % risk of OOM"), "{text}");
}

/// A number of GPUs stands for a cluster in every command; what nobody has described is named among the assumptions.
#[test]
fn a_number_of_gpus_is_a_cluster_whose_network_is_assumed() {
    let network = "a network of full bisection at 50.0 GB/s a GPU";
    assert!(talk("plan llama3-8b 64xh200-sxm").contains(network));
    assert!(!talk_beside_answer("plan llama3-8b 8xH100").contains("a network"), "eight GPUs of one server need none");
    assert!(!talk_beside_answer("plan llama3-8b h200-1k").contains("a network"), "the catalogue describes its own");
    assert!(talk("plan llama3-8b 64xgh200").contains("one GPU a board (64xgh200-quad: four)"));
    let explained = words("explain llama3-8b 64xH200 --plan dp=64");
    assert!(explained.contains("64 × H200 SXM 141GB"), "{explained}");
    let emitted = run("emit megatron llama3-8b 64xH200 --plan dp=64");
    assert!(emitted.status.success(), "{}", String::from_utf8_lossy(&emitted.stderr));
}

/// DeepEP needs NVLink: cards in PCI Express slots exchange tokens by all-to-all.
#[test]
fn tokens_of_cards_without_nvlink_go_all_to_all() {
    let text = words("plan gpt-oss-20b 8xl40s --global-batch 16 --seq-len 2048");
    assert!(text.contains("Recommended") && text.contains("EP 8") && !text.contains("deepep"), "{text}");
    let refused =
        run("emit megatron gpt-oss-20b 8xl40s --global-batch 16 --seq-len 2048 --plan ep=8,dispatcher=deepep");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("joined by NVLink"), "{why}");
}

/// One GPU has one layout: there is nothing to compare.
#[test]
fn a_published_layout_is_named_by_its_degrees() {
    let text = words("plan llama3-8b dgx-h100-8 --gpus 1");
    assert!(text.contains("Recommended") && !text.contains("A published run on"), "{text}");
    assert!(
        words("plan llama3-8b dgx-h100-8")
            .contains("A published run on 8 of these GPUs (dgxc-0126, NeMo/Megatron-Core) had CP 2 · DP 4, as row ")
    );
    let scaled = words("plan llama3-405b h100-24576");
    assert!(scaled.contains(" of these GPUs in fp8 (mlperf-0021, "), "a run in another format says so");
    assert!(scaled.contains("PP 8 · DP 64; with DP 192, as row 2"), "the replicas are those of the run: {scaled}");
    assert!(
        scaled.contains("; the run took 5.18 s a step of 1,536 sequences."),
        "measured with another batch: {scaled}"
    );
}

/// The recommended row has a faster one above it, which takes no more memory: a sentence says what that one needs.
#[test]
fn a_faster_row_is_explained() {
    let plainer = words("plan llama2-70b hgx-b200-512");
    let why =
        " % faster, within run-to-run noise, but needs a pipeline and several chunks a rank instead of shard groups.";
    assert!(
        plainer.contains(">5 8 1 1 1 64 8") && plainer.contains("Row 1 is 1.8") && plainer.contains(why),
        "{plainer}"
    );
    let published = words("plan llama3-405b h100-24576");
    assert!(published.contains(">2 8 2 8 8 192"), "{published}");
    assert!(
        published.contains("Row 1 is 0.1 % faster, within run-to-run noise, but lacks the degrees of a published run")
    );
    let first = words("plan llama3-70b h100-512 --fix tp=8 --fix pp=4 --top 1");
    assert!(!first.contains("Row "), "{first}");
}

/// Published layouts are of runs that trained all weights.
#[test]
fn adapters_are_named_and_compared_with_no_full_training() {
    let text = words("plan llama3-70b dgx-h100-8 --lora");
    assert!(
        text.starts_with("Llama 3 70B · 8 × H100 SXM5 80GB · 128 × 8,192 tokens · bf16 · LoRA · NeMo 25.x"),
        "{text}"
    );
    assert!(!text.contains("A published run on"), "{text}");
}

/// A faster plan is not launched for its risk: the first sentence says so.
#[test]
fn a_faster_plan_is_refused_with_the_reason() {
    let title = |asked: &str| {
        let text = words(&format!("explain llama3-70b h100-512 --why-not {asked}"));
        text.split('─').next().unwrap().to_owned()
    };
    let risky = title("tp=4,cp=2,pp=2,dp=32,cp-kind=p2p,shard=16");
    assert!(risky.contains("(-") && risky.contains("; its risk of running out of memory is "), "{risky}");
    let slower = title("tp=8,pp=4");
    assert!(slower.contains("(+") && !slower.contains("run-to-run noise"), "{slower}");
}

/// The reason stands first, and once.
#[test]
fn a_plan_that_does_not_run_begins_with_the_reason() {
    let line = "explain llama3-8b dgx-h100-64 --plan tp=2,pp=5";
    let text = words(line);
    assert!(text.starts_with("Llama 3 8B · 64 × H100 SXM5 80GB"), "{text}");
    let reason = "tp·cp·pp·dp = 60 is not the 64 GPUs of the cluster";
    assert!(text.find(reason).unwrap() < text.find("Memory by pipeline rank").unwrap());
    assert!(!talk(line).contains(reason));
}

/// Megatron-FSDP runs without gradient accumulation fusion: its files price as its plan does, and the fusion is no advice.
#[test]
fn files_with_sharded_gradients_are_priced_as_their_plan() {
    let folder = folder("sharded-gradients");
    let out = folder.display();
    assert!(run(&format!("emit megatron llama3-8b dgx-h100-64 --plan zero=3 --out {out} --force")).status.success());
    let linted = words(&format!("lint {out}/megatron.sh dgx-h100-64"));
    let step = |text: &str| text.split(" a step").next().unwrap().rsplit("recomputation ").next().unwrap().to_owned();
    let explained = words("explain llama3-8b dgx-h100-64 --plan zero=3");
    let priced = explained.split("step time ").nth(1).unwrap().split(" (").next().unwrap();
    assert_eq!(step(&linted), priced, "{linted}");
    assert!(!linted.contains("gradient accumulation fusion"), "{linted}");
    let shown = linted.matches(" [").count();
    let notes = if shown == 1 { "1 note".to_owned() } else { format!("{shown} notes") };
    assert!(linted.contains(&format!("no warnings, {notes} ")), "{shown} findings are shown: {linted}");
}

/// Tensor cores before Ampere multiply fp16 alone, and no fused kernel of attention runs there.
#[test]
fn volta_is_planned_in_fp16() {
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/checks/clusters/jean-zay-v100.toml");
    let line = format!("plan llama2-7b {cluster} --gpus 32");
    assert!(words(&line).contains(" tokens · fp16 · Megatron-LM 2022 "), "{}", words(&line));
    assert!(talk(&line).contains("--precision fp16 (the tensor cores multiply no bf16)"));
    let refused = run(&format!("{line} --precision bf16"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("hint: --precision fp16"));
}

/// A ranking by another objective is read as one by time: a line for each plan.
#[test]
fn another_objective_is_one_line_a_plan() {
    for (line, first) in [("--objective memory", "Least memory TP "), ("--pareto", "Fastest DP ")] {
        let output = run(&format!("plan llama3-8b dgx-h100-64 --top 4 {line}"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(first), "{text}");
        let rows =
            text.lines().filter(|row| row.split_whitespace().next().is_some_and(|rank| rank.parse::<u32>().is_ok()));
        assert!(rows.count() >= 4 && !text.contains("P(best)"), "{text}");
    }
}

/// A front has a tolerance, which the answer states; without one it is whole.
#[test]
fn a_front_states_its_tolerance() {
    let front = |options: &str| {
        let line = format!("plan llama3-8b dgx-h100-64 --gpus 16 --pareto {options}");
        let output = run(&format!("{line} --format csv"));
        let rows = String::from_utf8(output.stdout).unwrap().lines().count() - 1;
        (rows, words(&line), talk(&line))
    };
    let (whole, text, counts) = front("--pareto-tolerance 0");
    assert!(
        !text.contains("cover the Pareto front") && counts.contains("proved optimal in the model"),
        "{text}{counts}"
    );
    for (options, share) in [("", "20.0 %"), ("--pareto-tolerance 0.05", "5.0 %")] {
        let (rows, text, counts) = front(options);
        assert!(rows > 1 && rows < whole, "{rows} of {whole} rows");
        assert!(
            text.contains(&format!("The rows cover the Pareto front within {share}: row 1 is the fastest")),
            "{text}"
        );
        assert!(counts.contains(&format!("the front is complete within {share}")), "{counts}");
    }
    let output = run("plan llama3-8b dgx-h100-64 --gpus 16 --pareto --wide");
    assert!(String::from_utf8(output.stdout).unwrap().contains("The rows cover the Pareto front"));
    for (options, key) in
        [("--pareto-tolerance 0.1", "--pareto"), ("--pareto --pareto-tolerance 1.5", "--pareto-tolerance")]
    {
        let refused = run(&format!("plan llama3-8b dgx-h100-64 {options}"));
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8(refused.stderr).unwrap().contains(key), "{options}");
    }
}

/// The line for all rows holds for each of them: settings of a pipeline, or of tensor parallelism, name the rows that have one.
#[test]
fn the_line_for_all_rows_is_true_of_each() {
    let output = run("plan gpt-oss-120b h100-512");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = rows.iter().find(|row| row.first() == Some(&"#")).unwrap();
    let at = |name: &str| head.iter().position(|head| *head == name).unwrap();
    let of_rank =
        |row: &&Vec<&str>| row.first().is_some_and(|rank| rank.trim_start_matches('>').parse::<u32>().is_ok());
    let plans: Vec<&Vec<&str>> = rows.iter().filter(of_rank).collect();
    for (degree, conditional) in [("PP", "interleaved 1F1B where PP > 1"), ("TP", "sequence parallel where TP > 1")] {
        let some = |is_one: bool| plans.iter().any(|row| (row[at(degree)] == "1") == is_one);
        assert!(some(true) && some(false), "{text}");
        assert!(words("plan gpt-oss-120b h100-512").contains(conditional), "{text}");
    }
}

/// Expert groups of published runs stay inside the rack.
#[test]
fn expert_groups_stay_inside_a_rack() {
    let text = words("plan deepseek-v3 gb300-nvl72-1152 --precision mxfp8");
    let plan = text.split("--plan \"").nth(1).unwrap();
    let group: u32 = plan.split(" ep=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(group <= 64, "{plan}");
    let degree = |text: &str, key: &str| -> u32 {
        let plan = text.split("--plan \"").nth(1).unwrap();
        plan.split(&format!(" {key}=")).nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    let split = "plan kimi-k2 gb200-nvl72-1152 --precision nvfp4";
    let proven = words(split);
    assert!(degree(&proven, "ep") * degree(&proven, "etp") <= 64, "{proven}");
    let asked = words(&format!("{split} --fix ep=64 --fix etp=2"));
    assert_eq!((degree(&asked, "ep"), degree(&asked, "etp")), (64, 2));
}

/// The exchange with experts has the name that the written files give it, and is read back by either.
#[test]
fn the_dispatcher_is_named_as_it_is_launched() {
    let (rack, node) = ("mixtral-8x7b gb300-nvl72-1152 --gpus 16", "mixtral-8x7b dgx-h100-64 --gpus 16");
    let of = |asked: &str| {
        words(&format!("plan {asked} --seq-len 4096 --global-batch 64 --fix ep=8 --fix dispatcher=hybridep"))
    };
    assert!(of(rack).contains("EP 8, dispatcher hybridep") && !of(rack).contains("dispatcher deepep,"), "{}", of(rack));
    assert!(of(node).contains("EP 8, dispatcher deepep"), "{}", of(node));
    let files =
        words(&format!("emit megatron {rack} --seq-len 4096 --global-batch 64 --plan ep=8,dispatcher=hybridep"));
    assert!(files.contains("--moe-flex-dispatcher-backend hybridep"), "{files}");
}

/// Mixtures beside Grace hosts have CUDA graphs as the recipes of their stack do; others, and who asks otherwise, have none.
#[test]
fn mixtures_beside_grace_hosts_replay_graphs() {
    let asked = "mixtral-8x7b gb300-nvl72-1152 --gpus 16 --seq-len 4096 --global-batch 64";
    let plan = format!("plan {asked}");
    assert!(words(&plan).contains("NeMo 25.x · CUDA graphs"), "{}", words(&plan));
    assert!(talk(&plan).contains("--set stack.cuda_graphs=true (as the stack's recipes"), "{}", talk(&plan));
    for other in [
        format!("{plan} --set stack.cuda_graphs=false"),
        format!("{plan} --lora"),
        format!("{plan} --for ms-swift"),
        "plan mixtral-8x7b dgx-h100-64 --gpus 16 --seq-len 4096".to_owned(),
        "plan llama3-8b gb300-nvl72-1152 --gpus 16".to_owned(),
    ] {
        assert!(
            !words(&other).contains("CUDA graphs ·") && !talk_beside_answer(&other).contains("cuda_graphs=true ("),
            "{other}"
        );
    }
    let files = words(&format!("emit megatron {asked} --plan ep=8,dispatcher=deepep"));
    assert!(files.contains("--cuda-graph-modules attn moe_router moe_preprocess"), "{files}");
    let router = format!("{asked} --set stack.cuda_graphs=true --set stack.graph_scope.attention=false");
    let files = words(&format!("emit megatron {router} --plan ep=8,dispatcher=deepep"));
    assert!(files.contains("--cuda-graph-modules moe_router moe_preprocess"), "{files}");
    assert!(!words(&format!("emit megatron {asked} --plan ep=8,recompute=full")).contains("--cuda-graph-"));
    let refused = run(&format!("emit megatron {asked} --plan ep=8,recompute=first-1 --set stack.cuda_graphs=true"));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("excludes CUDA graphs of modules"));
}

/// Where steps wait for the host, the answer itself says what graphs give.
#[test]
fn the_answer_says_what_graphs_would_give() {
    let text = words("plan qwen3-30b-a3b dgx-h100-64 --seq-len 4096 --fix tp=8 --fix ep=8 --fix mbs=1");
    assert!(text.contains("of the step waits for the host: with CUDA graphs (--set stack.cuda_graphs=true)"), "{text}");
}

/// A share of a peak that the GEMMs' format exceeds says of what.
#[test]
fn a_share_of_another_peak_says_of_what() {
    let asked = "plan llama3-8b hgx-b200-512 --gpus 8";
    assert!(words(&format!("{asked} --precision mxfp8")).contains("MFU by the bf16 peak"));
    assert!(!words(asked).contains("by the bf16 peak"));
}

/// A price is per hour once.
#[test]
fn a_bill_names_its_price_once() {
    let text = words("plan llama3-8b dgx-h100-64 --tokens 1T");
    assert!(text.contains("/h a GPU") && !text.contains("an hour"), "{text}");
}

/// No framework has flags for the recomputation of single layers or stages: nobody who did not ask is told to write them.
#[test]
fn stages_that_no_flags_express_are_for_those_who_ask() {
    let line = format!("plan {}/tests/hf/qwen3-next-80b-a3b.json h100-512", env!("CARGO_MANIFEST_DIR"));
    assert!(!words(&line).contains("recompute flags"), "{}", words(&line));
    assert!(talk(&line).contains("no Megatron-LM files are written for this model ("), "{}", talk(&line));
    let uneven = words("plan llama3-8b dgx-h100-64 --gpus 24 --global-batch 100");
    assert!(uneven.contains("With the stages Et*12|t*12|t*8L plan 1 takes 3.86 s, 1.0 % less than"), "{uneven}");
}

/// A number that cannot be read is refused with what can, and a risk may be in percent, as the answers print it.
#[test]
fn numbers_are_refused_with_how_to_write_them() {
    let plan = "plan llama3-8b dgx-h100-8";
    assert!(talk(&format!("{plan} --seq-len 128k")).contains("no whole number without a unit, such as 131072"));
    assert!(talk(&format!("{plan} --risk small")).contains("neither `5%` nor `0.05`"));
    assert_eq!(words(&format!("{plan} --risk 5%")), words(&format!("{plan} --risk 0.05")));
}

/// A long step has one unit: that of its row.
#[test]
fn a_long_step_is_in_seconds_everywhere() {
    let asked = "llama3-70b dgx-h100-8 --global-batch 1024";
    let plan = words(&format!("plan {asked}"));
    let step = plan.split(" s a step").next().unwrap().rsplit(' ').next().unwrap();
    assert!((600..3600).contains(&step.parse::<u32>().unwrap()), "{plan}");
    assert!(words(&format!("explain {asked}")).contains(&format!("Step time {step} s ")));
    assert!(words("plan llama3-70b h100-512 --tokens 15T").contains("a checkpoint every 32 min"));
}

/// Fixed values that no plan may have are the reason, and not what their simplest completion needs; a search that was
/// stopped has not shown that nothing fits.
#[test]
fn no_plan_has_its_own_reason() {
    let dense = talk("plan llama3-8b dgx-h100-64 --fix ep=8");
    assert!(dense.contains("--fix ep=8: ep is for mixtures of experts, and the model is dense\n"), "{dense}");
    let stopped = talk("plan llama3-405b h100-24576 --time-limit 0.000001");
    assert!(stopped.contains("no plan found in time: ") && stopped.contains("a longer --time-limit"), "{stopped}");
    assert!(!stopped.contains("fewer --fix"), "{stopped}");
}

/// Text in quotes behind a label of a screen, with its line breaks, as somebody would copy it.
fn copied<'t>(screen: &'t str, label: &str) -> &'t str {
    let behind = screen.split_once(label).unwrap_or_else(|| panic!("no {label}: {screen}")).1;
    behind.split('"').nth(1).unwrap()
}

/// The line of a plan that is not recommended prices and writes that very plan, and so does that of the recommended one.
#[test]
fn plans_of_a_screen_are_lines_to_run() {
    let printed = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for question in [["llama3-405b", "h100-24576"], ["llama3-70b", "h100-512"], ["deepseek-v3", "h800-2048"]] {
        let asked = |command: &[&str], more: &[&str]| printed(&[command, &question, more].concat());
        let screen = asked(&["plan"], &[]);
        let document: serde_json::Value = serde_json::from_str(&asked(&["plan"], &["--format", "json"])).unwrap();
        let recommended = &document["recommended"];
        let rank = usize::try_from(recommended["rank"].as_u64().unwrap()).unwrap();
        for (label, planned) in
            [("\n--plan", &document["plans"][rank - 1]), ("\nFastest  --plan", &recommended["fastest"])]
        {
            let line = copied(&screen, label);
            let explained: serde_json::Value =
                serde_json::from_str(&asked(&["explain"], &["--plan", line, "--format", "json"])).unwrap();
            for key in ["plan", "step_time_s", "peak_mem_gib"] {
                assert_eq!(explained["prediction"][key], planned[key], "{question:?} {label}: {key}");
            }
            let plan = planned["plan"].as_str().unwrap();
            let files = asked(&["emit", "megatron"], &["--plan", line]);
            assert!(
                files.contains(&format!("# plan: {}", &plan[..plan.len().min(60)])),
                "{question:?} {label}: {files}"
            );
        }
    }
}
