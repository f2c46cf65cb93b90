//! Configurations that leave out a field: the default of the class counts.

use std::fs;
use std::path::{Path, PathBuf};

use meshwright::catalog::hf::from_config;
use serde_json::{Value, json};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hf").join(name)
}

/// Rows of `absent.csv`: a configuration of `tests/hf`, the field that is removed from it, and the parameters that the class in
/// transformers 5.23.0 builds from the rest.
#[test]
fn a_field_that_is_left_out_has_the_default_of_its_class() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for row in csv::Reader::from_path(file("absent.csv")).unwrap().deserialize() {
        let (name, field, total): (String, String, u64) = row.unwrap();
        let text = fs::read_to_string(file(&format!("{name}.json"))).unwrap().replace("Infinity", "null");
        let mut config: Value = serde_json::from_str(&text).unwrap();
        assert!(config.as_object_mut().unwrap().remove(&field).is_some(), "{name} has no {field}");
        rows += 1;
        match from_config(&config.to_string(), &name) {
            Ok(model) if model.parameters().total == total => {}
            Ok(model) => {
                wrong.push(format!("{name} without {field}: {total}, counted {}", model.parameters().total));
            }
            Err(why) => wrong.push(format!("{name} without {field}: {why}")),
        }
    }
    assert_eq!(rows, 101);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// ERNIE 4.5's class has heads of 128, and where the file says null, heads of the hidden size over their number.
#[test]
fn a_null_is_not_an_absent_field() {
    let ernie = |dim: Value| {
        let config = json!({"model_type": "ernie4_5", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6,
            "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 103_424, "head_dim": dim});
        from_config(&config.to_string(), "config.json").unwrap().parameters().total
    };
    assert_eq!([ernie(json!(128)), ernie(json!(null))], [190_854_144, 176_698_368]);
}
