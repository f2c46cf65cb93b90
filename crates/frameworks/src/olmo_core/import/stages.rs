//! Stages and schedule of a pipeline.

use super::at;
use super::reader::member;
use crate::import::finding::Finding;
use crate::import::imported::Imported;
use crate::readers::document::Document;
use meshwright_engine::model::Model;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::split::layers::plainest;

/// Sets the schedule and the stages of a pipeline.
pub(super) fn pipeline(document: &Document, imported: &mut Imported) {
    let pp = imported.plan.layout.pp;
    let path = at("pp_config.schedule");
    let name = document.word(&path).unwrap_or_else(|| "interleaved_1F1B".into());
    let points = at("pp_config.split_points");
    let _ = document.word(&at("pp_config.style"));
    if pp == 1 {
        return;
    }
    let layers = imported.model.as_ref().map(Model::layers);
    let single = matches!(member(&name), "single_1F1B" | "1F1B" | "gpipe" | "GPipe");
    let given = document.count(&points).is_some();
    let counts = if given {
        split_at_points(document, &points, layers)
    } else {
        layers.and_then(|layers| default_split(layers, pp, single))
    };
    if counts.is_none() && (given || layers.is_some()) {
        let message = format!("`{points}` does not give stages that are read");
        document.note(Finding::error("unread-setting", message).at_maybe(document.place(&at("pp_config")).as_ref()));
    }
    let stages = counts.as_ref().map_or(if single { pp } else { 2 * pp }, |counts| counts.len() as u32);
    let each = stages / pp;
    if !stages.is_multiple_of(pp) || (single != (each == 1)) {
        document.wrong(
            &points,
            &format!("{stages} stages on {pp} ranks"),
            "as many on each, and one alone for 1F1B and GPipe",
        );
    }
    imported.plan.schedule = schedule(document, &path, member(&name), each.max(2));
    if let Some(counts) = counts {
        let last = counts.len() - 1;
        let holds = layers.is_none_or(|layers| layers == counts.iter().sum::<u32>());
        imported.plan.split = if holds { plainest(&counts, pp, 0, last) } else { LayerSplit::stages(&counts, 0, last) };
    }
}

/// Schedule of the `PipelineScheduleType` at `path`; those of several stages a rank have `virtual_stages`.
fn schedule(document: &Document, path: &str, name: &str, virtual_stages: u32) -> Schedule {
    match name {
        "single_1F1B" | "1F1B" => Schedule::OneFOneB,
        "gpipe" | "GPipe" => Schedule::GPipe,
        "interleaved_1F1B" | "Interleaved1F1B" => Schedule::Interleaved { virtual_stages },
        "looped_bfs" | "LoopedBFS" => Schedule::LoopedBfs { virtual_stages },
        "zbv_zero_bubble" | "ZBVZeroBubble" => Schedule::ZbV,
        "interleaved_zero_bubble" | "InterleavedZeroBubble" => {
            let finding = Finding::warning("not-modelled", "InterleavedZeroBubble is priced as Interleaved1F1B");
            document.note(finding.at_maybe(document.place(path).as_ref()));
            Schedule::Interleaved { virtual_stages }
        }
        other => {
            document.wrong(path, other, "a `PipelineScheduleType`");
            Schedule::OneFOneB
        }
    }
}

/// Layers of each stage between points that are spelled out.
fn split_at_points(document: &Document, path: &str, layers: Option<u32>) -> Option<Vec<u32>> {
    let words = document.words(path);
    let points: Option<Vec<u32>> = words.iter().map(|word| word.parse().ok()).collect();
    let points = points.filter(|points| points.len() as u32 == document.count(path).unwrap_or(0))?;
    let ends = points.iter().copied().chain(layers);
    let mut begun = 0;
    ends.map(|end| {
        let count = end.checked_sub(begun);
        begun = end;
        count
    })
    .collect()
}

/// Layers of each stage as OLMo-core splits them: the first and the last take no layer that is over.
fn default_split(layers: u32, pp: u32, single: bool) -> Option<Vec<u32>> {
    let stages = pp.checked_mul(if single { 1 } else { 2 }).filter(|stages| (1..=layers).contains(stages))?;
    let (each, over) = (layers / stages, layers % stages);
    let mut left = layers;
    let counts = (0..stages).map(|stage| {
        let count = if stage + 1 == stages { left } else { each + u32::from(stage > 0 && stage <= over) };
        left -= count;
        count
    });
    Some(counts.collect())
}

#[cfg(test)]
mod tests {
    use super::default_split;

    #[test]
    fn stages_are_as_olmo_core_splits_them() {
        assert_eq!(default_split(32, 4, true), Some(vec![8, 8, 8, 8]));
        assert_eq!(default_split(30, 4, true), Some(vec![7, 8, 8, 7]));
        assert_eq!(default_split(31, 4, true), Some(vec![7, 8, 8, 8]));
        assert_eq!(default_split(16, 2, false), Some(vec![4, 4, 4, 4]));
        assert_eq!(default_split(3, 2, false), None);
    }
}
