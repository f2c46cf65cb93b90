//! Attention as a graph of elementary operations, the form that cuDNN accepts; independent of the library.
//!
//! The library has no function for attention: it recognises the pattern of GEMMs, masks and sums below, and has an engine
//! for the whole. Source of the patterns: [cudnn-frontend] (`scaled_dot_product_flash_attention.h`, composite nodes).

mod attention;
mod graph;
#[cfg(test)]
mod tests;

pub use attention::kernels;
pub use graph::{Element, Graph, Id, Operation, PointwiseOp, Role, Tensor, TensorPlace};
