#!/usr/bin/env python3
"""Files of `emit megatron --release` before the parser and the validation of that very release of Megatron core.

    python3 checks/releases.py REPOSITORY --python PYTHON [--seed 7] [--each 3] [--level validate]

REPOSITORY is a clone of Megatron-LM with its branches `core_r0.*`; PYTHON has torch. The plans are those of checks/draw.py with the
seed, `--each` of them for each release; what a release lacks is refused by `emit`, and counted apart. Exits 1 where a release
refuses a file.
"""

import argparse
import collections
import csv
import io
import os
import subprocess
import sys
import tarfile
import tempfile

from megatron_flags import git, releases

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("repository")
    parser.add_argument("--python", required=True)
    parser.add_argument("--meshwright", default="target/debug/meshwright")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--each", type=int, default=3, help="plans of each release")
    parser.add_argument("--level", default="validate", help="of check_megatron.py")
    options = parser.parse_args()
    known = releases(options.repository)
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
                f"megatron={options.each * len(known)}",
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        rows = [
            row for row in csv.reader(drawn.stdout.splitlines(), delimiter="\t") if row and not row[0].startswith("#")
        ]
        for at, row in enumerate(rows):
            name, commit = known[at % len(known)]
            source = os.path.join(folder, name)
            if not os.path.isdir(source):
                tarfile.open(fileobj=io.BytesIO(git(options.repository, "archive", commit, "megatron"))).extractall(
                    source, filter="data"
                )
                open(os.path.join(source, "six.py"), "w").close()  # imported by readers of data, which no check runs
            counts[judge(options, row, name, source, os.path.join(folder, str(at)))] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    sys.exit(counts["refused by its release"] > 0)


def judge(options, row, release, source, folder):
    """Emits one drawn plan for a release, and asks the release."""
    framework, model, cluster, flags, plan = row[:5]
    command = [
        options.meshwright,
        "emit",
        framework,
        model,
        cluster,
        "--plan",
        plan,
        *flags.split(),
        "--release",
        release,
        "--steps",
        "2",
        "--out",
        folder,
    ]
    emitted = subprocess.run(command, capture_output=True, text=True)
    if emitted.returncode:
        reasons = [
            line.strip() for line in emitted.stderr.splitlines() if "not of" in line or "takes them together" in line
        ]
        print(f"{release}: emit refuses {plan}: {'; '.join(reasons) or emitted.stderr.strip()}")
        return "not expressed" if reasons else "refused by its release"
    check = [
        options.python,
        "-W",
        "ignore",
        os.path.join(HERE, "check_megatron.py"),
        os.path.join(folder, "megatron.sh"),
        "--megatron-path",
        source,
        "--level",
        options.level,
    ]
    run = subprocess.run(
        check, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "MEGATRON_LM": source}
    )
    if run.returncode:
        print(f"{release}: refuses {model} on {cluster}, {plan}: {(run.stdout or run.stderr).strip()[-600:]}")
        return "refused by its release"
    return "accepted"


if __name__ == "__main__":
    main()
