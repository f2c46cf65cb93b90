//! Keys that decide step time or memory by their name: degrees, batches, lengths, stages, precisions.

use super::finding::Finding;
use super::imported::Imported;
use meshwright_engine::suggest::did_you_mean;

/// Endings of decisive keys.
const ENDS: &[&str] = &[
    "parallel_size",
    "parallel_degree",
    "parallelism",
    "replicate_degree",
    "shard_degree",
    "batch_size",
    "batch_size_per_gpu",
    "microbatch_size",
    "accumulation_steps",
    "seq_length",
    "seq_len",
    "sequence_length",
    "sequence_len",
    "max_length",
    "context_length",
    "zero_stage",
    "sharding_strategy",
    "mixed_precision",
    "num_microbatches",
    "parallel_layout",
    "pipeline_layout",
    "pipeline_stage",
];

/// Decisive keys that are too short to be told by an ending.
const WHOLE: &[&str] =
    &["tp", "pp", "cp", "ep", "etp", "vpp", "tp_size", "pp_size", "cp_size", "ep_size", "dp_size", "peft"];

/// Parts of keys that do not decide although their ending says so: those of evaluation, inference and other networks,
/// and sizes that follow from others.
const APART: &[&str] = &[
    "eval",
    "valid",
    "test",
    "infer",
    "generat",
    "rollout",
    "logprob",
    "encoder_",
    "decoder_",
    "retriever",
    "biencoder",
    "vision",
    "image",
    "start_",
    "default_",
    "data_parallel_size",
    "ramp",
    "min_seq",
    "draft",
    "teacher",
    "bucket",
    "pretrained_",
    "ckpt",
    "checkpoint_dir",
    "packed",
    "original_max",
    "tokenizer",
    "aio",
    "dataloader",
    "packing",
    "exp_manager",
    "vllm",
    "trl.",
];

/// Whether a key, the last of a path, sets a degree, a batch, a length, a stage or a precision.
pub(crate) fn is_decisive(key: &str) -> bool {
    let key = key.rsplit('.').next().unwrap_or(key).trim_start_matches('-').replace('-', "_").to_ascii_lowercase();
    let ends = ENDS.iter().any(|end| key.ends_with(end)) || WHOLE.contains(&key.as_str());
    ends && !APART.iter().any(|part| key.contains(part))
}

/// Turns every decisive setting that was not read into an error.
pub(super) fn refuse_unread(imported: &mut Imported) {
    let paths = imported.without_effect.iter().filter(|path| !APART.iter().any(|part| path.contains(part)));
    let unread: Vec<String> = paths
        .filter_map(|path| path.split_whitespace().next())
        .filter(|path| is_decisive(path))
        .map(str::to_owned)
        .collect();
    imported
        .without_effect
        .retain(|path| !path.split_whitespace().next().is_some_and(|path| unread.iter().any(|known| known == path)));
    let finding = |path: &str| {
        let message = format!("`{path}` is not read, and by its name decides the step");
        Finding::error("unread-setting", message).expected("give it in a form that is read, or remove it")
    };
    imported.findings.extend(unread.iter().map(|path| finding(path)));
    let unknown = imported.unknown.iter().filter(|unknown| is_decisive(&unknown.name));
    imported.findings.extend(unknown.map(|unknown| {
        let near = did_you_mean(unknown.nearest.as_deref());
        let finding = finding(&unknown.name).at(&unknown.place);
        Finding { expected: format!("{}{near}", finding.expected), ..finding }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_decide_by_their_name() {
        for key in
            ["model.tensor_model_parallel_size", "--expert-parallel-size", "tp", "train_batch_size", "max_seq_len"]
        {
            assert!(is_decisive(key), "{key}");
        }
        for key in [
            "lr",
            "eval_batch_size",
            "data_parallel_size",
            "encoder_seq_length",
            "stop",
            "rampup_batch_size",
            "tp_comm",
        ] {
            assert!(!is_decisive(key), "{key}");
        }
    }
}
