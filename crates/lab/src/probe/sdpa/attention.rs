//! Graphs of attention, forward and backward.

use super::graph::{Element, Graph, Id, Operation, PointwiseOp, Role};
use crate::probe::kernel::{Attention, Mask};
use meshwright_engine::kernel::Pass;

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
            graph.pointwise(PointwiseOp::Index(axis), scores, None, out)
        };
        let (mut row, column) = (index(self, 2, Element::I32), index(self, 3, Element::I32));
        let [_, _, queries, keys] = dims;
        if queries != keys {
            row = self.shifted(row, keys, queries);
        }
        scores = self.keep_where(PointwiseOp::GreaterOrEqual, row, column, scores);
        if let Mask::Window(width) = mask {
            let index = |graph: &mut Self, axis| {
                let out = graph.between(dims, Element::F32);
                graph.pointwise(PointwiseOp::Index(axis), scores, None, out)
            };
            let (row, column) = (index(self, 2), index(self, 3));
            let width = self.number(width as f32 - keys as f32 + queries as f32);
            let past = self.new_pointwise(PointwiseOp::Add, column, Some(width));
            scores = self.keep_where(PointwiseOp::Greater, past, row, scores);
        }
        scores
    }

    /// Scores where a comparison of x and b holds, −∞ elsewhere.
    fn keep_where(&mut self, compare: PointwiseOp, x: Id, b: Id, scores: Id) -> Id {
        let dims = self.tensors[scores].dims;
        let seen = self.between(dims, Element::Bool);
        self.pointwise(compare, x, Some(b), seen);
        let never = self.number(f32::NEG_INFINITY);
        let out = self.between(dims, Element::F32);
        let chosen_by = Some(seen);
        self.operations.push(Operation::Pointwise {
            op: PointwiseOp::Select,
            x: scores,
            b: Some(never),
            chosen_by,
            out,
        });
        out
    }

    /// Scaled scores, before any mask.
    fn scores(&mut self, q: Id, transposed_k: Id, scale: Id, dims: [u64; 4]) -> Id {
        let plain = self.between(dims, Element::F32);
        self.matmul(q, transposed_k, plain);
        self.new_pointwise(PointwiseOp::Mul, plain, Some(scale))
    }

    /// o = softmax(scale·q·kᵀ)·v, stats = ln Σ exp.
    fn forward(&mut self, core: &Attention) {
        let Sizes { q, k, v, o, row, scores, scale } = Sizes::of(core);
        let q = self.given_tensor(Role::Q, q, Element::Bf16);
        let k = self.given_transposed(Role::K, k);
        let v = self.given_tensor(Role::V, v, Element::Bf16);
        let scale = self.number(scale);
        let scaled = self.scores(q, k, scale, scores);
        let seen = self.masked(core.mask, scaled);

        let (most, sum) = (self.between(row, Element::F32), self.between(row, Element::F32));
        self.operations.push(Operation::Max { x: seen, out: most });
        let lower = self.new_pointwise(PointwiseOp::Sub, seen, Some(most));
        let power = self.new_pointwise(PointwiseOp::Exp, lower, None);
        self.operations.push(Operation::Sum { x: power, out: sum });
        let log = self.new_pointwise(PointwiseOp::Log, sum, None);
        let stats = self.given_tensor(Role::Stats, row, Element::F32);
        self.pointwise(PointwiseOp::Add, most, Some(log), stats);
        let share = self.between(scores, Element::Bf16);
        self.pointwise(PointwiseOp::Div, power, Some(sum), share);
        let o = self.given_tensor(Role::O, o, Element::Bf16);
        self.matmul(share, v, o);
    }

    /// With p = exp(scale·q·kᵀ − stats) and ds = scale·p·(do·vᵀ − Σ o·do): dv = pᵀ·do, dk = dsᵀ·q, dq = ds·k.
    fn backward(&mut self, core: &Attention) {
        let Sizes { q: q_dims, k: k_dims, v: v_dims, o: o_dims, row, scores, scale } = Sizes::of(core);
        let q = self.given_tensor(Role::Q, q_dims, Element::Bf16);
        let k = self.given_transposed(Role::K, k_dims);
        let v = self.given_transposed(Role::V, v_dims);
        let o = self.given_tensor(Role::O, o_dims, Element::Bf16);
        let gradient = self.given_tensor(Role::Gradient, o_dims, Element::Bf16);
        let stats = self.given_tensor(Role::Stats, row, Element::F32);
        let scale = self.number(scale);

        let along = self.new_pointwise(PointwiseOp::Mul, gradient, Some(o));
        let sum = self.between(row, Element::F32);
        self.operations.push(Operation::Sum { x: along, out: sum });
        // What dropout keeps of it: all.
        let kept = self.number(1.0);
        let delta = self.given_tensor(Role::Delta, row, Element::F32);
        self.pointwise(PointwiseOp::Mul, sum, Some(kept), delta);

        let scaled = self.scores(q, k, scale, scores);
        let lower = self.new_pointwise(PointwiseOp::Sub, scaled, Some(stats));
        let seen = self.masked(core.mask, lower);
        let share = self.new_pointwise(PointwiseOp::Exp, seen, None);
        let transposed = self.transposed(share);
        self.shared(transposed, gradient, Role::Dv, v_dims);

        let slope = self.between(scores, Element::F32);
        self.matmul(gradient, v, slope);
        let slope = self.new_pointwise(PointwiseOp::Sub, slope, Some(delta));
        let slope = self.new_pointwise(PointwiseOp::Mul, slope, Some(share));
        let slope = self.new_pointwise(PointwiseOp::Mul, slope, Some(scale));
        let transposed = self.transposed(slope);
        self.shared(transposed, q, Role::Dk, k_dims);

        let keys = self.transposed(k);
        let sum = self.given_tensor(Role::DqSum, q_dims, Element::F32);
        self.matmul(slope, keys, sum);
        let dq = self.given_tensor(Role::Dq, q_dims, Element::Bf16);
        self.pointwise(PointwiseOp::Identity, sum, None, dq);
    }

    /// a·b of every query head, summed over those that share a head of keys.
    fn shared(&mut self, a: Id, b: Id, role: Role, dims: [u64; 4]) {
        let heads = self.tensors[a].dims[1];
        if heads == dims[1] {
            let out = self.given_tensor(role, dims, Element::Bf16);
            self.matmul(a, b, out);
        } else {
            let of_each = self.between([dims[0], heads, dims[2], dims[3]], Element::Bf16);
            self.matmul(a, b, of_each);
            let out = self.given_tensor(role, dims, Element::Bf16);
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
