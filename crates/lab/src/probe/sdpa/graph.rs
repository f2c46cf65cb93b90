//! Graph of tensors and elementary operations.

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Brain floating point, 2 bytes.
    Bf16,
    /// Single precision, 4 bytes.
    F32,
    /// Index, a 32-bit integer.
    I32,
    /// Truth value of a comparison.
    Bool,
}

/// Role of a tensor whose memory the caller provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Queries of attention.
    Q,
    /// Keys of attention.
    K,
    /// Values of attention.
    V,
    /// Output of attention.
    O,
    /// Natural logarithm of each row's sum of exponentials.
    Stats,
    /// Gradient of the output.
    Gradient,
    /// Gradient of the queries.
    Dq,
    /// Gradient of the keys.
    Dk,
    /// Gradient of the values.
    Dv,
    /// Sum over the dimensions of o·do, for each row.
    Delta,
    /// Gradient of the queries in fp32, to which blocks of keys add.
    DqSum,
}

/// Storage of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TensorPlace {
    /// Memory that the caller provides.
    Given(Role),
    /// No memory: an intermediate between two operations.
    Between,
    /// Scalar constant; a whole number for index tensors.
    Number(f32),
}

/// Tensor of four dimensions: sequences, heads, rows, columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    /// Size of each dimension.
    pub dims: [u64; 4],
    /// Stride of each dimension, in elements.
    pub strides: [u64; 4],
    /// Type of the elements.
    pub element: Element,
    /// Storage of the elements.
    pub place: TensorPlace,
}

/// Index of a tensor in [`Graph::tensors`].
pub type Id = usize;

/// Elementwise operation on x and b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointwiseOp {
    /// Sum, x + b.
    Add,
    /// Difference, x − b.
    Sub,
    /// Elementwise product, x·b.
    Mul,
    /// Quotient, x / b.
    Div,
    /// Exponential, eˣ.
    Exp,
    /// Natural logarithm, ln x.
    Log,
    /// Identity, x.
    Identity,
    /// Comparison, x ≥ b.
    GreaterOrEqual,
    /// Comparison, x > b.
    Greater,
    /// Selection: x where a third tensor is true, else b.
    Select,
    /// Index of the element along this dimension.
    Index(u8),
}

/// Operation of a graph; a smaller dimension is broadcast over equal parts of the larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GEMM for each sequence and head: out = a·b.
    Matmul {
        /// Left operand tensor.
        a: Id,
        /// Right operand tensor.
        b: Id,
        /// Output tensor of the operation.
        out: Id,
    },
    /// Elementwise operation.
    Pointwise {
        /// Function of each element.
        op: PointwiseOp,
        /// First operand.
        x: Id,
        /// Second operand.
        b: Option<Id>,
        /// Boolean tensor of a selection.
        chosen_by: Option<Id>,
        /// Output tensor of the operation.
        out: Id,
    },
    /// Maximum along the dimensions that the output lacks.
    Max {
        /// Input tensor of the operation.
        x: Id,
        /// Output tensor of the operation.
        out: Id,
    },
    /// Sum along the dimensions that the output lacks.
    Sum {
        /// Input tensor of the operation.
        x: Id,
        /// Output tensor of the operation.
        out: Id,
    },
    /// Transposition of rows and columns.
    Transpose {
        /// Input tensor of the operation.
        x: Id,
        /// Output tensor of the operation.
        out: Id,
    },
}

/// Graph of tensors, with operations in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// All tensors of the graph.
    pub tensors: Vec<Tensor>,
    /// Operations in execution order.
    pub operations: Vec<Operation>,
}

/// Strides of contiguous rows, with the heads of a sequence together.
fn packed(dims: [u64; 4]) -> [u64; 4] {
    [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]
}

impl Graph {
    /// Tensors in the caller's memory, with their bytes.
    pub fn caller_tensors(&self) -> impl Iterator<Item = (Id, Role, u64)> + '_ {
        self.tensors.iter().enumerate().filter_map(|(id, tensor)| match tensor.place {
            TensorPlace::Given(role) => {
                let each = if tensor.element == Element::Bf16 { 2 } else { 4 };
                Some((id, role, each * tensor.dims.iter().product::<u64>()))
            }
            TensorPlace::Between | TensorPlace::Number(_) => None,
        })
    }

    /// Adds a tensor with contiguous rows.
    pub(super) fn tensor(&mut self, dims: [u64; 4], element: Element, place: TensorPlace) -> Id {
        self.tensors.push(Tensor { dims, strides: packed(dims), element, place });
        self.tensors.len() - 1
    }

    /// Adds a tensor in the caller's memory.
    pub(super) fn given_tensor(&mut self, role: Role, dims: [u64; 4], element: Element) -> Id {
        self.tensor(dims, element, TensorPlace::Given(role))
    }

    /// Adds the transposed view of a \[rows, columns\] tensor in the caller's memory, as \[columns, rows\].
    pub(super) fn given_transposed(&mut self, role: Role, [sequences, heads, rows, columns]: [u64; 4]) -> Id {
        let dims = [sequences, heads, columns, rows];
        let strides = [heads * rows * columns, rows * columns, 1, columns];
        self.tensors.push(Tensor { dims, strides, element: Element::Bf16, place: TensorPlace::Given(role) });
        self.tensors.len() - 1
    }

    /// Adds an intermediate tensor.
    pub(super) fn between(&mut self, dims: [u64; 4], element: Element) -> Id {
        self.tensor(dims, element, TensorPlace::Between)
    }

    /// Adds a scalar constant in fp32.
    pub(super) fn number(&mut self, value: f32) -> Id {
        self.tensor([1; 4], Element::F32, TensorPlace::Number(value))
    }

    /// Index shifted by `by − less`.
    pub(super) fn shifted(&mut self, index: Id, by: u64, less: u64) -> Id {
        let dims = self.tensors[index].dims;
        [(PointwiseOp::Add, by), (PointwiseOp::Sub, less)].into_iter().fold(index, |index, (op, by)| {
            let by = self.tensor([1; 4], Element::I32, TensorPlace::Number(by as f32));
            let out = self.between(dims, Element::I32);
            self.pointwise(op, index, Some(by), out)
        })
    }

    /// Adds an elementwise operation; returns its output.
    pub(super) fn pointwise(&mut self, op: PointwiseOp, x: Id, b: Option<Id>, out: Id) -> Id {
        self.operations.push(Operation::Pointwise { op, x, b, chosen_by: None, out });
        out
    }

    /// Adds an elementwise operation with a new fp32 output of x's dimensions.
    pub(super) fn new_pointwise(&mut self, op: PointwiseOp, x: Id, b: Option<Id>) -> Id {
        let out = self.between(self.tensors[x].dims, Element::F32);
        self.pointwise(op, x, b, out)
    }

    /// Adds a GEMM; returns its output.
    pub(super) fn matmul(&mut self, a: Id, b: Id, out: Id) -> Id {
        self.operations.push(Operation::Matmul { a, b, out });
        out
    }

    /// Adds a transposition of rows and columns to a new bf16 tensor.
    pub(super) fn transposed(&mut self, x: Id) -> Id {
        let Tensor { dims: [sequences, heads, rows, columns], strides: [far, head, row, column], .. } = self.tensors[x];
        let (dims, strides) = ([sequences, heads, columns, rows], [far, head, column, row]);
        self.tensors.push(Tensor { dims, strides, element: Element::Bf16, place: TensorPlace::Between });
        let out = self.tensors.len() - 1;
        self.operations.push(Operation::Transpose { x, out });
        out
    }
}
