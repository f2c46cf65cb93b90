//! Documents of a row's sequences.

use super::cell::text;
use super::row::Row;

/// Tokens of a question of `SQuAD` with its context and answer, about. Source: [nemo-finetuning].
const SQUAD: u32 = 200;

/// Mean tokens of the documents that a row packs into its sequences: as it states, or those of `SQuAD`, which NeMo's recipes of
/// fine-tuning pack. A sequence of MLPerf's benchmark is one document, as is one of made-up data.
pub(super) fn documents(row: &Row) -> Option<u32> {
    if let Some(stated) = row.document_len.filter(|tokens| *tokens >= 1.0) {
        return Some(stated as u32);
    }
    let (framework, source) = (text(row.framework.as_ref()), text(row.source.as_ref()));
    let is_tuned = matches!(text(row.purpose.as_ref()), "sft" | "lora");
    let of_nemo = framework.contains("NeMo") || framework.contains("Bridge");
    let other = framework.contains("Automodel") || source.contains("MLPerf");
    (is_tuned && of_nemo && !other).then_some(SQUAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_of_fine_tuning_pack_documents() {
        let row = |framework: &str, purpose: &str, source: &str| Row {
            framework: Some(framework.to_owned()),
            purpose: Some(purpose.to_owned()),
            source: Some(source.to_owned()),
            ..Row::default()
        };
        assert_eq!(documents(&row("NeMo/Megatron-Core", "sft", "a blog")), Some(SQUAD));
        assert_eq!(documents(&row("Megatron-Bridge", "lora", "a table")), Some(SQUAD));
        assert_eq!(documents(&row("NeMo/Megatron-Core", "pretrain", "a blog")), None);
        assert_eq!(documents(&row("NeMo/Megatron-Core", "lora", "MLPerf Training v5.1")), None);
        assert_eq!(documents(&row("NeMo Automodel", "lora", "a table")), None);
        assert_eq!(documents(&row("TRL", "sft", "a blog")), None);
        assert_eq!(documents(&Row { document_len: Some(700.0), ..row("TRL", "sft", "a blog") }), Some(700));
    }
}
