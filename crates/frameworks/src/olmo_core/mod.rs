//! OLMo-core: a Python program whose `build_config()` is the whole configuration, and the launcher line.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// Patterns of the names of all blocks. Modes that wrap whole blocks count from the first block of a stage and register
/// the wrapped one under that number, which stops every stage but the first: in pipelines blocks are wrapped by their
/// names.
///
/// Source: [olmo-core] `nn/transformer/model.py` (`apply_activation_checkpointing`), release 2.5.0.
const BLOCKS: &[&str] = &["blocks.[0-9]", "blocks.[0-9][0-9]", "blocks.[0-9][0-9][0-9]", "blocks.[0-9][0-9][0-9][0-9]"];

/// Pattern of the names of MLPs.
const MLPS: &str = "blocks.*.feed_forward";

/// The row of this framework.
pub static OLMO_CORE: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &["olmo"],
    stack: "torchtitan-2024",
    stack_settings: &[],
    stands_for_family: false, // torchtitan trains more models
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["2.5"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
