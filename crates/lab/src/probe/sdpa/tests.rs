//! The graphs, run operation by operation, against attention as the textbook has it.

use super::*;
use crate::probe::kernel::{Attention, Fused, Mask};
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::kernel::Pass;

type Memory = Vec<f64>;

/// Place in memory of an element, where a dimension of `all` may stand for a smaller one of the tensor's.
fn at(tensor: &Tensor, all: [u64; 4], index: [u64; 4]) -> usize {
    let place = |d: usize| index[d] * tensor.dims[d] / all[d] * tensor.strides[d];
    (0..4).map(place).sum::<u64>() as usize
}

fn indices(dims: [u64; 4]) -> impl Iterator<Item = [u64; 4]> {
    (0..dims.iter().product::<u64>()).map(move |flat| {
        let [_, b, c, d] = dims;
        [flat / (b * c * d), flat / (c * d) % b, flat / d % c, flat % d]
    })
}

/// Runs a graph on given tensors.
fn run(graph: &Graph, memory: &mut [Memory]) {
    let tensors = &graph.tensors;
    for operation in &graph.operations {
        match *operation {
            Operation::Matmul { a, b, out } => {
                let [_, _, _, inner] = tensors[a].dims;
                assert_eq!(inner, tensors[b].dims[2]);
                let all = tensors[out].dims;
                for index in indices(all) {
                    let [s, h, row, column] = index;
                    let along = |i: u64| {
                        let left = memory[a][at(&tensors[a], [all[0], all[1], all[2], inner], [s, h, row, i])];
                        left * memory[b][at(&tensors[b], [all[0], all[1], inner, all[3]], [s, h, i, column])]
                    };
                    memory[out][at(&tensors[out], all, index)] = (0..inner).map(along).sum();
                }
            }
            Operation::Pointwise { op, x, b, chosen_by, out } => {
                let all = tensors[out].dims;
                for index in indices(all) {
                    let of = |id: Id| memory[id][at(&tensors[id], all, index)];
                    let (x, b) = (of(x), b.map_or(f64::NAN, of));
                    let is = |yes: bool| if yes { 1.0 } else { 0.0 };
                    memory[out][at(&tensors[out], all, index)] = match op {
                        PointwiseOp::Add => x + b,
                        PointwiseOp::Sub => x - b,
                        PointwiseOp::Mul => x * b,
                        PointwiseOp::Div => x / b,
                        PointwiseOp::Exp => x.exp(),
                        PointwiseOp::Log => x.ln(),
                        PointwiseOp::Identity => x,
                        PointwiseOp::GreaterOrEqual => is(x >= b),
                        PointwiseOp::Greater => is(x > b),
                        PointwiseOp::Select if chosen_by.map(of) == Some(1.0) => x,
                        PointwiseOp::Select => b,
                        PointwiseOp::Index(axis) => index[usize::from(axis)] as f64,
                    };
                }
            }
            Operation::Max { x, out } | Operation::Sum { x, out } => {
                let is_sum = matches!(operation, Operation::Sum { .. });
                memory[out].fill(if is_sum { 0.0 } else { f64::NEG_INFINITY });
                let all = tensors[x].dims;
                for index in indices(all) {
                    let value = memory[x][at(&tensors[x], all, index)];
                    let to = &mut memory[out][at(&tensors[out], all, index)];
                    *to = if is_sum { *to + value } else { to.max(value) };
                }
            }
            Operation::Transpose { x, out } => {
                for index in indices(tensors[out].dims) {
                    let [s, h, row, column] = index;
                    let value = memory[x][at(&tensors[x], tensors[x].dims, [s, h, column, row])];
                    memory[out][at(&tensors[out], tensors[out].dims, index)] = value;
                }
            }
        }
    }
}

/// Values of every tensor, with those that the caller gives.
fn memory(graph: &Graph, known: &dyn Fn(Role) -> Option<Memory>) -> Vec<Memory> {
    let of = |tensor: &Tensor| {
        let size = tensor.dims.iter().product::<u64>() as usize;
        let memory = match tensor.place {
            TensorPlace::Given(role) => known(role).unwrap_or_else(|| vec![f64::NAN; size]),
            TensorPlace::Between => vec![f64::NAN; size],
            TensorPlace::Number(value) => vec![f64::from(value)],
        };
        assert_eq!(memory.len(), size);
        memory
    };
    graph.tensors.iter().map(of).collect()
}

fn found(graph: &Graph, memory: &[Memory], role: Role) -> Memory {
    let (id, ..) = graph.caller_tensors().find(|(_, of, _)| *of == role).unwrap();
    memory[id].clone()
}

fn random(seed: u64, size: u64) -> Memory {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..size).map(|_| next()).collect()
}

