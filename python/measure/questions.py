"""Random questions from Python and from the command line: `python python/measure/questions.py PATH/TO/meshwright [number] [seed]`.

The document of an answer, the texts of its refusal and of its notes must be those of the command line. Kinds of questions are
those of the page's `web/test/questions.mjs`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import meshwright as mw


def listed(binary: str, kind: str) -> list[dict[str, Any]]:
    """Rows that `models` or `clusters` lists."""
    text = subprocess.run([binary, kind, "--format", "json"], capture_output=True, text=True, check=True).stdout
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def question(draw: random.Random, models: list[str], clusters: list[str]) -> tuple[tuple[str, str], dict[str, Any], list[str]]:
    """Model and cluster, options of `mw.plan`, and the flags that say the same."""
    options: dict[str, Any] = {}
    flags: list[str] = []

    def sometimes(share: float, name: str, values: list[Any]) -> None:
        value = draw.choice(values)
        if draw.random() < share:
            options[name] = value
            flags.extend([f"--{name.replace('_', '-')}", str(value)])

    def setting(share: float, name: str, values: dict[str, list[Any]]) -> None:
        key = draw.choice(list(values))
        value = draw.choice(values[key])
        if draw.random() < share:
            options[name] = {key: value}
            flags.extend([f"--{name}", f"{key}={value}"])

    sometimes(0.5, "gpus", [8 * 2**at for at in range(8)])
    sometimes(0.5, "global_batch", [64, 256, 512, 1024, 2048])
    sometimes(0.3, "seq_len", [2048, 4096, 8192, 16384])
    sometimes(0.2, "precision", ["fp8"])
    sometimes(0.2, "risk", [0.01, 0.1, 0.25])
    sometimes(0.3, "top", [1, 3, 8])
    sometimes(0.3, "tokens", ["1 T", "15 T"])
    setting(0.3, "fix", {"tp": [8], "pp": [4], "zero": [1], "recompute": ["full"], "mbs": [1], "cp": [1]})
    setting(0.2, "set", {"cluster.nic": ["200 Gb/s", "400 Gb/s", "800 Gb/s"]})
    return (draw.choice(models), draw.choice(clusters)), options, flags


def main(binary: str, number: int = 200, seed: int = 1) -> int:
    """Prints what differs, and returns how many questions do."""
    draw = random.Random(seed)
    models, clusters = ([row["name"] for row in listed(binary, kind)] for kind in ("models", "clusters"))
    different = []
    counts = {"answered": 0, "no plan fits": 0, "refused": 0}
    for _ in range(number):
        names, options, flags = question(draw, models, clusters)
        line = [binary, "plan", *names, *flags, "--format", "json"]
        run = subprocess.run(line, capture_output=True, text=True, check=False)
        try:
            answer = mw.plan(*names, **options)
            counts["answered" if answer.plans else "no plan fits"] += 1
            said = run.stderr.splitlines()
            same = run.stdout != "" and answer.to_dict() == json.loads(run.stdout) and all(note in said for note in answer.notes)
        except mw.QuestionError as why:
            counts["refused"] += 1
            same = run.returncode == 2 and run.stderr == f"error: {why}\n"
        if not same:
            different.append(" ".join(line[1:]))
    print(f"{number} questions, {counts}: {len(different)} differ from the command line")
    for text in different:
        print(f"differs: meshwright {text}")
    return len(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])) > 0)
