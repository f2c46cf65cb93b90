//! Logs of Megatron-LM and frameworks that keep its format: the dump of arguments, and a line for every logged iteration.
//!
//! Formats: `megatron/training/arguments.py` (`_print_args`), `megatron/training/training.py` (`training_log`),
//! `megatron/training/utils.py` (`report_memory`) ([megatron-lm]); Megatron-DeepSpeed prints the same.

use std::collections::BTreeMap;

use super::lines::{dotted, number_after, year};
use super::{LoggedRun, Row, steady};

/// Label of the time in an iteration line.
const ITERATION: &str = "elapsed time per iteration (ms):";
/// Words of the lines that are read, other than the dump of arguments.
pub(super) const WORDS: &[&str] = &[ITERATION, "padded vocab (size:", "memory (MB)"];
/// MiB in a GiB: `report_memory` divides by 1024².
const MIB: f64 = 1024.0;

/// Settings by name; the first value counts, because Megatron repeats some.
struct Settings<'a>(BTreeMap<&'a str, &'a str>);

impl Settings<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(|value| value.parse().ok()).filter(|value: &f64| value.is_finite())
    }

    /// Parallel degree; `None` if it is 0 or `None`.
    fn degree(&self, name: &str) -> Option<f64> {
        self.number(name).filter(|value| *value >= 1.0)
    }

    fn is_on(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| *value == "True")
    }

    fn flag(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(|value| match *value {
            "True" => Some(1.0),
            "False" => Some(0.0),
            _ => None,
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).copied().filter(|value| *value != "None" && !value.is_empty())
    }
}

/// Reads a log that has an iteration line or Megatron's arguments.
pub fn read(text: &str) -> Option<LoggedRun> {
    let mut settings = Settings(BTreeMap::new());
    let mut seconds = Vec::new();
    let mut allocated: Option<f64> = None;
    let mut when = None;
    let mut vocab = None;
    for line in text.lines() {
        // The tokenizer is built after the arguments are printed.
        vocab = vocab.or_else(|| number_after(line, "padded vocab (size:"));
        if let Some(milliseconds) = number_after(line, ITERATION) {
            seconds.push(milliseconds / 1e3);
            when = when.or_else(|| year(line));
        } else if let Some(most) = number_after(line, "max allocated:").filter(|_| line.contains("memory (MB)")) {
            allocated = Some(allocated.map_or(most, |known| known.max(most)));
        } else if let Some((name, value)) = dotted(line) {
            settings.0.entry(name).or_insert(value);
        }
    }
    let megatron = settings.0.contains_key("tensor_model_parallel_size");
    if seconds.is_empty() && !megatron {
        return None;
    }
    let mut row = row(&settings);
    row.vocab = row.vocab.or(vocab);
    row.year = when;
    let steady = steady(&seconds);
    row.step_time_s = steady.map(|steady| steady.median);
    row.step_time_canon_s = row.step_time_s;
    row.canon_from = row.step_time_s.map(|_| "median iteration time of the log".into());
    row.peak_mem_gib = allocated.map(|most| most / MIB);
    row.mem_kind = allocated.map(|_| "torch max_memory_allocated, max over the ranks that log".into());
    Some(LoggedRun { row, steps: seconds.len(), error: steady.and_then(|steady| steady.error) })
}

fn row(settings: &Settings) -> Row {
    let grouped = settings.is_on("group_query_attention");
    let experts = settings.degree("num_experts").filter(|experts| *experts > 1.0);
    let moe_ffn = settings.degree("moe_ffn_hidden_size").or_else(|| settings.degree("ffn_hidden_size"));
    let shared = settings.degree("moe_shared_expert_intermediate_size");
    let deepspeed = settings.is_on("deepspeed");
    Row {
        framework: Some(if deepspeed { "Megatron-DeepSpeed" } else { "Megatron-LM" }.into()),
        purpose: Some("pretrain".into()),
        layers: settings.degree("num_layers").or_else(|| settings.degree("encoder_num_layers")),
        hidden: settings.degree("hidden_size"),
        ffn: settings.degree("ffn_hidden_size"),
        heads: settings.degree("num_attention_heads"),
        kv_heads: if grouped {
            settings.degree("num_query_groups")
        } else {
            settings.degree("num_key_value_heads").or_else(|| settings.degree("num_attention_heads"))
        },
        head_dim: settings.degree("kv_channels"),
        vocab: settings.degree("padded_vocab_size").or_else(|| settings.degree("vocab_size")),
        seq_len: settings.degree("seq_length"),
        experts,
        topk: experts.and_then(|_| settings.degree("moe_router_topk")),
        moe_ffn: experts.and(moe_ffn),
        moe_latent: experts.and_then(|_| settings.degree("moe_latent_size")),
        shared_experts: experts.and(shared).zip(moe_ffn).map(|(shared, each)| (shared / each).round()),
        dense_layers: experts.and_then(|_| settings.text("moe_layer_freq")).and_then(leading_dense),
        mla: settings.flag("multi_latent_attention"),
        gated_mlp: settings.flag("swiglu"),
        tied_embeddings: settings.flag("untie_embeddings_and_output_weights").map(|untied| 1.0 - untied),
        gpus_total: settings.degree("world_size"),
        dtype: Some(dtype(settings)),
        dtype_detail: settings.text("fp8").map(|_| settings.text("fp8_recipe").unwrap_or("delayed").to_owned()),
        tp: settings.degree("tensor_model_parallel_size"),
        sp: settings.flag("sequence_parallel"),
        pp: settings.degree("pipeline_model_parallel_size"),
        vpp: settings.degree("virtual_pipeline_model_parallel_size").or(Some(1.0)),
        dp: settings.degree("data_parallel_size"),
        cp: settings.degree("context_parallel_size").or(Some(1.0)),
        ep: settings.degree("expert_model_parallel_size").or(Some(1.0)),
        etp: settings.degree("expert_tensor_parallel_size"),
        zero_stage: zero_stage(settings, deepspeed),
        fsdp: settings.is_on("use_megatron_fsdp").then(|| "full(Megatron-FSDP)".into()),
        micro_batch: settings.degree("micro_batch_size"),
        global_batch: settings.degree("global_batch_size"),
        recompute: Some(recompute(settings)),
        overlap: Some(overlap(settings)),
        notes: notes(settings),
        ..Row::default()
    }
}

