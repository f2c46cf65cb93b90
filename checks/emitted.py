#!/usr/bin/env python3
"""Emits every plan of cases.tsv and asks each framework's own code whether it would run it.

    emitted.py --meshwright target/debug/meshwright --out DIR [--only megatron,deepspeed] [--nanotron CHECKOUT/src]

Prints one line for each case and closes with the counts; exits 1 where a framework refuses a file, resolves other sizes than the
plan's, or counts other parameters than the model's.
"""

import argparse
import concurrent.futures
import copy
import csv
import functools
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import draw

CHECKER = {
    "megatron": ("check_megatron.py", "megatron.sh", "--level build --most-stages 4"),
    "deepspeed": ("check_deepspeed.py", "ds_config.json", "--level init"),
    "accelerate": ("check_accelerate.py", "accelerate.yaml", "--level prepare"),
    "torchtitan": ("check_torchtitan.py", "torchtitan_plan.py", "--level build"),
    "megatron-bridge": ("check_megatron_bridge.py", "megatron_bridge.py", ""),
    "axolotl": ("check_axolotl.py", "axolotl.yaml", ""),
    "llama-factory": ("check_llama_factory.py", "llama_factory.yaml", ""),
    "gpt-neox": ("check_gpt_neox.py", "gpt_neox.yml", ""),
    "ms-swift": ("check_ms_swift.py", "ms_swift.sh", ""),
    "llm-foundry": ("check_llm_foundry.py", "llm_foundry.yaml", ""),
    "olmo-core": ("check_olmo_core.py", "olmo_core_plan.py", ""),
    "primus": ("check_primus.py", "primus.yaml", ""),
    "nanotron": ("check_nanotron.py", "nanotron.yaml", "--level build"),
}


def cases(path):
    with open(path) as f:
        rows = csv.reader((line for line in f if not line.startswith("#")), delimiter="\t")
        return [dict(zip(("framework", "model", "cluster", "flags", "plan"), row)) for row in rows if row]


