"""CPU seconds of `plan` from Python against the command line: `python python/measure/cpu.py target/release/meshwright`."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

QUESTION = ("llama3-405b", "h100-24576")
TIMES = 7


def cpu_s(arguments: list[str]) -> float:
    """CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(binary: str) -> None:
    """Prints the medians."""
    line = [binary, "plan", *QUESTION, "--format", "json"]
    python = [sys.executable, "-c", f"import meshwright as mw; mw.plan{QUESTION!r}"]
    for name, arguments in (("command line", line), ("Python", python)):
        print(f"{name}: {statistics.median(cpu_s(arguments) for _ in range(TIMES)):.2f} s of CPU")


if __name__ == "__main__":
    main(sys.argv[1])
