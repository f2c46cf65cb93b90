#!/usr/bin/env bash
# Trains emitted plans on gloo ranks of this machine (checks/train.py), or starts emitted Slurm jobs under a stand-in (checks/slurm.py).
#
#   SEED=7 bash checks/train.sh                                   58 plans, a quarter of an hour on two cores
#   SEED=7 bash checks/train.sh megatron=2,torchtitan=1           of these frameworks so many
#   bash checks/train.sh slurm [megatron,deepspeed]               launch.sbatch of every framework, or of these, on two nodes
#
# The environment is that of checks/environment.sh, which makes it; $MESHWRIGHT is the binary, else one is built.
set -euo pipefail
cd "$(dirname "$0")/.."
home=${XDG_CACHE_HOME:-$HOME/.cache}/meshwright/clients-$(cat checks/requirements.txt checks/alone.txt | sha256sum | cut -c1-12)
if [ ! -f "$home/ready" ]; then
    echo "SKIPPED: the frameworks are not installed (bash checks/environment.sh installs them); no emitted plan was trained"
    exit 0
fi
[ -n "${MESHWRIGHT:-}" ] || cargo build
binary=${MESHWRIGHT:-${CARGO_TARGET_DIR:-target}/debug/meshwright}
export PATH="$home/bin:$PATH" OMP_NUM_THREADS=1
# Kernels made at run time for AMX die of an illegal instruction on virtual machines that show it and do not allow it.
export ONEDNN_MAX_CPU_ISA=AVX2
if [ "${1:-}" = slurm ]; then
    exec "$home/bin/python" -W ignore checks/slurm.py --meshwright "$binary" ${2:+--only "$2"}
fi
. checks/sources.sh # what is not there is said by train.py
exec "$home/bin/python" -W ignore checks/train.py --meshwright "$binary" --seed "${SEED:-$(date +%Y%m%d)}" ${1:+--each "$1"} \
    --olmo-core "$olmo" --olmo-core-needs "$olmo_needs"
