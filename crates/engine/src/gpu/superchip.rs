//! Processor of the hosts, and boards that carry one beside their devices.

use serde::{Deserialize, Serialize};

use crate::sources::own_source;
use crate::units::Bytes;

/// Processor of the hosts, which decides the host time of a kernel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// Server with x86 processors.
    X86,
    /// Server with NVIDIA Grace processors.
    Grace,
}

impl Host {
    /// Name as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Grace => "grace",
        }
    }
}

/// Host that shares a board with its devices, so that every cluster of them has it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Superchip {
    /// Processor of the host.
    pub host: Host,
    /// Host memory for each device of the board.
    pub memory: Bytes,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}
