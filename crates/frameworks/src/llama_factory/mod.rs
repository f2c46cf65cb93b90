//! LLaMA-Factory: FSDP2 by Accelerate's configuration, DeepSpeed by its JSON, or copies, as its YAML.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};
use crate::hugging_face::FUSED_UPDATE;

/// The row of this framework.
pub static LLAMA_FACTORY: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &["llamafactory"],
    stack: "fsdp-eager-2023",
    stack_settings: &[FUSED_UPDATE],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["0.9"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
