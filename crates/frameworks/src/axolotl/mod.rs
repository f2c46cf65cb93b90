//! axolotl: FSDP2 with tensor and context parallelism, or DeepSpeed, as its YAML.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};
use crate::hugging_face::FUSED_UPDATE;

/// The row of this framework.
pub static AXOLOTL: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: "fsdp-eager-2023",
    stack_settings: &[FUSED_UPDATE],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["0.19"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
