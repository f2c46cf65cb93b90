//! Hints on neighbouring sizes with a higher throughput: a number of GPUs of whole domains, a batch that divides.

use crate::cli::effort::EffortLimits;
use crate::question::{Found, PlanQuestion};
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{thousands, whole_percent};
use meshwright_engine::workload::usual_batch;
use meshwright_planner::advice::{Prudence, prudent};
use meshwright_planner::search::{SearchOptions, SearchProof};

/// Gain of throughput from which on a hint is worth a line.
const WORTH_SAYING: f64 = 0.03;

/// Hints on the sizes that the user named, at most one for each.
pub fn hints(
    question: &PlanQuestion,
    effort: &EffortLimits,
    problem: &Problem,
    options: &SearchOptions,
    risk: f64,
    found: &Found,
) -> Vec<String> {
    let Some(best) = found.best() else { return Vec::new() };
    let prudence = Prudence { risk, exotic: question.plans.exotic };
    let gain = |other: &Problem| {
        let options = SearchOptions { top: 1, ..options.clone() };
        let (ranking, _) = prudent(other, &options, prudence, &|_, _| effort.control());
        if ranking.certificate.proof != SearchProof::Optimal {
            return None;
        }
        Some(throughput(other, ranking.evaluations.first()?) / throughput(problem, best) - 1.0)
    };
    let mut hints = Vec::new();
    let named = &question.problem.options;
    let fewer = if named.gpus.is_some() { whole_domains(problem) } else { None };
    if let Some(other) =
        fewer.or_else(|| filled_domains(problem)).and_then(|gpus| on(problem, gpus, named.global_batch))
        && let Some(gain) = gain(&other).filter(|gain| *gain > WORTH_SAYING)
    {
        hints.push(format!(
            "{} of the {} GPUs train {} more tokens a second: --gpus {}, or --allow-idle",
            thousands(u64::from(other.cluster().gpus)),
            thousands(u64::from(problem.cluster().gpus)),
            whole_percent(gain),
            other.cluster().gpus
        ));
    }
    if let Some((below, above)) = problem.cluster().whole_nodes() {
        let (gpus, node) = (problem.cluster().gpus, problem.cluster().gpus_per_node);
        hints.push(format!(
            "{gpus} GPUs are no whole nodes of {node}, and no files are written for them: --gpus {below} or {above}"
        ));
    }
    if let Some(other) = divisible_batch(problem).filter(|_| named.global_batch.is_some())
        && let Some(gain) = gain(&other).filter(|gain| *gain > WORTH_SAYING)
    {
        hints.push(format!(
            "a batch of {} divides badly among {} GPUs: --global-batch {} trains {} more tokens a second",
            problem.workload().global_batch,
            thousands(u64::from(problem.cluster().gpus)),
            other.workload().global_batch,
            whole_percent(gain)
        ));
    }
    hints
}

/// Tokens per second of all GPUs.
fn throughput(problem: &Problem, evaluation: &Evaluation) -> f64 {
    problem.workload().tokens_per_step() / evaluation.step.total().get()
}

/// GPUs of the largest power of two of whole scale-up domains; none if the GPUs are whole domains.
fn whole_domains(problem: &Problem) -> Option<u32> {
    let (gpus, domain) = (problem.cluster().gpus, problem.cluster().scale_up.gpus);
    (gpus > domain && !gpus.is_multiple_of(domain)).then(|| domain << (gpus / domain).ilog2())
}

/// GPUs of which expert groups of a power of two fill every scale-up domain, such as 64 of the 72 of an NVL72; none where the domains
/// are no racks, where there are domains to spare, and for dense models.
fn filled_domains(problem: &Problem) -> Option<u32> {
    let (cluster, domain) = (problem.cluster(), problem.cluster().scale_up.gpus);
    let has_racks = domain > cluster.gpus_per_node && !domain.is_power_of_two();
    let fills_all = cluster.gpus.is_multiple_of(domain) && cluster.domains() == Some(cluster.gpus / domain);
    (problem.model().is_moe() && has_racks && fills_all).then(|| cluster.gpus / domain * (1 << domain.ilog2()))
}

/// The problem on fewer GPUs, with the named batch or the usual one.
fn on(problem: &Problem, gpus: u32, batch: Option<u32>) -> Option<Problem> {
    let changed = problem.changed(|cluster, workload, _| {
        *cluster = cluster.clone().resized(gpus);
        workload.global_batch = batch.unwrap_or_else(|| usual_batch(gpus, workload.seq_len));
    });
    changed.ok()
}

/// The problem with the nearest batch that the largest power of two among the GPUs divides; none if it is the same.
fn divisible_batch(problem: &Problem) -> Option<Problem> {
    let batch = problem.workload().global_batch;
    let mut unit = 1 << problem.cluster().gpus.trailing_zeros();
    while unit > batch {
        unit /= 2;
    }
    let nearest = ((batch + unit / 2) / unit).max(1) * unit;
    (nearest != batch).then(|| problem.with_global_batch(nearest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    fn problem(gpus: u32, global_batch: u32) -> Problem {
        example::problem("llama3-8b", gpus, global_batch)
    }

    #[test]
    fn awkward_sizes_have_neighbours_and_whole_ones_have_none() {
        let fewer = |gpus| whole_domains(&problem(gpus, 128));
        assert_eq!((fewer(66), fewer(100), fewer(64), fewer(7)), (Some(64), Some(64), None, None));
        let batch = |gpus, batch| divisible_batch(&problem(gpus, batch)).map(|other| other.workload().global_batch);
        assert_eq!(
            (batch(512, 500), batch(512, 512), batch(512, 100), batch(6, 7)),
            (Some(512), None, Some(128), Some(8))
        );
    }
}
