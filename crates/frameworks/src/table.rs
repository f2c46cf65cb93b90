//! The table of frameworks: a framework is a folder, and a row here.

use crate::accelerate::ACCELERATE;
use crate::deepspeed::DEEPSPEED;
use crate::framework::Framework;
use crate::import::imported::Imported;
use crate::megatron::MEGATRON;
use crate::megatron_bridge::MEGATRON_BRIDGE;
use crate::nanotron::NANOTRON;
use crate::torchtitan::TORCHTITAN;
use meshwright_engine::stack::Family;

/// All frameworks. Of several claims to a file that are equally strong, the first row's counts.
pub static FRAMEWORKS: [&Framework; 6] = [&MEGATRON, &MEGATRON_BRIDGE, &DEEPSPEED, &TORCHTITAN, &ACCELERATE, &NANOTRON];

/// The framework of that name or alias.
pub fn named(name: &str) -> Option<&'static Framework> {
    FRAMEWORKS.into_iter().find(|framework| framework.name() == name || framework.aliases.contains(&name))
}

/// Names on the command line.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    FRAMEWORKS.into_iter().map(Framework::name)
}

/// The framework that an imported file belongs to: that of its family, and of its kind where a family has several. None of
/// families that no file is written for.
pub fn framework_of(imported: &Imported) -> Option<&'static Framework> {
    let of_family = |family: Family| FRAMEWORKS.into_iter().filter(move |framework| framework.family() == family);
    let of_kind = of_family(imported.family).find(|framework| framework.reader.kind == imported.kind);
    of_kind.or_else(|| of_family(imported.family).next())
}
