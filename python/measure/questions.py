"""Random questions from Python and from the command line: `python python/measure/questions.py PATH/TO/meshwright [number] [seed]`.

The document of an answer, the texts of its refusal and of its notes must be those of the command line. `checks/questions.json` says how
questions are drawn; the page's `web/test/questions.mjs` draws the same ones, and prints the same fingerprint of their list.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import meshwright as mw

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "checks/questions.json").read_text(encoding="utf-8")
)["flags"]
BITS = 0xFFFFFFFF


def draws(state: int) -> Iterator[float]:
    """Numbers in [0, 1): mulberry32, so that a seed names the same questions in every language."""
    while True:
        state = state + 0x6D2B79F5 & BITS
        bits = (state ^ state >> 15) * (1 | state) & BITS
        bits = (bits + (bits ^ bits >> 7) * (61 | bits) & BITS) ^ bits
        yield (bits ^ bits >> 14) / 2**32


def listed(binary: str, kind: str) -> list[dict[str, Any]]:
    """Rows that `models` or `clusters` lists."""
    text = subprocess.run([binary, kind, "--format", "json"], capture_output=True, text=True, check=True).stdout
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def question(
    draw: Iterator[float], models: list[Any], clusters: list[Any]
) -> tuple[tuple[str, str], dict[str, Any], list[str]]:
    """Model and cluster, options of `mw.plan`, and the arguments that say the same."""

    def one(values: list[Any]) -> Any:
        return values[int(next(draw) * len(values))]

    model, cluster = one(models), one(clusters)
    options: dict[str, Any] = {}
    arguments = ["plan", model["name"], cluster["name"]]
    for flag in FLAGS:
        if next(draw) >= flag["share"]:
            continue
        value = one(flag["values"])
        if "times" in flag:
            value *= int(cluster[flag["times"]])
        arguments += [f"--{flag['flag']}", str(value)]
        options[flag["flag"].replace("-", "_")] = dict([value.split("=")]) if flag.get("list") else value
    return (model["name"], cluster["name"]), options, [*arguments, "--format", "json"]


def main(binary: str, number: int = 200, seed: int = 1) -> int:
    """Prints what differs, and returns how many questions do."""
    draw = draws(seed)
    models, clusters = (listed(binary, kind) for kind in ("models", "clusters"))
    lines: list[str] = []
    different = []
    counts = {"with plans": 0, "where none runs": 0, "refused": 0}
    for _ in range(number):
        names, options, arguments = question(draw, models, clusters)
        lines.append(" ".join(arguments))
        run = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
        try:
            answer = mw.plan(*names, **options)
            counts["with plans" if answer.plans else "where none runs"] += 1
            said = run.stderr.splitlines()
            same = (
                run.stdout != ""
                and answer.to_dict() == json.loads(run.stdout)
                and all(note in said for note in answer.notes)
            )
        except mw.QuestionError as why:
            counts["refused"] += 1
            same = run.returncode == 2 and run.stderr == f"error: {why}\n"
        if not same:
            different.append(lines[-1])
    fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    sums = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{number} questions ({fingerprint}): {sums}; {len(different)} differ from the command line")
    for text in different:
        print(f"differs: meshwright {text}")
    return len(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])) > 0)
