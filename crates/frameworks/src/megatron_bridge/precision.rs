//! Precisions of Bridge by their names, and NeMo's `trainer.precision`.
//!
//! Source: [megatron-bridge] `training/mixed_precision.py`, release 0.6.2.

use super::values::OrPlace;
use crate::import::finding::Finding;
use crate::megatron::import::arguments::Arguments;
use crate::readers::document::{CALLED, Document};
use crate::readers::shell::text::Text;

/// Recipe in 8 bits.
struct EightBitRecipe {
    /// Part of its name in Bridge.
    part: &'static str,
    /// Its name in Megatron: `--fp8-recipe`.
    recipe: &'static str,
    /// Whether weights are kept and gathered in 8 bits.
    gathers: bool,
}

/// Recipes in 8 bits; the first part that a name holds decides.
const EIGHT: &[EightBitRecipe] = &[
    EightBitRecipe { part: "mxfp8", recipe: "mxfp8", gathers: true },
    EightBitRecipe { part: "fp8_mx", recipe: "mxfp8", gathers: true },
    EightBitRecipe { part: "subchannel", recipe: "blockwise", gathers: false },
    EightBitRecipe { part: "blockwise", recipe: "blockwise", gathers: false },
    EightBitRecipe { part: "fp8_sc", recipe: "blockwise", gathers: false },
    EightBitRecipe { part: "nanov2", recipe: "blockwise", gathers: true },
    EightBitRecipe { part: "current", recipe: "tensorwise", gathers: true },
    EightBitRecipe { part: "fp8_cs", recipe: "tensorwise", gathers: true },
    EightBitRecipe { part: "fp8", recipe: "delayed", gathers: true },
];

/// Keys that name a precision: Bridge's, NeMo 1's, and those of NeMo 2's plugin.
const PLACES: &[&str] = &[
    "mixed_precision.0",
    "mixed_precision",
    "trainer.plugins.precision",
    "trainer.plugins.0.precision",
    "trainer.precision",
];

/// Adds the flags of `mixed_precision: bf16_with_mxfp8_mixed` or `trainer.precision: bf16`.
pub(super) fn precision(list: &mut Arguments, document: &Document) {
    let called = format!("mixed_precision.{CALLED}");
    let is_recipe = |path: &&str| document.peek(path).is_some_and(|name| name.ends_with("_mixed"));
    let path = PLACES
        .iter()
        .copied()
        .find(|path| document.has(path) && document.keys(path).is_empty())
        .or_else(|| Some(called.as_str()).filter(is_recipe));
    let Some((path, name)) = path.and_then(|path| Some((path, document.word(path)?.replace('-', "_")))) else { return };
    let place = document.place(path).unwrap_or_default_place();
    let word = |text: &str| vec![Text::on(text, place.line)];
    let is_half = name.starts_with("16") || name.contains("fp16") && !name.contains("bf16");
    let half = if is_half { "--fp16" } else { "--bf16" };
    if !list.says(half, "true") {
        list.add(half, Vec::new(), place.clone());
    }
    // What is set in the recipe that the function gives counts more than the function's name.
    let eight = EIGHT.iter().find(|eight| name.contains(eight.part));
    if let Some(EightBitRecipe { recipe, gathers, .. }) = eight.filter(|_| !document.has("mixed_precision.fp8_recipe"))
    {
        list.add("--fp8-format", word("hybrid"), place.clone());
        list.add("--fp8-recipe", word(recipe), place.clone());
        let sets_gather = ["fp8_param_gather", "fp8_param"].iter().any(|key| {
            let path = format!("mixed_precision.{key}");
            document.peek(&path).is_some_and(|value| value != "None")
        });
        // NeMo's `trainer.precision` names no recipe of Bridge.
        if *gathers && !sets_gather && name.ends_with("_mixed") {
            list.add("--fp8-param-gather", Vec::new(), place.clone());
        }
    }
    if name.contains("nvfp4") {
        list.add("--fp4-format", word("e2m1"), place.clone());
    }
    if !["bf16", "fp16", "16", "fp8", "nvfp4"].iter().any(|known| name.contains(known)) {
        list.findings.push(Finding::warning("not-modelled", format!("`{path}: {name}` is priced as bf16")).at(&place));
    }
}
