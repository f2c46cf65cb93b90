//! Kernels that can be timed: one kernel, transfer or collective, with integer sizes and a parsable name.

mod kinds;
mod names;

pub use kinds::{Attention, Direction, Fused, Gemm, Kernel, Mask, StreamOp, group_of};
pub(super) use names::name_of;
pub use names::{COLLECTIVES, ParseKernelError, format_name};
