//! `MaxText`: its YAML over `base.yml`, and the line that starts it on TPUs and GPUs.

pub(crate) mod emit;
pub(crate) mod import;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader, any_recipe};

/// The row of this framework.
pub static MAXTEXT: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: "jax-2025",
    stack_settings: &[],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: any_recipe,
    releases: || &["e591f30c"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
