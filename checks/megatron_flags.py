#!/usr/bin/env python3
"""Table of Megatron-LM's flags, from its own parser: every flag of every release with its type, values, choices and default.

    python3 checks/megatron_flags.py REPOSITORY [--python PYTHON] [--verify] > crates/frameworks/data/megatron.tsv

REPOSITORY is a clone of Megatron-LM with its branches `core_r0.*`; the newest commit of each stands for the release, and the
newest of `main` for the next one. `add_megatron_arguments` of each is run in a process of PYTHON, which needs torch; modules that
are not installed are stood in for, since a parser uses none. A flag whose values, choices or default changed has a row for each
range of releases. `--verify` compares with the committed table instead, and exits with 1 where they differ.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crates", "frameworks", "data", "megatron.tsv")
OLDEST = (0, 12)  # of older releases, no function adds the flags to a parser alone

DUMP = r"""
import argparse
import enum
import inspect
import json
import re
import sys
import types

for name in ("six",):  # imported by readers of data, which a parser does not run
    sys.modules.setdefault(name, types.ModuleType(name))
from megatron.training import arguments
from megatron.post_training.arguments import add_modelopt_args

def plain(value):
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(str(plain(item)) for item in value) + "]"
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)

parser = add_modelopt_args(arguments.add_megatron_arguments(argparse.ArgumentParser()))
rows = []
for action in parser._actions:
    kind = type(action).__name__
    if kind == "_HelpAction":
        continue
    typ = getattr(action.type, "__name__", None) if action.type else None
    values = "b" if kind == "BooleanOptionalAction" else 0 if action.nargs == 0 else 1 if action.nargs is None else action.nargs
    typ = "bool" if values in (0, "b") else {None: "str", "int": "int", "float": "float", "str": "str"}.get(typ, "other")
    names = [name for name in action.option_strings if not (values == "b" and name.startswith("--no-"))]
    for name in names:
        rows.append([name, str(values), typ, [str(plain(c)) for c in action.choices or []], plain(action.default)])
found = re.search(r"allow_abbrev\s*=\s*(\w+)", inspect.getsource(arguments.parse_args))
assert found and found.group(1) == "False", "the parser takes abbreviations, which `lint` calls an error"
json.dump(rows, sys.stdout)
"""


def git(repository, *arguments):
    return subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True).stdout


def releases(repository):
    """Names of the releases, oldest first, each with its commit."""
    heads = git(
        repository,
        "for-each-ref",
        "--sort=committerdate",
        "--format=%(refname) %(objectname)",
        "refs/heads",
        "refs/remotes",
    ).decode()
    found, main = {}, None
    for line in heads.splitlines():
        name, commit = line.split()
        release = re.search(r"^refs/(?:heads|remotes/origin)/core_r(\d+)\.(\d+)\.0$", name)
        if release and tuple(map(int, release.groups())) >= OLDEST:
            found[tuple(map(int, release.groups()))] = commit
        if re.search(r"^refs/(?:heads|remotes/origin)/main$", name):
            main = commit
    if main is None:
        sys.exit(f"{repository}: no branch main; fetch it")
    package = git(repository, "show", f"{main}:megatron/core/package_info.py").decode()
    next_one = tuple(int(re.search(rf"^{part} = (\d+)", package, re.M).group(1)) for part in ("MAJOR", "MINOR"))
    found.setdefault(next_one, main)
    return [(f"{major}.{minor}", commit) for (major, minor), commit in sorted(found.items())]


def flags(repository, commit, python):
    """Flags of the parser of a commit: name -> values, type, choices, default."""
    with tempfile.TemporaryDirectory() as folder:
        archive = git(repository, "archive", commit, "megatron")
        tarfile.open(fileobj=io.BytesIO(archive)).extractall(folder, filter="data")
        run = subprocess.run(
            [python, "-W", "ignore", "-c", DUMP],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": folder, "CUDA_VISIBLE_DEVICES": ""},
        )
    if run.returncode:
        sys.exit(f"{commit}: its parser does not run: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    return {row[0]: tuple(cell(value) for value in row[1:]) for row in json.loads(run.stdout[run.stdout.index("[[") :])}


def cell(value):
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return "|".join(value)
    return re.sub(r"\s", " ", str(value).lower() if isinstance(value, bool) else str(value)) or "-"


def table(repository, python):
    """Lines of the table."""
    known = releases(repository)
    by_release = [flags(repository, commit, python) for _, commit in known]
    yield "# Flags of megatron.training.arguments by release of Megatron core, and of its post_training; written by checks/megatron_flags.py."
    yield "# releases: " + " ".join(name for name, _ in known)
    yield "# commits: " + " ".join(commit[:12] for _, commit in known)
    yield "# flag, values (0, 1, 3, ?, + or *; b: a switch with --no-…), type, choices, default, first and last release (-: the table's)"
    for name in sorted({name for row in by_release for name in row}):
        start = 0
        while start < len(known):
            fact = by_release[start].get(name)
            end = start
            while end + 1 < len(known) and by_release[end + 1].get(name) == fact:
                end += 1
            if fact:
                first = "-" if start == 0 else known[start][0]
                last = "-" if end + 1 == len(known) else known[end][0]
                yield "\t".join([name, *fact, first, last])
            start = end + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("repository")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--verify", action="store_true", help="compare with the committed table")
    options = parser.parse_args()
    text = "\n".join(table(options.repository, options.python)) + "\n"
    if not options.verify:
        sys.stdout.write(text)
    elif open(TABLE).read() != text:
        sys.exit(f"{TABLE} differs from the parsers: run this script without --verify and redirect its output there")


if __name__ == "__main__":
    main()
