#!/usr/bin/env bash
# A sweep as a Slurm array: one shard a task, then one job that joins them.
#
#   jobs=$(sbatch --parsable --array=1-8 slurm-array.sh sweep.toml results)
#   sbatch --dependency=afterok:"$jobs" --wrap "meshwright sweep merge sweep.toml --from results/shards --out results"
#
# A task that was cut off goes on where it was: submit the array again.
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00
#SBATCH --requeue
set -euo pipefail
sweep=$1
results=$2
meshwright sweep "$sweep" --out "$results/shards" --resume --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
