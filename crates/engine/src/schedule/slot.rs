//! Operations of a rank, and slots of one or two of them.

/// Pass of a micro-batch through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Forward pass.
    Forward,
    /// Whole backward pass.
    Backward,
    /// Input gradients alone; the weight gradients are a separate pass.
    Input,
    /// Weight gradients alone.
    Wgrad,
}

/// Operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Pass of the operation.
    pub pass: Pass,
    /// Number of the micro-batch.
    pub micro_batch: u32,
    /// Index of the chunk in model order.
    pub stage: u32,
}

impl Op {
    /// Index among all operations of a step, without gaps; a backward has the index of its input gradients.
    pub(super) const fn index(self, micro_batches: u32, chunks: usize) -> usize {
        let pass = match self.pass {
            Pass::Forward => 0,
            Pass::Backward | Pass::Input => 1,
            Pass::Wgrad => 2,
        };
        (pass * micro_batches as usize + self.micro_batch as usize) * chunks + self.stage as usize
    }
}

pub(super) const fn op(pass: Pass, micro_batch: u32, stage: u32) -> Op {
    Op { pass, micro_batch, stage }
}

/// Concurrent work of a rank: one operation, or a forward and a backward that hide each other's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The operation; the forward of a pair.
    pub op: Op,
    /// The backward of a pair.
    pub beside: Option<Op>,
}

impl Slot {
    /// Operations of the slot.
    pub fn ops(self) -> impl Iterator<Item = Op> {
        std::iter::once(self.op).chain(self.beside)
    }
}

impl From<Op> for Slot {
    fn from(op: Op) -> Self {
        Self { op, beside: None }
    }
}

/// Slot of a single operation.
pub(super) const fn alone(pass: Pass, micro_batch: u32, stage: u32) -> Slot {
    Slot { op: op(pass, micro_batch, stage), beside: None }
}
