#!/usr/bin/env python3
"""Trains emitted plans for two optimizer steps: each framework's own code, gloo ranks on this machine's CPU, small models.

    train.py --meshwright target/debug/meshwright --seed 7 --each megatron=20,torchtitan=6

A plan for 2, 4 or 8 GPUs is drawn: the search's own for a model of the catalogue, or one written at random. The same plan is emitted
for the model with few and narrow layers, and that file, as it is, is run by training/on_FRAMEWORK.py, one process a rank. Judged are:
two optimizer steps, finite losses, weights that move, micro-batches a step as the plan says, and process groups of the plan's sizes
that every member knows alike. nanotron and Megatron-Bridge, whose attention is a GPU's, are not trained; docs/emit.md
says why others are not. Prints a line for each and counts by framework; exits 1 where one fails.
"""

import argparse
import collections
import glob
import json
import math
import os
import random
import subprocess
import sys
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "training")]
import draw
from shrink import shrunk, toml

CLUSTERS = ("dgx-h100-8", "dgx-h100-1k", "a100-40-64", "h200-1k", "hgx-b200-512", "gb200-nvl72-1152")
RANKS = (2, 4, 4, 8)
MOST_STAGES = 12  # virtual stages of a model: a layer or two each
SEQUENCE = 128  # tokens; of the real model's plan too where its own is left out
FILE = {
    "megatron": "megatron.sh",
    "deepspeed": "ds_config.json",
    "accelerate": "accelerate.yaml",
    "torchtitan": "torchtitan_plan.py",
    "olmo-core": "olmo_core_plan.py",
    "llama-factory": "llama_factory.yaml",
    "axolotl": "axolotl.yaml",
}
OF_TRAINER = ("llama-factory", "axolotl")  # over FSDP2 or DeepSpeed, by the stack
# Sources that a framework is run from.
SOURCES = {"olmo-core": lambda o: [o.olmo_core, o.olmo_core_needs]}
# Offload, which is taken out of a plan: there is no device to move states from.
LEFT_OUT = ("offload-optimizer", "offload-activations", "dp")


def not_here(framework, plan):
    """Why a plan is not trained here; nothing where it is."""
    of_program = framework in ("deepspeed", "accelerate")
    if of_program and plan.get("cp", "1") != "1":
        return "context parallelism is in the program's attention, whose kernels need a GPU"
    if of_program and plan.get("ep", "1") != "1":
        return "experts are in the program's model"
    if framework == "axolotl" and plan.get("cp", "1") != "1":
        return "context parallelism is in ring-flash-attn's kernels"
    if framework in ("accelerate", "axolotl") and plan.get("tp", "1") != "1":
        return "Accelerate 1.15 imports ReplicateParallel, which transformers 5.23 has not: its own fault, whatever the plan"
    if framework == "olmo-core" and plan.get("cp", "1") != "1":
        return "context parallelism is in flash-attn's kernels"
    if framework == "torchtitan" and plan.get("dispatcher") == "deepep":
        return "DeepEP is built for a GPU, and torchtitan asks for it"
    return None


# Frameworks whose experts are kernels of a GPU: OLMo-core sorts tokens by expert in one of Triton's.
DENSE = ("olmo-core",)


def models():
    """Models of the catalogue by name, but for mixers of kernels that no CPU has."""
    found = {}
    for path in sorted(glob.glob(os.path.join(draw.ROOT, "models", "*.toml"))):
        with open(path, "rb") as file:
            model = tomllib.load(file)
        if all(layer["mixer"]["kind"] in ("attention", "mla") for layer in model["layer"].values()):
            found[os.path.basename(path)[:-5]] = model
    return found


