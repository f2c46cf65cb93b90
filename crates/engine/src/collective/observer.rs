//! Observer of the transfers between ranks that a fabric prices.

use std::fmt;

use super::group::Group;
use crate::gpu::Collective;
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// A collective of a group.
    Collective(Collective),
    /// Dispatch of tokens to experts, or their combine.
    Dispatch,
    /// A send from a rank to another.
    Send,
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective(Collective::AllReduce) => f.write_str("all-reduce"),
            Self::Collective(Collective::AllGather) => f.write_str("all-gather"),
            Self::Collective(Collective::ReduceScatter) => f.write_str("reduce-scatter"),
            Self::Collective(Collective::AllToAll) => f.write_str("all-to-all"),
            Self::Dispatch => f.write_str("dispatch or combine"),
            Self::Send => f.write_str("send"),
        }
    }
}

/// One transfer with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PricedTransfer {
    /// Kind.
    pub kind: TransferKind,
    /// Payload: the whole tensor of a collective; the tokens of a rank, each once, of a dispatch; the bytes of a send.
    pub payload: Bytes,
    /// Ranks that take part.
    pub group: Group,
    /// Time, before anything hides it.
    pub time: Seconds,
}

impl PricedTransfer {
    /// Bandwidth as nccl-tests print it (`busbw`), of a collective or a send. A dispatch moves as many copies of a token as the
    /// dispatcher makes, so that its payload does not determine one.
    ///
    /// ```text
    /// S/T · 2(n−1)/n all-reduce, (n−1)/n of other collectives, 1 of a send
    /// ```
    ///
    /// Source: [nccl-tests] `doc/PERFORMANCE.md`.
    pub fn bus_bandwidth(&self) -> Option<BytesPerSec> {
        let ranks = f64::from(self.group.ranks);
        let share = match self.kind {
            TransferKind::Collective(Collective::AllReduce) => 2.0 * (ranks - 1.0) / ranks,
            TransferKind::Collective(_) => (ranks - 1.0) / ranks,
            TransferKind::Send => 1.0,
            TransferKind::Dispatch => return None,
        };
        Some(BytesPerSec::new(self.payload.get() / self.time.get() * share))
    }
}

/// Observer of the transfers that a fabric prices.
pub trait Observer: fmt::Debug + Sync {
    /// Takes note of a transfer.
    fn transfer(&self, transfer: &PricedTransfer);
}
