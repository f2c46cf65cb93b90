//! Attention kernel of a row.

use super::cell::text;
use super::row::Row;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::stack::Stack;

/// Year of the first runs with Transformers 4.36, which calls PyTorch's `scaled_dot_product_attention` where no kernel is asked for.
const TRANSFORMERS_SDPA: f64 = 2024.0;

/// Names of Transformers' own trainers in the column `framework`.
const TRANSFORMERS: [&str; 2] = ["HF Transformers", "HF Trainer"];

/// Applies the attention kernel that a row states. FlashAttention 4 runs at the speed of the stack's kernel, and with sinks
/// ([flashattention4], `learnable_sink`); those of other kernels follow from the stack.
pub(super) fn apply(row: &Row, stack: &mut Stack) {
    let stated = text(row.attention_kernel.as_ref());
    stack.attention = match stated.split('_').next() {
        Some("cudnn") => AttentionKernel::Cudnn,
        Some("fa1") => AttentionKernel::Fa1,
        Some("fa2") => AttentionKernel::Fa2,
        Some("fa3") => AttentionKernel::Fa3,
        Some("unfused") => AttentionKernel::Unfused,
        Some("") if trains_padded_batches(row) => {
            if row.year < Some(TRANSFORMERS_SDPA) {
                AttentionKernel::Unfused
            } else {
                AttentionKernel::Efficient
            }
        }
        _ => stack.attention, // Transformer Engine, PyTorch and FlexAttention choose by shape and device
    };
    stack.fp8_attention |= stated.contains("fp8");
    stack.fused_sinks |= stated.starts_with("fa4");
}

/// Whether a row is a run of Transformers without a code base around it, on DeepSpeed or not, whose batches are padded by default: their
/// mask keeps PyTorch from its flash kernel, which takes none, and its memory-efficient one computes the whole square. Source:
/// [transformers] `masking_utils.py`, [pytorch-sdpa]. A sequence that context parallelism splits has no mask.
fn trains_padded_batches(row: &Row) -> bool {
    let framework = text(row.framework.as_ref());
    let named = TRANSFORMERS.iter().any(|name| framework.contains(name)) && !framework.contains("fork");
    let bare = TRANSFORMERS.iter().chain(&["DeepSpeed"]).any(|head| framework.starts_with(head));
    named && bare && row.cp.is_none_or(|ranks| ranks <= 1.0)
}
