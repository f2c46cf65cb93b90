//! Slurm jobs: one launch script on the nodes of a job, or one of several folders for each task of an array.

use super::language::Shell;
use super::request::EmittedFile;
use super::snippet::{Snippet, snippet};
use super::text::Lines;

/// Name of the job of one plan.
pub const JOB: &str = "launch.sbatch";

/// Name of the array of several plans.
pub const ARRAY: &str = "array.sbatch";

/// A launch script and the nodes that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlurmJob<'a> {
    /// Name of the launch script, run by bash once on every node.
    pub script: &'a str,
    /// Software that the container holds, in words.
    pub software: &'static str,
    /// Nodes.
    pub nodes: u32,
    /// GPUs on each.
    pub gpus_per_node: u32,
    /// Nodes of one scale-up domain that a job needs together, where a domain joins several.
    pub segment: Option<u32>,
}

impl SlurmJob<'_> {
    /// The `sbatch` script of the job: `sbatch launch.sbatch` in the folder of the launch script.
    pub fn script(&self) -> EmittedFile {
        let mut text = Lines::<Shell>::new();
        text.comments([format!(
            "Slurm job: {} on {} × {} GPUs. In this folder: sbatch {JOB}",
            self.script, self.nodes, self.gpus_per_node
        )]);
        self.resources(&mut text, None);
        text.fixed("cd \"${SLURM_SUBMIT_DIR:?start it with sbatch}\"\n");
        self.run(&mut text);
        text.into_file(JOB)
    }

    /// The `sbatch` script of an array: task `n` runs the launch script of folder `n`, counted from 0, below the folder that
    /// the array is submitted from.
    pub fn array(&self, folders: &[String]) -> EmittedFile {
        let mut text = Lines::<Shell>::new();
        let many = folders.len();
        text.comments([
            format!(
                "Slurm array: {} of {many} folders, one a task. In the folder above them: sbatch {ARRAY}",
                self.script
            ),
            "One after another, on the same nodes as far as Slurm gives them: sbatch --array=0-N%1".into(),
        ]);
        self.resources(&mut text, Some(many));
        text.array("FOLDERS", folders.iter().map(|folder| folder.as_str().into()));
        text.fixed("cd \"${SLURM_SUBMIT_DIR:?start it with sbatch}/${FOLDERS[$SLURM_ARRAY_TASK_ID]}\"\n");
        self.run(&mut text);
        text.into_file(ARRAY)
    }

    /// Resources that the job asks of Slurm.
    fn resources(&self, text: &mut Lines<Shell>, tasks: Option<usize>) {
        text.comments([
            "Account and partition: SBATCH_ACCOUNT and SBATCH_PARTITION in the environment, or options of sbatch.",
        ]);
        text.fixed("#SBATCH --job-name=meshwright");
        text.line(snippet!("#SBATCH --nodes={}", self.nodes));
        text.fixed("#SBATCH --ntasks-per-node=1");
        text.line(snippet!("#SBATCH --gpus-per-node={}", self.gpus_per_node));
        if let Some(segment) = self.segment {
            text.comments([format!(
                "Nodes that lie in one NVLink domain, where Slurm knows its blocks: the job needs {} domains.",
                self.nodes / segment.max(1)
            )]);
            text.line(snippet!("#SBATCH --segment={}", segment));
        }
        text.fixed("#SBATCH --exclusive\n#SBATCH --time=01:00:00");
        match tasks {
            Some(tasks) => {
                text.line(snippet!("#SBATCH --array=0-{}", tasks.saturating_sub(1)));
                text.fixed("#SBATCH --output=%x-%A_%a.log");
            }
            None => text.fixed("#SBATCH --output=%x-%j.log"),
        }
        text.fixed("set -euo pipefail");
    }

    /// Container, rendezvous and launch.
    fn run(&self, text: &mut Lines<Shell>) {
        text.comments(["To be set: the image for enroot and pyxis, or none for what is installed on the nodes."]);
        text.line(snippet!(
            ": \"${CONTAINER:?set CONTAINER to an image with {}, or to none}\"\nCONTAINER_ARGS=()",
            Snippet::fixed(self.software)
        ));
        text.fixed("if [ \"$CONTAINER\" != none ]; then");
        text.fixed(
            "    CONTAINER_ARGS=(--container-image=\"$CONTAINER\" --container-mounts=\"${MOUNTS:-$PWD:$PWD}\" \
            --container-workdir=\"$PWD\")",
        );
        text.fixed("fi\n");
        text.comments(["Ranks meet on the job's first node; jobs that follow each other there differ in the port."]);
        // Not through `head`: what still writes to it when it ends dies, and with `pipefail` so does the job.
        text.fixed("NODES=$(scontrol show hostnames \"${SLURM_JOB_NODELIST:?start it with sbatch}\")");
        text.fixed("MASTER_ADDR=${NODES%%[[:space:]]*}");
        text.fixed("MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\nexport MASTER_ADDR MASTER_PORT\n");
        text.comments([
            "One task a node starts the processes of its GPUs; unbound, they share all of the node's cores.",
        ]);
        text.line(snippet!(
            "srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 \
            ${CONTAINER_ARGS[@]+\"${CONTAINER_ARGS[@]}\"} \\\n    bash {} \"$@\"",
            self.script
        ));
    }
}
