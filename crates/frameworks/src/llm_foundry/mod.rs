//! llm-foundry: PyTorch's FSDP or DDP under Composer, as its YAML and a script with Composer's launcher.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;
mod model;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// The row of this framework.
pub static LLM_FOUNDRY: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &["foundry", "composer"],
    stack: "foundry-2023",
    stack_settings: &[],
    stands_for_family: false, // Accelerate trains any model's own code
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["8c8dd48f"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
