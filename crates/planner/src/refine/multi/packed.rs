//! Columns of one branch-and-bound node, packed so that reduced costs are sums of scaled vectors.

/// Cost of a number of layers that no column has.
pub const NEVER: f64 = f64::INFINITY;

/// Columns left of one rank, ascending by their layers, then by their index.
pub struct PackedRank {
    /// Index of each column.
    columns: Vec<usize>,
    /// Number of layers, and the columns with it.
    groups: Vec<(usize, std::ops::Range<usize>)>,
    /// Each addend of the reduced cost for all columns, one after another.
    addends: Vec<f64>,
}

/// Columns left of a node, by rank.
pub struct PackedColumns {
    ranks: Vec<PackedRank>,
    /// Index of the first column of each rank among those of all ranks; at the end the number of columns.
    first: Vec<usize>,
}

/// Cheapest reduced costs of a rank, by number of layers.
pub type Cheapest = Vec<f64>;

impl PackedRank {
    /// Packs columns: `layers` = layers of a column, `width` = number of addends, `addend(column, at)` = one of them.
    pub fn new(
        left: &[usize],
        layers: impl Fn(usize) -> usize,
        width: usize,
        addend: impl Fn(usize, usize) -> f64,
    ) -> Self {
        let mut columns = left.to_vec();
        columns.sort_by_key(|&column| (layers(column), column));
        let mut groups: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
        for (at, &column) in columns.iter().enumerate() {
            match groups.last_mut() {
                Some((own, range)) if *own == layers(column) => range.end = at + 1,
                Some(_) | None => groups.push((layers(column), at..at + 1)),
            }
        }
        let addends = (0..width).flat_map(|at| columns.iter().map(move |&column| (column, at)));
        let addends = addends.map(|(column, at)| addend(column, at)).collect();
        Self { columns, groups, addends }
    }

    /// Adds the scaled addends of each column to `costs`.
    fn add(&self, factors: &[f64], costs: &mut [f64]) {
        let n = self.columns.len();
        for (&factor, addends) in factors.iter().zip(self.addends.chunks_exact(n.max(1))) {
            if factor != 0.0 {
                costs.iter_mut().zip(addends).for_each(|(cost, addend)| *cost += factor * addend);
            }
        }
    }

    /// Least cost for each number of layers.
    fn cheapest(&self, costs: &[f64]) -> Cheapest {
        let mut list = vec![NEVER; self.groups.last().map_or(0, |(layers, _)| layers + 1)];
        for (layers, range) in &self.groups {
            list[*layers] = minimum(&costs[range.clone()]);
        }
        list
    }

    /// First column with this number of layers and this cost.
    fn column(&self, layers: usize, costs: &[f64], cost: f64) -> Option<usize> {
        let (_, range) = self.groups.iter().find(|(own, _)| *own == layers)?;
        let at = costs[range.clone()].iter().position(|own| *own <= cost)?;
        Some(self.columns[range.start + at])
    }
}

/// Least of a list, in four independent minima.
fn minimum(list: &[f64]) -> f64 {
    let mut minima = [NEVER; 4];
    let fours = list.chunks_exact(4);
    let rest = fours.remainder().iter().copied().fold(NEVER, f64::min);
    for four in fours {
        for (minimum, &own) in minima.iter_mut().zip(four) {
            *minimum = if own < *minimum { own } else { *minimum };
        }
    }
    minima.into_iter().fold(rest, f64::min)
}

impl PackedColumns {
    /// Columns of all ranks.
    pub fn new(ranks: Vec<PackedRank>) -> Self {
        let mut first = vec![0];
        for rank in &ranks {
            first.push(first[first.len() - 1] + rank.columns.len());
        }
        Self { ranks, first }
    }

    /// Number of columns of all ranks.
    pub fn len(&self) -> usize {
        self.first[self.ranks.len()]
    }

    /// Number of pairs of a rank and a number of layers that one of its columns has.
    pub fn layer_counts(&self) -> usize {
        self.ranks.iter().map(|rank| rank.groups.len()).sum()
    }

    /// Reduced costs of all columns; `factors` = those of the addends of a rank.
    pub fn costs(&self, factors: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
        let mut costs = vec![0.0; self.len()];
        for (rank, own) in self.ranks.iter().enumerate() {
            own.add(&factors(rank), &mut costs[self.first[rank]..self.first[rank + 1]]);
        }
        costs
    }

    /// Cheapest reduced costs of each rank.
    pub fn cheapest(&self, costs: &[f64]) -> Vec<Cheapest> {
        let of_rank = |rank: usize| self.ranks[rank].cheapest(&costs[self.first[rank]..self.first[rank + 1]]);
        (0..self.ranks.len()).map(of_rank).collect()
    }

    /// Column of a rank with this number of layers and this cost.
    pub fn column(&self, rank: usize, layers: usize, costs: &[f64], cost: f64) -> Option<usize> {
        self.ranks[rank].column(layers, &costs[self.first[rank]..self.first[rank + 1]], cost)
    }

    /// Cost of each column of a rank, ascending by index, plus the least cost `rests[layers]` of the other ranks beside it.
    pub fn with_rests(&self, rank: usize, costs: &[f64], rests: &[f64]) -> Vec<f64> {
        let (own, costs) = (&self.ranks[rank], &costs[self.first[rank]..self.first[rank + 1]]);
        let mut all: Vec<(usize, f64)> = Vec::with_capacity(costs.len());
        for (layers, range) in &own.groups {
            let columns = own.columns[range.clone()].iter().zip(&costs[range.clone()]);
            all.extend(columns.map(|(&column, cost)| (column, cost + rests[*layers])));
        }
        all.sort_unstable_by_key(|&(column, _)| column);
        all.into_iter().map(|(_, cost)| cost).collect()
    }
}
