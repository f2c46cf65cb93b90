//! Reference attention kernel of the probe: `kernels/attention.cu` on random data, by the algorithms of [flashattention2].

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys as drv};

use super::compile::{HEADS, Source, compile, function, module};
use super::failure::failed;
use super::memory::Buffer;
use super::{Cuda, Run};
use crate::probe::kernel::{Attention, Fused, Kernel, Mask};
use crate::probe::source::ProbeError;
use meshwright_engine::kernel::Pass;

/// Rows of a tile, as in `kernels/attention.cu`: the queries of a block forward, and its keys backward.
const TILE: u64 = 64;
/// Queries of a step of a block backward, as in `kernels/attention.cu`.
const STEP: u64 = 32;
/// Padding of a row in shared memory, in elements.
const PAD: u64 = 8;
/// Number of threads in a block.
const THREADS: u32 = 128;
/// Largest number of blocks in the second direction of a grid. Source: [cuda-guide], technical specifications.
const MOST_HEADS: u64 = 65_535;

/// Kernels of one head size: forward, row sums of o·do, backward, and the conversion of dq to bf16.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    forward: drv::CUfunction,
    delta: drv::CUfunction,
    backward: drv::CUfunction,
    narrow: drv::CUfunction,
}

/// Operands of one attention core; those of backward are empty for a forward pass.
struct Operands {
    q: Buffer,
    k: Buffer,
    v: Buffer,
    o: Buffer,
    lse: Buffer,
    gradient: Buffer,
    delta: Buffer,
    dq_sum: Buffer,
    dq: Buffer,
    dk: Buffer,
    dv: Buffer,
}

/// Reason why the probe cannot run a core, if any.
pub fn unsupported(core: &Attention) -> Option<String> {
    let Attention { kernel, pass, sequences, heads, kv_heads, queries, keys, qk_dim, v_dim, mask: _ } = *core;
    let most = u64::from(u32::MAX / 2);
    if kernel != Fused::Own {
        Some(
            "the probe runs no library's attention but cuDNN's; its own bounds it (or: calibrate --kineto, from a PyTorch trace)"
                .into(),
        )
    } else if pass == Pass::Wgrad {
        Some("attention has no weights".into())
    } else if !HEADS.contains(&(qk_dim, v_dim)) {
        let heads: Vec<String> = HEADS.iter().map(|(qk, v)| format!("{qk}/{v}")).collect();
        Some(format!("the probe's attention supports heads of {} (queries and keys / values)", heads.join(", ")))
    } else if !heads.is_multiple_of(kv_heads) {
        Some(format!("{heads} query heads do not share {kv_heads} heads of keys evenly"))
    } else if queries > keys {
        Some("the probe's attention has no more queries than keys".into())
    } else if keys > most || sequences.saturating_mul(heads) > MOST_HEADS {
        Some(format!("the probe's attention has at most {MOST_HEADS} heads of all sequences"))
    } else {
        None
    }
}

