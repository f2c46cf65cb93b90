//! Attention as a graph of elementary operations, which is how cuDNN takes it: sizes and nodes, nothing of the library.
//!
//! The library has no function for attention: it knows the pattern of products, masks and sums below, and has an engine for
//! the whole. Source of the patterns: [cudnn-frontend] (`scaled_dot_product_flash_attention.h`, composite nodes).

#[cfg(test)]
mod tests;

use super::kernel::{Attention, Mask};
use meshwright_engine::kernel::Pass;

/// What an element of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Two bytes.
    Bf16,
    /// Four bytes.
    F32,
    /// An index.
    I32,
    /// Whether.
    Bool,
}

/// The tensors that a caller gives memory to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// The result.
    O,
    /// Natural logarithm of each row's sum of exponentials.
    Stats,
    /// Gradient of the result.
    Gradient,
    /// Gradient of the queries.
    Dq,
    /// Gradient of the keys.
    Dk,
    /// Gradient of the values.
    Dv,
    /// Sum over the dimensions of o·do, for each row.
    Delta,
    /// Gradient of the queries in fp32, which blocks of keys add to.
    DqSum,
}

/// Where a tensor's elements are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// In memory of the caller's.
    Given(Role),
    /// Nowhere: between two operations.
    Between,
    /// One number, the same for all; whole where the element is an index.
    Number(f32),
}

/// A tensor of four dimensions: sequences, heads, rows, columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    /// How many of each dimension.
    pub dims: [u64; 4],
    /// Elements between neighbours of each dimension.
    pub strides: [u64; 4],
    /// Of what.
    pub element: Element,
    /// Where.
    pub place: Place,
}

/// A tensor by its number in [`Graph::tensors`].
pub type Id = usize;

/// What happens to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// x + b
    Add,
    /// x − b
    Sub,
    /// x·b
    Mul,
    /// x / b
    Div,
    /// eˣ
    Exp,
    /// ln x
    Log,
    /// x
    Same,
    /// x ≥ b
    AtLeast,
    /// x > b
    Above,
    /// x where a third tensor is true, else b
    Select,
    /// The element's own index along this dimension.
    Index(u8),
}

/// One node; smaller dimensions stand for as many equal parts of the larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// out = a·b for each sequence and head.
    Product {
        /// Left.
        a: Id,
        /// Right.
        b: Id,
        /// Result.
        out: Id,
    },
    /// For each element.
    Pointwise {
        /// What.
        each: Each,
        /// First operand.
        x: Id,
        /// Second operand.
        b: Option<Id>,
        /// What chooses between them.
        chosen_by: Option<Id>,
        /// Result.
        out: Id,
    },
    /// The greatest along the dimensions that the result lacks.
    Greatest {
        /// Of what.
        x: Id,
        /// Result.
        out: Id,
    },
    /// The sum along the dimensions that the result lacks.
    Sum {
        /// Of what.
        x: Id,
        /// Result.
        out: Id,
    },
    /// Rows and columns exchanged.
    Turn {
        /// Of what.
        x: Id,
        /// Result.
        out: Id,
    },
}

/// Tensors, and operations in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// All operations.
    pub operations: Vec<Operation>,
}

/// Rows together, heads of a sequence together.
fn packed(dims: [u64; 4]) -> [u64; 4] {
    [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]
}

impl Graph {
    /// Attention of these sizes, forward with what backward needs, or backward; fewer queries than keys are the last of them.
    pub fn of(core: &Attention) -> Self {
        let mut graph = Self::default();
        match core.pass {
            Pass::Forward => graph.forward(core),
            Pass::Dgrad | Pass::Wgrad => graph.backward(core),
        }
        graph
    }

    /// The tensors in memory of the caller's, with their bytes.
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

    /// The memory of a \[rows, columns\] tensor, read as \[columns, rows\].
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

    /// An index moved along: index + by, less `less`.
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

    /// The same with a new result of x's dimensions, in fp32.
    fn new_each(&mut self, each: Each, x: Id, b: Option<Id>) -> Id {
        let out = self.between(self.tensors[x].dims, Element::F32);
        self.each(each, x, b, out)
    }

    fn product(&mut self, a: Id, b: Id, out: Id) -> Id {
        self.operations.push(Operation::Product { a, b, out });
        out
    }

    /// A new tensor with rows and columns exchanged in place, as bf16.
    fn turned(&mut self, x: Id) -> Id {
        let Tensor { dims: [sequences, heads, rows, columns], strides: [far, head, row, column], .. } = self.tensors[x];
        let (dims, strides) = ([sequences, heads, columns, rows], [far, head, column, row]);
        self.tensors.push(Tensor { dims, strides, element: Element::Bf16, place: Place::Between });
        let out = self.tensors.len() - 1;
        self.operations.push(Operation::Turn { x, out });
        out
    }

    /// −∞ where a query does not see a key.
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

/// The kernels that a library runs for a core, whose masks are plain diagonals: itself, or where a rank gathers the keys of
/// all, one for each half of its queries ([transformer-engine]).
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

/// Dimensions of every tensor in memory, of a number for each row, and of the scores.
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
