//! Which layers each stage holds, as torchtitan's configuration says it or as torchtitan splits them itself.
//!
//! Source: [torchtitan] `torchtitan/distributed/pipeline_parallel.py` (`generate_llm_fqn_per_model_part`), 0.2 and 0.3.

use crate::import::finding::Finding;
use crate::readers::document::Document;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::split::layers::plainest;

const PARTS: &str = "parallelism.module_fqns_per_model_part";
const PER_STAGE: &str = "parallelism.pipeline_parallel_layers_per_stage";
/// Most stages that are spelled out, so that a mistyped number does not exhaust memory.
const MOST_STAGES: u32 = 100_000;

/// Weights of the embedding and of the head in layers: the first and the last stage hold that many layers less.
fn weights(document: &Document) -> [u32; 2] {
    let weight = |end| document.number(&format!("parallelism.pipeline_parallel_{end}_stage_less_layers")).unwrap_or(1);
    [weight("first"), weight("last")]
}

/// Number of stages of each rank: that of the stages that are spelled out, else that which the layers of a stage ask for, else
/// `usual`, the schedule's own.
pub fn stages_of_rank(document: &Document, layers: Option<u32>, pp: u32, usual: u32) -> u32 {
    if let Some(parts) = document.count(PARTS) {
        if parts >= pp && parts.is_multiple_of(pp) {
            return parts / pp;
        }
        document.wrong(PARTS, &format!("{parts} stages"), &format!("a multiple of {pp} stages"));
        return usual;
    }
    let (Some(each), Some(layers)) = (document.size(PER_STAGE), layers) else { return usual };
    let [first, last] = weights(document);
    let stages = u64::from(layers) + u64::from(first) + u64::from(last);
    let stages = stages.div_ceil(u64::from(each));
    let of_rank = stages / u64::from(pp);
    if !stages.is_multiple_of(u64::from(pp)) || (usual == 1) != (of_rank == 1) {
        let expected = if usual == 1 { "one stage a rank" } else { "two stages a rank or more, as many on each" };
        document.wrong(PER_STAGE, &format!("{each}: {stages} stages on {pp} ranks"), expected);
        return usual;
    }
    of_rank.min(u64::from(MOST_STAGES)) as u32
}

/// Split of a model's layers over `pp` ranks of `v` stages each; `layers` = of the model, where it is known.
pub fn split(document: &Document, layers: Option<u32>, pp: u32, v: u32) -> Option<LayerSplit> {
    let stages = pp.checked_mul(v).filter(|stages| *stages <= MOST_STAGES)?;
    let [first, last] = weights(document);
    let counts = match document.count(PARTS) {
        Some(parts) if parts == stages => named(document, parts)?,
        Some(_) => return None,
        None => match weighed(layers?, stages, first, last) {
            Ok(counts) => counts,
            Err(why) => {
                let place = document.place("parallelism.pipeline_parallel_degree");
                document.note(Finding::error("does-not-divide", why).at_maybe(place.as_ref()));
                return None;
            }
        },
    };
    let holds = layers.is_none_or(|layers| layers == counts.iter().sum::<u32>());
    let last = counts.len() - 1;
    Some(if holds { plainest(&counts, pp, 0, last) } else { LayerSplit::stages(&counts, 0, last) })
}

/// Layers of each stage that is spelled out by names of modules, or by the counts of a call.
fn named(document: &Document, parts: u32) -> Option<Vec<u32>> {
    let layers =
        |part| document.words(&format!("{PARTS}.{part}")).iter().filter(|name| name.contains("layers.")).count();
    let counts: Vec<u32> = (0..parts).map(|part| layers(part) as u32).collect();
    if counts.iter().any(|count| *count > 0) {
        return Some(counts);
    }
    let given = [PARTS.to_owned(), format!("{PARTS}.0")];
    let numbers =
        |path: &String| document.words(path).iter().map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>();
    given.iter().filter_map(numbers).find(|counts| counts.len() == parts as usize)
}

/// Layers of each stage where torchtitan spreads L + f + l of them evenly, the first stages taking the remainder; f on
/// the first stage and l on the last stand for the embedding and the head.
///
/// # Errors
/// Torchtitan refuses the split, for the reason given.
fn weighed(layers: u32, stages: u32, first: u32, last: u32) -> Result<Vec<u32>, String> {
    if stages == 1 {
        return Ok(vec![layers]);
    }
    let all = layers.saturating_add(first).saturating_add(last);
    let (each, over) = (all / stages, all % stages);
    if each == 0 || first > each || last > each {
        return Err(format!(
            "{layers} layers, with {first} for the embedding and {last} for the head, leave {each} for each of {stages} stages"
        ));
    }
    let mut left = layers;
    let counts = (0..stages).map(|stage| {
        let less = if stage == 0 { first } else { 0 } + if stage + 1 == stages { last } else { 0 };
        let count = (each + u32::from(stage < over) - less).min(left);
        left -= count;
        count
    });
    Ok(counts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_as_torchtitan_spreads_them() {
        assert_eq!(weighed(32, 4, 1, 1), Ok(vec![8, 9, 8, 7]));
        assert_eq!(weighed(30, 4, 1, 1), Ok(vec![7, 8, 8, 7]));
        assert_eq!(weighed(3, 2, 2, 2), Ok(vec![2, 1]));
        assert!(weighed(2, 8, 1, 1).is_err());
        assert!(weighed(6, 4, 5, 0).is_err());
    }
}
