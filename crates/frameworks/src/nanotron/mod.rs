//! nanotron: its YAML and the launcher line.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// The row of this framework.
pub static NANOTRON: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: "nanotron-2025",
    stack_settings: &[],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["2411b022"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