impl Cuda {
    /// Launch of the probe's own kernel. Backward includes all its launches: clearing dq, row sums of o·do, the kernel, dq to
    /// bf16.
    pub(super) fn own_attention(&self, core: &Attention, most_sets: usize) -> Result<Run<'_>, ProbeError> {
        let core = *core;
        let Some(&functions) = self.attention.get(&(core.qk_dim, core.v_dim)) else {
            return Err(failed("attention", "its kernel was not compiled"));
        };
        let is_backward = core.pass == Pass::Dgrad;
        let bytes = operand_bytes(&core).iter().sum::<u64>() as usize;
        let sets: Vec<Operands> = (0..self.sets(bytes).min(most_sets))
            .map(|_| self.operands(&core, is_backward))
            .collect::<Result<_, ProbeError>>()?;
        if !is_backward {
            return Ok(Box::new(move |at| self.forward(functions, &core, &sets[at % sets.len()])));
        }
        for set in &sets {
            self.forward(functions, &core, set)?;
        }
        Ok(Box::new(move |at| self.backward(functions, &core, &sets[at % sets.len()])))
    }

    /// Compiles the kernels for the head dimensions of a core on first use.
    pub(super) fn compile(&mut self, core: &Attention) -> Result<(), ProbeError> {
        if let Some(why) = unsupported(core) {
            return Err(ProbeError::Unsupported { kernel: Kernel::Attention(*core).to_string(), why });
        }
        let (qk, v) = (core.qk_dim, core.v_dim);
        if self.attention.contains_key(&(qk, v)) {
            return Ok(());
        }
        let module = module(&compile(Source::Attention(qk, v), &self.arch)?, "kernels/attention.cu")?;
        let get = |name| function(module, name);
        let functions = Functions {
            forward: get("attention-forward")?,
            delta: get("attention-delta")?,
            backward: get("attention-backward")?,
            narrow: get("attention-narrow")?,
        };
        for (function, bytes) in
            [(functions.forward, forward_shared(qk, v)), (functions.backward, backward_shared(qk, v))]
        {
            let most = drv::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of a module that is never unloaded.
            unsafe { driver::function::set_function_attribute(function, most, bytes.cast_signed()) }
                .map_err(|error| failed(&format!("cuFuncSetAttribute: {bytes} bytes of shared memory"), error))?;
        }
        self.attention.insert((qk, v), functions);
        Ok(())
    }

    fn operands(&self, core: &Attention, is_backward: bool) -> Result<Operands, ProbeError> {
        let [q, k, v, o, lse, gradient, delta, dq_sum, dq, dk, dv] = operand_bytes(core).map(|bytes| bytes as usize);
        let random = |bytes| self.random(bytes, "fill");
        let empty = |bytes| Buffer::new(if is_backward { bytes } else { 0 });
        Ok(Operands {
            q: random(q)?,
            k: random(k)?,
            v: random(v)?,
            o: Buffer::new(o)?,
            lse: Buffer::new(lse)?,
            gradient: if is_backward { random(gradient)? } else { Buffer::new(0)? },
            delta: empty(delta)?,
            dq_sum: empty(dq_sum)?,
            dq: empty(dq)?,
            dk: empty(dk)?,
            dv: empty(dv)?,
        })
    }

    fn forward(&self, functions: Functions, core: &Attention, of: &Operands) -> Result<(), ProbeError> {
        let (mut tensors, mut sizes) = ([of.q.at, of.k.at, of.v.at, of.o.at, of.lse.at], Sizes::of(core));
        let grid = [core.queries.div_ceil(TILE) as u32, (core.sequences * core.heads) as u32];
        let shared = forward_shared(core.qk_dim, core.v_dim);
        self.start("attention_forward", functions.forward, grid, shared, &mut arguments(&mut tensors, &mut sizes))
    }

    fn backward(&self, functions: Functions, core: &Attention, of: &Operands) -> Result<(), ProbeError> {
        let rows = core.sequences * core.heads * core.queries;
        // SAFETY: the buffer holds so many bytes; the stream orders the zeros before what adds to them.
        unsafe { driver::memset_d8_async(of.dq_sum.at, 0, of.dq_sum.bytes, self.stream) }
            .map_err(|error| failed("cuMemsetD8Async", error))?;
        let (mut o, mut gradient, mut delta, mut all) = (of.o.at, of.gradient.at, of.delta.at, rows);
        let mut sums: [*mut c_void; 4] =
            [(&raw mut o).cast(), (&raw mut gradient).cast(), (&raw mut delta).cast(), (&raw mut all).cast()];
        self.start("attention_delta", functions.delta, [rows.div_ceil(4) as u32, 1], 0, &mut sums)?;

        let mut tensors =
            [of.q.at, of.k.at, of.v.at, of.gradient.at, of.lse.at, of.delta.at, of.dq_sum.at, of.dk.at, of.dv.at];
        let mut sizes = Sizes::of(core);
        let grid = [core.keys.div_ceil(TILE) as u32, (core.sequences * core.kv_heads) as u32];
        let shared = backward_shared(core.qk_dim, core.v_dim);
        let mut operands = arguments(&mut tensors, &mut sizes);
        self.start("attention_backward", functions.backward, grid, shared, &mut operands)?;

        let (mut sum, mut dq, mut elements, mut scale) = (of.dq_sum.at, of.dq.at, rows * core.qk_dim, scale(core));
        let mut narrowed: [*mut c_void; 4] =
            [(&raw mut sum).cast(), (&raw mut dq).cast(), (&raw mut elements).cast(), (&raw mut scale).cast()];
        let blocks = elements.div_ceil(4 * u64::from(THREADS)) as u32;
        self.start("attention_narrow", functions.narrow, [blocks, 1], 0, &mut narrowed)
    }

    /// Starts a kernel on a grid of blocks, with these bytes of shared memory each.
    fn start(
        &self,
        name: &str,
        function: drv::CUfunction,
        grid: [u32; 2],
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), ProbeError> {
        // SAFETY: the arguments are the kernel's, in its order; `operands` sized the tensors by the same core.
        let launched = unsafe {
            driver::launch_kernel(function, (grid[0], grid[1], 1), (THREADS, 1, 1), shared, self.stream, arguments)
        };
        launched.map_err(|error| failed(&format!("launch of {name}"), error))
    }
}

