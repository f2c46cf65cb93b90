//! Variables that `#SBATCH` lines set.

/// Variable of a Slurm job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmVariable {
    pub name: &'static str,
    pub value: String,
    /// Line that sets it, from 1.
    pub line: u32,
}

/// The variables that Slurm makes of `#SBATCH` lines.
pub fn slurm_variables(text: &str) -> Vec<SlurmVariable> {
    let mut found = Vec::new();
    for (at, row) in text.lines().enumerate().filter(|(_, row)| row.starts_with("#SBATCH")) {
        let words: Vec<&str> = row.split('#').nth(1).unwrap_or_default().split_whitespace().skip(1).collect();
        let mut words = words.iter().flat_map(|word| word.splitn(2, '='));
        while let Some(option) = words.next() {
            let names: &[&'static str] = match option {
                "-N" | "--nodes" => &["SLURM_NNODES", "SLURM_JOB_NUM_NODES"],
                "--ntasks-per-node" | "--tasks-per-node" => &["SLURM_NTASKS_PER_NODE"],
                "-n" | "--ntasks" => &["SLURM_NTASKS", "SLURM_NPROCS"],
                "--gpus-per-node" | "--gres" => &["SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"],
                _ => continue,
            };
            let Some(value) = words.next().map(|value| value.rsplit(':').next().unwrap_or(value)) else { break };
            if value.parse::<u32>().is_ok() {
                let line = at as u32 + 1;
                found.extend(names.iter().map(|name| SlurmVariable { name, value: value.to_owned(), line }));
            }
        }
    }
    found
}