/// o, stats, dq, dk and dv by the textbook.
fn textbook(core: &Attention, [qs, ks, vs, gradient]: &[Memory; 4]) -> [Memory; 5] {
    let Attention { sequences, heads, kv_heads, queries, keys, qk_dim, v_dim, mask, .. } = *core;
    let scale = f64::from(1.0 / (qk_dim as f32).sqrt());
    let zeros = |like: &Memory| vec![0.0; like.len()];
    let (mut out, mut stats) = (zeros(gradient), vec![0.0; (sequences * heads * queries) as usize]);
    let (mut dq, mut dk, mut dv) = (zeros(qs), zeros(ks), zeros(vs));
    for (head, i) in (0..sequences * heads).flat_map(|head| (0..queries).map(move |i| (head, i))) {
        let row = head * queries + i;
        let key = |j: u64| head / (heads / kv_heads) * keys + j;
        let sees = |j: &u64| match mask {
            Mask::Full => true,
            Mask::Causal => *j <= i + keys - queries,
            Mask::Window(width) => *j <= i + keys - queries && j + width > i + keys - queries,
        };
        let seen: Vec<u64> = (0..keys).filter(sees).collect();
        let dot = |a: &Memory, from: u64, b: &Memory, to: u64, dim: u64| -> f64 {
            (0..dim).map(|d| a[(from * dim + d) as usize] * b[(to * dim + d) as usize]).sum()
        };
        let power: Vec<f64> = seen.iter().map(|&j| (scale * dot(qs, row, ks, key(j), qk_dim)).exp()).collect();
        let sum: f64 = power.iter().sum();
        stats[row as usize] = sum.ln();
        let slopes: Vec<f64> = seen.iter().map(|&j| dot(gradient, row, vs, key(j), v_dim)).collect();
        let along: f64 = power.iter().zip(&slopes).map(|(p, slope)| p / sum * slope).sum();
        for ((&j, p), slope) in seen.iter().zip(&power).zip(&slopes) {
            let (p, ds) = (p / sum, p / sum * (slope - along) * scale);
            for d in 0..v_dim {
                out[(row * v_dim + d) as usize] += p * vs[(key(j) * v_dim + d) as usize];
                dv[(key(j) * v_dim + d) as usize] += p * gradient[(row * v_dim + d) as usize];
            }
            for d in 0..qk_dim {
                dq[(row * qk_dim + d) as usize] += ds * ks[(key(j) * qk_dim + d) as usize];
                dk[(key(j) * qk_dim + d) as usize] += ds * qs[(row * qk_dim + d) as usize];
            }
        }
    }
    [out, stats, dq, dk, dv]
}

fn close(what: &str, found: &[f64], truth: &[f64]) {
    assert_eq!(found.len(), truth.len());
    for (found, truth) in found.iter().zip(truth) {
        assert!((found - truth).abs() < 1e-6, "{what}: {found} for {truth}");
    }
}

#[test]
fn the_graphs_compute_attention_and_its_gradients() {
    for (heads, kv_heads, queries, keys, qk_dim, v_dim, mask) in [
        (2, 2, 5, 7, 4, 4, Mask::Full),
        (2, 2, 6, 6, 6, 4, Mask::Causal),
        (6, 2, 6, 6, 4, 4, Mask::Causal),
        (4, 1, 9, 9, 4, 4, Mask::Window(3)),
        (2, 1, 4, 10, 4, 4, Mask::Causal),
        (2, 2, 4, 10, 4, 4, Mask::Window(3)),
    ] {
        let kernel = Fused::Library(AttentionKernel::Cudnn);
        let pass = Pass::Forward;
        let core = Attention { kernel, pass, sequences: 2, heads, kv_heads, queries, keys, qk_dim, v_dim, mask };
        let sizes =
            [heads * queries * qk_dim, kv_heads * keys * qk_dim, kv_heads * keys * v_dim, heads * queries * v_dim];
        let mut seed = 0;
        let operands = sizes.map(|size| {
            seed += 1;
            random(seed, 2 * size)
        });
        let [out, stats, dq, dk, dv] = textbook(&core, &operands);
        let [qs, ks, vs, gradient] = operands;

        let graph = Graph::of(&core);
        let mut all = memory(&graph, &|role| match role {
            Role::Q => Some(qs.clone()),
            Role::K => Some(ks.clone()),
            Role::V => Some(vs.clone()),
            _ => None,
        });
        run(&graph, &mut all);
        close("o", &found(&graph, &all, Role::O), &out);
        close("stats", &found(&graph, &all, Role::Stats), &stats);

        let graph = Graph::of(&Attention { pass: Pass::Dgrad, ..core });
        let mut all = memory(&graph, &|role| match role {
            Role::Q => Some(qs.clone()),
            Role::K => Some(ks.clone()),
            Role::V => Some(vs.clone()),
            Role::O => Some(out.clone()),
            Role::Stats => Some(stats.clone()),
            Role::Gradient => Some(gradient.clone()),
            _ => None,
        });
        run(&graph, &mut all);
        for (role, truth) in [(Role::Dq, &dq), (Role::Dk, &dk), (Role::Dv, &dv)] {
            close(&format!("{role:?} of {core:?}"), &found(&graph, &all, role), truth);
        }
    }
}

#[test]
fn a_share_of_the_queries_is_two_kernels_that_see_as_much() {
    let text = "attention cudnn forward sequences=1 heads=2 queries=8 keys=32 qk=8 v=8 mask=causal";
    let crate::probe::kernel::Kernel::Attention(core) = text.parse().unwrap() else { unreachable!() };
    let sizes =
        |core: &Attention| kernels(core).map(|all| all.iter().map(|one| (one.queries, one.keys)).collect::<Vec<_>>());
    assert_eq!(sizes(&core), Some(vec![(4, 4), (4, 32)]));
    assert_eq!(sizes(&Attention { mask: Mask::Window(6), ..core }), Some(vec![(4, 4), (4, 10)]));
    assert_eq!(sizes(&Attention { mask: Mask::Full, ..core }), Some(vec![(8, 32)]));
    assert_eq!(sizes(&Attention { queries: 32, ..core }), Some(vec![(32, 32)]));
    assert_eq!(sizes(&Attention { queries: 7, ..core }), None);
    // Pairs that are seen: of queries that lie evenly, as the probe's own kernel has them, and of the two kernels.
    let evenly: u64 = (0..8).map(|query| (query + 1) * 32 / 8).sum();
    let diagonals: u64 = (0..4).map(|query| (query + 1) + (query + 1 + 28)).sum();
    assert_eq!((evenly, diagonals), (144, 132));
}