def emit(binary, case, folder):
    """The resolved plan, as `key=value` pairs, and the world size; or why it was not emitted."""
    command = [
        binary,
        "emit",
        case["framework"],
        case["model"],
        case["cluster"],
        *case["flags"].split(),
        "--plan",
        case["plan"],
        "--steps",
        "50",
        "--out",
        folder,
        "--force",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, 0, done.stderr.strip()
    keys = draw.resolved(folder)
    world = int(keys["tp"]) * int(keys["cp"]) * int(keys["pp"]) * int(keys["dp"])
    return keys, world, ""


LAUNCHED = {
    "megatron-bridge": "megatron_bridge.py",
    "llama-factory": "llama_factory.sh",
    "gpt-neox": "gpt_neox.sh",
    "ms-swift": "ms_swift.sh",
    "llm-foundry": "llm_foundry.sh",
    "olmo-core": "olmo_core.sh",
}  # what `import` is given; FRAMEWORK.sh where nothing stands here


def read_back(binary, case, keys, folder):
    """Differences between the plan and what `import` reads."""
    path = os.path.join(folder, LAUNCHED.get(case["framework"], case["framework"] + ".sh"))
    done = subprocess.run([binary, "import", path, "--format", "json"], capture_output=True, text=True)
    if not done.stdout:
        return [f"read back: {done.stderr.strip()}"]
    answer = json.loads(done.stdout)
    again = dict(item.split("=", 1) for item in answer["plan_text"].split())
    # Stages that were refined, and those of one plan in other words, are compared by the tests.
    names = [name for name in keys.keys() | again.keys() if name != "split"]
    if case["framework"] == "megatron-bridge":  # how many replicas there are is its launcher's
        names = [name for name in names if name not in ("dp", "shard")]
    if "--refine" in case["flags"]:
        names = [name for name in names if name not in ("recompute", "schedule", "vpp")]
    wrong = [
        f"{name}: the plan says {keys.get(name)}, the file reads back as {again.get(name)}"
        for name in sorted(names)
        if keys.get(name) != again.get(name)
    ]
    return wrong + [f"not read back: {name}" for name in answer["unknown"]]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meshwright", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--cases", action="append", help="default: cases.tsv; may be given more than once")
    ap.add_argument("--only", default="megatron,megatron-bridge,deepspeed,accelerate,torchtitan,axolotl,llama-factory")
    ap.add_argument("--nanotron", help="src folder of a nanotron checkout")
    ap.add_argument("--gpt-neox", help="checkout of GPT-NeoX")
    ap.add_argument("--ms-swift", help="checkout of ms-swift")
    ap.add_argument("--llm-foundry", help="checkout of llm-foundry")
    ap.add_argument("--composer", help="checkout of Composer")
    ap.add_argument("--megablocks", help="checkout of MegaBlocks")
    ap.add_argument("--olmo-core", help="checkout of OLMo-core")
    ap.add_argument("--olmo-core-needs", help="folder with what it needs of the registry")
    ap.add_argument("--primus", help="checkout of Primus")
    ap.add_argument("--primus-megatron", help="checkout of Megatron-LM at the commit of its third_party")
    ap.add_argument("--bridge", help="where megatron-bridge lies")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--reports", help="write every report here")
    o = ap.parse_args()
    only, failed, passed, reports, ready = o.only.split(","), 0, 0, [], {}
    listed = [case for path in o.cases or [os.path.join(HERE, "cases.tsv")] for case in cases(path)]
    for at, case in enumerate(listed, 1):
        if case["framework"] not in only:
            continue
        folder = os.path.join(o.out, f"{at:03}-{case['framework']}")
        keys, world, why = emit(o.meshwright, case, folder)
        if keys is None:
            failed += 1
            print(f"NOT EMITTED {case['framework']} {case['model']} {case['plan']}: {why}")
            continue
        odd = read_back(o.meshwright, case, keys, folder)
        if odd:
            failed += 1
            print(f"READ BACK {case['framework']} {case['model']} {case['flags']} {case['plan']}: " + "; ".join(odd))
        ready.setdefault(case["framework"], []).append(
            (case, keys, world, os.path.join(folder, CHECKER[case["framework"]][1]))
        )

    def answered(framework):
        since = time.time()
        return judged(o, framework, ready[framework]), time.time() - since

    # Two at a time: a framework is imported by one process, and that leaves a core idle.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = {framework: pool.submit(answered, framework) for framework in ready}
    for framework, items in ready.items():
        answers, took = asked[framework].result()
        for case, keys, world, path in items:
            answer = answers.get(path, {"error": "no report"})
            reports.append({"case": case, "plan": keys, **answer})
            wrong = [] if answer.get("rc") == 0 else [str(answer.get("error"))]
            wrong += differences(framework, case, keys, answer) if not wrong else []
            if framework == "torchtitan" and not wrong:
                question = draw.asked(os.path.dirname(path))
                wrong = titans_differences(keys, question, answer) or unnoticed(keys, question, answer)
            head = f"{framework} {case['model']} x{world} {case['flags']} {case['plan']}"
            if wrong:
                failed += 1
                print(f"FAILED {head}\n    " + "\n    ".join(wrong))
            else:
                passed += 1
                print(f"ok {head}: {' '.join(answer.get('levels', {}))}")
        print(f"{framework}: {len(items)} files in {took:.0f} s", flush=True)
    if o.reports:
        json.dump(reports, open(o.reports, "w"), indent=1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


TRAINED = 2  # plans on so many ranks are really run, on a tiny model


def judged(o, framework, items):
    """The report of each file, by its path."""
    checker, _, extra = CHECKER[framework]
    extra = extra.split() + (["--nanotron-path", o.nanotron] if framework == "nanotron" else [])
    extra += ["--gpt-neox-path", o.gpt_neox] if framework == "gpt-neox" else []
    extra += ["--ms-swift-path", o.ms_swift] if framework == "ms-swift" else []
    extra += (
        ["--llm-foundry-path", o.llm_foundry, "--composer-path", o.composer, "--megablocks-path", o.megablocks]
        if framework == "llm-foundry"
        else []
    )
    extra += ["--primus-path", o.primus, "--primus-megatron-path", o.primus_megatron] if framework == "primus" else []
    extra += ["--olmo-core-path", o.olmo_core, "--needs", o.olmo_core_needs] if framework == "olmo-core" else []
    listed = []
    for case, keys, world, path in items:
        # PyTorch splits no sequence of an attention kernel for processors
        shards = keys["zero"] != "0" and keys["cp"] == "1"
        trains = world == TRAINED and (framework == "deepspeed" or framework == "accelerate" and shards)
        # Of Megatron-Bridge's models the hybrids alone are built.
        counts = ("llm-foundry", "olmo-core", "megatron-bridge")
        counted = (
            ["--parameters", str(parameters(o.meshwright, case))]
            if framework in counts and "model." not in case["flags"]
            else []
        )
        counted += ["--heads", str(key_value_heads(o.meshwright, case))] if framework == "ms-swift" else []
        listed.append(
            {
                "file": path,
                "world_size": None if trains else world,
                "ranks": TRAINED if trains else 1,
                "options": ["--level", "train"] if trains else extra + counted + options(framework, case, keys).split(),
            }
        )
    plan = os.path.join(o.out, f"{framework}.json")
    json.dump(listed, open(plan, "w"), indent=1)
    command = [
        sys.executable,
        "-W",
        "ignore",
        os.path.join(HERE, "check_many.py"),
        "--checker",
        checker,
        "--jobs",
        str(o.jobs),
        "--cases",
        plan,
    ]
    command += ["--path", o.bridge] if framework == "megatron-bridge" and o.bridge else []
    sources = (
        {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, (o.primus, o.primus_megatron)))}
        if framework == "primus"
        else {}
    )  # another Megatron-LM than the installed one
    with open(os.path.join(o.out, f"{framework}.log"), "w") as log:
        done = subprocess.run(command, env={**os.environ, **sources}, stdout=subprocess.PIPE, stderr=log, text=True)
    return {answer["file"]: answer for answer in map(json.loads, done.stdout.splitlines())}


