#!/usr/bin/env python3
"""Compares the two readers of configurations in Python: `import FILE`, which follows them, and `import FILE --run-python`, which runs them.

    python3 checks/both_readers.py CLONE [--meshwright BINARY] [--every 5] [--show]

CLONE is a clone of Megatron-Bridge (or NeMo); it is not committed. Every function that gives a configuration is read both ways. A reading
is whole where it has no error about what was not read (other errors, such as a model that the catalogue lacks, are the same for both).
Exits 1 where both read one whole and differ in plan, workload, model or settings.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys

UNREAD = ("not-read", "other-module")
COMPARED = ("plan_text", "world", "model", "work", "settings", "unknown")


def configurations(folder):
    """Files, and functions of theirs that give a configuration without being given anything."""
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(root, name)
            if name.endswith(".py") and "/tests/" not in path:
                text = open(path, errors="replace").read()
                for function, parameters in re.findall(
                    r"^def ([a-z]\w*)\(([^()]*)\) -> (?:ConfigContainer|Trainer\.Config)", text, re.M
                ):
                    if all("=" in parameter for parameter in parameters.split(",") if parameter.strip()):
                        yield path, function


def read(binary, path, function, *more):
    """Settings that `import` reads, or why it does not."""
    done = subprocess.run(
        [binary, "import", path, *more, "--format", "json", "--", "--config", function], capture_output=True, text=True
    )
    if not done.stdout:
        return None, done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit {done.returncode}"
    answer = json.loads(done.stdout)
    unread = [finding for finding in answer["findings"] if finding["rule"] in UNREAD and finding["level"] == "error"]
    if unread:
        return None, f"{unread[0]['rule']} at line {unread[0].get('line')}: {unread[0]['message']}"
    return {name: answer.get(name) for name in COMPARED}, ""


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("clone")
    ap.add_argument("--meshwright", default="target/debug/meshwright")
    ap.add_argument("--every", type=int, default=1)
    ap.add_argument("--show", action="store_true", help="name what only one of them reads, and why")
    o = ap.parse_args()
    listed = list(configurations(o.clone))[:: o.every]
    counts, differ = collections.Counter(), 0

    def both(item):
        return item, read(o.meshwright, *item), read(o.meshwright, *item, "--run-python")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (path, function), (followed, why_not), (ran, why) in pool.map(both, listed):
            kind = "both" if followed and ran else "only followed" if followed else "only run" if ran else "neither"
            counts[kind] += 1
            where = f"{os.path.relpath(path, o.clone)} {function}"
            if kind == "both" and followed != ran:
                differ += 1
                print(
                    f"DIFFERS {where}: "
                    + "; ".join(
                        f"{name}: {followed[name]} | {ran[name]}" for name in COMPARED if followed[name] != ran[name]
                    )
                )
            elif o.show and kind != "both":
                print(f"{kind} {where}: {why_not or why}" + (f" | {why}" if kind == "neither" else ""))
    print(
        f"{len(listed)} configurations: {counts['both']} read by both, of which {differ} differ; {counts['only run']} only by running, "
        f"{counts['only followed']} only without, {counts['neither']} by neither"
    )
    sys.exit(1 if differ or not listed else 0)


if __name__ == "__main__":
    main()
