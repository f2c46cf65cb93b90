//! `plan`, `explain` and `emit` over pools of heterogeneous GPUs.

use std::path::PathBuf;

use super::commands::{code, err, file, json, out, refused, run};

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
    for words in ["Recommended, row ", "which Megatron-LM runs on the GPUs of every pool", "within 5 % risk"] {
        assert!(out(&table).replace('\n', " ").contains(words), "{words}: {}", out(&table));
    }
    let short = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hf/lfm2-1.2b.json");
    assert!(out(&run(&["plan", short, path])).contains("No published run has gated short convolutions"));
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
    let rank = json(&planned)["recommended"]["rank"].as_u64().unwrap();
    let best = json(&planned)["plans"][rank as usize - 1]["plan"].as_str().unwrap().to_owned();
    let script = folder.join("megatron.sh");
    assert!(std::fs::read_to_string(&script).unwrap().contains(&format!("plan: {}", &best[..40])));
    let read = run(&["import", script.to_str().unwrap()]);
    assert!(out(&read).contains(&best), "{best}: {}", out(&read));
    // The same from the document.
    let document = file("pools.json", &out(&planned));
    let again = run(&["emit", "megatron", "--from", document.to_str().unwrap(), "--rank", &rank.to_string()]);
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
