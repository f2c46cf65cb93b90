//! Sparse attention: whether a stack and a device run the fused kernels of a model whose indexer chooses the keys.
//!
//! Source: [megatron-lm] `dsa.py` and `dsa_cudnn_kernels.py`: 0.16 to 0.18 write the fp32 scores of all keys and heads
//! to memory, as 0.19 does without `--dsa-kernel-backend`; its kernels need Hopper or Blackwell, and values of 512, and
//! their backward waits for the host (`torch.nonzero`).

use crate::gpu::{Format, Gpu};
use crate::model::{Layer, Mla, Model};
use crate::stack::{CoreRelease, Stack};
use crate::units::{Bytes, thousands};

/// First Megatron core with the fused kernels: 0.19.
const FIRST_SPARSE: CoreRelease = CoreRelease::new(19);
/// Rank of keys and values that the kernels take. Source: [megatron-lm] `_FLASH_MLA_REQUIRED_VALUE_DIM`.
const SPARSE_RANK: u32 = 512;
/// Option for a stack with the kernels.
const SPARSE_STACK: &str = "--stack nemo-26";

/// Bytes of the index scores of a micro-batch: fp32, of all keys, summed over heads.
#[derive(Clone, Copy, Debug)]
pub struct IndexScores;

impl IndexScores {
    /// Most that one fused kernel computes; above them, rows are scored one head at a time in fp32.
    ///
    /// Source: [megatron-lm] `dsa_cudnn_kernels.py`, `_INDEXER_SCORE_CHUNK_MAX_BYTES`.
    pub const MOST: Bytes = Bytes::new(1_073_741_824.0);

    /// Scores of a micro-batch: 4·b·s² bytes.
    pub fn of(micro_batch: u32, seq_len: u32) -> Bytes {
        Bytes::new(4.0 * f64::from(micro_batch) * f64::from(seq_len) * f64::from(seq_len))
    }
}

/// Reason why the kernels do not run, with its remedy.
pub(super) struct SparseRefusal {
    pub why: String,
    pub hint: &'static str,
}

/// Reason why a stack and a device do not run the sparse attention of a model; none where they do, or the model has none.
pub(super) fn refusal(model: &Model, gpu: &Gpu, stack: &Stack, seq_len: u32) -> Option<SparseRefusal> {
    let mla = model.kinds.iter().filter(|layer| layer.indexer().is_some()).find_map(Layer::latent)?;
    of_device(gpu).or_else(|| of_stack(stack)).or_else(|| of_sequence(seq_len)).or_else(|| of_rank(mla))
}

/// Devices that scale blocks of FP8 are Hopper and Blackwell.
fn of_device(gpu: &Gpu) -> Option<SparseRefusal> {
    let scales_blocks = [Format::Fp8Block, Format::Mxfp8].iter().any(|format| gpu.gemm.contains_key(format));
    (gpu.vendor != "NVIDIA" || !scales_blocks).then(|| SparseRefusal {
        why: format!("the kernels for that run on Hopper and Blackwell, not on {}", gpu.name),
        hint: "a cluster of H100, H200, B200, GB200 or the like",
    })
}

fn of_stack(stack: &Stack) -> Option<SparseRefusal> {
    if !stack.sparse_attention {
        return Some(SparseRefusal {
            why: format!("{} has no fused kernels for that", stack.name),
            hint: SPARSE_STACK,
        });
    }
    if let Some(core) = stack.megatron_core.filter(|core| *core < FIRST_SPARSE) {
        let why = format!(
            "Megatron core {core} writes the scores of all keys to memory, in fp32: no rate of that is known; \
            {FIRST_SPARSE} has fused kernels"
        );
        return Some(SparseRefusal { why, hint: SPARSE_STACK });
    }
    stack.cuda_graphs.then(|| SparseRefusal {
        why: "CUDA graphs cannot hold its backward, which asks the GPU which rows have keys".to_owned(),
        hint: "--set stack.cuda_graphs=false",
    })
}

fn of_sequence(seq_len: u32) -> Option<SparseRefusal> {
    let scores = IndexScores::of(1, seq_len);
    (scores > IndexScores::MOST).then(|| SparseRefusal {
        why: format!(
            "the index scores of a sequence of {} tokens take {scores}: above {} no fused kernel computes them, \
            unless sequences are packed",
            thousands(u64::from(seq_len)),
            IndexScores::MOST
        ),
        hint: "--seq-len 16384 or less",
    })
}

fn of_rank(mla: &Mla) -> Option<SparseRefusal> {
    (mla.kv_rank != SPARSE_RANK).then(|| SparseRefusal {
        why: format!("the kernels for that take a kv_rank of {SPARSE_RANK}, not {}", mla.kv_rank),
        hint: "kv_rank = 512",
    })
}
