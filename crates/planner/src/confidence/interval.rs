//! Interval of a predicted quantity.

/// Interval that holds nine of ten values of a quantity: 5 % are below it, and 5 % above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval<T> {
    /// Lower end.
    pub low: T,
    /// Upper end.
    pub high: T,
}

impl<T> Interval<T> {
    /// Interval between the images of both ends, under a function that ascends.
    pub fn map<U>(self, image: impl Fn(T) -> U) -> Interval<U> {
        Interval { low: image(self.low), high: image(self.high) }
    }
}

impl<T: Copy + PartialOrd> Interval<T> {
    /// Smallest interval that holds this one and another.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self {
            low: if other.low < self.low { other.low } else { self.low },
            high: if other.high > self.high { other.high } else { self.high },
        }
    }

    /// Whether a value lies between the ends, or on one.
    pub fn contains(&self, value: &T) -> bool {
        self.low <= *value && *value <= self.high
    }
}