def emitted(o, framework, model, cluster, flags, plan, folder):
    """The plan as it was resolved, by key; or the error."""
    done = subprocess.run(
        [
            o.meshwright,
            "emit",
            framework,
            model,
            cluster,
            *flags,
            "--plan",
            plan,
            "--steps",
            "50",
            "--out",
            folder,
            "--force",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return None, done.stderr
    return draw.resolved(folder), ""


def drawn(chance, o, framework, catalogue, folder):
    """A case: what it is called, its file, its plan, its batch; none where the draw is of no plan of this framework."""
    has_experts = lambda model: any(layer["ffn"]["kind"] == "moe" for layer in model["layer"].values())
    names = [name for name, model in sorted(catalogue.items()) if framework not in DENSE or not has_experts(model)]
    name, cluster, gpus = chance.choice(names), chance.choice(CLUSTERS), chance.choice(RANKS)
    batch = gpus * chance.choice((1, 2, 3, 4))
    flags = ["--gpus", str(gpus), "--global-batch", str(batch)]
    if framework in OF_TRAINER:
        flags += ["--stack", "deepspeed-zero3-2022"] * (chance.random() < 0.5) + ["--lora"] * (chance.random() < 0.3)
    is_searched = chance.random() < 0.5
    whole = [name, cluster, *flags]
    plan = (
        draw.searched(chance, o.meshwright, framework, whole) if is_searched else draw.written(chance, framework, None)
    )
    if plan is None:  # the model is too large for so few
        is_searched, plan = False, draw.written(chance, framework, None)
    plan = " ".join(word for word in plan.split() if word.split("=")[0] not in LEFT_OUT)
    keys = dict(word.split("=", 1) for word in plan.split())
    stages = int(keys.get("pp", 1)) * int(keys.get("vpp", 1))
    if stages > MOST_STAGES:
        return None
    small = os.path.join(folder, "model.toml")
    os.makedirs(folder, exist_ok=True)
    refused = None
    for layers in [stages * times for times in ((2, 1, 3, 4) if stages < 8 else (1, 2))]:
        with open(small, "w") as file:
            file.write(toml(shrunk(catalogue[name], layers)))
        for _ in range(2):
            resolved, refused = emitted(
                o, framework, small, cluster, [*flags, "--seq-len", str(SEQUENCE)], plan, folder
            )
            if resolved and (why := not_here(framework, resolved)):
                o.not_tried[framework, why] += 1
                return None
            if resolved:
                more = " ".join(flags[4:])
                head = f"{framework} {name} x{gpus} batch {batch}, {more + ', ' if more else ''}{layers} layers: {'search' if is_searched else 'drawn'} {plan}"
                return {
                    "head": head,
                    "file": os.path.join(folder, FILE[framework]),
                    "plan": resolved,
                    "batch": batch,
                    "ranks": gpus,
                }
            near = None if is_searched else draw.nearest(refused)
            if near is None:
                break
            plan = " ".join(word for word in near.split() if not word.startswith("dp="))
    return None


def judged(case, report):
    """Faults of a run."""
    if not report.get("accepted"):
        return ["\n    ".join(str(report.get("error") or report).splitlines()[-9:])]
    plan, ranks, wrong = case["plan"], report["ranks"], []
    size = lambda name: int(plan.get(name, 1))
    if len(ranks) != case["ranks"]:
        wrong.append(f"{len(ranks)} ranks reported")
    losses = [loss for rank in ranks for loss in rank["losses"]]
    if not any(any(rank["sums"]) for rank in ranks):
        wrong.append("no rank has weights")
    if not losses or not all(math.isfinite(x) for loss in losses for x in loss):
        wrong.append(f"losses {losses}")
    wanted = case["batch"] / (size("mbs") * size("dp"))
    for at, rank in enumerate(ranks):
        if rank["steps"] != 2:
            wrong.append(f"rank {at}: {rank['steps']} optimizer steps")
        if (
            len(rank["sums"]) != 3
            or any(rank["sums"])
            and len(set(rank["sums"])) != 3
            or not all(map(math.isfinite, rank["sums"]))
        ):
            wrong.append(f"rank {at}: weights of {rank['sums']} before and after the steps")
        if any(passes != 2 * wanted for passes in rank.get("passes", {}).values()):
            wrong.append(f"rank {at}: {rank['passes']} forward passes of its stages, the plan says {2 * wanted:g} each")
        if any(count != wanted for count in rank["micro_batches"]):
            wrong.append(f"rank {at}: {rank['micro_batches']} micro-batches a step, the plan says {wanted:g}")
        for name, members in rank["groups"].items():
            if members is None:
                continue
            degree = size(name) if name != "etp" else size("etp") if "etp" in plan else len(members)
            if len(members) != degree or at not in members:
                wrong.append(f"rank {at}: group {name} is {members}, the plan says {degree}")
            elif any(ranks[other]["groups"][name] != members for other in members if other < len(ranks)):
                wrong.append(f"rank {at}: group {name} is {members}, which its members do not say alike")
    return wrong


def run(o, framework, cases):
    """Reports by file."""
    listed = os.path.join(o.out, f"{framework}.json")
    words = lambda case: [
        "--plan",
        " ".join(f"{name}={value}" for name, value in case["plan"].items()),
        "--batch",
        str(case["batch"]),
    ]
    of_olmo = lambda case: ["--olmo-core-path", o.olmo_core, "--needs", o.olmo_core_needs]
    more = {"deepspeed": words, "accelerate": words, "olmo-core": of_olmo}.get(framework, lambda _: [])
    with open(listed, "w") as file:
        json.dump([{"file": case["file"], "ranks": case["ranks"], "options": more(case)} for case in cases], file)
    command = [
        sys.executable,
        "-W",
        "ignore",
        os.path.join(HERE, "check_many.py"),
        "--checker",
        f"training/on_{framework.replace('-', '_')}.py",
        "--cases",
        listed,
        "--jobs",
        "4",
        "--timeout",
        "150",
    ]
    with open(os.path.join(o.out, f"{framework}.log"), "w") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True)
    return {report["file"]: report for report in map(json.loads, done.stdout.splitlines())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meshwright", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", default="target/trained")
    ap.add_argument(
        "--each", default="megatron=16,torchtitan=8,deepspeed=8,accelerate=8,olmo-core=6,llama-factory=6,axolotl=6"
    )
    ap.add_argument("--reports", help="write every report here")
    ap.add_argument("--olmo-core", help="checkout of OLMo-core")
    ap.add_argument("--olmo-core-needs", help="folder with what it needs of the registry")
    o = ap.parse_args()
    o.out, o.not_tried = os.path.abspath(o.out), collections.Counter()
    print(f"seed {o.seed}")
    catalogue, counts, reports = models(), collections.Counter(), []
    for framework, wanted in (item.split("=") for item in o.each.split(",")):
        if missing := [path for path in SOURCES.get(framework, lambda o: [])(o) if not os.path.isdir(path or "")]:
            print(
                f"SKIPPED: {framework}'s source cannot be had ({', '.join(map(str, missing))}); none of its plans was trained"
            )
            continue
        chance, cases, since = random.Random(f"{o.seed} {framework}"), [], time.time()
        for at in range(150 * int(wanted)):
            if len(cases) == int(wanted):
                break
            case = drawn(chance, o, framework, catalogue, os.path.join(o.out, f"{framework}-{len(cases) + 1:02}"))
            cases += [case] if case else []
        answers = run(o, framework, cases)
        for case in cases:
            report = answers.get(case["file"], {})
            reports.append({**case, "report": report})
            wrong = judged(case, report)
            counts[framework, "trained" if not wrong else "failed"] += 1
            print(
                ("ok " if not wrong else "FAILED ") + case["head"] + "".join(f"\n    {fault}" for fault in wrong[:4]),
                flush=True,
            )
        print(
            f"{framework}: {counts[framework, 'trained']} of {len(cases)} plans trained ({wanted} were asked for), "
            f"{time.time() - since:.0f} s",
            flush=True,
        )
    for (framework, why), count in sorted(o.not_tried.items()):
        print(f"{framework}: {count} draws not tried: {why}")
    if o.reports:
        json.dump(reports, open(o.reports, "w"), indent=1)
    failed = sum(count for (_, how), count in counts.items() if how == "failed")
    trained = sum(count for (_, how), count in counts.items() if how == "trained")
    print(f"{trained} plans trained for two steps, {failed} failed, on {sum(rank['ranks'] for rank in reports)} ranks")
    sys.exit(1 if failed or not trained else 0)


if __name__ == "__main__":
    main()
