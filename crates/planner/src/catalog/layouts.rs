//! Published layouts of catalogue models: the fastest that a source reports of a model trained in full on a GPU, at one number of
//! GPUs and one sequence length.
//!
//! `clusters/layouts/published.toml` is written from the published runs by `UPDATE_EXPECT=1 cargo test --test evidence layouts`.

use std::sync::OnceLock;

use meshwright_engine::stack::Family;
use serde::{Deserialize, Serialize};

use super::files::LAYOUTS;
use super::typed::parse_toml;

/// One published layout.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedLayout {
    /// Run among the published ones.
    pub run: String,
    /// Framework as the source names it.
    pub framework: String,
    /// Family of the framework.
    pub family: Family,
    /// Name of the model, as printed.
    pub model: String,
    /// Name of the GPU, as printed.
    pub gpu: String,
    /// Number of GPUs of the run.
    pub gpus: u32,
    /// Tokens of a sequence.
    pub seq_len: u32,
    /// Number format of the GEMMs.
    pub precision: String,
    /// Bytes of weights, gradients, master weights and moments of a parameter.
    pub state_bytes: f64,
    /// Micro-batches per step of each replica.
    pub micro_batches: f64,
    /// Settings of the plan but for what follows from the number of GPUs.
    pub plan: String,
}

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedLayouts {
    /// Key of the source of the runs.
    pub source: String,
    /// Every layout, by model, GPU and size.
    pub layout: Vec<PublishedLayout>,
}

/// The built-in layouts.
pub fn layouts() -> &'static [PublishedLayout] {
    static READ: OnceLock<PublishedLayouts> = OnceLock::new();
    let read = || parse_toml(LAYOUTS[0].1).expect("tests read the built-in layouts");
    &READ.get_or_init(read).layout
}
