//! Passes of a linear map.

/// Pass of a linear map, or direction of another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Forward, y = x·w.
    Forward,
    /// Input gradients, dx = dy·wᵀ, and backward of kernels without weights.
    Dgrad,
    /// Weight gradients, dw = xᵀ·dy.
    Wgrad,
}

impl std::fmt::Display for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Dgrad => "dgrad",
            Self::Wgrad => "wgrad",
        })
    }
}
