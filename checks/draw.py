#!/usr/bin/env python3
"""Draws plans that nobody chose: models of models/ and tests/hf/ and made-up ones, clusters of all kinds, any key of a plan.

    draw.py --meshwright target/debug/meshwright --seed 7 --folder DIR --each megatron=12,deepspeed=4 > cases.tsv

A plan is the search's own (`plan --for FRAMEWORK`, any of its rows) or written at random; what the framework cannot express is
replaced by the nearest plan that `emit` names, and that plan must be accepted. The same seed draws the same cases. Models and
clusters that are made up are written under --folder. Exits 1 where `emit` named a plan that it then refused.
"""

import argparse
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTERS = {
    "a100-pcie-8": (1, 2, 3, 4, 6, 8),
    "dgx-h100-8": (1, 2, 4, 8),
    "a100-40-64": (8, 16, 24, 40, 48, 64),
    "dgx-h100-64": (8, 24, 32, 48, 56, 64),
    "gb200-nvl72-1152": (4, 8, 36, 72, 144, 216, 288, 576, 1152),
    "gb300-nvl72-1152": (8, 72, 144, 360, 576),
    "h100-24576": (1024, 4096, 6144),
    "dgx-h100-16k": (2048, 8192, 16384),
    **{
        name: (8, 16, 32, 40, 48, 88, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 480, 512)
        for name in (
            "dgx-a100-1k",
            "dgx-h100-1k",
            "h100-512",
            "h200-1k",
            "h800-2048",
            "hgx-b200-512",
            "b300-512",
            "mi300x-512",
            "mi355x-512",
            "h200-ethernet-512",
        )
    },
}
TPUS = {"tpu-v5p-1024": (4, 8, 16, 64, 128, 256, 512, 1024)}  # which MaxText alone is written for
DEVICES = (
    "a100-40-sxm",
    "a100-80-sxm",
    "a100-80-pcie",
    "a800-sxm",
    "h100-sxm",
    "h100-pcie",
    "h800-sxm",
    "h20-sxm",
    "h200-sxm",
    "gh200",
    "b200-sxm",
    "b300-sxm",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi350x",
    "v100-sxm2-32",
)
BRIDGES_HYBRIDS = ("nemotron-h-56b", "tests/hf/nemotron-3-super-class.json")
RECOMPUTE = ("none", "none", "full", "full", "per-op", "every-other", "first-1", "first-3", "first-4", "first-9")
MODULES = ("core_attn", "layernorm", "act", "mla_up_proj", "mlp", "moe")
RECIPES = (
    "megatron",
    "megatron-bf16-grads",
    "deepspeed",
    "deepseek-v3",
    "fp8-primary",
    "adam8bit",
    "muon",
    "sgd",
    "2+4+4+2",
    "2+2+4+4",
)
HYBRIDS = (
    "nemotron-h-56b",
    "tests/hf/bamba-9b.json",
    "tests/hf/granite-4.0-h-small.json",
    "tests/hf/qwen3-next-80b-a3b.json",
)
FIXED = (
    ("tp", (1, 2, 4, 8)),
    ("pp", (2, 4, 8)),
    ("cp", (2, 4)),
    ("ep", (2, 4, 8, 16)),
    ("zero", (0, 1, 2, 3)),
    ("vpp", (2, 3)),
    ("recompute", ("none", "full", "layernorm")),
    ("mbs", (1, 2)),
    ("order", ("tp-cp-ep-pp-dp",)),
    ("etp", (2,)),
    ("cp-kind", ("a2a", "allgather", "p2p")),
    ("dispatcher", ("deepep",)),
)


