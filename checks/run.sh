#!/usr/bin/env bash
# Asks the frameworks' own code whether it would run the files that `meshwright emit` writes.
#
# Needs Python 3.12 or newer and, the first time, the Python registry (6 GB, one minute); where either is missing it says so and
# skips. The environment is kept in $XDG_CACHE_HOME/meshwright (else ~/.cache/meshwright).
set -euo pipefail
cd "$(dirname "$0")/.."

python=""
for candidate in python3.13 python3.12 python3 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python; do
    if command -v "$candidate" > /dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "SKIPPED: the frameworks' own checks need Python 3.12 or newer"
    exit 0
fi

version=$(sha256sum checks/requirements.txt | cut -c1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/meshwright/clients-$version
if [ ! -f "$home/ready" ]; then
    rm -rf "$home"
    mkdir -p "$(dirname "$home")"
    if ! { "$python" -m venv "$home" && "$home/bin/python" -m pip install -q uv \
        && "$home/bin/uv" pip install -q --python "$home/bin/python" -r checks/requirements.txt; } > "$(dirname "$home")/log" 2>&1; then
        echo "SKIPPED: the frameworks cannot be installed from the Python registry; no emitted file was judged by its framework"
        tail -3 "$(dirname "$home")/log"
        rm -rf "$home"
        exit 0
    fi
    touch "$home/ready"
fi

cargo build
export PATH="$home/bin:$PATH" OMP_NUM_THREADS=1
exec timeout 2400 "$home/bin/python" -W ignore checks/emitted.py --meshwright "${CARGO_TARGET_DIR:-target}/debug/meshwright" --out target/emitted 2> >(grep -v -i "warn" >&2)
