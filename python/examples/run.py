"""Runs the cells of every notebook in this folder, in order, without Jupyter: `python python/examples/run.py`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def main() -> None:
    """Runs each notebook in a namespace of its own; an exception names the notebook and the cell."""
    os.environ.setdefault("MPLBACKEND", "agg")
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        start = time.process_time()
        names: dict[str, object] = {"__name__": "__main__"}
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for at, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path.name}, cell {at}", "exec"), names)  # noqa: S102 - our own notebooks
        print(f"{path.name}: {len(cells)} cells, {time.process_time() - start:.1f} s of CPU")


if __name__ == "__main__":
    main()
