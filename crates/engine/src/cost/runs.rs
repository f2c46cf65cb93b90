//! Layers of neighbouring places, pipeline ranks or virtual stages, as runs of places with the same layers.

use std::ops::Range;

use smallvec::SmallVec;

/// Numbers by kind of layer, or by choice.
pub(super) type PerKind = SmallVec<[f64; 4]>;

/// Layers of each choice at each place, in runs of neighbours with the same layers; few splits have more than four.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Runs(SmallVec<[(Range<u32>, PerKind); 4]>);

impl Runs {
    /// Number of places.
    pub fn places(&self) -> u32 {
        self.0.last().map_or(0, |(places, _)| places.end)
    }

    /// Layers at a place.
    pub fn at(&self, place: u32) -> &PerKind {
        let run = self.0.iter().find(|(places, _)| place < places.end);
        &run.expect("a place of the pipeline").1
    }

    /// Places of each run, with the layers at each of them.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u32>, &PerKind)> {
        self.0.iter().map(|(places, layers)| (places.clone(), layers))
    }

    /// Layers at every place, in order.
    pub fn each(&self) -> impl DoubleEndedIterator<Item = &PerKind> {
        self.0.iter().flat_map(|(places, layers)| std::iter::repeat_n(layers, places.len()))
    }

    /// Runs with `more` layers of one choice at one place.
    pub fn with(&self, place: u32, choice: usize, more: f64) -> Self {
        let with_more = |(own, layers): (u32, &PerKind)| {
            let mut layers = layers.clone();
            layers[choice] += if own == place { more } else { 0.0 };
            (layers, 1)
        };
        (0..).zip(self.each()).map(with_more).collect()
    }

    /// Joins runs, of which no two neighbours have the same layers.
    pub fn of_distinct(runs: impl Iterator<Item = (PerKind, u32)>) -> Self {
        let (mut all, mut start) = (SmallVec::new(), 0);
        for (layers, places) in runs {
            all.push((start..start + places, layers));
            start += places;
        }
        Self(all)
    }

    fn push(&mut self, layers: PerKind, places: u32) {
        let start = self.places();
        match self.0.last_mut().filter(|(_, last)| *last == layers) {
            Some((run, _)) => run.end += places,
            None => self.0.push((start..start + places, layers)),
        }
    }
}

impl FromIterator<(PerKind, u32)> for Runs {
    /// Joins layers, each with the number of next places that have them.
    fn from_iter<I: IntoIterator<Item = (PerKind, u32)>>(runs: I) -> Self {
        let mut all = Self::default();
        runs.into_iter().for_each(|(layers, places)| all.push(layers, places));
        all
    }
}
