#!/usr/bin/env bash
# Memory of training steps from the frameworks' own code on fake tensors: checks/memory/oracle.py, which says what it is asked.
#
#   bash checks/memory.sh remake                       tests/memory/*.csv, an hour or two on one core
#   bash checks/memory.sh published                    the oracle against measured peaks
#   bash checks/memory.sh torchtitan llama3-8b "tp=2 dp=4 ac=full"
#
# The environment is that of checks/run.sh, which makes it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(cat checks/requirements.txt checks/alone.txt | sha256sum | cut -c1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/meshwright/clients-$version
if [ ! -f "$home/ready" ]; then
    echo "the frameworks are not installed: run checks/run.sh first" >&2
    exit 1
fi
# Kernels made at run time for AMX die of an illegal instruction on virtual machines that show it and do not allow it.
export OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2
exec "$home/bin/python" -W ignore checks/memory/oracle.py "$@"
