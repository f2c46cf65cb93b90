//! Time of one kernel on one device under one software stack.

mod attention;
mod call;
mod device;
mod gemm;

pub use crate::gpu::Pass;
pub use call::{AttentionShape, Call, ContextSplit, GemmShape, Meter, PassTimes, PerPass};
pub use device::Device;
pub use gemm::{Linear, LinearShape};
