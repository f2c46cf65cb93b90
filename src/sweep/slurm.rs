//! A sweep as a Slurm array: one shard a task, joined by `sweep merge`.

use std::path::Path;

/// Name of the script in the folder of results.
pub const SCRIPT: &str = "sweep.sbatch";

/// Word as the shell reads it back.
fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Script for `sbatch` that works through a sweep in an array of shards. Its head says how to start it and how to join the
/// results. A task that was cut off goes on where it was, once the array is submitted again.
pub fn script(sweep: &Path, out: &Path, shards: u32) -> String {
    let (file, folder) = (word(&sweep.display().to_string()), word(&out.display().to_string()));
    format!(
        r#"#!/usr/bin/env bash
# A sweep as a Slurm array: one shard a task, then one job that joins them. From the folder that the paths start from:
#
#   array=$(sbatch --parsable {folder}/{SCRIPT})
#   sbatch --dependency=afterok:"$array" --wrap "meshwright sweep merge {file} --from {folder}/shards --out {folder}"
#
# A task that was cut off goes on where it was: submit the array again.
#SBATCH --job-name=meshwright-sweep
#SBATCH --array=1-{shards}
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00
#SBATCH --requeue
set -euo pipefail
meshwright sweep {file} --out {folder}/shards --resume --shard "$SLURM_ARRAY_TASK_ID/{shards}"
"#
    )
}
