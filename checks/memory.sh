#!/usr/bin/env bash
# Memory of training steps from the frameworks' own code: checks/memory/oracle.py, which says what it is asked.
#
#   bash checks/memory.sh remake                       tests/memory/*.csv but MaxText's, an hour or two on one core
#   bash checks/memory.sh remake maxtext               tests/memory/maxtext.csv, an hour
#   bash checks/memory.sh published                    the oracle against measured peaks
#   bash checks/memory.sh torchtitan llama3-8b "tp=2 dp=4 ac=full"
#   bash checks/memory.sh maxtext llama3-8b "tpu=v5p dp=64 mbs=2 seq=4096"
#
# The environment is that of checks/environment.sh, which makes it. MaxText has its own, of checks/memory/maxtext.txt, made the first time
# (Python 3.12 or newer, 4 GB); its source is $MAXTEXT (a checkout's src folder), or else fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
caches=${XDG_CACHE_HOME:-$HOME/.cache}/meshwright
# Kernels made at run time for AMX die of an illegal instruction on virtual machines that show it and do not allow it.
export OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2

if [ "${1:-}" != maxtext ] && [ "${1:-} ${2:-}" != "remake maxtext" ]; then
    home=$caches/clients-$(cat checks/requirements.txt checks/alone.txt | sha256sum | cut -c1-12)
    if [ ! -f "$home/ready" ]; then
        echo "the frameworks are not installed: run checks/environment.sh first" >&2
        exit 1
    fi
    exec "$home/bin/python" -W ignore checks/memory/oracle.py "$@"
fi

. checks/python.sh
if [ -z "$python" ]; then
    echo "SKIPPED: MaxText needs Python 3.12 or newer"
    exit 0
fi
home=$caches/maxtext-$(sha256sum < checks/memory/maxtext.txt | cut -c1-12)
if [ ! -f "$home/ready" ]; then
    rm -rf "$home"
    mkdir -p "$caches"
    if ! { "$python" -m venv "$home" && "$home/bin/python" -m pip install -q uv \
        && "$home/bin/uv" pip install -q --python "$home/bin/python" -r checks/memory/maxtext.txt; } > "$caches/log" 2>&1; then
        echo "SKIPPED: JAX and what MaxText imports cannot be installed from the Python registry"
        tail -3 "$caches/log"
        rm -rf "$home"
        exit 0
    fi
    touch "$home/ready"
fi
revision=e591f30cbbf217ed67ef71263ec0538239f9c3b8
source=${MAXTEXT:-$home/maxtext-$revision/src}
if [ ! -d "$source/maxtext" ]; then
    curl -sfL --max-time 300 "https://codeload.github.com/AI-Hypercomputer/maxtext/tar.gz/$revision" | tar xz -C "$home" 2> /dev/null || true
fi
if [ ! -d "$source/maxtext" ]; then
    echo "SKIPPED: MaxText's source cannot be fetched; \$MAXTEXT may name the src folder of a checkout"
    exit 0
fi
export PYTHONPATH=$(cd "$source" && pwd)
exec "$home/bin/python" -W ignore checks/memory/oracle.py "$@"