fn dtype(settings: &Settings) -> String {
    let narrow = [("fp4", "nvfp4"), ("fp8", "fp8")].into_iter().find(|(name, _)| settings.text(name).is_some());
    let wide = if settings.is_on("fp16") { "fp16" } else { "bf16" };
    narrow.map_or(wide, |(_, name)| name).to_owned()
}

fn zero_stage(settings: &Settings, deepspeed: bool) -> Option<f64> {
    if deepspeed {
        settings.number("zero_stage")
    } else if settings.is_on("use_megatron_fsdp") || settings.is_on("use_torch_fsdp2") {
        Some(3.0)
    } else {
        Some(f64::from(u8::from(settings.is_on("use_distributed_optimizer"))))
    }
}

/// Text for the column `recompute`.
fn recompute(settings: &Settings) -> String {
    let checkpoints = ["checkpoint_activations", "deepspeed_activation_checkpointing"];
    match settings.text("recompute_granularity") {
        Some("full") => "full".into(),
        Some("selective") => {
            let modules: String =
                settings.text("recompute_modules").unwrap_or("['core_attn']").replace(['[', ']', '\'', ' '], "");
            format!("selective({})", modules.replace(',', "+"))
        }
        Some(_) | None if checkpoints.iter().any(|name| settings.is_on(name)) => "full".into(),
        Some(_) | None => "none".into(),
    }
}

/// Text for the column `overlap`.
fn overlap(settings: &Settings) -> String {
    let named = [
        ("tp_comm_overlap", "tp-comm"),
        ("overlap_grad_reduce", "grad-reduce"),
        ("overlap_param_gather", "param-gather"),
        ("overlap_moe_expert_parallel_comm", "EP a2a overlap"),
    ];
    let on: Vec<&str> = named.into_iter().filter(|(name, _)| settings.is_on(name)).map(|(_, words)| words).collect();
    if on.is_empty() { "none".into() } else { on.join(", ") }
}

fn notes(settings: &Settings) -> Option<String> {
    let mut notes = Vec::new();
    if settings.degree("mtp_num_layers").is_some() {
        notes.push("MTP layer on");
    }
    if settings.is_on("enable_cuda_graph") || settings.text("cuda_graph_impl").is_some_and(|impl_| impl_ != "none") {
        notes.push("CUDA graph");
    }
    if settings.is_on("moe_enable_deepep") || settings.text("moe_flex_dispatcher_backend").is_some() {
        notes.push("deepep");
    }
    if settings.number("moe_expert_capacity_factor").is_some() {
        notes.push("tokendrop");
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Leading layers without experts of `moe_layer_freq`: the zeros before the first one of `[0, 1, 1]`, or of `([0]*3+[1]*58)`.
fn leading_dense(pattern: &str) -> Option<f64> {
    let first = pattern.trim_start_matches(['(', '[', ' ']);
    if let Some(rest) = first.strip_prefix("0]*") {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        return rest[..digits].parse().ok();
    }
    let list = first.split(']').next()?;
    let cells: Vec<&str> = list.split(',').map(str::trim).collect();
    cells
        .iter()
        .all(|cell| matches!(*cell, "0" | "1"))
        .then(|| cells.iter().take_while(|cell| **cell == "0").count() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_experts_tell_the_dense_layers() {
        assert_eq!(leading_dense("[0, 0, 0, 1, 1]"), Some(3.0));
        assert_eq!(leading_dense("([0]*3+[1]*58)"), Some(3.0));
        assert_eq!(leading_dense("1"), Some(0.0));
        assert_eq!(leading_dense("2"), None);
    }
}
