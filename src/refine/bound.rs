//! What no cuts can beat, where ranks own several stages.

use super::program::{Load, Program};
use super::separable::Edges;
use crate::schedule::paths::Path;

/// A lower bound on the replayed time of every split that fits.
///
/// Some rank i is the busiest, and takes T ≥ T* for a micro-batch, where T* shares the layers out with no regard to their
/// order ([`busiest`]). A chain through rank i visits each of its stages at least n times:
///
/// ```text
/// length ≥ n·T + Σ_S (visits_S − n·[S on i])·time_S        the sum at its least over cuts: a shortest path
/// ```
///
/// Splits whose ranks take longer than the best replay allows are priced out by multipliers.
pub fn of(program: &Program, family: &[Path], best: Option<f64>) -> f64 {
    let m = program.stager.micro_batches();
    let ceiling = best.map_or(f64::INFINITY, |time| time / m);
    let least = busiest(program);
    let arcs = Arcs::new(program, ceiling);
    let mut bound = f64::INFINITY;
    for rank in 0..program.ranks {
        let mut of_rank = 0.0_f64;
        for path in family.iter().filter(|path| path.rank as usize == rank) {
            of_rank = of_rank.max(arcs.chain(program, path, least, ceiling));
        }
        bound = bound.min(of_rank);
    }
    bound.max(blended(program, family, ceiling))
}

/// One stage with the mixes that some price of memory would choose.
struct Column {
    a: usize,
    b: usize,
    load: Load,
    states: f64,
    /// Extra backward time and bytes held at the rank's first moment, from the fastest to the smallest.
    hull: Vec<(f64, f64)>,
}

/// Most prices of columns that the multipliers may cost.
const MOST_PRICED: usize = 20_000_000;

/// A bound that sees memory: the mean of one chain through each rank is a sum over stages, and so is each rank's memory, which
/// multipliers weigh.
///
/// ```text
/// T ≥ max over λ ≥ 0 of  min over cuts and mixes of  Σ_S mean visits_S·time_S + Σ_r λ_r·(held_r − room_r)
/// ```
fn blended(program: &Program, family: &[Path], ceiling: f64) -> f64 {
    let ranks = program.ranks;
    let mut chains: Vec<&Path> = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        // The last chain of a rank has both waits.
        let Some(path) = family.iter().rfind(|path| path.rank as usize == rank) else { return 0.0 };
        chains.push(path);
    }
    let mean = |part: fn(&Path) -> &Vec<f64>| -> Vec<f64> {
        (0..program.chunks).map(|s| chains.iter().map(|path| part(path)[s]).sum::<f64>() / ranks as f64).collect()
    };
    let (forward, backward, wgrad) = (mean(|p| &p.forward), mean(|p| &p.backward), mean(|p| &p.wgrad));
    let columns: Vec<Vec<Column>> = (0..program.chunks).map(|chunk| columns(program, chunk, ceiling)).collect();
    let priced: usize = columns.iter().flatten().map(|column| column.hull.len()).sum();
    let rounds = (MOST_PRICED / priced.max(1)).clamp(1, 200);
    let scale = program.layers_time(0, program.len()) / ranks as f64 * forward.iter().sum::<f64>()
        / program.chunks as f64
        / program.room.iter().copied().fold(1.0, f64::max);
    let mut multipliers = vec![0.0_f64; ranks];
    let (mut most, mut step) = (0.0_f64, 4.0 * scale);
    for _ in 0..rounds {
        let price = |stage: usize, column: &Column| {
            let load = &column.load;
            let own = if wgrad[stage] > 0.0 { load.wgrad } else { 0.0 };
            let time = forward[stage] * load.forward
                + backward[stage] * (load.backward - own - load.slack)
                + wgrad[stage] * load.wgrad;
            let weight = multipliers[program.rank_of(stage)];
            let (mut least, mut bytes) = (f64::INFINITY, 0.0);
            for (extra, held) in &column.hull {
                let sum = backward[stage] * extra + weight * held;
                if sum < least {
                    (least, bytes) = (sum, *held);
                }
            }
            (time + least + weight * column.states, bytes + column.states)
        };
        let Some((sum, held)) = cheapest_columns(program, &columns, price) else { return f64::INFINITY };
        let charged: f64 = multipliers.iter().zip(&program.room).map(|(weight, room)| weight * room).sum();
        if sum - charged > most {
            most = sum - charged;
        } else {
            step *= 0.93;
        }
        let mut tight = true;
        for rank in 0..ranks {
            let over = (held[rank] - program.room[rank]) / program.room[rank].max(1.0);
            tight &= over <= 0.0;
            multipliers[rank] = (multipliers[rank] + step * over).max(0.0);
        }
        if tight && multipliers.iter().all(|weight| *weight == 0.0) {
            break;
        }
    }
    most
}

