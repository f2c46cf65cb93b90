//! Release and compilation of a configuration: the stack that it is priced by.

use crate::import::imported::Imported;
use crate::readers::document::Document;

/// Stack of a configuration that compiles its layers.
const COMPILED: &str = "torchtitan-2026";

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
pub(super) fn stack(document: &Document) -> &'static str {
    if compiles(document, "model") { COMPILED } else { "torchtitan-eager" }
}

/// Applies the differences from that stack of the release and of its compiled parts.
///
/// Source: [torchtitan] `models/attention.py` and `components/loss.py` of 0.2 and 0.3.
pub(super) fn settings(document: &Document, written: Written, imported: &mut Imported) {
    let settings = &mut imported.settings;
    if imported.stack != COMPILED {
        settings.put_word("attention", "cudnn"); // asked first since release 0.2
        return;
    }
    if written == Written::Toml {
        settings.put_word("memory.loss_chunks", "1");
    }
    if !compiles(document, "loss") {
        settings.put_word("fused_cross_entropy", "false");
        settings.put_word("logit_bytes", EAGER_LOGIT);
        settings.put_word("memory.split_logit_bytes", EAGER_LOGIT);
    }
}
