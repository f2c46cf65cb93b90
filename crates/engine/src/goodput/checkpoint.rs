//! Checkpoints: their cost, and the optimal interval between them.

use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::sources::Sourced;
use crate::units::{Bytes, BytesPerSec, Seconds};
use crate::workload::Adaptation;

/// Destination of a checkpoint, with the part of its time that stops training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Storage, while training waits.
    Sync,
    /// Host memory while training waits, then storage during training.
    #[default]
    Async,
    /// Memory of a peer's host, without storage.
    Memory,
}

/// Checkpointing of a job.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoints {
    /// Destination of the checkpoints.
    pub mode: Mode,
    /// Bandwidth of the storage for each GPU of the cluster.
    pub storage_per_gpu: Sourced<BytesPerSec>,
    /// Bandwidth of the whole storage, if it does not grow with the cluster.
    pub storage: Option<BytesPerSec>,
    /// Time of a barrier over all ranks.
    pub barrier: Sourced<Seconds>,
    /// Interval between checkpoints, if not the optimal one.
    pub interval: Option<Seconds>,
}

/// Times of one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Pause of training (δ).
    pub pause: Seconds,
    /// Time from its start until it can be restored, during training (D).
    pub drain: Seconds,
    /// Time to load it.
    pub load: Seconds,
}

/// Trained share of the parameters under LoRA. Source: specification §2.11, version 1.1.
const ADAPTER_SHARE: f64 = 0.002;

/// Bytes of one checkpoint: weights, master weights and moments.
///
/// ```text
/// S = (w + master + states)·P          specification §7.2; adapters alone under LoRA
/// ```
pub fn size(problem: &Problem) -> Bytes {
    let recipe = &problem.workload().recipe;
    let share = match problem.workload().adaptation {
        Adaptation::Full => 1.0,
        Adaptation::Lora | Adaptation::LoraAttention => ADAPTER_SHARE,
    };
    Bytes::new((recipe.weight + recipe.master + recipe.state) * problem.model().parameters().total as f64 * share)
}

impl Checkpoints {
    /// Times of one checkpoint.
    ///
    /// ```text
    /// sync      δ = S/BW_store                         D = 0             load = S/BW_store
    /// async     δ = S/(N·BW_host) + barrier            D = S/BW_store    load = S/BW_store
    /// memory    δ = S/N·(1/BW_host + 1/BW_nic) + barrier   D = 0         load = S/(N·BW_nic)
    /// ```
    ///
    /// Source: specification §7.2.
    pub fn times(&self, problem: &Problem) -> Times {
        let (cluster, size) = (problem.cluster(), size(problem));
        let gpus = f64::from(cluster.gpus);
        let share = size / gpus;
        let storage = self.storage.unwrap_or(self.storage_per_gpu.value * gpus);
        let (host, nic) = (cluster.gpu.host_link.value, cluster.gpu.nic.value);
        let stored = size / storage;
        match self.mode {
            Mode::Sync => Times { pause: stored, drain: Seconds::ZERO, load: stored },
            Mode::Async => Times { pause: share / host + self.barrier.value, drain: stored, load: stored },
            Mode::Memory => Times {
                pause: share / host + share / nic + self.barrier.value,
                drain: Seconds::ZERO,
                load: share / nic,
            },
        }
    }
}

/// Optimal work between two checkpoints (τ*), exactly: it minimises the expected time of the run.
///
/// ```text
/// minimise  (e^((τ+δ)/M) − 1)/τ      so      e^x·(x − δ/M − 1) + 1 = 0,   x = (τ+δ)/M
/// ```
///
/// Its first order is √(2δM) [young-1974]. Found by bisection: the left side is below 0 at x = δ/M and 1 at x = δ/M + 1.
pub fn best_interval(pause: Seconds, between_failures: Seconds) -> Seconds {
    let share = pause / between_failures;
    let slope = |x: f64| libm::exp(x) * (x - share - 1.0) + 1.0;
    let (mut low, mut high) = (share, share + 1.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if slope(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (between_failures * high - pause).or_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_interval_is_youngs_when_checkpoints_are_cheap_and_no_other_is_better() {
        let cost = |tau: f64, pause: f64, m: f64| libm::expm1((tau + pause) / m) / tau;
        for (pause, m) in [(0.5, 11_124.0), (5.0, 11_124.0), (30.0, 11_124.0), (600.0, 3600.0)] {
            let best = best_interval(Seconds::new(pause), Seconds::new(m)).get();
            for other in [0.5, 0.9, 0.99, 1.01, 1.1, 2.0] {
                assert!(cost(best, pause, m) <= cost(best * other, pause, m), "{pause} {m}");
            }
        }
        let best = best_interval(Seconds::new(5.0), Seconds::new(11_124.0)).get();
        assert!((best / (2.0_f64 * 5.0 * 11_124.0).sqrt() - 1.0).abs() < 0.02, "{best}");
    }
}