/// Stages under the ceiling, with the lower hull of their mixes.
fn columns(program: &Program, chunk: usize, ceiling: f64) -> Vec<Column> {
    let n = program.len();
    let last = program.chunks - 1;
    let (first, behind) = (chunk.saturating_sub(1), (last - chunk).saturating_sub(1));
    let alive = program.alive(chunk).next().unwrap_or(1.0);
    let mut found = Vec::new();
    for a in first..=n.saturating_sub(behind) {
        if chunk == 0 && a > 0 {
            break;
        }
        for b in a..=n.saturating_sub(behind) {
            if (chunk == last && b < n) || !program.may_hold(chunk, a, b) {
                continue;
            }
            let load = program.fastest(chunk, a, b);
            if load.both() > ceiling {
                break;
            }
            let frontier = program.frontier(a, b);
            let mut hull: Vec<(f64, f64)> = Vec::new();
            for point in &frontier.points {
                let next = (point.extra, point.kept * alive);
                while let [.., before, here] = hull[..] {
                    let turns = (here.1 - before.1) * (next.0 - here.0) >= (next.1 - here.1) * (here.0 - before.0);
                    if !turns {
                        break;
                    }
                    hull.pop();
                }
                if hull.last().is_none_or(|known| next.1 < known.1) {
                    hull.push(next);
                }
            }
            let load = Load { slack: frontier.slack, ..load };
            found.push(Column { a, b, load, states: program.states(a, b), hull });
        }
    }
    found
}

/// The least sum over cuts, and the bytes of each rank there.
fn cheapest_columns(
    program: &Program,
    columns: &[Vec<Column>],
    price: impl Fn(usize, &Column) -> (f64, f64),
) -> Option<(f64, Vec<f64>)> {
    let n = program.len();
    let mut best = vec![f64::INFINITY; n + 1];
    best[0] = 0.0;
    let mut from: Vec<Vec<(usize, f64)>> = Vec::with_capacity(columns.len());
    for (stage, list) in columns.iter().enumerate() {
        let mut next = vec![f64::INFINITY; n + 1];
        let mut cut = vec![(usize::MAX, 0.0); n + 1];
        for column in list.iter().filter(|column| best[column.a].is_finite()) {
            let (sum, bytes) = price(stage, column);
            if best[column.a] + sum < next[column.b] {
                next[column.b] = best[column.a] + sum;
                cut[column.b] = (column.a, bytes);
            }
        }
        best = next;
        from.push(cut);
    }
    if best[n].is_infinite() {
        return None;
    }
    let mut held = vec![0.0; program.ranks];
    let mut at = n;
    for (stage, cut) in from.iter().enumerate().rev() {
        let (a, bytes) = cut[at];
        held[program.rank_of(stage)] += bytes;
        at = a;
    }
    Some((best[n], held))
}

/// What the edges of a step are at their best, whatever the split: parameters shared out evenly; nothing is known of the
/// windows but that the whole model is no longer.
pub fn edges(program: &Program) -> Edges {
    let n = program.len();
    let (mut all, mut forward, mut backward) = ([0.0; 2], 0.0, 0.0);
    for chunk in 0..program.chunks {
        let items = if chunk == 0 { n } else { 0 };
        let [dense, experts] = program.parameters(chunk, 0, items);
        all = [all[0] + dense, all[1] + experts];
        let load = program.fastest(chunk, 0, items);
        (forward, backward) = (forward + load.forward, backward + load.backward);
    }
    let ranks = program.ranks as f64;
    let mean = (all[0] + all[1]) / ranks;
    // Of a mixture, the heaviest rank may hold few experts or little else: nothing is said of either.
    let dense = if all[1] > 0.0 { 0.0 } else { mean };
    Edges { dense, experts: 0.0, forward, backward }
}

