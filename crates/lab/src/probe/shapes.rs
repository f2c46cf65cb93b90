//! Kernels that a plan runs, and its step time with measured kernel times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::kernel::{Alongside, Attention, Direction, Fused, Gemm, HostTransfer, Kernel, Mask, PageLock, StreamOp};
use super::sample::Samples;
use super::source::Effort;
use meshwright_engine::collective::Group;
use meshwright_engine::cost::{Costs, groups};
use meshwright_engine::gpu::{AttentionKernel, Collective, Format, Gpu};
use meshwright_engine::kernel::{AttentionShape, Call, Meter, Pass};
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::units::Seconds;

/// Columns of the matrix that stands for a batch of streaming kernels.
const STREAM_COLUMNS: u64 = 1024;

/// Kernel of a costed call, and its number of runs; `None` if no probe can run it (attention with its scores in memory).
pub(crate) fn kernel_of(call: &Call) -> Option<(Kernel, f64)> {
    match call {
        Call::Gemm { shape, format, pass } => {
            let size = |value: f64| (value.round() as u64).max(1);
            let gemm = Gemm {
                format: *format,
                pass: *pass,
                m: size(shape.m),
                n: size(shape.n),
                k: size(shape.k),
                batch: size(shape.batch),
                output_bytes: size(shape.output_bytes),
            };
            Some((Kernel::Gemm(gemm), 1.0))
        }
        Call::Attention { core, kernel, pass }
            if !matches!(kernel, AttentionKernel::Unfused | AttentionKernel::Efficient) =>
        {
            let (core, times) = attention(core, *kernel, *pass);
            Some((Kernel::Attention(core), times))
        }
        Call::Attention { .. } | Call::Sparse { .. } => None,
        Call::Stream { traffic, kernels } => {
            let times = kernels.max(1.0);
            let each = traffic.get() / times / StreamOp::Copy.bytes_per_element() as f64;
            let rows = (each / STREAM_COLUMNS as f64).round().max(1.0) as u64;
            Some((Kernel::Stream { op: StreamOp::Copy, rows, columns: STREAM_COLUMNS }, times))
        }
    }
}

/// Kernel of a rank's attention, and its number of runs: a ring of c ranks runs c blocks of s/c queries and keys, each half
/// masked, which is the causal share of all.
fn attention(core: &AttentionShape, kernel: AttentionKernel, pass: Pass) -> (Attention, f64) {
    let AttentionShape { sequences, heads, kv_heads, seq_len, attended, qk_dim, v_dim, dropout: _, context_split } =
        *core;
    let size = |value: f64| (value.round() as u64).max(1);
    let keys = size(seq_len / context_split.by_chunks);
    let mask = if (attended - 0.5).abs() < 1e-3 {
        Mask::Causal
    } else if attended > 0.5 {
        Mask::Full
    } else {
        // attended = w·(1 − w/2) of the keys, for a window of w
        Mask::Window(size((1.0 - (1.0 - 2.0 * attended).sqrt()) * seq_len))
    };
    let core = Attention {
        kernel: Fused::Library(kernel),
        pass,
        sequences: size(sequences),
        heads: size(heads / context_split.by_heads),
        kv_heads: size(kv_heads / context_split.by_heads),
        queries: size(seq_len / context_split.by_chunks / context_split.by_queries),
        keys,
        qk_dim: size(qk_dim),
        v_dim: size(v_dim),
        mask,
    };
    (core, context_split.by_chunks)
}

/// Meter that records every call.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<(Call, Seconds)>>);

impl Meter for Notes {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((*call, predicted));
        predicted
    }
}

