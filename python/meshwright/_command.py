"""The command `meshwright`, as the wheel installs it."""

import sys

from meshwright import _native


def main() -> int:
    """Runs the command line, and returns its exit code."""
    return _native.command(["meshwright", *sys.argv[1:]])
