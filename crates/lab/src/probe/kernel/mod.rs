//! Kernels that can be timed: one kernel, transfer or collective, with integer sizes and a parsable name.

mod kinds;
mod names;

pub use kinds::{
    Alongside, Attention, Direction, Fused, Gemm, HostTransfer, Kernel, Mask, PageLock, StreamOp, group_of,
};
pub(super) use names::name_of;
pub use names::{COLLECTIVES, ParseKernelError, format_name};
