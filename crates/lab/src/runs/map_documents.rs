//! Documents of a row's sequences.

use super::cell::text;
use super::row::Row;

/// Tokens of a question of `SQuAD` with its context and answer, about. Source: [nemo-finetuning].
const SQUAD: u32 = 200;

/// Lengths of sequences into which NeMo's recipes pack. Source: [nemo-finetuning].
const PACKED: [f64; 2] = [4096.0, 16384.0];

/// Tokens of the documents that a row packs into its sequences: as it states, or those of `SQuAD`, which NeMo's recipes of
/// fine-tuning pack into sequences of two lengths. Sequences of another length, such as MLPerf's of 8,192 tokens, are one document each.
pub(super) fn documents(row: &Row) -> Option<u32> {
    if let Some(stated) = row.document_len.filter(|tokens| *tokens >= 1.0) {
        return Some(stated as u32);
    }
    let framework = text(row.framework.as_ref());
    let is_tuned = matches!(text(row.purpose.as_ref()), "sft" | "lora");
    let of_nemo = framework.contains("NeMo") || framework.contains("Bridge");
    let is_packed = row.seq_len.is_some_and(|tokens| PACKED.contains(&tokens)) && !framework.contains("Automodel");
    (is_tuned && of_nemo && is_packed).then_some(SQUAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_of_fine_tuning_pack_documents() {
        let row = |framework: &str, purpose: &str, tokens: f64| Row {
            framework: Some(framework.to_owned()),
            purpose: Some(purpose.to_owned()),
            seq_len: Some(tokens),
            ..Row::default()
        };
        assert_eq!(documents(&row("NeMo/Megatron-Core", "sft", 4096.0)), Some(SQUAD));
        assert_eq!(documents(&row("Megatron-Bridge", "lora", 16384.0)), Some(SQUAD));
        assert_eq!(documents(&row("NeMo/Megatron-Core", "pretrain", 4096.0)), None);
        assert_eq!(documents(&row("NeMo/Megatron-Core", "lora", 8192.0)), None);
        assert_eq!(documents(&row("NeMo Automodel", "lora", 4096.0)), None);
        assert_eq!(documents(&row("TRL", "sft", 4096.0)), None);
        assert_eq!(documents(&Row { document_len: Some(700.0), ..row("TRL", "sft", 4096.0) }), Some(700));
    }
}
