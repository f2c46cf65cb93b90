//! Attention as a graph of elementary operations, the form that cuDNN accepts; independent of the library.
//!
//! The library has no function for attention: it recognises the pattern of GEMMs, masks and sums below, and has an engine
//! for the whole. Source of the patterns: [cudnn-frontend] (`scaled_dot_product_flash_attention.h`, composite nodes).

#[cfg(test)]
mod tests;

use super::kernel::{Attention, Mask};
use meshwright_engine::kernel::Pass;

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
pub enum Place {
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
    pub place: Place,
}

/// Index of a tensor in [`Graph::tensors`].
pub type Id = usize;

/// Elementwise operation on x and b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// Sum, x + b.
    Add,
    /// Difference, x − b.
    Sub,
    /// Product, x·b.
    Mul,
    /// Quotient, x / b.
    Div,
    /// Exponential, eˣ.
    Exp,
    /// Natural logarithm, ln x.
    Log,
    /// Identity, x.
    Same,
    /// Comparison, x ≥ b.
    AtLeast,
    /// Comparison, x > b.
    Above,
    /// Selection: x where a third tensor is true, else b.
    Select,
    /// Index of the element along this dimension.
    Index(u8),
}

/// Operation of a graph; a smaller dimension is broadcast over equal parts of the larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GEMM for each sequence and head: out = a·b.
    Product {
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
        each: Each,
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
    Greatest {
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
    Turn {
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
    /// Graph of attention of these sizes: forward with the statistics for backward, or backward. Fewer queries than keys
    /// are the last ones.
    pub fn of(core: &Attention) -> Self {
        let mut graph = Self::default();
        match core.pass {
            Pass::Forward => graph.forward(core),
            Pass::Dgrad | Pass::Wgrad => graph.backward(core),
        }
        graph
    }

    /// Tensors in the caller's memory, with their bytes.
    pub fn given(&self) -> impl Iterator<Item = (Id, Role, u64)> + '_ {
        self.tensors.iter().enumerate().filter_map(|(id, tensor)| match tensor.place {
            Place::Given(role) => {
                let each = if tensor.element == Element::Bf16 { 2 } else { 4 };
                Some((id, role, each * tensor.dims.iter().product::<u64>()))
            }
            Place::Between | Place::Number(_) => None,
        })
    }

    fn tensor(&mut self, dims: [u64; 4], element: Element, place: Place) -> Id {
        self.tensors.push(Tensor { dims, strides: packed(dims), element, place });
        self.tensors.len() - 1
    }

    fn input(&mut self, role: Role, dims: [u64; 4], element: Element) -> Id {
        self.tensor(dims, element, Place::Given(role))
    }

    /// Transposed view of a \[rows, columns\] tensor, as \[columns, rows\].
    fn turned_input(&mut self, role: Role, [sequences, heads, rows, columns]: [u64; 4]) -> Id {
        let dims = [sequences, heads, columns, rows];
        let strides = [heads * rows * columns, rows * columns, 1, columns];
        self.tensors.push(Tensor { dims, strides, element: Element::Bf16, place: Place::Given(role) });
        self.tensors.len() - 1
    }

    fn between(&mut self, dims: [u64; 4], element: Element) -> Id {
        self.tensor(dims, element, Place::Between)
    }

    fn number(&mut self, value: f32) -> Id {
        self.tensor([1; 4], Element::F32, Place::Number(value))
    }

    /// Index shifted by `by − less`.
    fn moved(&mut self, index: Id, by: u64, less: u64) -> Id {
        let dims = self.tensors[index].dims;
        [(Each::Add, by), (Each::Sub, less)].into_iter().fold(index, |index, (each, by)| {
            let by = self.tensor([1; 4], Element::I32, Place::Number(by as f32));
            let out = self.between(dims, Element::I32);
            self.each(each, index, Some(by), out)
        })
    }

    fn each(&mut self, each: Each, x: Id, b: Option<Id>, out: Id) -> Id {
        self.operations.push(Operation::Pointwise { each, x, b, chosen_by: None, out });
        out
    }

    /// Adds an elementwise operation with a new fp32 output of x's dimensions.
    fn new_each(&mut self, each: Each, x: Id, b: Option<Id>) -> Id {
        let out = self.between(self.tensors[x].dims, Element::F32);
        self.each(each, x, b, out)
    }

    fn product(&mut self, a: Id, b: Id, out: Id) -> Id {
        self.operations.push(Operation::Product { a, b, out });
        out
    }

    /// Adds a transposition to a new bf16 tensor.
    fn turned(&mut self, x: Id) -> Id {
        let Tensor { dims: [sequences, heads, rows, columns], strides: [far, head, row, column], .. } = self.tensors[x];
        let (dims, strides) = ([sequences, heads, columns, rows], [far, head, column, row]);
        self.tensors.push(Tensor { dims, strides, element: Element::Bf16, place: Place::Between });
        let out = self.tensors.len() - 1;
        self.operations.push(Operation::Turn { x, out });
        out
    }

    /// Scores with −∞ where the query does not attend to the key.
    ///
    /// ```text
    /// causal   row + keys − queries ≥ column            window   column + width − keys + queries > row
    /// ```
    fn masked(&mut self, mask: Mask, mut scores: Id) -> Id {
        let dims = self.tensors[scores].dims;
        if mask == Mask::Full {
            return scores;
        }
        let index = |graph: &mut Self, axis, element| {
            let out = graph.between(dims, element);
            graph.each(Each::Index(axis), scores, None, out)
        };
        let (mut row, column) = (index(self, 2, Element::I32), index(self, 3, Element::I32));
        let [_, _, queries, keys] = dims;
        if queries != keys {
            row = self.moved(row, keys, queries);
        }
        scores = self.where_seen(Each::AtLeast, row, column, scores);
        if let Mask::Window(width) = mask {
            let index = |graph: &mut Self, axis| {
                let out = graph.between(dims, Element::F32);
                graph.each(Each::Index(axis), scores, None, out)
            };
            let (row, column) = (index(self, 2), index(self, 3));
            let width = self.number(width as f32 - keys as f32 + queries as f32);
            let past = self.new_each(Each::Add, column, Some(width));
            scores = self.where_seen(Each::Above, past, row, scores);
        }
        scores
    }

    fn where_seen(&mut self, compare: Each, x: Id, b: Id, scores: Id) -> Id {
        let dims = self.tensors[scores].dims;
        let seen = self.between(dims, Element::Bool);
        self.each(compare, x, Some(b), seen);
        let never = self.number(f32::NEG_INFINITY);
        let out = self.between(dims, Element::F32);
        let chosen_by = Some(seen);
        self.operations.push(Operation::Pointwise { each: Each::Select, x: scores, b: Some(never), chosen_by, out });
        out
    }

    /// Scaled scores, before any mask.
    fn scores(&mut self, q: Id, turned_k: Id, scale: Id, dims: [u64; 4]) -> Id {
        let plain = self.between(dims, Element::F32);
        self.product(q, turned_k, plain);
        self.new_each(Each::Mul, plain, Some(scale))
    }

    /// o = softmax(scale·q·kᵀ)·v, stats = ln Σ exp.
    fn forward(&mut self, core: &Attention) {
        let Sizes { q, k, v, o, row, scores, scale } = Sizes::of(core);
        let q = self.input(Role::Q, q, Element::Bf16);
        let k = self.turned_input(Role::K, k);
        let v = self.input(Role::V, v, Element::Bf16);
        let scale = self.number(scale);
        let scaled = self.scores(q, k, scale, scores);
        let seen = self.masked(core.mask, scaled);

        let (most, sum) = (self.between(row, Element::F32), self.between(row, Element::F32));
        self.operations.push(Operation::Greatest { x: seen, out: most });
        let lower = self.new_each(Each::Sub, seen, Some(most));
        let power = self.new_each(Each::Exp, lower, None);
        self.operations.push(Operation::Sum { x: power, out: sum });
        let log = self.new_each(Each::Log, sum, None);
        let stats = self.input(Role::Stats, row, Element::F32);
        self.each(Each::Add, most, Some(log), stats);
        let share = self.between(scores, Element::Bf16);
        self.each(Each::Div, power, Some(sum), share);
        let o = self.input(Role::O, o, Element::Bf16);
        self.product(share, v, o);
    }

    /// With p = exp(scale·q·kᵀ − stats) and ds = scale·p·(do·vᵀ − Σ o·do): dv = pᵀ·do, dk = dsᵀ·q, dq = ds·k.
    fn backward(&mut self, core: &Attention) {
        let Sizes { q: q_dims, k: k_dims, v: v_dims, o: o_dims, row, scores, scale } = Sizes::of(core);
        let q = self.input(Role::Q, q_dims, Element::Bf16);
        let k = self.turned_input(Role::K, k_dims);
        let v = self.turned_input(Role::V, v_dims);
        let o = self.input(Role::O, o_dims, Element::Bf16);
        let gradient = self.input(Role::Gradient, o_dims, Element::Bf16);
        let stats = self.input(Role::Stats, row, Element::F32);
        let scale = self.number(scale);

        let along = self.new_each(Each::Mul, gradient, Some(o));
        let sum = self.between(row, Element::F32);
        self.operations.push(Operation::Sum { x: along, out: sum });
        // What dropout keeps of it: all.
        let kept = self.number(1.0);
        let delta = self.input(Role::Delta, row, Element::F32);
        self.each(Each::Mul, sum, Some(kept), delta);

        let scaled = self.scores(q, k, scale, scores);
        let lower = self.new_each(Each::Sub, scaled, Some(stats));
        let seen = self.masked(core.mask, lower);
        let share = self.new_each(Each::Exp, seen, None);
        let turned = self.turned(share);
        self.shared(turned, gradient, Role::Dv, v_dims);

        let slope = self.between(scores, Element::F32);
        self.product(gradient, v, slope);
        let slope = self.new_each(Each::Sub, slope, Some(delta));
        let slope = self.new_each(Each::Mul, slope, Some(share));
        let slope = self.new_each(Each::Mul, slope, Some(scale));
        let turned = self.turned(slope);
        self.shared(turned, q, Role::Dk, k_dims);

        let keys = self.turned(k);
        let sum = self.input(Role::DqSum, q_dims, Element::F32);
        self.product(slope, keys, sum);
        let dq = self.input(Role::Dq, q_dims, Element::Bf16);
        self.each(Each::Same, sum, None, dq);
    }

    /// a·b of every query head, summed over those that share a head of keys.
    fn shared(&mut self, a: Id, b: Id, role: Role, dims: [u64; 4]) {
        let heads = self.tensors[a].dims[1];
        if heads == dims[1] {
            let out = self.input(role, dims, Element::Bf16);
            self.product(a, b, out);
        } else {
            let of_each = self.between([dims[0], heads, dims[2], dims[3]], Element::Bf16);
            self.product(a, b, of_each);
            let out = self.input(role, dims, Element::Bf16);
            self.operations.push(Operation::Sum { x: of_each, out });
        }
    }
}

/// Kernels that a library runs for a core, with plain diagonal masks: the core itself, or, where a rank gathers the keys of
/// all ranks, one for each half of its queries ([transformer-engine]).
///
/// ```text
/// of 2c chunks the first rank has the first, which sees itself, and the last, which sees all, or a window and itself
/// ```
///
/// Every rank's two chunks see as many keys. None where queries and keys are no whole chunks.
pub fn kernels(core: &Attention) -> Option<Vec<Attention>> {
    let Attention { queries, keys, mask, .. } = *core;
    if queries == keys || mask == Mask::Full {
        return Some(vec![*core]);
    }
    if !queries.is_multiple_of(2) || !keys.is_multiple_of(queries) {
        return None;
    }
    let chunk = queries / 2;
    let seen = match mask {
        Mask::Full | Mask::Causal => keys,
        Mask::Window(width) => keys.min(chunk + width),
    };
    Some(vec![Attention { queries: chunk, keys: chunk, ..*core }, Attention { queries: chunk, keys: seen, ..*core }])
}

/// Dimensions of each tensor in memory, of per-row values, and of the scores.
struct Sizes {
    q: [u64; 4],
    k: [u64; 4],
    v: [u64; 4],
    o: [u64; 4],
    row: [u64; 4],
    scores: [u64; 4],
    scale: f32,
}

impl Sizes {
    fn of(core: &Attention) -> Self {
        let Attention { kernel: _, pass: _, sequences, heads, kv_heads, queries, keys, qk_dim, v_dim, mask: _ } = *core;
        Self {
            q: [sequences, heads, queries, qk_dim],
            k: [sequences, kv_heads, keys, qk_dim],
            v: [sequences, kv_heads, keys, v_dim],
            o: [sequences, heads, queries, v_dim],
            row: [sequences, heads, queries, 1],
            scores: [sequences, heads, queries, keys],
            scale: 1.0 / (qk_dim as f32).sqrt(),
        }
    }
}
