"""Checks every cluster, GPU, model, price, stack and sweep file of the catalogue and of docs/examples against its JSON Schema.

Needs Python 3.11 and the `jsonschema` package; `.ci/run` fetches it where it is missing.
"""

import json
import sys
import tomllib
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parent.parent

# Files of each schema: patterns from the root.
FILES = {
    "cluster": ["clusters/*.toml", "docs/examples/cluster*.toml"],
    "gpu": ["clusters/gpus/*.toml", "docs/examples/gpu*.toml"],
    "model": ["models/*.toml", "docs/examples/model*.toml"],
    "prices": ["clusters/prices/*.toml", "docs/examples/prices*.toml"],
    "stack": ["clusters/stacks/*.toml", "docs/examples/stack*.toml"],
    "sweep": ["clusters/sweeps/*.toml", "docs/examples/sweep*.toml"],
}


def main() -> int:
    """Prints what does not fit; exits with the number of such files, 100 at most."""
    bad = checked = 0
    for name, patterns in FILES.items():
        schema = json.loads((ROOT / f"docs/schema/{name}.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        paths = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        assert paths, f"no file for {name}.json"
        for path in paths:
            file = tomllib.loads(path.read_text(encoding="utf-8"))
            errors = list(validator.iter_errors(file))
            # A key that the schema lacks must not pass.
            spoiled = list(validator.iter_errors({**file, "no such key": 1}))
            for error in errors:
                print(f"{path.relative_to(ROOT)}: {error.json_path}: {error.message}")
            if not spoiled:
                print(f"{path.relative_to(ROOT)}: an unknown key passes {name}.json")
            bad += bool(errors) or not spoiled
            checked += 1
    print(f"{checked} files against {len(FILES)} schemas, {bad} do not fit")
    return min(bad, 100)


if __name__ == "__main__":
    sys.exit(main())
