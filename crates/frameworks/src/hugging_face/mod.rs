//! Hugging Face's `Trainer`, on which axolotl and LLaMA-Factory train: the engine below it is FSDP2, or DeepSpeed where
//! the stack is one of DeepSpeed's.

pub(crate) mod import;
pub(crate) mod limits;

/// Setting of the stack where `adamw_torch_fused` updates the weights, which emitted files ask for: no root of the
/// second moments stands beside the states. Source: [transformers] `training_args.py`, whose default it is from PyTorch
/// 2.8 on.
pub(crate) const FUSED_UPDATE: &str = "stack.memory.updates_at_once=false";