/// Every stage by first item and end, that no split under the ceiling is without.
struct Arcs {
    stages: Vec<Vec<(usize, usize, Load)>>,
    items: usize,
}

/// Rounds of the multipliers.
const ROUNDS: usize = 40;

impl Arcs {
    fn new(program: &Program, ceiling: f64) -> Self {
        let n = program.len();
        let last = program.chunks - 1;
        let stages = (0..program.chunks)
            .map(|chunk| {
                // Stages before and after hold at least one layer each, but for the ends.
                let first = chunk.saturating_sub(1);
                let behind = (last - chunk).saturating_sub(1);
                let mut arcs = Vec::new();
                for a in first..=n.saturating_sub(behind) {
                    for b in a..=n.saturating_sub(behind) {
                        let load = program.fastest(chunk, a, b);
                        if load.both() > ceiling {
                            break;
                        }
                        if program.may_hold(chunk, a, b) && (chunk > 0 || a == 0) && (chunk < last || b == n) {
                            arcs.push((a, b, load));
                        }
                    }
                }
                arcs
            })
            .collect();
        Self { stages, items: n }
    }

    /// The bound of one chain.
    fn chain(&self, program: &Program, path: &Path, least: f64, ceiling: f64) -> f64 {
        let own = |stage: usize| program.rank_of(stage) == path.rank as usize;
        let visits = (0..program.chunks)
            .filter(|&stage| own(stage))
            .map(|stage| path.forward[stage].min(path.backward[stage]))
            .fold(f64::INFINITY, f64::min);
        let visits = if visits.is_finite() { visits } else { 0.0 };
        let mut multipliers = vec![0.0; program.ranks];
        let mut most = f64::NEG_INFINITY;
        let mut step = 1.0;
        let arcs: usize = self.stages.iter().map(Vec::len).sum();
        let rounds = (MOST_PRICED / (arcs * program.ranks * 4).max(1)).clamp(1, ROUNDS);
        for _ in 0..if ceiling.is_finite() { rounds } else { 1 } {
            let price = |stage: usize, load: &Load| {
                let less = if own(stage) { visits } else { 0.0 };
                let separate = path.wgrad[stage] > 0.0;
                let wgrad = if separate { load.wgrad } else { 0.0 };
                (path.forward[stage] - less) * load.forward
                    + (path.backward[stage] - less) * (load.backward - wgrad)
                    + (path.wgrad[stage] - if separate { less } else { 0.0 }) * load.wgrad
                    + multipliers[program.rank_of(stage)] * load.both()
            };
            let Some((sum, of_rank)) = self.cheapest(program, price) else { return f64::INFINITY };
            let charged: f64 = if ceiling.is_finite() { multipliers.iter().sum::<f64>() * ceiling } else { 0.0 };
            let value = visits * least + sum - charged;
            if value > most {
                most = value;
            } else {
                step *= 0.8;
            }
            if !ceiling.is_finite() {
                break;
            }
            for (rank, multiplier) in multipliers.iter_mut().enumerate() {
                *multiplier = (*multiplier + step * (of_rank[rank] - ceiling) / ceiling).max(0.0);
            }
        }
        most
    }

    /// The least sum over cuts, and the time of each rank there.
    fn cheapest(&self, program: &Program, price: impl Fn(usize, &Load) -> f64) -> Option<(f64, Vec<f64>)> {
        let n = self.items;
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        let mut from: Vec<Vec<usize>> = Vec::with_capacity(self.stages.len());
        for (stage, arcs) in self.stages.iter().enumerate() {
            let mut next = vec![f64::INFINITY; n + 1];
            let mut cut = vec![usize::MAX; n + 1];
            for (at, (a, b, load)) in arcs.iter().enumerate() {
                let sum = best[*a] + if best[*a].is_finite() { price(stage, load) } else { 0.0 };
                if sum < next[*b] {
                    next[*b] = sum;
                    cut[*b] = at;
                }
            }
            best = next;
            from.push(cut);
        }
        if best[n].is_infinite() {
            return None;
        }
        let mut of_rank = vec![0.0; program.ranks];
        let mut at = n;
        for stage in (0..self.stages.len()).rev() {
            let (a, _, load) = &self.stages[stage][from[stage][at]];
            of_rank[program.rank_of(stage)] += load.both();
            at = *a;
        }
        Some((best[n], of_rank))
    }
}

