//! Cuts of the layers into stages: legality, starts of a local search, and neighbours.

use super::program::StageProgram;

/// Cuts with the same time on every rank, and on a rank the same for each stage but for the model's ends.
///
/// ```text
/// T = (1 + Σ_r ends_r/W_r) / Σ_r 1/W_r          W_r: all layers on rank r
/// ```
fn balanced(program: &StageProgram) -> Vec<usize> {
    let n = program.len();
    let layers = program.layers_time(0, 0, n);
    // How much slower a rank is than the first.
    let mut slower = vec![1.0; program.ranks];
    let mut ends = vec![0.0; program.ranks];
    for chunk in 0..program.chunks {
        let rank = program.rank_of(chunk);
        slower[rank] = program.layers_time(chunk, 0, n) / layers;
        ends[rank] += program.fastest(chunk, 0, 0).busy;
    }
    let work = layers + ends.iter().zip(&slower).map(|(end, slower)| end / slower).sum::<f64>();
    let mean = work / slower.iter().map(|slower| 1.0 / slower).sum::<f64>();
    let of_rank: Vec<f64> = ends.iter().zip(&slower).map(|(end, slower)| (mean - end) / slower).collect();
    let v = (program.chunks / program.ranks) as f64;
    let mut cuts = vec![0];
    let mut target = 0.0;
    for chunk in 0..program.chunks - 1 {
        target += (of_rank[program.rank_of(chunk)] / v).max(0.0);
        let before = cuts[chunk];
        let near = |b: usize| (program.layers_time(0, 0, b) - target).abs();
        let cut = (before..=n).min_by(|&a, &b| near(a).total_cmp(&near(b))).unwrap_or(n);
        cuts.push(cut);
    }
    cuts.push(n);
    repair(program, &mut cuts);
    cuts
}

/// Makes every stage that must hold a layer hold one.
fn repair(program: &StageProgram, cuts: &mut [usize]) {
    let n = program.len();
    let last = cuts.len() - 1;
    for chunk in 1..last {
        let least = cuts[chunk - 1] + usize::from(chunk > 1);
        cuts[chunk] = cuts[chunk].max(least);
    }
    for chunk in (1..last).rev() {
        let most = if chunk + 1 == last { n } else { cuts[chunk + 1] - 1 };
        cuts[chunk] = cuts[chunk].min(most);
    }
}

/// Whether cuts leave no stage empty that may not be.
pub fn legal(program: &StageProgram, cuts: &[usize]) -> bool {
    (0..program.chunks)
        .all(|chunk| cuts[chunk] <= cuts[chunk + 1] && program.may_hold(chunk, cuts[chunk], cuts[chunk + 1]))
}

/// Starts of a local search: balanced by time, and even by layers with the remainder taken from the ends or added to the first.
pub fn starts(program: &StageProgram) -> Vec<Vec<usize>> {
    let n = program.len();
    let from_counts = |counts: Vec<u32>| {
        let mut cuts = vec![0];
        for count in counts {
            cuts.push(cuts[cuts.len() - 1] + count as usize);
        }
        repair(program, &mut cuts);
        cuts
    };
    let mut starts = vec![balanced(program)];
    starts.push(from_counts(meshwright_engine::split::layers::even(n as u32, program.chunks as u32)));
    let (each, more) = (n / program.chunks, n % program.chunks);
    starts.push(from_counts((0..program.chunks).map(|chunk| (each + usize::from(chunk < more)) as u32).collect()));
    starts
}

/// Cuts with one layer moved from one stage to another, those between shifting along.
pub fn neighbours<'n>(program: &'n StageProgram, cuts: &'n [usize]) -> impl Iterator<Item = Vec<usize>> + use<'n> {
    let chunks = program.chunks;
    let pairs = (0..chunks).flat_map(move |low| (low + 1..chunks).map(move |high| (low, high)));
    let moves = pairs.flat_map(|(low, high)| [(low, high, true), (low, high, false)]);
    moves.filter_map(move |(low, high, up)| {
        let mut moved = cuts.to_vec();
        for cut in &mut moved[low + 1..=high] {
            *cut = if up { *cut + 1 } else { cut.checked_sub(1)? };
        }
        (moved[high] <= cuts[chunks] && legal(program, &moved)).then_some(moved)
    })
}

/// Split that is nearest to fitting.
pub struct NearestSplit {
    /// Rank with the largest excess of memory.
    pub fullest: usize,
    /// First layer of each stage, and the number of layers.
    pub cuts: Vec<usize>,
}

/// Split with the smallest excess of memory under its smallest mixes.
pub fn nearest_split(program: &StageProgram) -> NearestSplit {
    // Neighbours share most of their stages.
    let width = program.len() + 1;
    let mut known: Vec<Option<f64>> = vec![None; program.chunks * width * width];
    let mut excess = |cuts: &[usize]| -> (f64, usize) {
        let mut of_rank: Vec<f64> = program.room.iter().map(|room| -room).collect();
        for chunk in 0..program.chunks {
            let (rank, a, b) = (program.rank_of(chunk), cuts[chunk], cuts[chunk + 1]);
            let bytes = &mut known[(chunk * width + a) * width + b];
            of_rank[rank] += *bytes.get_or_insert_with(|| program.least_excess(chunk, a, b) + program.room[rank]);
        }
        let rank = (0..of_rank.len()).max_by(|&a, &b| of_rank[a].total_cmp(&of_rank[b])).unwrap_or(0);
        (of_rank[rank], rank)
    };
    let starts = starts(program).into_iter().filter(|cuts| legal(program, cuts)).map(|cuts| (excess(&cuts), cuts));
    let best = starts.min_by(|a, b| a.0.0.total_cmp(&b.0.0));
    let (mut least, mut here) = best.unwrap_or_else(|| {
        let cuts = balanced(program);
        (excess(&cuts), cuts)
    });
    for _ in 0..program.len() {
        let near = neighbours(program, &here).map(|cuts| (excess(&cuts), cuts));
        match near.min_by(|a, b| a.0.0.total_cmp(&b.0.0)) {
            Some((less, cuts)) if less.0 < least.0 => (least, here) = (less, cuts),
            Some(_) | None => break,
        }
    }
    NearestSplit { fullest: least.1, cuts: here }
}
