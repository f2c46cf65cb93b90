//! Medians of lists of numbers.

/// Median: the middle value, or the mean of the two in the middle; `None` for an empty list.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(f64::midpoint(values[(values.len() - 1) / 2], upper))
}

/// Upper median: the middle value, or the larger of the two in the middle, so that it is one of the values; `None` for an empty
/// list.
pub fn upper_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{median, upper_median};

    #[test]
    fn medians_of_odd_even_and_empty_lists() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), upper_median(vec![3.0, 1.0, 2.0])), (Some(2.0), Some(2.0)));
        assert_eq!((median(vec![4.0, 1.0, 3.0, 2.0]), upper_median(vec![4.0, 1.0, 3.0, 2.0])), (Some(2.5), Some(3.0)));
        assert_eq!((median(Vec::new()), upper_median(Vec::new())), (None, None));
    }
}
