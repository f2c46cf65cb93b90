#!/usr/bin/env bash
# Builds the Python package in a virtual environment under target/, and tests it as a user has it.
#
#   bash python/ci.sh                the wheel as it is published, with its size and its speed
#   bash python/ci.sh dev            a wheel of the dev profile, of what `cargo test --workspace` compiled
#   bash python/ci.sh environment    the environment, no more
set -euo pipefail
cd "$(dirname "$0")/.."
place=target/python
if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "SKIPPED: no Python 3.9 or later with venv here; the Python package was neither built nor tested"
    exit 0
fi
[ -x "$place/venv/bin/pip" ] || python3 -m venv "$place/venv"
bin=$PWD/$place/venv/bin
# The judges are pinned, so that the same tree has the same verdict on every day.
install() { # by uv, which takes a tenth of pip's CPU
    "$bin/uv" pip install --quiet --python "$bin/python" "$@"
}
if ! { "$bin/pip" install --quiet uv && install maturin==1.16.0 pytest==9.2.0 mypy==2.4.1 pandas pandas-stubs matplotlib; }; then
    echo "SKIPPED: maturin or pytest cannot be had from the Python registry; the Python package was neither built nor tested"
    exit 0
fi
install ray==2.60.0 || echo "SKIPPED: Ray cannot be had from the Python registry; nothing ran on a cluster"
[ "${1:-}" != environment ] || exit 0
export PATH="$bin:$PATH" CARGO_TARGET_DIR="$PWD/target" PYO3_PYTHON="$bin/python"
rm -rf "$place/wheels"
"$bin/pip" wheel --quiet --no-build-isolation --no-deps ${1:+--config-settings "build-args=--profile $1"} --wheel-dir "$place/wheels" .
if [ -n "${1:-}" ]; then
    export MESHWRIGHT_PROFILE=$1 # tests of speed skip
elif [ "$(wc -c <"$place"/wheels/*.whl)" -gt 10000000 ]; then
    echo "the wheel is over 10 MB: $(ls -l "$place"/wheels)"
    exit 1
fi
"$bin/python" python/measure/materials.py "$place"/wheels/*.whl
"$bin/pip" install --quiet --force-reinstall --no-deps "$place"/wheels/*.whl
"$bin/python" -m mypy python/meshwright python/tests python/examples/run.py python/measure
"$bin/python" -m mypy.stubtest meshwright._native
# checks/environment.sh, which `.ci/run` runs before, installs the frameworks.
frameworks=${XDG_CACHE_HOME:-$HOME/.cache}/meshwright/clients-$(cat checks/requirements.txt checks/alone.txt | sha256sum | cut -c1-12)
if [ -e "$frameworks/ready" ]; then
    export MESHWRIGHT_FRAMEWORKS="$frameworks/bin/python"
else
    echo "SKIPPED: the frameworks are not installed (checks/environment.sh); no object of meshwright.bridge was built with its own class"
fi
"$bin/python" python/examples/run.py
(cd target && "$bin/python" -c "import doctest, meshwright; raise SystemExit(doctest.testmod(meshwright).failed)")
(cd python/tests && "$bin/python" -m pytest -q .) # the installed package, not the folder of its sources
[ -n "${MESHWRIGHT:-}" ] || { cargo build --workspace --bin meshwright && MESHWRIGHT=target/debug/meshwright; }
"$bin/python" python/measure/questions.py "$MESHWRIGHT" 8
