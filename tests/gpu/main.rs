//! The GPU probe on a machine without a GPU: a stub driver, NVRTC and cuDNN.

#[path = "../random/mod.rs"]
mod random;

mod cuda;
mod cudnn;
mod kernels;
