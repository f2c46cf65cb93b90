#!/usr/bin/env python3
"""Draws plans that nobody chose: any model of models/ and tests/hf/, odd clusters and numbers of GPUs, any key of a plan.

    draw.py --meshwright target/debug/meshwright --seed 7 --each megatron=12,deepspeed=4 > cases.tsv

A plan is the search's own (`plan --for FRAMEWORK`, any of its rows) or written at random; what the framework cannot express is
replaced by the nearest plan that `emit` names. The same seed draws the same cases.
"""
import argparse, glob, json, os, random, re, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTERS = {"a100-pcie-8": (2, 4, 8), "dgx-h100-8": (2, 4, 8), "a100-40-64": (8, 16, 24, 48, 64), "dgx-h100-64": (8, 24, 32, 48, 64),
            "gb200-nvl72-1152": (4, 8, 36, 72, 144, 288, 576, 1152), "gb300-nvl72-1152": (8, 72, 144, 576), "h100-24576": (1024, 4096),
            **{name: (8, 16, 32, 48, 96, 128, 192, 256, 384, 512) for name in
               ("dgx-a100-1k", "dgx-h100-1k", "h200-1k", "h800-2048", "hgx-b200-512", "b300-512", "mi300x-512", "mi355x-512",
                "h200-ethernet-512")}}
RECOMPUTE = ("none", "full", "layernorm", "layernorm+act", "mlp", "core_attn", "moe", "mla_up_proj", "mla_up_proj+moe", "first-1",
             "first-4", "per-op")
FIXED = (("tp", (1, 2, 4, 8)), ("pp", (2, 4, 8)), ("cp", (2, 4)), ("ep", (2, 4, 8, 16)), ("zero", (0, 1, 2, 3)),
         ("recompute", ("none", "full", "layernorm")), ("mbs", (1, 2)))


def written(chance, framework):
    """A plan at random."""
    degrees = {"tp": chance.choice((1, 1, 2, 4, 8)), "pp": chance.choice((1, 1, 1, 2, 3, 4, 8)), "cp": chance.choice((1, 1, 1, 2, 4)),
               "ep": chance.choice((1, 1, 2, 4, 8, 16))}
    if framework == "deepspeed":                                   # one of its axes at a time
        kept = chance.choice(list(degrees) + [None])
        degrees = {name: degree if name == kept else 1 for name, degree in degrees.items()}
    words = [f"{name}={degree}" for name, degree in degrees.items() if degree > 1 or name in ("tp", "pp")]
    maybe = lambda share, word: words.append(word) if chance.random() < share else None
    if degrees["cp"] > 1:
        words.append("cp-kind=" + chance.choice(("p2p", "allgather", "a2a", "a2a+p2p")))
    if degrees["ep"] > 1:
        maybe(0.3, f"etp={chance.choice((1, 2, degrees['tp']))}")
        maybe(0.5, "dispatcher=" + chance.choice(("alltoall", "deepep")))
    if degrees["pp"] > 1:
        maybe(0.5, f"vpp={chance.choice((2, 3, 4))}")
        maybe(0.3, "schedule=" + chance.choice(("1f1b", "gpipe", "zb-v", "dualpipe-v", "looped-bfs")))
        maybe(0.25, "split=" + chance.choice(("cost-balanced", "first-2", "last-1", "first-3+last-2")))
        maybe(0.3, "order=tp-cp-ep-pp-dp")
    words.append(f"zero={chance.choice((0, 1, 1, 2, 3, 3))}")
    maybe(0.2, f"shard={chance.choice((2, 4, 8, 16))}")
    maybe(0.2, "reshard=off")
    maybe(0.2, "sp=" + chance.choice(("on", "off")))
    maybe(0.7, "recompute=" + chance.choice(RECOMPUTE))
    maybe(0.5, f"mbs={chance.choice((1, 2, 4))}")
    maybe(0.12, f"offload-optimizer={chance.choice((0.25, 0.5, 1))}")
    maybe(0.12, f"offload-activations={chance.choice((0.25, 0.5, 1))}")
    return " ".join(words)


def searched(chance, binary, framework, where):
    """Any plan that the search shows."""
    fixed = [word for name, values in FIXED if chance.random() < 0.25 for word in ("--fix", f"{name}={chance.choice(values)}")]
    done = subprocess.run([binary, "plan", *where, "--for", framework, *fixed, "--format", "json"], capture_output=True, text=True)
    plans = json.loads(done.stdout).get("plans") if done.returncode == 0 else None
    return chance.choice(plans)["plan"] if plans else None


def drawn(chance, binary, framework, models, folder):
    """One case, or none where it has no plan that the framework can express."""
    cluster = chance.choice(sorted(CLUSTERS))
    gpus = chance.choice(CLUSTERS[cluster])
    flags = ["--gpus", str(gpus)]
    if chance.random() < 0.6:
        flags += ["--global-batch", str(gpus * chance.choice((1, 2, 4, 8)))]
    if chance.random() < 0.4:
        flags += ["--seq-len", str(chance.choice((2048, 4096, 8192, 16384)))]
    if chance.random() < 0.45 and framework.startswith("megatron"):
        flags += ["--precision", chance.choice(("fp8", "fp8-block", "mxfp8", "nvfp4", "fp16"))]
    if chance.random() < 0.3 and framework.startswith("megatron"):
        flags += ["--optimizer", chance.choice(("megatron", "megatron-bf16-grads", "deepseek-v3", "muon"))]
    model = chance.choice(models)
    where = [model, cluster, *flags]
    plan = searched(chance, binary, framework, where) if chance.random() < 0.5 else written(chance, framework)
    for _ in range(2):
        if plan is None:
            return None
        done = subprocess.run([binary, "emit", framework, *where, "--plan", plan, "--out", folder, "--force"], capture_output=True, text=True)
        if done.returncode == 0:
            return "\t".join((framework, model, cluster, " ".join(flags), plan))
        near = re.search(r"--plan \"([^\"]+)\"|\"(tp=[^\"]+)\"", done.stderr.replace("\n", " "))
        plan = near and (near.group(1) or near.group(2))
    return None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meshwright", required=True); ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--each", default="megatron=12,megatron-bridge=3,deepspeed=5,torchtitan=8,accelerate=3,nanotron=3")
    o = ap.parse_args()
    models = [os.path.basename(path)[:-5] for path in sorted(glob.glob(os.path.join(ROOT, "models", "*.toml")))]
    models += [os.path.relpath(path, ROOT) for path in sorted(glob.glob(os.path.join(ROOT, "tests", "hf", "*.json")))]
    with tempfile.TemporaryDirectory() as folder:
        for framework, wanted in (item.split("=") for item in o.each.split(",")):
            chance, found = random.Random(f"{o.seed} {framework}"), 0
            for _ in range(60 * int(wanted)):
                if found == int(wanted):
                    break
                case = drawn(chance, o.meshwright, framework, models, folder)
                if case:
                    found += 1
                    print(case, flush=True)
            if found < int(wanted):
                print(f"{framework}: only {found} of {wanted} cases could be drawn", file=sys.stderr)


main()
