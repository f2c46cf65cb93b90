//! The GPU probe on a machine without a GPU: a stub driver, NVRTC and cuDNN.

mod cuda;
mod cudnn;
mod kernels;
