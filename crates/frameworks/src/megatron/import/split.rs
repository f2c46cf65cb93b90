//! Split of the layers over the stages, as Megatron's arguments say it.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py`, `megatron/core/transformer/transformer_block.py`
//! (`get_num_layers_to_build`).

use super::arguments::Arguments;
use super::hybrid;
use crate::import::finding::Finding;
use meshwright_engine::model::Model;
use meshwright_engine::split::layers as split;
use meshwright_engine::split::{LayerSplit, parse_layout};

const LAYOUT: &str = "--pipeline-model-parallel-layout";
const FIRST: &str = "--decoder-first-pipeline-num-layers";
const LAST: &str = "--decoder-last-pipeline-num-layers";
const EMBEDDING: &str = "--account-for-embedding-in-pipeline-split";
const LOSS: &str = "--account-for-loss-in-pipeline-split";
/// Most chunks that are spelled out one by one, so that a mistyped number does not exhaust memory.
const MOST_CHUNKS: u32 = 100_000;

/// Layers per stage where something says them, and chunks of each rank.
pub fn pipeline(list: &mut Arguments, pp: u32, model: Option<&Model>) -> (Option<LayerSplit>, u32) {
    if let Some(stages) = hybrid::stages(list).filter(|stages| pp > 1 && stages.len() > 1) {
        return barred(list, &stages, pp, model);
    }
    refuse_exclusive(list);
    let layout = list.word(LAYOUT).and_then(|text| layout(list, &text, pp, model));
    let (first, last) = (list.size(FIRST), list.size(LAST));
    let counted = CountedEnds { embedding: list.has(EMBEDDING), loss: list.has(LOSS) };
    if let Some((split, v)) = layout {
        return (Some(split), v);
    }
    let v = virtual_stages(list, pp, model, counted);
    if pp > 1 && (first.is_some() || last.is_some()) {
        return (Some(LayerSplit::ends(first, last)), v);
    }
    let Some(layers) = model.map(Model::layers).filter(|_| pp > 1) else { return (None, v) };
    (accounted(layers, counted, pp, v), v)
}

/// Records errors on flags of the split that exclude one another.
fn refuse_exclusive(list: &mut Arguments) {
    let chunked = ["--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", LAYOUT];
    let given: Vec<&str> = chunked.into_iter().filter(|flag| list.place(flag).is_some()).collect();
    let ends: Vec<&str> = [FIRST, LAST].into_iter().filter(|flag| list.place(flag).is_some()).collect();
    let beside: Vec<&str> = [LAYOUT, "--num-layers-per-virtual-pipeline-stage", EMBEDDING, LOSS]
        .into_iter()
        .filter(|flag| list.place(flag).is_some())
        .collect();
    let mut refuse = |flags: &[&str], expected: &str| {
        let finding = Finding::error("contradiction", format!("{} are given together", flags.join(" and ")));
        list.report(flags[1], finding.expected(expected));
    };
    if given.len() > 1 {
        refuse(&given, "no more than one of them");
    }
    if let (Some(end), Some(other)) = (ends.first(), beside.first()) {
        refuse(&[end, other], "the layers of the first and the last rank, or the other");
    }
}

/// A layout, in the plainest words that say the same, and the chunks of a rank.
fn layout(list: &mut Arguments, text: &str, pp: u32, model: Option<&Model>) -> Option<(LayerSplit, u32)> {
    let stages = match parse_layout(text) {
        Ok(LayerSplit::Stages(stages)) => stages,
        Ok(split) => return Some((split, 1)),
        Err(why) => {
            list.wrong(LAYOUT, text, &format!("a layout that Megatron reads ({why})"));
            return None;
        }
    };
    let counts = stages.layers();
    let chunks = counts.len() as u32;
    if !chunks.is_multiple_of(pp) {
        list.wrong(LAYOUT, text, &format!("a multiple of {pp} stages, {chunks} found"));
        return None;
    }
    // As it stands where it does not hold the model's layers, so that what is said of it is what was written.
    let holds = |model: &Model| model.layers() == counts.iter().sum::<u32>() && model.mtp_depth == stages.mtp();
    let split = match model {
        Some(model) if !holds(model) => LayerSplit::Stages(stages),
        Some(_) | None => split::plainest(counts, pp, stages.mtp(), stages.mtp_stage()),
    };
    Some((split, chunks / pp))
}

/// The layers between the bars of a hybrid's pattern, and the chunks of a rank.
fn barred(list: &mut Arguments, stages: &[u32], pp: u32, model: Option<&Model>) -> (Option<LayerSplit>, u32) {
    let chunks = stages.len() as u32;
    if !chunks.is_multiple_of(pp) {
        let expected = format!("a multiple of {pp} stages, {chunks} found");
        list.wrong(hybrid::PATTERN, &stages.len().to_string(), &expected);
        return (None, 1);
    }
    let split = model.map(|_| split::plainest(stages, pp, 0, stages.len() - 1));
    (split, chunks / pp)
}

/// Ends of the model that count as a layer in the split.
#[derive(Clone, Copy)]
struct CountedEnds {
    embedding: bool,
    loss: bool,
}

/// Chunks of a rank: as given, or from the layers of each and the ends that count as layers; 1 where nothing says it.
fn virtual_stages(list: &mut Arguments, pp: u32, model: Option<&Model>, counted: CountedEnds) -> u32 {
    let per_chunk = list.size("--num-layers-per-virtual-pipeline-stage");
    let chunks = list.size("--num-virtual-stages-per-pipeline-rank");
    let (Some(each), Some(model)) = (per_chunk, model) else { return chunks.unwrap_or(1) };
    let layers = model.layers() + u32::from(counted.embedding) + u32::from(counted.loss);
    if layers.is_multiple_of(pp) && (layers / pp).is_multiple_of(each) {
        return layers / pp / each;
    }
    let finding = Finding::error("does-not-divide", format!("{layers} layers on {pp} stages are no chunks of {each}"));
    let expected = "layers per stage, a multiple of the layers per chunk";
    list.report("--num-layers-per-virtual-pipeline-stage", finding.expected(expected));
    1
}

/// Split into equal chunks where the embedding or the loss alone counts as a layer, of the first chunk or the last;
/// nothing where they do not divide.
fn accounted(layers: u32, counted: CountedEnds, pp: u32, v: u32) -> Option<LayerSplit> {
    if counted.embedding == counted.loss {
        return None; // with both, as with none, all chunks have equally many layers
    }
    let chunks = pp.checked_mul(v).filter(|chunks| *chunks <= MOST_CHUNKS)?;
    let each = (layers + 1).checked_div(chunks).filter(|each| each * chunks == layers + 1)?;
    let mut counts = vec![each; chunks as usize];
    let end = if counted.embedding { counts.first_mut() } else { counts.last_mut() }?;
    *end -= 1;
    Some(split::plainest(&counts, pp, 0, counts.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedding_or_a_loss_stands_for_a_layer() {
        let text = |layers, counted, pp, v| accounted(layers, counted, pp, v).map(|split| split.to_string());
        let (first, last) =
            (CountedEnds { embedding: true, loss: false }, CountedEnds { embedding: false, loss: true });
        assert_eq!(text(31, last, 4, 1).as_deref(), Some("even"), "the last gives first");
        assert_eq!(text(31, first, 4, 1).as_deref(), Some("first-7"));
        assert_eq!(text(31, first, 4, 2).as_deref(), Some("Et*3|(t*4|)*6t*4L"));
        assert_eq!(text(30, first, 4, 1), None);
    }
}
