//! Distinct values of a sequence: the kinds of a list, and the kind of each item.

/// Distinct items in the order in which they first come, and for each item the index of its equal among them.
///
/// Compares each item with every distinct one, for lists of few kinds, such as the layers of a model.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> (Vec<T>, Vec<usize>) {
    let mut kinds: Vec<T> = Vec::new();
    let mut kind_of = |item: T| {
        let kind = kinds.iter().position(|known| *known == item).unwrap_or(kinds.len());
        if kind == kinds.len() {
            kinds.push(item);
        }
        kind
    };
    let order = items.into_iter().map(&mut kind_of).collect();
    (kinds, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_name_their_equal_in_the_order_of_the_first() {
        assert_eq!(distinct(["b", "a", "b", "c", "a"]), (vec!["b", "a", "c"], vec![0, 1, 0, 2, 1]));
        assert_eq!(distinct([0_u32; 0]), (vec![], vec![]));
    }
}
