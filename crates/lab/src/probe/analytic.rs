//! Cost model as a probe: predicted times of single kernels.

use super::clocks::LAYER_OVER_LOOP;
use super::kernel::{Attention, Fused, Gemm, HostTransfer, Kernel, group_of};
use super::sample::{Machine, Sample};
use super::source::{Effort, Probe, ProbeError};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::collective::Fabric;
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::kernel::{AttentionShape, ContextSplit, Device, GemmShape, Pass, PassTimes};
use meshwright_engine::stack::Stack;
use meshwright_engine::units::{Bytes, Seconds};

/// Time of the launch of an empty kernel from C against that of a framework's kernel (`stack.launches`), which
/// allocates, checks and dispatches besides: 3.8 of 6 us. Source: [meshwright-silicon], mean of six hosts with x86
/// processors.
pub(super) const EMPTY_LAUNCH: f64 = 0.63;

/// Probe that answers with the cost model's prediction.
#[derive(Clone, Debug)]
pub struct Analytic<'a> {
    cluster: &'a Cluster,
    stack: &'a Stack,
    machine: Machine,
}

impl From<&Gemm> for GemmShape {
    fn from(gemm: &Gemm) -> Self {
        let Gemm { format: _, pass: _, m, n, k, batch, output_bytes } = *gemm;
        Self { m: m as f64, n: n as f64, k: k as f64, batch: batch as f64, output_bytes: output_bytes as f64 }
    }
}

impl From<&Attention> for AttentionShape {
    fn from(core: &Attention) -> Self {
        let Attention { kernel: _, pass: _, sequences, heads, kv_heads, queries, keys, qk_dim, v_dim, mask: _ } = *core;
        // A rank that gathers the keys has fewer queries than keys.
        let ranks = (keys as f64 / queries as f64).max(1.0);
        Self {
            sequences: sequences as f64,
            heads: heads as f64,
            kv_heads: kv_heads as f64,
            seq_len: keys as f64,
            attended: core.attended_share(),
            qk_dim: qk_dim as f64,
            v_dim: v_dim as f64,
            dropout: false,
            context_split: ContextSplit { ranks, by_queries: ranks, ..ContextSplit::WHOLE },
        }
    }
}

impl<'a> Analytic<'a> {
    /// Probe for one device of `cluster` under `stack`.
    pub fn new(cluster: &'a Cluster, stack: &'a Stack, machine: Machine) -> Self {
        Self { cluster, stack, machine }
    }

    /// Predicted time of a kernel in a loop of its own: full clocks except for [`Kernel::Sustained`], and no extra passes.
    ///
    /// ```text
    /// contended = T·(1 + σ)          sustained = 1.047·T/κ
    /// ```
    ///
    /// The probe's own attention is predicted as FlashAttention-2, whose algorithm it runs.
    pub fn predict(&self, kernel: &Kernel) -> Seconds {
        match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm),
            Kernel::Contended(gemm) => self.gemm(gemm) * (1.0 + self.cluster.gpu.contention.value),
            Kernel::Sustained(gemm) => {
                let curves = &self.cluster.gpu.gemm;
                let curve = curves.get(&gemm.format).unwrap_or(&curves[&Format::Bf16]);
                self.gemm(gemm) * LAYER_OVER_LOOP / curve.sustained
            }
            Kernel::Attention(core) => {
                let mut gpu = self.cluster.gpu.clone();
                full_clocks(&mut gpu);
                let device = Device { gpu: &gpu, ..self.device() };
                let kernel = match core.kernel {
                    Fused::Library(kernel) => kernel,
                    Fused::Own => AttentionKernel::Fa2,
                };
                let PassTimes { forward, backward } = device.attention(&core.into(), kernel);
                if core.pass == Pass::Forward { forward } else { backward }
            }
            Kernel::Stream { .. } => {
                kernel.streamed() / self.device().streaming_bandwidth() + self.cluster.gpu.kernel_gap.value
            }
            Kernel::Transfer(HostTransfer { bytes, .. }) => {
                Bytes::new(*bytes as f64) / self.cluster.gpu.host_link.value
            }
            Kernel::Launch => self.stack.launches.host_time(self.cluster.host) * EMPTY_LAUNCH,
            Kernel::Collective { op, ranks, nodes, bytes } => {
                let group = group_of(*ranks, *nodes, u64::from(self.cluster.gpus_per_node));
                Fabric::new(self.cluster, self.stack).time(*op, Bytes::new(*bytes as f64), group, 1.0)
            }
        }
    }

    /// Predicted time of a GEMM at full clocks.
    fn gemm(&self, gemm: &Gemm) -> Seconds {
        let mut gpu = self.cluster.gpu.clone();
        full_clocks(&mut gpu);
        Device { gpu: &gpu, ..self.device() }.gemm_pass(&gemm.into(), gemm.format, gemm.pass)
    }

    fn device(&self) -> Device<'_> {
        Device { gpu: &self.cluster.gpu, stack: self.stack, format: Format::Bf16, host: self.cluster.host, meter: None }
    }
}

/// Sets full clocks, since a loop of one short kernel does not heat the device.
fn full_clocks(gpu: &mut meshwright_engine::gpu::Gpu) {
    for curve in gpu.gemm.values_mut() {
        curve.sustained = 1.0;
    }
}

impl Probe for Analytic<'_> {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn time(&mut self, kernel: &Kernel, _: Effort) -> Result<Sample, ProbeError> {
        Sample::new([self.predict(kernel)]).map_err(|why| ProbeError::Unsupported { kernel: kernel.to_string(), why })
    }
}
