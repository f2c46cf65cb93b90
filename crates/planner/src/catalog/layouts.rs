//! Published layouts of catalogue models: the fastest that a source reports of a model trained in full on a GPU, at one number of
//! GPUs and one sequence length.
//!
//! `clusters/layouts/published.toml` is written from the published runs by `UPDATE_EXPECT=1 cargo test --test evidence layouts`.

use meshwright_engine::stack::Family;
use serde::{Deserialize, Serialize};

use super::files::LAYOUTS;
use super::parts;
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
    /// Sequences per step.
    pub global_batch: u32,
    /// Measured step time of the run in seconds, where its source states that or what it follows from.
    pub step_s: Option<f64>,
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

/// One table of the file.
#[derive(Deserialize)]
struct Part {
    layout: [PublishedLayout; 1],
}

/// The built-in layouts of a model, given by the name that is printed.
pub(crate) fn layouts_of(model: &str) -> impl Iterator<Item = PublishedLayout> {
    let tables = parts::tables(LAYOUTS[0].1, "layout").filter(move |text| text.contains(model));
    let layouts = tables.flat_map(|text| parse_toml::<Part>(text).expect("tests read the built-in layouts").layout);
    layouts.filter(move |layout| layout.model == model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_found_by_model() {
        let whole: PublishedLayouts = parse_toml(LAYOUTS[0].1).unwrap();
        assert!(!whole.layout.is_empty());
        for PublishedLayout { model, .. } in &whole.layout {
            assert!(
                layouts_of(model).eq(whole.layout.iter().filter(|layout| layout.model == *model).cloned()),
                "{model}"
            );
        }
        assert_eq!(layouts_of("no such model").count(), 0);
    }
}
