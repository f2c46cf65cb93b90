//! ms-swift: a script for its version on Megatron core, or for its `Trainer` over DeepSpeed or FSDP2; its command lines
//! and YAML for both are read.

pub(crate) mod emit;
pub(crate) mod import;
mod launch;
pub(crate) mod limits;
mod trainer;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// The row of this framework.
pub static MS_SWIFT: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &["swift", "megatron-swift"],
    stack: "nemo-25",
    stack_settings: &[],
    stands_for_family: false, // Megatron-LM runs more
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["3602360a"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