def made_up_model(chance, source):
    """The Hugging Face configuration with sizes of its own; none where its lists of layers hang on their number."""
    made = json.load(open(source))
    if any(isinstance(made.get(key), list) and len(made[key]) > 3 for key in made) or "hybrid_override_pattern" in made:
        return None
    heads, width = chance.choice((8, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)), chance.choice((64, 80, 96, 128))
    sizes = {
        "hidden_size": heads * width,
        "n_embd": heads * width,
        "num_attention_heads": heads,
        "n_head": heads,
        "head_dim": width,
        "num_key_value_heads": chance.choice([n for n in (1, 2, 3, 4, 5, 7, 8, 10, 12, 16, heads) if heads % n == 0]),
        "num_hidden_layers": chance.choice((4, 7, 12, 16, 18, 23, 24, 27, 30, 32, 36, 40, 44, 48, 61, 80)),
        "vocab_size": chance.choice((32000, 32003, 49152, 50257, 100277, 128256, 151936)),
        "intermediate_size": 64 * chance.choice((16, 43, 86, 112, 171, 224, 256)),
        "moe_intermediate_size": 64 * chance.choice((8, 12, 22, 24, 32)),
        "tie_word_embeddings": chance.random() < 0.3,
    }
    sizes["n_layer"] = sizes["num_hidden_layers"]
    if "kv_lora_rank" in made:  # latent attention has heads of its own width, all with keys
        sizes = {name: size for name, size in sizes.items() if name not in ("head_dim", "num_key_value_heads")}
        sizes["num_key_value_heads"] = heads
    experts = next((name for name in ("n_routed_experts", "num_local_experts", "num_experts") if name in made), None)
    if experts:
        sizes[experts] = chance.choice((4, 8, 16, 24, 48, 64, 96, 128, 160))
        sizes["num_experts_per_tok"] = chance.choice((1, 2, 3, 4, 6, 8))
        sizes |= {
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": chance.choice((0, 1, 2)),
            "n_shared_experts": chance.choice((1, 2)),
        }
    made |= {name: size for name, size in sizes.items() if name in made and made[name] is not None}
    return made


def made_up_cluster(chance):
    """Nodes of 1, 2, 4 or 8 devices under one switch."""
    per_node, nodes = chance.choice((1, 2, 4, 8)), chance.choice((1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 64))
    gpus = per_node * nodes
    level = (
        f'[[level]]\nname = "leaf"\ngpus = {gpus}\nbandwidth = {{ value = "{chance.choice((100, 200, 400))} Gb/s", source = "drawn" }}\n'
        "efficiency = 0.85\nhop_latency = 0.5\n"
    )
    return (
        gpus,
        f'name = "Drawn, {gpus} GPUs"\ngpu = "{chance.choice(DEVICES)}"\ngpus = {gpus}\ngpus_per_node = {per_node}\n'
        f'host_memory = "1 TB"\nsource = "drawn"\n\n{level}',
    )