/// Arguments that follow the tensors.
struct Sizes {
    group: u32,
    queries: u32,
    keys: u32,
    causal: u32,
    window: u32,
    scale: f32,
}

impl Sizes {
    fn of(core: &Attention) -> Self {
        let (causal, window) = match core.mask {
            Mask::Full => (0, 0),
            Mask::Causal => (1, 0),
            Mask::Window(width) => (1, u32::try_from(width).unwrap_or(0)),
        };
        let Attention { heads, kv_heads, queries, keys, .. } = *core;
        let group = (heads / kv_heads) as u32;
        Self { group, queries: queries as u32, keys: keys as u32, causal, window, scale: scale(core) }
    }
}

/// Pointers to the arguments of a kernel: its tensors, then the sizes.
fn arguments(tensors: &mut [u64], sizes: &mut Sizes) -> Vec<*mut c_void> {
    let Sizes { group, queries, keys, causal, window, scale } = sizes;
    let numbers = [group, queries, keys, causal, window].map(|number| std::ptr::from_mut(number).cast());
    let tensors = tensors.iter_mut().map(|tensor| std::ptr::from_mut(tensor).cast());
    tensors.chain(numbers).chain([std::ptr::from_mut(scale).cast()]).collect()
}

/// Factor of the scores, 1/√(head dimension of the keys).
fn scale(core: &Attention) -> f32 {
    1.0 / (core.qk_dim as f32).sqrt()
}

/// Bytes of q, k, v, o, lse, do, delta, the sum of dq, dq, dk and dv.
fn operand_bytes(core: &Attention) -> [u64; 11] {
    let Attention { kernel: _, pass, sequences, heads, kv_heads, queries, keys, qk_dim, v_dim, mask: _ } = *core;
    let (queries, keys) = (sequences * heads * queries, sequences * kv_heads * keys);
    let back = u64::from(pass != Pass::Forward);
    [
        2 * queries * qk_dim,
        2 * keys * qk_dim,
        2 * keys * v_dim,
        2 * queries * v_dim,
        4 * queries,
        back * 2 * queries * v_dim,
        back * 4 * queries,
        back * 4 * queries * qk_dim,
        back * 2 * queries * qk_dim,
        back * 2 * keys * qk_dim,
        back * 2 * keys * v_dim,
    ]
}

/// Bytes of shared memory of a forward block: queries, keys and values.
const fn forward_shared(qk: u64, v: u64) -> u32 {
    (2 * TILE * (2 * (qk + PAD) + v + PAD)) as u32
}

/// Bytes of shared memory of a backward block: keys and values, queries and output gradients of a step, score gradients.
const fn backward_shared(qk: u64, v: u64) -> u32 {
    (2 * ((TILE + STEP) * (qk + PAD + v + PAD) + TILE * (STEP + PAD))) as u32
}
