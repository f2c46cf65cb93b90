#!/usr/bin/env python3
"""Files of `emit maxtext` before MaxText's own reading of its configuration.

    python3 checks/maxtext.py CHECKOUT --python PYTHON [--seed 7] [--each 20]

CHECKOUT is one of MaxText; PYTHON has jax, omegaconf, pydantic and jinja2. The plans are those of checks/draw.py with the seed, on TPUs
and on GPUs; each file is read back by `import` too. Exits 1 where MaxText refuses a file, or resolves other degrees or batches.
"""

import argparse
import collections
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout")
    parser.add_argument("--python", required=True)
    parser.add_argument("--meshwright", default="target/debug/meshwright")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--each", type=int, default=20, help="plans")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        drawn = subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "draw.py"),
                "--meshwright",
                options.meshwright,
                "--seed",
                str(options.seed),
                "--folder",
                folder,
                "--each",
                f"maxtext={options.each}",
            ],
            capture_output=True,
            text=True,
        )
        print(drawn.stderr, end="")
        counts["named, then refused"] += drawn.returncode != 0
        for at, row in enumerate(csv.reader(drawn.stdout.splitlines(), delimiter="\t")):
            wrong = judge(options, row, os.path.join(folder, str(at)))
            counts["refused" if wrong else "accepted"] += 1
            if wrong:
                print(f"{row[1]} on {row[2]} {row[3]}, {row[4]}: {wrong}")
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()) if count))
    sys.exit(counts["refused"] + counts["named, then refused"] > 0)


def judge(options, row, folder):
    """Emits one drawn plan, reads it back, and asks MaxText; what is wrong, if anything."""
    framework, model, cluster, flags, plan = row[:5]
    emitted = subprocess.run(
        [
            options.meshwright,
            "emit",
            framework,
            model,
            cluster,
            "--plan",
            plan,
            *flags.split(),
            "--steps",
            "5",
            "--out",
            folder,
        ],
        capture_output=True,
        text=True,
    )
    if emitted.returncode:
        return emitted.stderr.strip()
    text = re.sub(r"\n#   (?! )", " ", open(os.path.join(folder, "maxtext.yml")).read())
    told = re.search(r"^# plan: (.*)$", text, re.M).group(1)
    keys = dict(item.split("=", 1) for item in told.split())
    back = subprocess.run(
        [options.meshwright, "import", os.path.join(folder, "maxtext.sh"), "--format", "json"],
        capture_output=True,
        text=True,
    )
    if json.loads(back.stdout)["plan_text"] != told:
        return f"read back as {json.loads(back.stdout)['plan_text']}"
    world = math.prod(int(keys[name]) for name in ("tp", "cp", "dp"))
    check = [
        options.python,
        "-W",
        "ignore",
        os.path.join(HERE, "check_maxtext.py"),
        os.path.join(folder, "maxtext.yml"),
        "--world-size",
        str(world),
        "--maxtext-path",
        options.checkout,
    ]
    run = subprocess.run(check, capture_output=True, text=True)
    answer = json.loads(run.stdout) if run.stdout.startswith("{") else {"error": run.stderr[-600:]}
    if "error" in answer:
        return str(answer["error"])
    names = {"tp": "tp", "cp": "cp", "ep": "ep", "dp": "dp", "mbs": "micro_batch"}
    return "; ".join(
        f"{name}: the plan says {keys[name]}, MaxText {answer['sizes'][theirs]}"
        for name, theirs in names.items()
        if name in keys and float(keys[name]) != float(answer["sizes"][theirs])
    )


if __name__ == "__main__":
    main()
