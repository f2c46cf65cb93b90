//! OLMo-core's own functions and class methods, as far as configurations use them.
//!
//! Source: [olmo-core] `data/tokenizer.py`, `internal/cookbook.py`, `config.py`, `distributed/utils.py`, release 2.5.0.

use super::factories;
use super::tree::{class, field, holds, is_none, number, object, object_of_call, set, truth};
use crate::readers::document::{Entries, Node, NodeValue, TableEntry};
use crate::readers::python::Library;

/// OLMo-core as a program on a number of GPUs sees it.
pub(super) struct OlmoCore {
    pub world: Option<u32>,
    pub gpus_per_node: Option<u32>,
}

/// Tokenizers by the class method that gives them, and their vocabularies.
const TOKENIZERS: &[(&str, u32)] =
    &[("dolma2", 100_278), ("dolma2_sigdig", 100_278), ("gpt_neox_olmo_dolma_v1_5", 50_280), ("gpt2", 50_257)];

/// Classes whose objects have methods that give them back with more.
const KEPT: &[&str] = &["ExperimentConfig", "TrainerConfig", "TransformerConfig", "TokenizerConfig"];

/// Methods whose additions do not affect the step.
const HARMLESS: &[&str] = &["with_callback", "with_callbacks", "with_recommended_evals"];

impl Library for OlmoCore {
    fn called(&self, name: &str, arguments: &Entries, line: u32) -> Option<Node> {
        let (before, last) = name.rsplit_once('.').unwrap_or(("", name));
        let whole = |number: Option<u32>| number.map(|number| Node::bare(number.to_string(), line));
        match (before.rsplit('.').next().unwrap_or_default(), last) {
            ("TransformerConfig", method) => factories::model(method, arguments, line),
            ("TokenizerConfig", method) => {
                let (_, vocab) = TOKENIZERS.iter().find(|(name, _)| *name == method)?;
                Some(object("TokenizerConfig", [("vocab_size", Node::bare(vocab.to_string(), line))], line))
            }
            (_, "get_world_size") if arguments.is_empty() => whole(self.world),
            (_, "get_num_nodes") if arguments.is_empty() => {
                let (world, each) = (self.world?, self.gpus_per_node?);
                whole(Some(world.checked_div(each)?.max(1)))
            }
            ("" | "cookbook", "configure_train_module") => train_module(arguments, line),
            (_, class) if KEPT.contains(&class) => Some(object_of_call(class, arguments, line)),
            _ => None,
        }
    }

    fn method(&self, object: &Node, name: &str, arguments: &Entries, line: u32) -> Option<Node> {
        let of = class(object)?;
        match name {
            name if HARMLESS.contains(&name) && of == "TrainerConfig" => Some(object.clone()),
            // Overrides of the command line come later.
            "merge" => match arguments.as_slice() {
                [TableEntry { value: Node { value: NodeValue::List(items), .. }, .. }] if items.is_empty() => {
                    Some(object.clone())
                }
                _ => None,
            },
            "replace" => {
                let mut changed = object.clone();
                for TableEntry { key, value, .. } in arguments {
                    set(&mut changed, key, value.clone());
                }
                Some(changed)
            }
            "padded_vocab_size" if of == "TokenizerConfig" => {
                let multiple = match arguments.as_slice() {
                    [] => 128.0,
                    [entry] => number(&entry.value)?,
                    _ => return None,
                };
                let vocab = number(field(object, "vocab_size")?)?;
                (multiple >= 1.0).then(|| Node::bare(((vocab / multiple).ceil() * multiple).to_string(), line))
            }
            "with_rope_scaling" if of == "TransformerConfig" => factories::with_scaling(object, arguments, line),
            _ => None,
        }
    }
}

/// `cookbook.configure_train_module`.
fn train_module(arguments: &Entries, line: u32) -> Option<Node> {
    const PLACES: &[&str] = &["max_sequence_length", "rank_microbatch_size", "learning_rate", "scheduler"];
    let get = |key: &str| {
        let place = PLACES.iter().position(|known| *known == key).map(|place| place.to_string());
        let found = arguments.iter().find(|entry| entry.key == key || Some(&entry.key) == place.as_ref());
        found.map(|entry| entry.value.clone())
    };
    let none = || Node::bare("None", line);
    let narrow = get("float8_enabled").map_or(Some(false), |node| holds(&node))?;
    let budget = get("activation_memory_budget").unwrap_or_else(|| Node::bare("1.0", line));
    let recomputes = number(&budget)? < 1.0;
    let cp = get("cp_degree").filter(|node| !is_none(node) && holds(node) != Some(false));
    let data = [
        ("name", Node::bare("DataParallelType.hsdp", line)),
        ("param_dtype", Node::bare("DType.bfloat16", line)),
        ("reduce_dtype", Node::bare("DType.float32", line)),
        ("shard_degree", get("dp_shard_degree").unwrap_or_else(none)),
    ];
    let ac = [
        ("mode", Node::bare("TransformerActivationCheckpointingMode.budget", line)),
        ("activation_memory_budget", budget),
    ];
    let ao = object("AOFloat8LinearConfig.recommended", Vec::<(String, Node)>::new(), line);
    let fields = [
        ("rank_microbatch_size", get("rank_microbatch_size")?),
        ("max_sequence_length", get("max_sequence_length")?),
        ("optim", object("SkipStepAdamWConfig", Vec::<(String, Node)>::new(), line)),
        ("compile_model", truth(true, line)),
        ("dp_config", object("TransformerDataParallelConfig", data, line)),
        (
            "cp_config",
            cp.map_or_else(none, |degree| {
                object("TransformerContextParallelConfig.llama3", [("degree", degree)], line)
            }),
        ),
        ("ac_config", if recomputes { object("TransformerActivationCheckpointingConfig", ac, line) } else { none() }),
        ("float8_config", object("Float8Config", [("enabled", truth(narrow, line)), ("ao", ao)], line)),
    ];
    Some(object("TransformerTrainModuleConfig", fields, line))
}
