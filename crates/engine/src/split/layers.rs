//! Layers of each chunk of the pipeline.

use std::iter::repeat_n;
use std::num::NonZeroU32;
use std::ops::Range;

use smallvec::SmallVec;

use super::LayerSplit;
use crate::schedule::PipelineShape;

/// Layers of each of `chunks`, in model order.
///
/// Even: ⌈L/chunks⌉ each; what is too many is taken from the last chunk, then the first, then the others from the back,
/// as Megatron does when it accounts for loss and embedding (126 = 16·8 − 2 for Llama 3). Source: specification §4.3.
pub fn even(layers: u32, chunks: u32) -> Vec<u32> {
    even_runs(layers, chunks).into_iter().flat_map(|(layers, chunks)| repeat_n(layers, chunks.len())).collect()
}

/// Layers of each rank of a pipeline under [`even`], counting the first `most` of each chunk, without a look at every chunk.
pub(crate) fn even_on_ranks(layers: u32, pipeline: PipelineShape, most: u32) -> SmallVec<[u32; 16]> {
    let [(_, first), (each, _), (_, last)] = even_runs(layers, pipeline.chunks());
    let mut on_ranks = SmallVec::from_elem(each.min(most) * pipeline.schedule.virtual_stages(), pipeline.pp as usize);
    if most >= each {
        first.chain(last).for_each(|chunk| on_ranks[pipeline.rank_of(chunk) as usize] -= 1);
    }
    on_ranks
}

/// Chunks of [`even`] with as many layers: the first where it has one less, most, and the last that have one less.
pub(crate) fn even_runs(layers: u32, chunks: u32) -> [(u32, Range<u32>); 3] {
    let most = layers.div_ceil(chunks);
    let surplus = most * chunks - layers;
    let (less, first) = (most - u32::from(surplus > 0), u32::from(surplus > 1));
    let last = chunks - (surplus - first);
    [(less, 0..first), (most, first..last), (less, last..chunks)]
}

/// Layers of each chunk where the head counts as `x` layers:
///
/// ```text
/// τ = (L + x)/chunks,   last = round(τ − x) within [0, L],   the rest spread evenly
/// ```
///
/// Source: specification §4.3, version 1.1.
pub(crate) fn cost_balanced(layers: u32, chunks: u32, head_in_layers: f64) -> Vec<u32> {
    if chunks == 1 {
        return vec![layers];
    }
    let last = last_of_cost_balanced(layers, chunks, head_in_layers);
    let (rest, others) = (layers - last, chunks - 1);
    let mut counts: Vec<u32> = (0..others).map(|i| rest / others + u32::from(i < rest % others)).collect();
    counts.push(last);
    counts
}

/// Layers of the last chunk of [`cost_balanced`]; the others follow from it.
pub(crate) fn last_of_cost_balanced(layers: u32, chunks: u32, head_in_layers: f64) -> u32 {
    if chunks == 1 {
        return layers;
    }
    let target = (f64::from(layers) + head_in_layers) / f64::from(chunks);
    ((target - head_in_layers).round_ties_even().max(0.0) as u32).min(layers)
}

/// Layers of each chunk where the first and the last of `pp` ranks are given theirs: the other ranks share the rest, and a
/// rank's chunks share its own. What a legal plan would not leave over goes to the first of those that share.
///
/// Source: [megatron-lm] `megatron/core/transformer/transformer_block.py`, `get_num_layers_to_build`.
pub(crate) fn between_ends(
    first: Option<NonZeroU32>,
    last: Option<NonZeroU32>,
    layers: u32,
    pp: u32,
    chunks: u32,
) -> Vec<u32> {
    let own = |rank: u32| match rank {
        0 if first.is_some() => first,
        _ if rank + 1 == pp => last,
        _ => None,
    };
    let given: u32 = (0..pp).filter_map(own).fold(0, |sum, layers| sum.saturating_add(layers.get()));
    let rest = layers.saturating_sub(given);
    let sharing: Vec<u32> = (0..pp).filter(|rank| own(*rank).is_none()).collect();
    let share = |all: u32, among: u32, at: u32| all / among + u32::from(at < all % among);
    let of_rank: Vec<u32> = (0..pp)
        .map(|rank| match (own(rank), sharing.iter().position(|sharer| *sharer == rank)) {
            (Some(layers), _) => layers.get(),
            (None, at) => share(rest, sharing.len().max(1) as u32, at.unwrap_or_default() as u32),
        })
        .collect();
    let each = (chunks / pp).max(1);
    (0..chunks).map(|chunk| share(of_rank[(chunk % pp) as usize], each, chunk / pp)).collect()
}