/// Most states of the sharing out; beyond, the mean over ranks is the bound.
const MOST_STATES: usize = 20_000;

/// The least time of the busiest rank over all ways to share the layers out among ranks, whatever their order: each rank takes
/// a number of each kind; its states and what it keeps for its least in-flight chunk must fit.
pub fn busiest(program: &Program) -> f64 {
    let kinds = program.options.len();
    let mut all = vec![0_usize; kinds];
    for &kind in &program.items {
        all[kind] += 1;
    }
    let time: Vec<f64> = program.options.iter().map(|o| (o[0].time.forward + o[0].time.backward).get()).collect();
    let mut ends = vec![0.0; program.ranks];
    for chunk in 0..program.chunks {
        ends[program.rank_of(chunk)] += program.fastest(chunk, 0, 0).both();
    }
    let whole: f64 = all.iter().zip(&time).map(|(&n, t)| n as f64 * t).sum::<f64>() + ends.iter().sum::<f64>();
    let mean = whole / program.ranks as f64;
    let mut low = ends.iter().copied().fold(mean, f64::max);
    // The kind with the most layers is maximised, the others are the state.
    let Some(main) = (0..kinds).max_by_key(|&kind| all[kind]) else { return low };
    let others: Vec<usize> = (0..kinds).filter(|&kind| kind != main && all[kind] > 0).collect();
    let states: usize = others.iter().map(|&kind| all[kind] + 1).product();
    if states > MOST_STATES || time[main] <= 0.0 {
        return low;
    }
    let feasible = |ceiling: f64| share_out(&all, &time, &ends, main, &others, ceiling * (1.0 + 1e-12));
    if feasible(low) {
        return low;
    }
    let mut high = whole;
    for _ in 0..60 {
        if high - low <= 1e-9 * high {
            break;
        }
        let middle = f64::midpoint(low, high);
        if feasible(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    low
}

/// Whether ranks under a ceiling can take all layers: for every count of the other kinds, the most of the main kind.
fn share_out(all: &[usize], time: &[f64], ends: &[f64], main: usize, others: &[usize], ceiling: f64) -> bool {
    let sizes: Vec<usize> = others.iter().map(|&kind| all[kind] + 1).collect();
    let states: usize = sizes.iter().product();
    let mut most: Vec<Option<usize>> = vec![None; states];
    most[0] = Some(0);
    for end in ends {
        // What this rank may take of the other kinds, and of the main kind with that.
        let mut takes: Vec<(Vec<usize>, usize)> = vec![(vec![0; others.len()], 0)];
        for at in 0..others.len() {
            let mut more = Vec::new();
            for (counts, _) in &takes {
                for n in 0..sizes[at] {
                    let mut counts = counts.clone();
                    counts[at] = n;
                    let used: f64 = counts.iter().zip(others).map(|(&n, &kind)| n as f64 * time[kind]).sum();
                    if used + end > ceiling {
                        break;
                    }
                    more.push((counts, 0));
                }
            }
            takes = more;
        }
        for (counts, mains) in &mut takes {
            let used: f64 = counts.iter().zip(others).map(|(&n, &kind)| n as f64 * time[kind]).sum();
            *mains = ((ceiling - end - used) / time[main]).floor() as usize;
        }
        let mut next: Vec<Option<usize>> = vec![None; states];
        for (state, &had) in most.iter().enumerate() {
            let Some(had) = had else { continue };
            let mut rest = state;
            let used: Vec<usize> = sizes
                .iter()
                .map(|size| {
                    let digit = rest % size;
                    rest /= size;
                    digit
                })
                .collect();
            for (counts, mains) in &takes {
                let (mut index, mut scale) = (0, 1);
                for ((used, n), size) in used.iter().zip(counts).zip(&sizes) {
                    let sum = (used + n).min(size - 1);
                    index += sum * scale;
                    scale *= size;
                }
                next[index] = next[index].max(Some(had + mains));
            }
        }
        most = next;
    }
    most[states - 1].is_some_and(|most| most >= all[main])
}
