//! Hugging Face configurations: exact counts, and refusals that name what is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use meshwright::catalog::hf::{HfError, from_config, model_types};
use meshwright::model::{Layer, Mixer, Model, Span};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.json"))).unwrap()
}

fn model(name: &str) -> Model {
    from_config(&text(name), name).unwrap_or_else(|e| panic!("{e}"))
}

fn read(config: &Value) -> Result<Model, HfError> {
    from_config(&config.to_string(), "config.json")
}

fn total(config: &Value) -> u64 {
    read(config).unwrap_or_else(|e| panic!("{e}")).parameters().total
}

/// Rows of `params.csv`, by column: what `transformers` builds, counted tensor by tensor.
fn rows() -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(folder().join("params.csv"))
        .unwrap()
        .deserialize()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn every_count_is_exact_to_the_last_parameter() {
    let rows = rows();
    let mut wrong = Vec::new();
    for row in &rows {
        let name = &row["model"];
        let model = model(name);
        let p = model.parameters();
        let tied = row["tied"] == "True";
        let columns = [
            ("total", p.total),
            ("embed_tokens", u64::from(model.vocab) * u64::from(model.hidden)),
            (
                "embed_pos",
                u64::from(model.learned_positions) * u64::from(model.hidden),
            ),
            ("lm_head", p.head),
            ("routed_experts", p.experts),
            ("mlp_dense", p.mlp),
            ("active", p.active),
            ("layers", u64::from(model.layers())),
            ("hidden", u64::from(model.hidden)),
        ];
        for (column, ours) in columns {
            let theirs: u64 = row[column].parse().unwrap();
            // Gemma 4's dense MLP stands beside the experts, and is counted as shared here.
            let beside = column == "mlp_dense"
                && ours + p.shared_experts == theirs
                && row["model_type"] == "gemma4_text";
            if ours != theirs && !beside {
                wrong.push(format!("{name}: {column} is {theirs}, counted {ours}"));
            }
        }
        if model.tied_embeddings != tied {
            wrong.push(format!("{name}: tied is {tied}"));
        }
        let routed = model
            .kinds
            .iter()
            .find_map(Layer::moe)
            .map_or((0, 0), |moe| (moe.experts, moe.top_k));
        let number = |column: &str| row[column].parse().unwrap_or(0);
        if routed != (number("experts"), number("top_k")) {
            wrong.push(format!("{name}: experts and top-k counted {routed:?}"));
        }
    }
    assert_eq!(rows.len(), 31);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