/// Layers of each chunk under a split, on `pp` ranks. They always sum to the model's: what a split that is not legal here names
/// too many is left out, what it names too few lies on the last chunk.
pub fn layers_of_chunks(split: &LayerSplit, layers: u32, pp: u32, chunks: u32, head_in_layers: f64) -> Vec<u32> {
    match *split {
        LayerSplit::Even => even(layers, chunks),
        LayerSplit::CostBalanced => cost_balanced(layers, chunks, head_in_layers),
        LayerSplit::Ends { first, last } => summing_up(between_ends(first, last, layers, pp, chunks), layers, chunks),
        LayerSplit::Stages(ref list) => summing_up(list.layers().to_vec(), layers, chunks),
    }
}

fn summing_up(mut counts: Vec<u32>, layers: u32, chunks: u32) -> Vec<u32> {
    counts.resize(chunks as usize, 0);
    let mut left = layers;
    for count in &mut counts {
        *count = left.min(*count);
        left -= *count;
    }
    if let Some(last) = counts.last_mut() {
        *last += left;
    }
    counts
}

/// The plainest split with these layers on each chunk of `pp` ranks, and the multi-token-prediction layers on chunk
/// `mtp_stage`: even, else with other layers on the first or the last rank, else spelled out.
pub fn plainest(counts: &[u32], pp: u32, mtp: u32, mtp_stage: usize) -> LayerSplit {
    let (chunks, layers) = (counts.len() as u32, counts.iter().sum());
    let at_the_end = mtp == 0 || mtp_stage + 1 == counts.len();
    if at_the_end && even(layers, chunks) == counts {
        return LayerSplit::Even;
    }
    if at_the_end && pp > 1 && chunks.is_multiple_of(pp) {
        let of_rank = |rank: u32| counts.iter().skip(rank as usize).step_by(pp as usize).sum::<u32>();
        let (first, last) = (NonZeroU32::new(of_rank(0)), NonZeroU32::new(of_rank(pp - 1)));
        for (first, last) in [(first, None), (None, last), (first, last)] {
            if fits_ends(first, last, layers, pp, chunks).is_ok()
                && between_ends(first, last, layers, pp, chunks) == counts
            {
                return LayerSplit::Ends { first, last };
            }
        }
    }
    LayerSplit::stages(counts, mtp, mtp_stage)
}

/// Splits that give the first and the last rank layers of their own, so that the other ranks hold as few as they can, and neither
/// end a layer a chunk more than they; without the even one. That is a choice of what to search, not a proof: any other split
/// can be asked for, or be chosen by refinement.
pub fn light_ends(layers: u32, pp: u32, virtual_stages: u32) -> Vec<LayerSplit> {
    let (chunks, middle) = (pp * virtual_stages, layers.div_ceil(pp * virtual_stages) * virtual_stages);
    let Some(both) = pp.checked_sub(2).and_then(|others| layers.checked_sub(middle * others)) else {
        return Vec::new();
    };
    let most = middle + virtual_stages;
    let firsts = (virtual_stages..=most.min(both)).step_by(virtual_stages as usize);
    let with_first = |first: u32| {
        let ends = [NonZeroU32::new(first), NonZeroU32::new(both - first)];
        let fits = both - first <= most && fits_ends(ends[0], ends[1], layers, pp, chunks).is_ok();
        let split = fits.then(|| plainest(&self::between_ends(ends[0], ends[1], layers, pp, chunks), pp, 0, 0))?;
        (split != LayerSplit::Even).then_some(split)
    };
    firsts.filter_map(with_first).collect()
}