def parameters(binary, case):
    """Parameters of a case's model."""
    return json.loads(
        subprocess.run([binary, "models", case["model"], "--format", "json"], capture_output=True, text=True).stdout
    )["parameters"]["total"]


def key_value_heads(binary, case):
    """Key-value heads of a case's first attention."""
    model = json.loads(
        subprocess.run([binary, "models", case["model"], "--format", "json"], capture_output=True, text=True).stdout
    )["model"]
    return next(
        (
            kind["mixer"].get("kv_heads") or kind["mixer"]["heads"]
            for kind in model["kinds"]
            if kind["mixer"]["kind"] in ("attention", "mla")
        ),
        1,
    )


def options(framework, case, keys):
    """Options of the checker for a case."""
    if framework == "olmo-core":  # a rank of the last stage
        return (
            f"--rank {int(keys['tp']) * int(keys['cp']) * int(keys['pp']) * int(keys['dp']) - 1}"
            if keys["pp"] != "1"
            else ""
        )
    if framework == "megatron":
        return "--arch 10" if re.search(r"b200|b300", case["cluster"]) else ""
    if framework == "deepspeed" and keys["pp"] != "1":
        return f"--pp {keys['pp']} --level config"  # initialize() takes pipelines from the model's code
    if framework == "deepspeed" and (keys["tp"] != "1" or keys.get("offload-optimizer", "1") != "1"):
        return "--level config"  # AutoTP and Twin-Flow need a Hugging Face model, or the compiled CPU Adam
    if framework == "accelerate" and (keys["tp"] != "1" or keys["zero"] == "0"):
        return "--level state"  # the check's tiny model is not cut by tp_plan, and DDP wants a GPU
    return ""


# Sizes of torchtitan's report that are compared with the plan and the question.
TITANS_SIZES = (
    *(("resolved", degree) for degree in ("tp", "cp", "pp", "ep", "dp_replicate", "dp_shard")),
    *(("sizes", "training", size) for size in ("local_batch_size", "global_batch_size", "seq_len")),
    ("sizes", "pipeline_parallel_microbatch_size"),
    ("rank_params", "model_parts"),
)


def titans_differences(keys, asked, answer):
    """Degrees, batches and chunks that torchtitan resolved to something else than the plan and the question say."""
    pp, dp, mbs = int(keys["pp"]), int(keys["dp"]), int(keys["mbs"])
    # `shard` counts the ranks of context parallelism, over which weights are sharded too.
    shard = int(keys.get("shard", dp * int(keys["cp"]))) // int(keys["cp"]) if keys["zero"] != "0" else 1
    batch = int(asked["global-batch"])
    chunks = 2 if keys.get("schedule") in ("zb-v", "dualpipe-v") else int(keys.get("vpp", 1))
    # Without a pipeline nothing reads the micro-batch of one: the local batch is what a pass takes.
    planned = (
        *(int(keys.get(degree, 1)) for degree in ("tp", "cp", "pp", "ep")),
        dp // shard,
        shard,
        batch // dp if pp > 1 else mbs,
        batch,
        int(asked["seq-len"]),
        mbs if pp > 1 else None,
        chunks,
    )
    return [
        f"{path[-1]}: the plan says {plan}, the framework {reported}"
        for path, plan in zip(TITANS_SIZES, planned, strict=True)
        if plan is not None and (reported := value_at(answer, path)) != plan
    ]