/// Calls that cost one layer of each kind, embedding and loss, and the update of a plan, with their predicted times.
pub fn calls(costs: &Costs, plan: &Plan) -> Vec<(Call, Seconds)> {
    let notes = Notes::default();
    let _ = Costs::new(costs.problem).metered(&notes).evaluate(plan);
    notes.0.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that cost one layer of a kind, forward and backward, with their predicted times.
pub(super) fn layer_calls(costs: &Costs, plan: &Plan, kind: usize) -> Vec<(Call, Seconds)> {
    let notes = Notes::default();
    let _ = Costs::new(costs.problem).metered(&notes).layer(kind, plan);
    notes.0.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Kernels of a list of calls, each as often as it runs; `None` if no probe can run one of them.
pub(super) fn sequence(calls: &[(Call, Seconds)]) -> Option<Vec<Kernel>> {
    let runs = |(call, _): &(Call, Seconds)| {
        let (kernel, times) = kernel_of(call)?;
        Some(std::iter::repeat_n(kernel, times.round().max(1.0) as usize))
    };
    let runs: Option<Vec<_>> = calls.iter().map(runs).collect();
    Some(runs?.into_iter().flatten().collect())
}

/// Kernels of several plans, the most expensive first, with the predicted time that each accounts for; a library's
/// attention is followed by the probe's own of the same sizes.
pub fn kernels_of_plans(costs: &Costs, plans: &[Plan]) -> Vec<(Kernel, Seconds)> {
    let mut times: BTreeMap<Kernel, Seconds> = BTreeMap::new();
    for plan in plans {
        for (call, predicted) in calls(costs, plan) {
            let Some((kernel, _)) = kernel_of(&call) else { continue };
            *times.entry(kernel).or_default() += predicted;
            if let Kernel::Attention(core) = kernel
                && let Some(own) = core.bound()
            {
                *times.entry(Kernel::Attention(own)).or_default() += predicted;
            }
        }
    }
    let mut wanted: Vec<(Kernel, Seconds)> = times.into_iter().collect();
    wanted.sort_by(|a, b| b.1.get().total_cmp(&a.1.get()).then(a.0.cmp(&b.0)));
    wanted
}

/// GEMM large enough to measure sustained clocks.
pub(crate) const fn large(format: Format) -> Gemm {
    Gemm { format, pass: Pass::Forward, m: 8192, n: 8192, k: 8192, batch: 1, output_bytes: 2 }
}

/// GEMMs of a dense layer of Llama 3 8B and 70B: the projections of 4,096 and 16,384 tokens, so that a curve is fitted
/// whatever the plans run. Sizes: Llama 3 (arXiv 2407.21783), table 3.
fn projections(format: Format) -> impl Iterator<Item = Gemm> {
    let widths = [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336), (10_240, 8192), (8192, 28_672)];
    let gemm = move |((n, k), m)| Gemm { format, pass: Pass::Forward, m, n, k, batch: 1, output_bytes: 2 };
    itertools::iproduct!(widths, [4096, 16_384]).map(gemm)
}

/// Attention cores of the head dimensions in use (64, 128, and 192 for keys with 128 for values), causal and in windows, each
/// by cuDNN and by the probe's own kernel.
fn heads_and_windows() -> Vec<Attention> {
    let heads = [(64, 64, 8), (128, 128, 8), (192, 128, 32)];
    let lengths = [(4, 2048), (2, 4096), (1, 8192)];
    let masks = [Mask::Window(128), Mask::Window(4096)];
    let core = |(qk_dim, v_dim, kv_heads), (sequences, keys), mask, pass| Attention {
        kernel: Fused::Library(AttentionKernel::Cudnn),
        pass,
        sequences,
        heads: 32,
        kv_heads,
        queries: keys,
        keys,
        qk_dim,
        v_dim,
        mask,
    };
    let mut all = Vec::new();
    for pass in [Pass::Forward, Pass::Dgrad] {
        for head in heads {
            all.extend(lengths.map(|length| core(head, length, Mask::Causal, pass)));
        }
        all.extend(masks.map(|mask| core(heads[0], lengths[2], mask, pass)));
    }
    all
}

/// Batches of small GEMMs: 16 to 64 experts of Qwen3 30B-A3B's width (2048 × 768), forward and backward, 128 to 1024 tokens each.
fn narrow_experts() -> Vec<Gemm> {
    let (hidden, inner) = (2048, 768);
    let mut all = Vec::new();
    for batch in [16, 64] {
        for tokens in [128, 1024] {
            let gemm = |pass, m, n, k, output_bytes| Gemm { format: Format::Bf16, pass, m, n, k, batch, output_bytes };
            all.push(gemm(Pass::Forward, tokens, 2 * inner, hidden, 2));
            all.push(gemm(Pass::Forward, tokens, hidden, inner, 2));
            all.push(gemm(Pass::Dgrad, tokens, hidden, 2 * inner, 2));
            all.push(gemm(Pass::Wgrad, hidden, 2 * inner, tokens, 4));
        }
    }
    all
}

/// Kernels for every calibration of a device: clocks under load, contention, bandwidths, launches; with several ranks,
/// collectives over sizes in each group (ranks and nodes).
pub fn base(gpu: &Gpu, effort: Effort, groups: &[(u64, u64)]) -> Vec<Kernel> {
    let quick = effort == Effort::QUICK;
    let mut kernels = vec![Kernel::Launch];
    for format in gpu.gemm.keys().filter(|format| matches!(format, Format::Bf16 | Format::Fp8)) {
        let gemm = large(*format);
        kernels.extend([Kernel::Gemm(gemm), Kernel::Sustained(gemm), Kernel::Contended(gemm)]);
        kernels.extend(projections(*format).filter(|_| !quick).map(Kernel::Gemm));
    }
    let rows: &[u64] = if quick { &[64, 8192] } else { &[64, 512, 4096, 16384] };
    for (_, op) in StreamOp::NAMED {
        kernels.extend(rows.iter().map(|&rows| Kernel::Stream { op, rows, columns: 8192 }));
    }
    if !quick {
        kernels.extend(heads_and_windows().into_iter().map(Kernel::Attention));
        kernels.extend(narrow_experts().into_iter().map(Kernel::Gemm));
    }
    for direction in [Direction::ToDevice, Direction::ToHost] {
        let alone = HostTransfer::alone(direction, 256 << 20);
        let beside = [Alongside::OtherWay, Alongside::Gemm].map(|beside| HostTransfer { beside, ..alone });
        let pageable = HostTransfer { memory: PageLock::Pageable, ..alone };
        kernels.extend([alone, beside[0], beside[1], pageable].map(Kernel::Transfer));
    }
    for &(ranks, nodes) in groups {
        let step = if quick || ranks == 1 { 4 } else { 2 };
        let sizes = (10..=30).step_by(step).map(|bits| (1_u64 << bits).next_multiple_of(2 * ranks));
        for bytes in sizes {
            let all = [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll];
            kernels.extend(all.map(|op| Kernel::Collective { op, ranks, nodes, bytes }));
        }
    }
    kernels
}

/// Ranks and nodes of the groups in which the plans communicate (tensor, context, expert and data parallel), if `world`
/// ranks, `per_node` on each node, contain whole groups; then of all ranks. Small groups first. One rank is a group alone: its
/// collectives copy, and show that NCCL works and what a call takes.
pub fn groups(plans: &[Plan], world: u32, per_node: u32) -> Vec<(u64, u64)> {
    let per_node = per_node.max(1);
    let nodes_of = |group: Group| (group.ranks * group.stride).div_ceil(per_node).min(group.ranks);
    let mut shapes: BTreeSet<(u64, u64)> = plans
        .iter()
        .flat_map(|plan| {
            let Layout { tp, cp, ep, etp, .. } = plan.layout;
            let replicas = plan.layout.dense_replicas();
            let experts = Group { ranks: ep, stride: etp };
            [
                groups::tp(plan),
                groups::cp(plan),
                experts,
                groups::dp(plan, replicas),
                Group { ranks: cp * tp, stride: 1 },
            ]
        })
        .filter(|group| {
            group.ranks > 1 && group.ranks.checked_mul(group.stride).is_some_and(|block| world.is_multiple_of(block))
        })
        .map(|group| (u64::from(group.ranks), u64::from(nodes_of(group))))
        .collect();
    shapes.insert((u64::from(world), u64::from(world.div_ceil(per_node))));
    shapes.into_iter().collect()
}

/// Meter with measured times: GEMMs and attention as timed in loops, at the clocks that a whole step sustains.
///
/// ```text
/// GEMM T/κ             attention T/√κ          streaming T·kernels
/// ```
///
/// κ is the ratio that was measured, or else the device's own (specification §2.1, §2.3). What was not measured keeps its
/// predicted time, but for attention that is predicted slower than the probe's own kernel ran: that keeps the kernel's time.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    samples: &'a Samples,
    sustained: BTreeMap<Format, f64>,
}

