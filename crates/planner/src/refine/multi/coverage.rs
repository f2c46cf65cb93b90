//! Coverage of the layers of every kind by what each rank can hold.

/// Whether ranks can hold all layers: `all` = layers of each kind, `takes(rank)` = numbers of layers of the `others` kinds that a rank
/// may hold, each with the most layers of the `main` kind beside them.
///
/// A dynamic program over the layers of the other kinds that are placed, which keeps the most layers of the main kind.
pub fn covers_layers(
    all: &[usize],
    main: usize,
    others: &[usize],
    ranks: usize,
    takes: impl Fn(usize) -> Vec<(Vec<usize>, usize)>,
) -> bool {
    let sizes: Vec<usize> = others.iter().map(|&kind| all[kind] + 1).collect();
    let states: usize = sizes.iter().product();
    let mut most: Vec<Option<usize>> = vec![None; states];
    most[0] = Some(0);
    for rank in 0..ranks {
        let takes = takes(rank);
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
