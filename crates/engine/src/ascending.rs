//! Sorting by numbers, with one comparison function for all types of items: each instance of std's sort would add some
//! ten kilobytes to the WebAssembly module of the page.

use std::cmp::Ordering;

/// Sorts items by numbers, ascending, in [`f64::total_cmp`]'s order: by the first, then by the next. Equals keep their order.
pub fn sort_by_numbers<T, const N: usize>(items: &mut [T], numbers: impl Fn(&T) -> [f64; N]) {
    let keys: Vec<f64> = items.iter().flat_map(numbers).collect();
    let mut places = places(&keys, N);
    for at in 0..items.len() {
        while places[at] != at {
            let to = places[at];
            items.swap(at, to);
            places.swap(at, to);
        }
    }
}

/// The place of each item, of which `each` numbers follow those of the item before, among all in ascending order.
#[inline(never)]
fn places(keys: &[f64], each: usize) -> Vec<usize> {
    let key = |item: usize| &keys[item * each..][..each];
    let compare = |a: usize, b: usize| {
        let orders = key(a).iter().zip(key(b)).map(|(a, b)| a.total_cmp(b));
        orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..keys.len() / each.max(1)).collect();
    order.sort_by(|&a, &b| compare(a, b));
    let mut places = vec![0; order.len()];
    for (place, &item) in order.iter().enumerate() {
        places[item] = place;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against std's stable sort, with many equals.
    #[test]
    fn items_come_in_the_order_of_std() {
        for count in 0..60_u32 {
            let item = |at: u32| (f64::from(at * 7919 % 5), f64::from(at * 104_729 % 3), at);
            let mut wanted: Vec<(f64, f64, u32)> = (0..count).map(item).collect();
            let mut found = wanted.clone();
            wanted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            sort_by_numbers(&mut found, |item| [item.0, item.1]);
            assert_eq!(found, wanted);
        }
    }
}
