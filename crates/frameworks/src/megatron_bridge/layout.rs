//! Number of chunks of a rank next to a layout of the pipeline: Megatron core asserts that they agree.

use crate::import::finding::Finding;
use crate::import::imported::Imported;
use crate::readers::document::Document;

/// The error of a section whose `virtual_pipeline_model_parallel_size` contradicts its layout.
///
/// Source: [megatron-lm] `megatron/core/transformer/transformer_config.py`, `__post_init__`, 0.13 and later.
pub(super) fn other_chunks(document: &Document, sections: &[String], imported: &Imported) -> Option<Finding> {
    let (pp, chunks) = (imported.plan.layout.pp, imported.plan.schedule.virtual_stages());
    let wrong = |section: &String| {
        let path = |key: &str| if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        let layout = path("pipeline_model_parallel_layout");
        let has_layout = document.peek(&layout).is_some_and(|word| word != "None") || document.count(&layout).is_some();
        let size = path("virtual_pipeline_model_parallel_size");
        let stated: u32 = document.peek(&size).filter(|_| has_layout)?.parse().ok()?;
        if stated == chunks || !imported.places.contains_key("split") {
            return None;
        }
        let message = format!(
            "`{size}: {stated}` beside a layout of {} stages on pp={pp}, which has {chunks} a rank: Megatron core \
            asserts that they agree",
            pp * chunks
        );
        let finding = Finding::error("contradiction", message).at_maybe(document.place(&size).as_ref());
        Some(finding.expected(format!("{chunks}, or nothing, beside the layout")))
    };
    sections.iter().find_map(wrong)
}