impl<'a> Measured<'a> {
    /// Creates the meter from samples, for a device with known κ.
    pub fn new(samples: &'a Samples, gpu: &Gpu) -> Self {
        let sustained = gpu.gemm.iter().map(|(format, curve)| (*format, curve.sustained)).collect();
        Self { samples, sustained }
    }

    /// Measured time of a call in a training step.
    pub fn time(&self, call: &Call) -> Option<Seconds> {
        let (kernel, count) = kernel_of(call)?;
        Some(self.samples.time(&kernel)? * count / self.clocks(call))
    }

    /// Upper bound of a library's attention in a training step: the time of the probe's own kernel.
    pub fn bound(&self, call: &Call) -> Option<Seconds> {
        let (Kernel::Attention(core), count) = kernel_of(call)? else { return None };
        Some(self.samples.time(&Kernel::Attention(core.bound()?))? * count / self.clocks(call))
    }

    /// Factor from the speed in a loop to that in a whole step.
    fn clocks(&self, call: &Call) -> f64 {
        let clocks = |format: Format| self.sustained.get(&format).or_else(|| self.sustained.get(&Format::Bf16));
        match call {
            Call::Gemm { format, .. } => clocks(*format).copied().unwrap_or(1.0),
            Call::Attention { .. } | Call::Sparse { .. } => clocks(Format::Bf16).copied().unwrap_or(1.0).sqrt(),
            Call::Stream { .. } => 1.0,
        }
    }
}

/// Meter with upper bounds of attention: if only the probe's own kernel was timed, its time.
#[derive(Clone, Copy, Debug)]
pub struct Slowest<'a>(pub &'a Measured<'a>);

impl Meter for Slowest<'_> {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        let Self(measured) = self;
        measured.time(call).or_else(|| measured.bound(call)).unwrap_or(predicted)
    }
}

impl Meter for Measured<'_> {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        self.time(call).unwrap_or_else(|| self.bound(call).map_or(predicted, |bound| bound.min(predicted)))
    }
}
