//! GPT-NeoX: its YAML, a program that trains by it on every rank, and the launcher line.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// The row of this framework.
pub static GPT_NEOX: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &["neox"],
    stack: "megatron-deepspeed-2023",
    // It warns that gradients in bf16, the stack's own, break beside a pipeline and ZeRO 1.
    stack_settings: &["stack.memory.recipe=\"megatron\""],
    stands_for_family: false, // Megatron-DeepSpeed's own programs run more
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["ea7aefd8"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
