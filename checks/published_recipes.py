#!/usr/bin/env python3
"""Public recipes whose throughput is published through `meshwright lint`: they ran, so that every error is a false one.

    python3 checks/published_recipes.py FOLDER [--meshwright BINARY] [--list]

FOLDER holds clones of public repositories, one a folder named OWNER+NAME; none is committed. `published_recipes.tsv` names the recipes,
and the cluster each ran on. A recipe of a model that the catalogue lacks, or with a file that the clone lacks, is counted apart: the
answer is to give it, not a false alarm; so is one that its own framework refuses (lines with `!`, with the reason), whose error is true.
Exit status: 1 where a false error stands, or a true one is missing.
"""

import argparse
import collections
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def refused_by_their_framework():
    """Names of configurations that their own framework refuses as they stand."""
    lines = open(os.path.join(HERE, "published_recipes.tsv"))
    return {line.split("\t")[1] for line in lines if line.startswith("!")}


REFUSED = refused_by_their_framework()


def recipes(folder):
    """Repository, file, name of the configuration, cluster, GPUs and flags of every recipe."""
    for line in open(os.path.join(HERE, "published_recipes.tsv")):
        if line.startswith(("#", "!")) or not line.strip():
            continue
        repository, files, names, cluster, gpus, more, _ = line.rstrip("\n").split("\t")
        for path in sorted(glob.glob(os.path.join(folder, repository.replace("/", "+"), files))):
            base = [] if more == "-" else more.split()
            if names == "-":
                yield repository, path, None, cluster, None if gpus == "-" else gpus, base
                continue
            for name in re.findall(r"^def ([a-z]\w*)\(\s*\) ->", open(path).read(), re.M):
                found = re.search(names, name)
                if found:
                    yield repository, path, name, cluster, found.group(1) if found.groups() else gpus, base


def judge(meshwright, recipe):
    _, path, name, cluster, gpus, more = recipe
    command = [meshwright, "lint", path, cluster, "--quick", "--format", "json", *more]
    command += (["--gpus", gpus] if gpus else []) + (["--", name] if name else [])
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not run.stdout.strip():
        return "refused", [run.stderr.strip().split("\n")[0]]
    errors = [f"{f['rule']}: {f['message']}" for f in json.loads(run.stdout)["findings"] if f["level"] == "error"]
    if any("no --num-layers" in error or error.startswith("unknown-model") for error in errors):
        return "model not in the catalogue", errors
    if name in REFUSED:
        return ("true errors" if errors else "missed"), errors
    return ("false errors", errors) if errors else ("no error", [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--meshwright", default="target/debug/meshwright")
    parser.add_argument(
        "--list", action="append", default=[], help="outcomes whose recipes are listed, such as `false errors`"
    )
    options = parser.parse_args()
    counts = collections.defaultdict(collections.Counter)
    work = list(recipes(options.folder))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for recipe, (outcome, errors) in zip(work, pool.map(lambda recipe: judge(options.meshwright, recipe), work)):
            counts[recipe[0]][outcome] += 1
            if outcome in options.list:
                print(
                    f"{outcome}: {os.path.relpath(recipe[1], options.folder)} {recipe[2] or ''} on {recipe[3]}: {' | '.join(errors)}"
                )
    order = ["no error", "false errors", "true errors", "missed", "model not in the catalogue", "refused"]
    print("| repository | recipes | " + " | ".join(order) + " |\n|" + "---|" * (len(order) + 2))
    total = collections.Counter()
    for repository, count in counts.items():
        total.update(count)
        print(f"| {repository} | {sum(count.values())} | " + " | ".join(str(count[name]) for name in order) + " |")
    print(f"| all | {sum(total.values())} | " + " | ".join(str(total[name]) for name in order) + " |")
    sys.exit(total["false errors"] + total["missed"] + total["refused"] > 0)


if __name__ == "__main__":
    main()
