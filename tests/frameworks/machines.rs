//! Files on the machine that their plan is priced on: whole nodes, expert groups, racks.

use super::emit::{err, folder, out, run};

/// Launchers start equally many processes on each node, and a plan is priced on the nodes of its cluster.
#[test]
fn parts_of_nodes_are_refused_and_smaller_nodes_are_priced() {
    let sixty = run(&["emit", "megatron", "llama3-8b", "dgx-h100-64", "--gpus", "60"]);
    assert!(
        !sixty.status.success() && err(&sixty).contains("60 GPUs: 56 and 64 are whole nodes of 8"),
        "{}",
        err(&sixty)
    );
    assert!(!err(&sixty).contains("nearest plan"), "no plan makes nodes whole: {}", err(&sixty));
    let folder = folder("small-nodes");
    let path = folder.to_str().unwrap();
    let small = ["--set", "cluster.gpus_per_node=4", "--gpus", "60", "--plan", "tp=4", "--out", path];
    let made = run(&[&["emit", "megatron", "llama3-8b", "dgx-h100-64"][..], &small].concat());
    assert!(made.status.success(), "{}", err(&made));
    let script = std::fs::read_to_string(folder.join("megatron.sh")).unwrap();
    assert!(script.contains("--nnodes 15") && script.contains("--nproc-per-node 4"), "{script}");
    let step = |more: &[&str]| {
        let asked = [&["explain", "llama3-70b", "dgx-h100-64", "--plan", "tp=8 pp=2", "--format", "json"][..], more];
        let answer: serde_json::Value = serde_json::from_slice(&run(&asked.concat()).stdout).unwrap();
        answer["prediction"]["terms"]["tp_comm_s"].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert!(step(&["--set", "cluster.gpus_per_node=4"]) > 2.0 * step(&[]), "tensor parallelism of 8 leaves nodes of 4");
}

/// A rack of 72 GPUs holds one group of 64: `plan` counts the racks, chooses no groups that need more than there are, and the job asks
/// for sixteen trays of each.
#[test]
fn groups_that_do_not_divide_a_rack_are_counted() {
    let words = |gpus: &str| {
        let output = run(&["plan", "deepseek-v3", "gb300-nvl72-1152", "--precision", "mxfp8", "--gpus", gpus]);
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for gpus in ["1152", "1024"] {
        assert!(!words(gpus).contains("such domains"), "{}", words(gpus));
    }
    let asks = "it needs 9 such domains, where 576 GPUs fill 8: on 8, ask for `--gpus 512`.";
    assert!(words("576").contains(asks), "{}", words("576"));
    let asked = run(&["plan", "gpt-oss-120b", "gb300-nvl72-1152", "--precision", "nvfp4"]);
    let hint = "1,024 of the 1,152 GPUs train ";
    assert!(err(&asked).contains(hint) || out(&asked).contains(hint), "{}", err(&asked));
    let folder = folder("segment");
    let plan = ["--gpus", "1024", "--plan", "ep=64 zero=1 recompute=full", "--out", folder.to_str().unwrap()];
    let made = run(&[&["emit", "megatron", "deepseek-v3", "gb300-nvl72-1152"][..], &plan].concat());
    assert!(made.status.success(), "{}", err(&made));
    let job = std::fs::read_to_string(folder.join("launch.sbatch")).unwrap();
    assert!(job.contains("#SBATCH --nodes=256\n") && job.contains("#SBATCH --segment=16\n"), "{job}");
}

/// A plan that needs more racks than its cluster has is refused with the GPUs that fill them. Its job is written where there are racks to
/// spare, and where nobody says how many there are: for a number of GPUs, or for more than the file has.
#[test]
fn jobs_for_more_racks_than_there_are_are_refused() {
    const PLAN: &str = "ep=64 zero=1 recompute=full";
    let emitted = |cluster: &str, more: &[&str]| {
        run(&[&["emit", "megatron", "qwen3-235b-a22b", cluster, "--plan", PLAN][..], more].concat())
    };
    for (more, needed) in [(&[][..], 18), (&["--gpus", "1088"], 17), (&["--set", "cluster.gpus=1152"], 18)] {
        let refused = emitted("gb200-nvl72-1152", more);
        let why = format!(
            "its groups fill 64 of the 72 GPUs of a scale-up domain, so it needs {needed} such domains, and the cluster has 16: --gpus 1024 \
             fills those"
        );
        let message = err(&refused);
        assert!(!refused.status.success() && message.contains(&why), "{more:?}: {message}");
    }
    for (cluster, more, needed) in [
        ("gb200-nvl72-1152", &["--gpus", "1024"][..], 16),
        ("gb200-nvl72-1152", &["--gpus", "576"], 9),
        ("gb200-nvl72-1152", &["--gpus", "2304"], 36),
        ("gb200-nvl72-1152", &["--set", "cluster.gpus=1296", "--gpus", "1152"], 18),
        ("gb200-nvl72-1152", &["--set", "cluster.gpus=1024"], 16),
        ("1152xgb200", &[], 18),
        ("1152xgb200", &["--set", "cluster.gpus=576"], 9),
    ] {
        let made = emitted(cluster, more);
        assert!(made.status.success(), "{cluster} {more:?}: {}", err(&made));
        let note = format!("the job needs {needed} domains.\n#SBATCH --segment=16\n");
        assert!(out(&made).contains(&note), "{cluster} {more:?}: {}", out(&made));
    }
    let explained = |plan: &str| out(&run(&["explain", "qwen3-235b-a22b", "gb200-nvl72-1152", "--plan", plan]));
    assert!(explained(PLAN).contains("does not run") && explained(PLAN).contains("domains  its groups fill 64"));
    assert!(!explained("ep=8 zero=1 recompute=full").contains("does not run"), "groups of eight fill a rack");
}

/// HybridEP's variables are those of NVIDIA's recipes in racks, whose domains join several nodes, and are kept where they are set.
#[test]
fn hybrid_ep_is_told_the_domains_of_a_rack() {
    const NAMES: [&str; 3] = ["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", "NVLINK_DOMAIN_SIZE", "USE_MNNVL"];
    let exports = |framework: &str, cluster: &str, gpus: &str, plan: &str| {
        let asked = ["emit", framework, "qwen3-30b-a3b", cluster, "--gpus", gpus, "--plan", plan];
        let made = run(&asked);
        assert!(made.status.success(), "{framework} {plan}: {}", err(&made));
        let lines = out(&made);
        let value = |name: &str| {
            let line = lines.lines().find(|line| line.contains(name))?;
            line.strip_prefix(&format!("export {name}=\"${{{name}:-"))?.strip_suffix("}\"").map(str::to_owned)
        };
        NAMES.map(|name| value(name).unwrap_or_else(|| if lines.contains(name) { "misspelt" } else { "" }.to_owned()))
    };
    for framework in ["megatron", "megatron-bridge"] {
        let of = |gpus: &str, plan: &str| exports(framework, "gb200-nvl72-1152", gpus, plan);
        assert_eq!(of("512", "ep=64 dispatcher=hybridep zero=1"), ["64", "72", "1"], "{framework}");
        assert_eq!(of("16", "ep=8 dispatcher=hybridep zero=1"), ["8", "72", "1"], "{framework}");
        assert_eq!(of("64", "ep=16 etp=2 tp=2 dispatcher=hybridep zero=1"), ["32", "72", "1"], "{framework}");
        assert_eq!(of("512", "ep=128 dispatcher=hybridep zero=1"), ["8", "72", "1"], "{framework}: blocks of a rack");
        assert_eq!(of("16", "ep=8 dispatcher=alltoall zero=1"), [""; 3], "{framework}");
        assert_eq!(exports(framework, "dgx-h100-64", "16", "ep=8 dispatcher=deepep zero=1"), [""; 3], "{framework}");
    }
}

/// DeepEP's kernels are compiled for some numbers of ranks and nodes.
#[test]
fn expert_groups_that_deepep_lacks_are_refused() {
    let refused = |model: &str, cluster: &str, plan: &str| {
        let output = run(&["emit", "megatron", model, cluster, "--plan", plan]);
        err(&output).contains("DeepEP exchanges among 2, 4 or 8 ranks")
    };
    let of = |ep: u32| format!("tp=1 pp=4 ep={ep} dispatcher=deepep recompute=full zero=1");
    for (ep, is_refused) in [(8, false), (64, false), (128, false), (256, true)] {
        assert_eq!(refused("deepseek-v3", "h800-2048", &of(ep)), is_refused, "{ep}");
    }
    assert!(refused("kimi-k2", "384xb200-sxm", &of(12)));
    assert!(refused("qwen3-30b-a3b", "64xgh200-quad", "ep=8 dispatcher=deepep"), "nodes of four");
    assert!(refused("qwen3-30b-a3b", "60xgh200", "ep=2 dispatcher=deepep"), "nodes of one");
}
