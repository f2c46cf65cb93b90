//! Primus: an experiment's YAML over its presets, and a script with its launcher; its experiments for Megatron are read.

pub(crate) mod emit;
pub(crate) mod limits;

use crate::framework::{Framework, SettingsReader};
use crate::megatron_bridge::import;
use crate::megatron_bridge::primus::{KIND, STACK};

/// The row of this framework.
pub static PRIMUS: Framework = Framework {
    limits: &limits::LIMITS,
    aliases: &[],
    stack: STACK,
    stack_settings: &[],
    stands_for_family: false, // Megatron-LM runs more, and on other GPUs
    emit: emit::files,
    recipe_obstacle: crate::megatron::emit::recipe_obstacle,
    releases: || &["fd1eeabb"],
    reader: SettingsReader { kind: KIND, read: import::read },
};