def split_of(chance, pp, vpp, layers):
    """A split in any of its forms."""
    form = chance.random()
    if form < 0.25 or not layers:
        return "cost-balanced"
    if form < 0.5:
        first, last = chance.choice((1, 2, 3, 4)), chance.choice((1, 2, 3, 5))
        return chance.choice((f"first-{first}", f"last-{last}", f"first-{first}+last-{last}"))
    stages = pp * vpp
    counts = [layers // stages] * stages
    for _ in range(layers - sum(counts)):
        counts[chance.randrange(stages)] += 1
    for _ in range(chance.choice((0, 1, 3))):
        giving, taking = chance.randrange(stages), chance.randrange(stages)
        if counts[giving] > 1:
            counts[giving] -= 1
            counts[taking] += 1
    return "|".join(
        ("E" if stage == 0 else "") + "t" * count + ("L" if stage == stages - 1 else "")
        for stage, count in enumerate(counts)
    )


def written(chance, framework, layers):
    """A plan at random."""
    degrees = {
        "tp": chance.choice((1, 1, 2, 3, 4, 6, 8, 16)),
        "pp": chance.choice((1, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16)),
        "cp": chance.choice((1, 1, 1, 2, 3, 4, 8)),
        "ep": chance.choice((1, 1, 2, 3, 4, 6, 8, 16, 32, 64)),
    }
    if framework == "deepspeed":  # one of its axes at a time
        kept = chance.choice(list(degrees) + [None])
        degrees = {name: degree if name == kept else 1 for name, degree in degrees.items()}
    words = [f"{name}={degree}" for name, degree in degrees.items() if degree > 1 or name in ("tp", "pp")]
    maybe = lambda share, word: words.append(word) if chance.random() < share else None
    if degrees["cp"] > 1:
        words.append("cp-kind=" + chance.choice(("p2p", "allgather", "a2a", "a2a+p2p")))
    if degrees["ep"] > 1:
        maybe(0.3, f"etp={chance.choice((1, 2, 4, degrees['tp']))}")
        maybe(0.5, "dispatcher=" + chance.choice(("alltoall", "deepep")))
    if degrees["pp"] > 1:
        vpp = chance.choice((1, 1, 2, 3, 4, 5, 8))
        if vpp > 1:
            words.append(f"vpp={vpp}")
        maybe(0.3, "schedule=" + chance.choice(("1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "looped-bfs")))
        maybe(0.4, "split=" + split_of(chance, degrees["pp"], vpp, layers))
        maybe(0.3, "order=tp-cp-ep-pp-dp")
    words.append(f"zero={chance.choice((0, 1, 1, 2, 3, 3))}")
    maybe(0.2, f"shard={chance.choice((2, 3, 4, 6, 8, 16, 32))}")
    maybe(0.2, "reshard=off")
    maybe(0.2, "sp=" + chance.choice(("on", "off")))
    modules = "+".join(chance.sample(MODULES, chance.choice((1, 1, 2, 3))))
    maybe(0.8, "recompute=" + chance.choice((*RECOMPUTE, *[modules] * len(RECOMPUTE))))
    maybe(0.5, f"mbs={chance.choice((1, 2, 3, 4, 5, 8))}")
    maybe(0.15, f"offload-optimizer={chance.choice((0.1, 0.25, 0.5, 0.75, 1))}")
    maybe(0.12, f"offload-activations={chance.choice((0.1, 0.25, 0.5, 1))}")
    return " ".join(words)


def searched(chance, binary, framework, where):
    """Any plan that the search shows."""
    fixed = [
        word for name, values in FIXED if chance.random() < 0.2 for word in ("--fix", f"{name}={chance.choice(values)}")
    ]
    done = subprocess.run(
        [binary, "plan", *where, "--for", framework, *fixed, "--format", "json"], capture_output=True, text=True
    )
    plans = json.loads(done.stdout).get("plans") if done.returncode == 0 else None
    return chance.choice(plans)["plan"] if plans else None


def layers_of(model):
    """Decoder layers of a configuration; none of a TOML."""
    if not model.endswith(".json"):
        return None
    made = json.load(open(os.path.join(ROOT, model)))
    return None if made.get("num_nextn_predict_layers") else made.get("num_hidden_layers", made.get("n_layer"))


def nearest(refusal):
    """The plan that a refusal names."""
    near = re.search(r"--plan \"([^\"]+)\"|\"(tp=[^\"]+)\"", refusal.replace("\n", " "))
    return near and (near.group(1) or near.group(2))


def header(folder, label):
    """The line of the header of emitted files that begins with a label."""
    text = "".join(
        open(os.path.join(folder, name)).read()
        for name in sorted(os.listdir(folder))
        if name.endswith((".sh", ".py", ".yaml"))
    )
    return re.search(rf"^# {label}: (.*)$", re.sub(r"\n#   (?! )", " ", text), re.M).group(1)  # comments wrap


def resolved(folder):
    """The plan that emitted files name in full, by key."""
    return dict(item.split("=", 1) for item in header(folder, "plan").split())


def asked(folder):
    """Options of the question that emitted files answer, by name."""
    words = header(folder, "question").split()
    return {word[2:]: value for word, value in zip(words, words[1:]) if word.startswith("--")}


def drawn(chance, o, framework, models, at, scratch):
    """One case, or none where it has no plan that the framework can express; and what `emit` named that it refused."""
    clusters = {**CLUSTERS, **TPUS} if framework == "maxtext" else CLUSTERS
    model, cluster = chance.choice(models), chance.choice(sorted(clusters))
    if framework == "ms-swift" and chance.random() < 0.2:
        model = chance.choice(HYBRIDS)
    if framework == "megatron-bridge" and chance.random() < 0.2:
        model = chance.choice(BRIDGES_HYBRIDS)
    if framework == "maxtext" and chance.random() < 0.5:
        cluster = chance.choice(sorted(TPUS))
    if framework == "primus":
        cluster = chance.choice(("mi300x-512", "mi355x-512"))
    gpus = chance.choice(clusters[cluster])
    flags = ["--gpus", str(gpus)]
    if model.endswith(".json") and chance.random() < 0.6 and (made := made_up_model(chance, os.path.join(ROOT, model))):
        model = os.path.join(o.folder, f"{o.seed}-{framework}-{at}.json")
        json.dump(made, open(model, "w"), indent=1)
    if chance.random() < 0.25 and framework != "primus":  # few made-up clusters are of AMD's GPUs
        cluster = os.path.join(o.folder, f"{o.seed}-{framework}-{at}.toml")
        gpus, text = made_up_cluster(chance)
        open(cluster, "w").write(text)
        flags = []
    if chance.random() < 0.6:
        flags += ["--global-batch", str(gpus * chance.choice((1, 2, 3, 4, 5, 8, 24)))]
    if chance.random() < 0.4:
        flags += [
            "--seq-len",
            str(chance.choice((512, 1024, 2048, 3072, 4096, 8192, 12288, 16384, 32768, 65536, 131072))),
        ]
    if chance.random() < 0.45 and framework.startswith("megatron"):
        flags += ["--precision", chance.choice(("fp8", "fp8-block", "mxfp8", "nvfp4", "fp16"))]
    elif chance.random() < 0.15:
        flags += ["--precision", "fp16"]
    if chance.random() < 0.35 and framework.startswith("megatron"):
        flags += ["--optimizer", chance.choice(RECIPES)]
    if chance.random() < 0.2 and framework.startswith("megatron"):
        flags += ["--stack", chance.choice(("nemo-24", "nemo-26", "megatron-lm-2024", "deepseek-v3", "simumax-2025"))]
    if framework == "primus" and chance.random() < 0.4:
        flags += (
            ["--precision", chance.choice(("fp8", "fp8-block", "mxfp8", "fp16"))] if "--precision" not in flags else []
        )
        flags += ["--optimizer", chance.choice(RECIPES)] if chance.random() < 0.6 else []
    if framework == "megatron-bridge" and chance.random() < 0.25:
        flags += ["--lora"]
    if framework == "ms-swift" and chance.random() < 0.5:  # its Trainer trains, not Megatron core
        flags += ["--stack", chance.choice(("deepspeed-zero3-2022", "deepspeed-zero3-2022", "fsdp-eager-2023"))] + [
            "--lora"
        ] * (chance.random() < 0.3)
    if framework in ("axolotl", "llama-factory") and chance.random() < 0.4:  # its engine is DeepSpeed there
        flags += ["--stack", "deepspeed-zero3-2022"]
    if framework in ("axolotl", "llama-factory") and chance.random() < 0.3:
        flags += ["--lora"]
    if framework == "gpt-neox" and chance.random() < 0.7:
        flags += ["--optimizer", chance.choice(("megatron", "megatron", "megatron-bf16-grads"))]
    if framework == "gpt-neox" and chance.random() < 0.5:
        flags += ["--set", "stack.attention=fa2"]
    if framework == "llm-foundry" and chance.random() < 0.5:
        flags += ["--set", f"stack.reduce_bytes={chance.choice((2, 4))}", "--optimizer", "megatron"]
    if framework == "olmo-core" and chance.random() < 0.3:
        flags += ["--precision", chance.choice(("fp8", "mxfp8"))]
    if framework == "olmo-core" and chance.random() < 0.3:
        flags += ["--stack", chance.choice(("torchtitan-eager", "torchtitan-2025"))]
    if framework == "olmo-core" and chance.random() < 0.4:
        flags += [
            "--set",
            chance.choice(
                (
                    "stack.reduce_bytes=2",
                    "stack.attention=fa3",
                    "stack.attention=cudnn",
                    "stack.fp8_all_gather=true",
                    "stack.overlap.tp=0.5",
                )
            ),
            "--optimizer",
            "megatron",
        ]
    if chance.random() < 0.15:
        flags += ["--set", f"model.mtp_depth={chance.choice((0, 1, 2))}"]
    if chance.random() < 0.1:
        flags += ["--imbalance", str(chance.choice((1.1, 1.5, 2)))]
    if chance.random() < 0.3:
        flags += ["--hbm-profile", chance.choice(("tight", "conservative"))]
    where = [model, cluster, *flags]
    plan = (
        searched(chance, o.meshwright, framework, where)
        if chance.random() < 0.45
        else written(chance, framework, layers_of(model))
    )
    if plan and " pp=1" not in plan and chance.random() < 0.25 and framework.startswith(("megatron", "torchtitan")):
        flags = [*flags, "--refine"]
    named = False
    for _ in range(2):
        if plan is None:
            return None, None
        command = [
            o.meshwright,
            "emit",
            framework,
            *where[:2],
            *flags,
            "--plan",
            plan,
            "--steps",
            "50",
            "--out",
            scratch,
            "--force",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return None, f"over two minutes: {' '.join(command)}"
        if done.returncode == 0:
            return "\t".join((framework, model, cluster, " ".join(flags), plan)), None
        if done.returncode not in (1, 2):
            return None, f"exit {done.returncode} of {' '.join(command)}: {done.stderr}"
        if named and "does not run" not in done.stderr and "--refine" not in flags:
            return None, f"emit named a plan that it refuses: {' '.join(command)}\n    {done.stderr}"
        plan = nearest(done.stderr)
        named = plan and "the nearest plan it can run" in " ".join(done.stderr.split())
    return None, None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meshwright", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--folder", help="where models and clusters that are made up are kept")
    ap.add_argument(
        "--each",
        default="megatron=12,megatron-bridge=3,deepspeed=5,torchtitan=8,accelerate=3,nanotron=3,axolotl=4,llama-factory=3,gpt-neox=4,ms-swift=4,llm-foundry=3,olmo-core=4,primus=4",
    )
    o, wrong = ap.parse_args(), 0
    models = [os.path.basename(path)[:-5] for path in sorted(glob.glob(os.path.join(ROOT, "models", "*.toml")))]
    models += [os.path.relpath(path, ROOT) for path in sorted(glob.glob(os.path.join(ROOT, "tests", "hf", "*.json")))]
    with tempfile.TemporaryDirectory() as scratch:
        o.folder = o.folder or tempfile.mkdtemp()
        os.makedirs(o.folder, exist_ok=True)
        for framework, wanted in (item.split("=") for item in o.each.split(",")):
            chance, found = random.Random(f"{o.seed} {framework}"), 0
            for at in range(100 * int(wanted)):
                if found == int(wanted):
                    break
                case, refused = drawn(chance, o, framework, models, at, scratch)
                if refused:  # named plans that are refused, crashes, and what takes too long
                    wrong += 1
                    print(refused, file=sys.stderr, flush=True)
                if case:
                    found += 1
                    print(case, flush=True)
            if found < int(wanted):
                print(f"{framework}: only {found} of {wanted} cases could be drawn", file=sys.stderr)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
