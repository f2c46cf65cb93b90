//! Release and compilation of a configuration: the stack that it is priced by.

use crate::import::imported::Imported;
use crate::readers::document::Document;

/// Stack of a configuration that runs eagerly.
const EAGER: &str = "torchtitan-eager";

/// Models of release 0.2 whose checkpointing by operator keeps the tokens that ranks of experts exchange. Source: [torchtitan]
/// `_op_sac_save_list` of each model.
const EXCHANGE_LISTED: [&str; 3] = ["deepseek_v3", "gpt_oss", "llama4"];

/// Bytes per logit of a loss that is not compiled. Source: specification §6.5.
const EAGER_LOGIT: &str = "12";

/// Language of a configuration, which tells the release.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Written {
    /// Up to release 0.2, whose loss takes all tokens at once.
    Toml,
    /// From release 0.3 on, whose loss takes them by chunks.
    Python,
}

/// Whether a configuration compiles a part: `model` or `loss`, all where it names none.
fn compiles(document: &Document, part: &str) -> bool {
    let compiled = document.switch("compile.enable").or_else(|| document.switch("training.compile")).unwrap_or(false);
    let components = document.words("compile.components");
    compiled && (components.is_empty() || components.iter().any(|name| name == part))
}

/// Name of the stack that runs a configuration.
pub(super) fn stack(document: &Document, written: Written) -> &'static str {
    match written {
        _ if !compiles(document, "model") => EAGER,
        Written::Toml => "torchtitan-2025-10",
        Written::Python => "torchtitan-2026",
    }
}

/// Applies the differences from that stack of the release and of its compiled parts.
///
/// Source: [torchtitan] `models/attention.py` and `components/loss.py` of 0.2 and 0.3.
pub(super) fn settings(document: &Document, written: Written, imported: &mut Imported) {
    let settings = &mut imported.settings;
    if imported.stack == EAGER {
        settings.put_word("attention", "cudnn"); // asked first since release 0.2
        imported.of_release.push("attention");
        return;
    }
    let exchange_is_listed = document.peek("model.name").is_some_and(|name| EXCHANGE_LISTED.contains(&name));
    if written == Written::Toml && exchange_is_listed {
        settings.put_word("memory.keeps_exchanged_tokens", "true");
    }
    if !compiles(document, "loss") {
        settings.put_word("fused_cross_entropy", "false");
        settings.put_word("logit_bytes", EAGER_LOGIT);
        settings.put_word("memory.split_logit_bytes", EAGER_LOGIT);
    }
}
