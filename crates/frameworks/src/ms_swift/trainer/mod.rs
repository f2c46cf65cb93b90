//! `swift sft`: ms-swift's `Trainer` over DeepSpeed's ZeRO, FSDP2 or copies, with sequences split over ranks.

pub(crate) mod emit;
pub(crate) mod limits;