def value_at(report, path):
    """The value at a path of names."""
    return functools.reduce(lambda part, name: part[name], path, report)


def unnoticed(keys, asked, answer):
    """Sizes of torchtitan's report that could be others without a difference."""
    missed = []
    for path in TITANS_SIZES:
        if path[-1] == "pipeline_parallel_microbatch_size" and keys["pp"] == "1":
            continue
        changed = copy.deepcopy(answer)
        value_at(changed, path[:-1])[path[-1]] += 1
        missed += [] if titans_differences(keys, asked, changed) else [f"{path[-1]} is compared with nothing"]
    return missed


def differences(framework, case, keys, answer):
    """Sizes that the framework resolved to something else than the plan says."""
    sizes = answer.get("sizes") or answer.get("resolved") or {}
    wrong = []
    # name in the plan -> name in the report
    names = {"tp": "tp", "cp": "cp", "pp": "pp", "mbs": "micro_batch"}
    if framework in ("axolotl", "llama-factory", "gpt-neox", "llm-foundry", "olmo-core"):
        names |= {"dp": "dp", "zero": "zero_stage"}
    if framework == "llm-foundry":
        names |= {"ep": "ep"}
    if framework == "olmo-core":
        names |= {"ep": "ep", "vpp": "chunks"}
        reported, plan = (
            (sizes.get("shard"), sizes.get("recompute")),
            (int(keys.get("shard", int(keys["dp"]) * int(keys["cp"]))), keys["recompute"]),
        )
        wrong += [f"shard and recompute: the plan says {plan}, the framework {reported}"] if reported != plan else []
    if framework in ("megatron", "megatron-bridge", "ms-swift", "primus"):
        names |= {"dp": "dp", "ep": "ep", "etp": "etp"}
    if framework == "megatron-bridge":
        reported, plan = sizes.get("adapters"), "LoRA" if "--lora" in case["flags"].split() else None
        wrong += [f"adapters: the plan says {plan}, the framework {reported}"] if reported != plan else []
    if framework == "ms-swift" and "reshard" in sizes:  # by its Trainer
        names |= {"zero": "zero_stage"}
        plan = {"reshard": keys.get("reshard", "on") if keys["zero"] == "3" else "on", "recompute": keys["recompute"]}
        wrong += [
            f"{name}: the plan says {plan[name]}, the framework {sizes[name]}"
            for name in plan
            if plan[name] != sizes[name]
        ]
    if framework == "deepspeed":
        names = {"tp": "tp", "cp": "sp", "dp": "dp", "mbs": "micro_batch", "zero": "zero_stage"}
    for name, reported in names.items():
        if (
            name in keys
            and reported in sizes
            and sizes[reported] is not None
            and float(sizes[reported]) != float(keys[name])
        ):
            wrong.append(f"{name}: the plan says {keys[name]}, the framework {sizes[reported]}")
    if framework in ("megatron", "primus") and keys.get("vpp", "1") != str(sizes.get("vpp") or 1):
        wrong.append(f"vpp: the plan says {keys.get('vpp')}, the framework {sizes.get('vpp')}")
    if framework == "llm-foundry":
        reported = {
            "shard": str(sizes.get("shard")) if sizes.get("zero_stage") == 3 else None,
            "reshard": sizes.get("reshard"),
            "recompute": sizes.get("recompute"),
        }
        plan = {
            "shard": keys.get("shard", keys["dp"]) if keys["zero"] == "3" else None,
            "reshard": keys.get("reshard", "on"),
            "recompute": keys.get("recompute", "none"),
        }
        wrong += [
            f"{name}: the plan says {plan[name]}, the framework {reported[name]}"
            for name in plan
            if plan[name] != reported[name]
        ]
    return wrong


main()
