//! Megatron-Bridge and NeMo: a Python file with a whole `ConfigContainer`.

mod attributes;
pub(crate) mod emit;
mod hybrid;
pub(crate) mod import;
mod layout;
pub(crate) mod limits;
mod nemo2;
mod peft;
mod precision;
pub(crate) mod primus;
mod values;

use crate::framework::{Framework, SettingsReader};

/// The row of this framework.
pub static MEGATRON_BRIDGE: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &["bridge", "nemo"],
    stack: "nemo-25",
    stack_settings: &[],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: crate::megatron::emit::recipe_obstacle,
    releases: || &["0.6"],
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
