"""Memory of the process over 10,000 calls: `python python/measure/memory.py`."""

from __future__ import annotations

import resource

import meshwright as mw

CALLS = 10_000


def main() -> None:
    """Prints the largest resident memory after each tenth of the calls."""
    for call in range(CALLS):
        mw.explain("llama3-8b", "dgx-h100-8", plan="tp=2", global_batch=128)
        if (call + 1) % (CALLS // 10) == 0:
            print(f"{call + 1} calls: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB")


if __name__ == "__main__":
    main()
