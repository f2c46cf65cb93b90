//! torchtitan: a Python module with the whole configuration, and the launcher line.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// The row of this framework.
pub static TORCHTITAN: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: "torchtitan-2026",
    stack_settings: &[],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["0.3"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
