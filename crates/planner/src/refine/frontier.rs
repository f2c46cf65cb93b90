//! Pareto frontier of recomputation for a number of layers: time against memory.

use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::by_stage::LayerOption;

/// Most points of a frontier; beyond, near ones are merged and the loss is kept.
const MOST: usize = 256;

/// One mix of recomputation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecomputePoint {
    /// Backward time above that of the fastest options, seconds.
    pub extra: f64,
    /// Bytes kept for one micro-batch.
    pub kept: f64,
    /// Working set of whole recomputed layers, bytes.
    pub working_set: f64,
    /// Option of the last layer added.
    pub option: usize,
    /// Index of its point on the frontier with one layer fewer.
    pub before: usize,
}

/// Bytes of one mix of recomputation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MixBytes {
    /// Bytes kept for one micro-batch.
    kept: f64,
    /// Working set of whole recomputed layers, bytes.
    working_set: f64,
}

impl MixBytes {
    /// Whether neither part exceeds that of `other`.
    fn within(self, other: Self) -> bool {
        self.working_set <= other.working_set && self.kept <= other.kept
    }
}

/// Undominated mixes, the fastest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frontier {
    /// The mixes.
    pub points: Vec<RecomputePoint>,
    /// Upper bound on the time lost by merging near mixes, seconds.
    pub slack: f64,
    /// The fewest bytes kept with each working set, or a smaller one.
    smallest: Vec<MixBytes>,
}

impl Frontier {
    /// No layers: one mix of nothing.
    pub fn empty() -> Self {
        Self {
            points: vec![RecomputePoint { extra: 0.0, kept: 0.0, working_set: 0.0, option: 0, before: 0 }],
            slack: 0.0,
            smallest: vec![MixBytes { kept: 0.0, working_set: 0.0 }],
        }
    }

    /// Fewest bytes of any mix with `in_flight` micro-batches in flight.
    pub fn least_bytes(&self, in_flight: f64) -> f64 {
        self.smallest.iter().map(|mix| mix.kept * in_flight + mix.working_set).fold(f64::INFINITY, f64::min)
    }

    /// Frontier with one more layer of these options, the first of which is the fastest.
    #[must_use]
    pub fn with(&self, options: &[LayerOption]) -> Self {
        let base = options[0].time.backward.get();
        // Option by option, so that the points come in ascending runs, which a merge sort keeps together.
        let mut all = Vec::with_capacity(self.points.len() * options.len());
        for (at, option) in options.iter().enumerate() {
            for (before, point) in self.points.iter().enumerate() {
                all.push(RecomputePoint {
                    extra: point.extra + (option.time.backward.get() - base),
                    kept: point.kept + option.kept.get(),
                    working_set: point.working_set.max(option.working_set.get()),
                    option: at,
                    before,
                });
            }
        }
        sort_by_numbers(&mut all, |point| [point.extra, point.kept, point.working_set, point.before as f64]);
        let mut points: Vec<RecomputePoint> = Vec::new();
        // The least bytes so far for each working set: few of them, so a list.
        let mut least: Vec<MixBytes> = Vec::new();
        for point in all {
            let own = MixBytes { kept: point.kept, working_set: point.working_set };
            if least.iter().any(|known| known.within(own)) {
                continue;
            }
            least.retain(|known| !own.within(*known));
            least.push(own);
            points.push(point);
        }
        let (points, lost) = thin(points);
        Self { points, slack: self.slack + lost, smallest: least }
    }
}

/// Merges points that lie within 1/256 of the frontier's span of time, those of one working set together: the smallest stays.
fn thin(points: Vec<RecomputePoint>) -> (Vec<RecomputePoint>, f64) {
    if points.len() <= MOST {
        return (points, 0.0);
    }
    let (first, last) = (points[0].extra, points[points.len() - 1].extra);
    let width = (last - first) / MOST as f64;
    let mut kept: Vec<RecomputePoint> = vec![points[0]];
    let mut of_bucket: Vec<RecomputePoint> = Vec::new();
    let mut bucket = 0;
    for point in points.into_iter().skip(1) {
        let own = ((point.extra - first) / width) as usize;
        if own != bucket {
            kept.append(&mut of_bucket);
            bucket = own;
        }
        // Sorted by time and undominated: a later point of the same working set is smaller.
        of_bucket.retain(|known| known.working_set < point.working_set || known.kept < point.kept);
        of_bucket.push(point);
    }
    kept.append(&mut of_bucket);
    (kept, width)
}
