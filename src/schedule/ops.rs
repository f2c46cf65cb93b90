//! The operations of each pipeline rank, in order.

use super::Schedule;

/// Which pass of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward: all of it, or only input gradients where weight gradients have passes of their own.
    Backward,
    /// Weight gradients.
    Wgrad,
}

/// One operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Which pass.
    pub pass: Pass,
    /// Of which micro-batch.
    pub micro_batch: u32,
    /// Through which chunk of the model.
    pub stage: u32,
}

const fn op(pass: Pass, micro_batch: u32, stage: u32) -> Op {
    Op { pass, micro_batch, stage }
}

/// Whether a schedule has a fixed list of operations.
pub const fn has_list(schedule: Schedule) -> bool {
    !matches!(schedule, Schedule::ZbV | Schedule::DualPipe | Schedule::DualPipeV)
}

/// The fixed order of each rank's operations; `None` for schedules without a fixed list (ZB-V and the two
/// bidirectional ones are played greedily).
pub fn ops(schedule: Schedule, pp: u32, micro_batches: u32) -> Option<Vec<Vec<Op>>> {
    let rank = |i: u32| match schedule {
        Schedule::Naive => Some(naive(i, micro_batches)),
        Schedule::GPipe => Some(breadth_first(i, pp, 1, micro_batches)),
        Schedule::OneFOneB => Some(one_f_one_b(i, pp, micro_batches)),
        Schedule::Interleaved { virtual_stages } => Some(interleaved(i, pp, virtual_stages, micro_batches)),
        Schedule::ZbH1 => Some(zero_bubble(i, pp, micro_batches, pp - i - 1, i)),
        Schedule::ZbH2 => Some(zero_bubble(i, pp, micro_batches, 2 * (pp - i - 1), 2 * i)),
        Schedule::LoopedBfs { virtual_stages } => Some(breadth_first(i, pp, virtual_stages, micro_batches)),
        Schedule::ZbV | Schedule::DualPipe | Schedule::DualPipeV => None,
    };
    (0..pp).map(rank).collect()
}

fn naive(i: u32, m: u32) -> Vec<Op> {
    (0..m).flat_map(|mb| [op(Pass::Forward, mb, i), op(Pass::Backward, mb, i)]).collect()
}

fn breadth_first(i: u32, p: u32, v: u32, m: u32) -> Vec<Op> {
    let forward = (0..v).flat_map(|c| (0..m).map(move |mb| op(Pass::Forward, mb, c * p + i)));
    let backward = (0..v).rev().flat_map(|c| (0..m).map(move |mb| op(Pass::Backward, mb, c * p + i)));
    forward.chain(backward).collect()
}

/// `min(p−i−1, m)` forwards, then pairs, then the remaining backwards.
fn one_f_one_b(i: u32, p: u32, m: u32) -> Vec<Op> {
    let warm_up = (p - i - 1).min(m);
    let pairs = (0..m - warm_up).flat_map(|k| [op(Pass::Forward, k + warm_up, i), op(Pass::Backward, k, i)]);
    (0..warm_up)
        .map(|k| op(Pass::Forward, k, i))
        .chain(pairs)
        .chain((m - warm_up..m).map(|k| op(Pass::Backward, k, i)))
        .collect()
}

/// Megatron's order: virtual index κ is micro-batch `(κ div pv)·p + κ mod p` through chunk `(κ mod pv) div p`.
fn interleaved(i: u32, p: u32, v: u32, m: u32) -> Vec<Op> {
    let total = m * v;
    let warm_up = ((p - i - 1) * 2 + (v - 1) * p).min(total);
    let place = |k: u32| {
        let (group, rest) = (k / (p * v), k % (p * v));
        (group * p + rest % p, rest / p)
    };
    let forward = |k: u32| {
        let (mb, chunk) = place(k);
        op(Pass::Forward, mb, chunk * p + i)
    };
    let backward = |k: u32| {
        let (mb, chunk) = place(k);
        op(Pass::Backward, mb, (v - 1 - chunk) * p + i)
    };
    (0..warm_up)
        .map(forward)
        .chain((0..total - warm_up).flat_map(|k| [forward(k + warm_up), backward(k)]))
        .chain((total - warm_up..total).map(backward))
        .collect()
}

/// 1F1B with weight gradients of their own, held back by `delay` micro-batches and done in the cool-down.
fn zero_bubble(i: u32, _p: u32, m: u32, warm_up: u32, delay: u32) -> Vec<Op> {
    let warm_up = warm_up.min(m);
    let mut list: Vec<Op> = (0..warm_up).map(|k| op(Pass::Forward, k, i)).collect();
    let mut done = 0;
    for k in 0..m - warm_up {
        list.extend([op(Pass::Forward, k + warm_up, i), op(Pass::Backward, k, i)]);
        if k >= delay {
            list.push(op(Pass::Wgrad, done, i));
            done += 1;
        }
    }
    for k in m - warm_up..m {
        list.push(op(Pass::Backward, k, i));
        if done <= k {
            list.push(op(Pass::Wgrad, done, i));
            done += 1;
        }
    }
    list.extend((done..m).map(|k| op(Pass::Wgrad, k, i)));
    list
}
