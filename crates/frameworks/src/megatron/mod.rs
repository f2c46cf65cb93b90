//! Megatron-LM: one shell script that starts `pretrain_gpt.py`, or the program for hybrid models, with all its arguments.

pub(crate) mod emit;
pub mod flags;
pub(crate) mod graphs;
pub mod hybrid;
pub(crate) mod import;
pub(crate) mod limits;
mod offload;
pub mod overlap;
pub(crate) mod release;
mod sparse;

use crate::framework::{Framework, SettingsReader};

/// The row of this framework.
pub static MEGATRON: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: "nemo-25",
    stack_settings: &[],
    stands_for_family: true,
    emit: emit::files,
    recipe_obstacle: emit::recipe_obstacle,
    releases: flags::names,
    reader: SettingsReader { kind: import::KIND, read: import::read },
};
