//! DeepSpeed with the user's own model code: its JSON and the launcher line.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// Stack of files that say nothing of their release.
pub(crate) const STACK: &str = "deepspeed-2024";

/// The row of this framework.
pub static DEEPSPEED: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: STACK,
    stack_settings: &[],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["0.19"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
