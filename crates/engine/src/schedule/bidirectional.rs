//! Operations of `DualPipe` and `DualPipeV`: micro-batches flow in both directions, and forwards hide the traffic of
//! backwards.

use std::collections::VecDeque;

use super::slot::{Op, Pass, Slot, op};

/// One of the two directions through a rank.
#[derive(Clone, Copy, Debug)]
struct Direction {
    /// Stage of the rank in this direction.
    stage: u32,
    /// Number of its first micro-batch.
    first: u32,
    forwards: u32,
    backwards: u32,
}

impl Direction {
    const fn new(stage: u32, first: u32) -> Self {
        Self { stage, first, forwards: 0, backwards: 0 }
    }

    fn forward(&mut self) -> Op {
        self.forwards += 1;
        op(Pass::Forward, self.first + self.forwards - 1, self.stage)
    }

    fn backward(&mut self, pass: Pass) -> Op {
        self.backwards += 1;
        op(pass, self.first + self.backwards - 1, self.stage)
    }
}

/// Rank of a bidirectional pipeline. Ranks are mirror images: only the distance from the turn matters, where one direction
/// ends and the other begins. That is the middle of `DualPipe`'s ranks and the last rank of `DualPipeV`.
#[derive(Clone, Debug)]
pub(super) struct Rank {
    /// Number of ranks from the entry of a direction to the turn, H.
    to_turn: u32,
    /// Number of ranks before this one, h; the one at the turn has H − 1.
    before: u32,
    /// Micro-batches of one direction.
    micro_batches: u32,
    /// The direction with the nearer entry, then the other.
    directions: [Direction; 2],
    /// Deferred weight gradients.
    late: VecDeque<Op>,
    slots: Vec<Slot>,
}

impl Rank {
    /// Rank `rank` of `pp` (even) under `DualPipe`: stage `rank` for the first half of the micro-batches, stage `pp − 1 − rank`
    /// for the second half, which come from the other end.
    pub fn dual_pipe(rank: u32, pp: u32, micro_batches: u32) -> Self {
        let half = micro_batches / 2;
        let (down, up) = (Direction::new(rank, 0), Direction::new(pp - 1 - rank, half));
        let directions = if rank < pp / 2 { [down, up] } else { [up, down] };
        Self::new(pp / 2, rank.min(pp - 1 - rank), half, directions)
    }

    /// Rank `rank` of `pp` under `DualPipeV`: chunk `rank` on the way down, chunk `2·pp − 1 − rank` on the way up.
    pub fn dual_pipe_v(rank: u32, pp: u32, micro_batches: u32) -> Self {
        Self::new(pp, rank, micro_batches, [Direction::new(rank, 0), Direction::new(2 * pp - 1 - rank, 0)])
    }

    const fn new(to_turn: u32, before: u32, micro_batches: u32, directions: [Direction; 2]) -> Self {
        Self { to_turn, before, micro_batches, directions, late: VecDeque::new(), slots: Vec::new() }
    }

    fn forward(&mut self, direction: usize) {
        let op = self.directions[direction].forward();
        self.slots.push(op.into());
    }

    fn backward(&mut self, direction: usize) {
        let op = self.directions[direction].backward(Pass::Backward);
        self.slots.push(op.into());
    }

    /// Adds an input-gradient pass and defers its weight gradients.
    fn input(&mut self, direction: usize) {
        let op = self.directions[direction].backward(Pass::Input);
        self.slots.push(op.into());
        self.late.push_back(Op { pass: Pass::Wgrad, ..op });
    }

    fn wgrad(&mut self) {
        let op = self.late.pop_front();
        self.slots.extend(op.map(Slot::from));
    }

    fn pair(&mut self, forward: usize, backward: usize) {
        let op = self.directions[forward].forward();
        let beside = Some(self.directions[backward].backward(Pass::Backward));
        self.slots.push(Slot { op, beside });
    }

    /// Slots of the eight phases: F0 is a forward of the nearer direction, B1 a backward of the other, I and W its two
    /// halves, & a pair:
    ///
    /// ```text
    /// (H−h−1)·2 × F0     (h+1) × F0 F1     (H−h−1) × I1 W F1     (n − 2H + h + 1) × F0&B1 F1&B0
    /// (H−h−1) × B1 F1&B0     (h+1) × B1 B0, the later half I1 I0     (H−h−1) × W I0     (h+1) × W
    /// ```
    ///
    /// n = micro-batches of one direction. The passes of the first pair at the turn run one after the other. Source: [dualpipe].
    pub fn list(mut self) -> Vec<Slot> {
        let (to_turn, h) = (self.to_turn - self.before - 1, self.before);
        for _ in 0..2 * to_turn {
            self.forward(0);
        }
        for _ in 0..=h {
            self.forward(0);
            self.forward(1);
        }
        for _ in 0..to_turn {
            self.input(1);
            self.wgrad();
            self.forward(1);
        }
        for k in 0..=self.micro_batches + h - 2 * self.to_turn {
            if k == 0 && to_turn == 0 {
                self.forward(0);
                self.backward(1);
            } else {
                self.pair(0, 1);
            }
            self.pair(1, 0);
        }
        for _ in 0..to_turn {
            self.backward(1);
            self.pair(1, 0);
        }
        // Of 2(h + 1) backwards in turn, the first h + 1 are whole.
        for k in 0..2 * (h + 1) {
            let direction = usize::from(k % 2 == 0);
            if k <= h { self.backward(direction) } else { self.input(direction) }
        }
        for _ in 0..to_turn {
            self.wgrad();
            self.input(0);
        }
        for _ in 0..=h {
            self.wgrad();
        }
        self.slots
    }
}