/// Whether the first and the last rank can have stated numbers of layers.
///
/// # Errors
/// The layers that do not divide, and among how many.
///
/// Source: [megatron-lm] `get_num_layers_to_build`: what is left divides by the ranks that are left, and each rank's layers by
/// its chunks.
pub fn fits_ends(
    first: Option<NonZeroU32>,
    last: Option<NonZeroU32>,
    layers: u32,
    pp: u32,
    chunks: u32,
) -> Result<(), String> {
    let given = [first, last].map(|end| end.map_or(0, NonZeroU32::get));
    let named = [first, last].iter().flatten().count() as u32;
    if pp < 2 || (first.is_none() && last.is_none()) {
        return Err("it needs a first or a last rank of two or more".into());
    }
    let Some(rest) = given[0].checked_add(given[1]).and_then(|sum| layers.checked_sub(sum)) else {
        return Err(format!("the model has {layers} layers"));
    };
    let ranks = pp - named;
    if ranks == 0 && rest > 0 || ranks > 0 && !rest.is_multiple_of(ranks) {
        return Err(format!("the other {rest} layers do not divide by the other {ranks} ranks"));
    }
    let each = chunks / pp;
    let others = rest.checked_div(ranks).unwrap_or(0);
    match [given[0], given[1], others].into_iter().find(|layers| !layers.is_multiple_of(each)) {
        Some(odd) => Err(format!("the {odd} layers of a rank do not divide by its {each} chunks")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    #[test]
    fn llama_3_405b_has_a_layer_less_at_both_ends() {
        let counts = even(126, 128);
        assert_eq!((counts[0], counts[127]), (0, 0));
        let counts = even(126, 16);
        assert_eq!((counts[0], counts[1], counts[15]), (7, 8, 7));
        assert_eq!(counts.iter().sum::<u32>(), 126);
    }

    #[test]
    fn every_layer_has_a_chunk() {
        for layers in 1..40 {
            for chunks in 1..=layers {
                assert_eq!(even(layers, chunks).iter().sum::<u32>(), layers, "{layers} {chunks}");
                assert_eq!(cost_balanced(layers, chunks, 1.7).iter().sum::<u32>(), layers, "{layers} {chunks}");
            }
        }
    }

    #[test]
    fn even_ranks_hold_their_chunks() {
        let interleaved = |virtual_stages| Schedule::Interleaved { virtual_stages };
        for schedule in [Schedule::OneFOneB, interleaved(3), interleaved(16), Schedule::ZbV, Schedule::DualPipe] {
            for (layers, pp, most) in itertools::iproduct!([61, 80, 126], [1, 2, 6, 8], [0, 1, 7, 8, u32::MAX]) {
                let (pipeline, mut held) = (schedule.on(pp), vec![0; pp as usize]);
                for (count, rank) in even(layers, pipeline.chunks()).into_iter().zip(pipeline.ranks()) {
                    held[rank as usize] += count.min(most);
                }
                assert_eq!(even_on_ranks(layers, pipeline, most)[..], held[..], "{pipeline:?} {layers} {most}");
            }
        }
    }

    #[test]
    fn ends_are_as_megatron_builds_them() {
        let some = NonZeroU32::new;
        assert_eq!(between_ends(some(3), some(2), 61, 16, 16)[..3], [3, 4, 4]);
        assert_eq!(between_ends(some(3), some(2), 61, 16, 16)[15], 2);
        assert_eq!(between_ends(some(4), None, 28, 4, 8), [2, 4, 4, 4, 2, 4, 4, 4]);
        assert_eq!(between_ends(some(3), some(5), 8, 2, 2), [3, 5]);
        assert!(fits_ends(some(3), some(2), 61, 16, 16).is_ok());
        assert!(fits_ends(some(4), None, 28, 4, 8).is_ok());
        for (first, last, why) in
            [(some(4), some(2), "55 layers"), (some(62), None, "61 layers"), (None, None, "first or a last")]
        {
            let error = fits_ends(first, last, 61, 16, 16).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(fits_ends(some(3), None, 27, 4, 8).is_err_and(|why| why.contains("2 chunks")));
    }

    #[test]
    fn light_ends_leave_the_others_alike() {
        let texts = |layers, pp, v| light_ends(layers, pp, v).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(126, 16, 1), ["first-5+last-9", "first-6", "last-6", "first-9+last-5"]);
        assert_eq!(texts(61, 16, 1), ["first-1", "first-2+last-3", "first-3+last-2", "last-1"]);
        assert_eq!(texts(8, 2, 1), ["first-3", "first-5"]);
        assert_eq!(texts(64, 8, 2), ["first-6+last-10", "first-10+last-6"]);
        assert!(light_ends(40, 1, 1).is_empty());
        for (layers, pp, v) in [(126, 8, 1), (126, 14, 3), (64, 8, 2), (61, 4, 5), (7, 7, 1), (48, 2, 6)] {
            for split in light_ends(layers, pp, v) {
                let counts = layers_of_chunks(&split, layers, pp, pp * v, 0.0);
                assert_eq!(counts.iter().sum::<u32>(), layers, "{split}");
                let middle = &counts[1..pp as usize - 1];
                assert!(middle.iter().all(|count| *count == middle[0]), "{split} {counts:?}");
            }
        }
    }

    #[test]
    fn the_plainest_split_has_the_same_layers() {
        let text = |counts: &[u32], pp, mtp, at| plainest(counts, pp, mtp, at).to_string();
        assert_eq!(text(&[7, 8, 8, 7], 4, 0, 3), "even");
        assert_eq!(text(&[3, 4, 4, 2], 4, 1, 3), "first-3+last-2");
        assert_eq!(text(&[3, 5, 5, 5], 4, 0, 3), "first-3");
        assert_eq!(text(&[2, 4, 4, 4, 2, 4, 4, 4], 4, 0, 7), "first-4");
        assert_eq!(text(&[4, 4, 4, 0], 4, 1, 2), "Et*4|t*4|t*4m|L");
        assert_eq!(text(&[2, 3, 4, 1], 4, 0, 3), "Et*2|t*3|t*4|tL");
    }
}
