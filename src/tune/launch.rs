//! Launch files of trials, and of the best plan at full scale.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::posterior::Posterior;
use super::study::TuneError;
use super::trials::{TrialStatus, Trials};
use crate::files::{self, Existing};
use crate::question::{Chosen, FileOptions, Noted, framework};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::emit::{EmittedFile, job_of};

/// Question of `tune next`: how many trials, and how long they are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct NextTrials {
    /// Number of trials to launch together.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 1))]
    #[cfg_attr(feature = "cli", arg(value_parser = clap::value_parser!(u32).range(1..=1000)))]
    pub count: u32,
    /// Steps of a trial; the first quarter, at most ten, are warm-up.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 30))]
    #[cfg_attr(feature = "cli", arg(value_parser = clap::value_parser!(u32).range(4..=1_000_000)))]
    pub steps: u32,
    /// Go on although the budget is spent, or further timing is not worth it.
    #[cfg_attr(feature = "cli", arg(long))]
    pub anyway: bool,
}

impl Default for NextTrials {
    fn default() -> Self {
        Self { count: 1, steps: 30, anyway: false }
    }
}

/// Trial whose files were written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchedTrial {
    /// Number of the trial.
    pub trial: u32,
    /// Plan on the GPUs of a trial.
    pub plan: String,
    /// Median of the step time at full scale in seconds, given the trials before.
    pub median_s: f64,
    /// Probability that it runs.
    pub runs: f64,
    /// Probability that it is the best.
    pub best: f64,
    /// Paths of its launch files; empty where no framework has any.
    pub files: Vec<PathBuf>,
}

/// Answer of `tune next`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrialLaunch {
    /// Whether no trial is worth its time.
    pub decided: bool,
    /// Trials, the one whose timing is worth most first; none where the study is decided, or for the reason among the notes.
    pub trials: Vec<LaunchedTrial>,
    /// Path of the Slurm array that runs them.
    pub array: Option<PathBuf>,
}

/// Answer of `tune apply`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AppliedTrial {
    /// Number of the best trial.
    pub trial: u32,
    /// Its plan at full scale.
    pub plan: String,
    /// Relative loss of step time that does not matter.
    pub tolerance: f64,
    /// Probability that it is within that of the fastest.
    pub within: f64,
    /// Paths of its launch files; empty where no framework has any.
    pub files: Vec<PathBuf>,
}

/// Launch files of a plan with their notes; the reasons among the notes where there are none.
fn emitted(
    posterior: &Posterior,
    problem: &Problem,
    plan: &Plan,
    steps: Option<u32>,
) -> Result<Noted<Option<Vec<EmittedFile>>>, TuneError> {
    let Some(name) = posterior.study().framework.as_deref() else {
        return Ok(Noted { value: None, notes: Vec::new() });
    };
    let recipe = posterior.study().problem.recipe_name(problem);
    let files = Chosen { plan, refined: None }.files(
        framework(name)?,
        problem,
        &recipe,
        FileOptions { steps, ..FileOptions::default() },
    );
    let mut notes = files.notes;
    let value = match files.value {
        Ok(files) => Some(files),
        Err(reasons) => {
            notes.extend(reasons);
            None
        }
    };
    Ok(Noted { value, notes })
}

/// Writes the launch files of the trials whose timing is worth most, and marks them as waiting in the study.
///
/// # Errors
///
/// The folder is no study, or a file cannot be written.
pub fn next(folder: &Folder, asked: &NextTrials) -> Result<Noted<TrialLaunch>, TuneError> {
    let (locked, Noted { value: posterior, mut notes }) = folder.lock_posterior()?;
    if posterior.is_decided() && !asked.anyway {
        return Ok(Noted { value: TrialLaunch { decided: true, ..TrialLaunch::default() }, notes });
    }
    let most = if asked.anyway { usize::MAX } else { posterior.trials_left() };
    let chosen = posterior.batch(most.min(asked.count as usize));
    if chosen.is_empty() {
        let why = if most == 0 { "the budget is spent: --anyway goes on" } else { "no plan is left to try" };
        notes.push(why.into());
        return Ok(Noted { value: TrialLaunch::default(), notes });
    }
    let mut trials = Trials(posterior.trials().to_vec());
    let (mut folders, mut first, mut launched) = (Vec::new(), None, Vec::new());
    for at in chosen {
        let trial = &mut trials.0[at];
        trial.status = TrialStatus::Waiting;
        let plan = posterior.trial_plan(at);
        let files = emitted(&posterior, posterior.trial_problem(), plan, Some(asked.steps))?;
        notes.extend(files.notes);
        let paths = match files.value {
            Some(files) => {
                let paths = files::write_all(&folder.path().join(trial.folder()), &files, Existing::Replace)?;
                folders.push(trial.folder());
                first.get_or_insert(files);
                paths
            }
            None => Vec::new(),
        };
        let outlook = posterior.outlook(at);
        launched.push(LaunchedTrial {
            trial: trial.trial,
            plan: plan.to_string(),
            median_s: outlook.median_s,
            runs: outlook.prospect.runs,
            best: outlook.prospect.best,
            files: paths,
        });
    }
    let array = array(folder.path(), &posterior, &folders, first.as_deref())?;
    locked.write(&trials)?;
    Ok(Noted { value: TrialLaunch { decided: false, trials: launched, array }, notes })
}

/// Writes the Slurm array that runs the files of several folders; none where no script launches them.
fn array(
    dir: &Path,
    posterior: &Posterior,
    folders: &[String],
    files: Option<&[EmittedFile]>,
) -> Result<Option<PathBuf>, TuneError> {
    let named = posterior.study().framework.as_deref().map(framework).transpose()?;
    let cluster = posterior.trial_problem().cluster();
    let Some(job) = named.zip(files).and_then(|(named, files)| job_of(named, cluster, files)) else { return Ok(None) };
    let array = job.array(folders);
    Ok(files::write_all(dir, std::slice::from_ref(&array), Existing::Replace)?.pop())
}

/// Writes the launch files of the best trial at full scale into `out`, by default the folder `best` of the study. None where
/// the framework has no files for the plan, for the reasons among the notes.
///
/// # Errors
///
/// The folder is no study, no trial has run, or a file cannot be written.
pub fn apply(
    folder: &Folder,
    out: Option<&Path>,
    existing: Existing,
) -> Result<Noted<Option<AppliedTrial>>, TuneError> {
    let Noted { value: posterior, mut notes } = folder.posterior()?;
    let Some(leader) = posterior.outlook.leader else {
        let dir = folder.path().display();
        return Err(TuneError::Refused(format!(
            "{dir}: no trial has run, so there is none to apply\n\nhint: meshwright tune next --dir {dir}"
        )));
    };
    let plan = posterior.plan(leader);
    let files = emitted(&posterior, posterior.problem(), plan, None)?;
    notes.extend(files.notes);
    let into = out.map_or_else(|| folder.path().join("best"), Path::to_owned);
    let paths = match files.value {
        Some(files) => files::write_all(&into, &files, existing)?,
        None if posterior.study().framework.is_some() => return Ok(Noted { value: None, notes }),
        None => Vec::new(),
    };
    let applied = AppliedTrial {
        trial: posterior.trials()[leader].trial,
        plan: plan.to_string(),
        tolerance: posterior.study().tolerance,
        within: posterior.outlook.within,
        files: paths,
    };
    Ok(Noted { value: Some(applied), notes })
}
