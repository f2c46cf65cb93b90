"""Bill of materials of a wheel, held against the crates that it is built from: `python python/measure/materials.py WHEEL`."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile


def main(wheel: str) -> int:
    """Prints the number of crates, or those that the bill lacks; returns how many these are."""
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if "/sboms/" in name]
        bill = json.loads(files.read(name))
    listed = {(component["name"], component["version"]) for component in bill["components"]}
    tree = [
        "cargo",
        "tree",
        "--locked",
        "--package",
        "meshwright-python",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]
    lines = subprocess.run(tree, capture_output=True, text=True, check=True).stdout.splitlines()
    crates = {(words[0], words[1][1:]) for line in lines if (words := line.split())}
    missing = {crate for crate in crates if crate[0] != "meshwright-python"} - listed
    print(
        f"{name}: {len(listed)} crates; of the {len(crates)} in the wheel for this machine it lacks {sorted(missing) or 'none'}"
    )
    return len(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) > 0)
