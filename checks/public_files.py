#!/usr/bin/env python3
"""Public files of training frameworks through `meshwright import`: how many are read right, refused by name, or read wrong.

    python3 checks/public_files.py FOLDER [--meshwright BINARY] [--list OUTCOME]...

FOLDER holds clones of public repositories, one a folder; none is committed. Every YAML, TOML and JSON file, every shell script that
launches training, and every Python file of configurations is a file to be read. What is read is compared with what a plain search
of the file finds (PyYAML, regular expressions): degrees, batches, sequence, ZeRO stage, where the search finds one value. A difference without an error is
a wrong reading. Needs PyYAML.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import yaml

SKIPPED = ("/.git/", "/.github/", "/node_modules/", "/.gitlab/", "/docs/", "/.idea/", "/golden_values", "/3rdparty/")
LAUNCHES = re.compile(
    r"^[^#\n]*\b(torchrun|torch\.distributed|deepspeed|accelerate launch|srun|mpirun|megatron (sft|pt)|swift (sft|pt)|python3? )",
    re.M,
)
CONFIGURES = re.compile(r"ConfigContainer|Trainer\.Config|nemo_run|olmo_core")
# The plan's key -> the names that frameworks give it.
KEYS = {
    "tp": [
        "tensor_model_parallel_size",
        "tensor_parallel_size",
        "tensor_parallel_degree",
        "tp_size",
        "model_parallel_size",
        "autotp_size",
    ],
    "pp": ["pipeline_model_parallel_size", "pipeline_parallel_degree", "pp_size", "pipe_parallel_size"],
    "cp": ["context_parallel_size", "context_parallel_degree", "cp_size"],
    "ep": ["expert_model_parallel_size", "expert_parallel_degree", "moe_expert_parallel_size"],
    "vpp": ["virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"],
    "mbs": ["micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu"],
    "batch": ["global_batch_size", "train_batch_size"],
    "seq": ["seq_length", "sequence_len", "cutoff_len", "encoder_seq_length"],
    "zero": ["zero_stage"],
}


def files(folder):
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(root, name)
            if any(part in path for part in SKIPPED):
                continue
            extension = os.path.splitext(name)[1]
            if extension in (".yaml", ".yml", ".toml"):
                yield path
            elif extension in (".sh", ".slurm", ".sbatch", ".json", ".py") and os.path.getsize(path) < 400_000:
                text = open(path, errors="replace").read()
                if extension == ".json" and ('"zero_optimization"' in text or '"train_batch_size"' in text):
                    yield path
                elif extension == ".py" and CONFIGURES.search(text) and "def " in text:
                    yield path
                elif extension in (".sh", ".slurm", ".sbatch") and LAUNCHES.search(text):
                    yield path


def functions(path):
    """Names of the functions of a Python file that give a configuration."""
    text = open(path, errors="replace").read()
    return re.findall(r"^def ([a-z]\w*)\(\s*\) -> (?:ConfigContainer|Trainer\.Config)", text, re.M)


def leaves(tree, path=()):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, path + (str(key).replace("-", "_").lstrip("_"),))
    else:
        yield path, tree


def number(value):
    try:
        return int(str(value).replace("_", ""))
    except ValueError:
        return None


def expected(path, function):
    """Values that a plain search finds: a key of the plan -> the one value that the file gives it; ambiguous ones are left out."""
    text = open(path, errors="replace").read()
    found = collections.defaultdict(set)
    names = {name: key for key, all_names in KEYS.items() for name in all_names}
    if path.endswith((".yaml", ".yml", ".json")):
        for where, value in leaves(yaml.safe_load(text)):
            if where and where[-1] in names and number(value) is not None:
                found[names[where[-1]]].add(number(value))
            if where[-2:] == ("zero_optimization", "stage"):
                found["zero"].add(number(value))
    elif path.endswith(".toml"):
        for name, value in re.findall(r"^\s*(\w+)\s*=\s*(-?\d+)\b", text, re.M):
            if name in names and int(value) > 0:
                found[names[name]].add(int(value))
    elif path.endswith(".py"):
        body = text.split(f"def {function}(")[1]
        body = re.split(r"^(?:def|class|if) ", body, flags=re.M)[0]
        for name, value in re.findall(r"\.(\w+)\s*=\s*([\d_]+)\s*(?:#.*)?$", body, re.M):
            if name in names:
                found[names[name]].add(number(value))
        if "pipeline_model_parallel_layout" in body or "pipeline_layout" in body:
            found.pop("vpp", None)  # the layout decides how many stages there are
    else:
        for name, value in re.findall(r"--([a-z][\w-]+)[ =]([\d]+)(?=\s)", re.sub(r"(?m)^\s*#.*$", "", text)):
            name = name.replace("-", "_")
            if name in names:
                found[names[name]].add(int(value))
    return {key: values.pop() for key, values in found.items() if len(values) == 1}


def plan_of(document):
    words = dict(word.split("=", 1) for word in document["plan_text"].split() if "=" in word)
    got = {key: number(words.get(key, 1)) for key in ("tp", "cp", "pp", "vpp", "ep", "mbs", "zero")}
    got["batch"], got["seq"] = document["work"]["global_batch"], document["work"]["seq_len"]
    return got


def judge(meshwright, path, function):
    command = [meshwright, "import", path, "--format", "json"] + (["--", function] if function else [])
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if not run.stdout.strip():
        message = run.stderr.strip().split("\n")[0]
        for part, outcome in ((" which is not read", "refused by name"), ("no known format", "no known format")):
            if part in message:
                return outcome, message
        return "refused with a reason", message
    document = json.loads(run.stdout)
    if any(finding["level"] == "error" for finding in document["findings"]):
        return "read, with errors named", next(f["message"] for f in document["findings"] if f["level"] == "error")
    try:
        want = expected(path, function)
    except (yaml.YAMLError, IndexError, UnicodeDecodeError):
        want = {}
    got = plan_of(document)
    wrong = [
        f"{key}: {got[key]} instead of {value}" for key, value in want.items() if got.get(key) != value and value > 0
    ]
    # A file that says no number of GPUs has no global batch to compare.
    wrong = [text for text in wrong if not (text.startswith("batch") and got["batch"] is None)]
    return ("read wrong", "; ".join(wrong)) if wrong else ("read", document.get("kind", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--meshwright", default="target/debug/meshwright")
    parser.add_argument(
        "--list", action="append", default=[], help="outcomes whose files are listed, such as `read wrong`"
    )
    options = parser.parse_args()
    work = []
    for clone in sorted(os.listdir(options.folder)):
        for path in files(os.path.join(options.folder, clone)):
            of_python = functions(path) if path.endswith(".py") else []
            work += [(clone, path, function) for function in of_python or [None]]
    counts = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda item: judge(options.meshwright, *item[1:]), work)
        for (clone, path, function), (outcome, detail) in zip(work, results):
            counts[clone][outcome] += 1
            if outcome in options.list:
                print(
                    f"{outcome}: {os.path.relpath(path, options.folder)}{' ' + function if function else ''}: {detail}"
                )
    order = [
        "read",
        "read, with errors named",
        "refused by name",
        "refused with a reason",
        "no known format",
        "read wrong",
    ]
    print("| repository | files | " + " | ".join(order) + " |\n|" + "---|" * (len(order) + 2))
    total = collections.Counter()
    for clone, count in counts.items():
        total.update(count)
        print(
            f"| {clone.replace('+', '/')} | {sum(count.values())} | "
            + " | ".join(str(count[name]) for name in order)
            + " |"
        )
    print(f"| all | {sum(total.values())} | " + " | ".join(str(total[name]) for name in order) + " |")
    sys.exit(total["read wrong"] > 0)


if __name__ == "__main__":
    main()
