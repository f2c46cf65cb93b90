//! Hugging Face's `Trainer`, on which axolotl and LLaMA-Factory train: the engine below it is FSDP2, or DeepSpeed where the stack is
//! one of DeepSpeed's.

pub(crate) mod import;
pub(crate) mod limits;
