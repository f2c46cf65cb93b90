//! Kinds of files.

use super::neox::GPT_NEOX;
use crate::framework::{Framework, SettingsReader};
use crate::table::FRAMEWORKS;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A shell script that launches training.
    Script,
    /// A framework's own settings.
    Of(&'static Framework),
    /// Settings of a framework that nothing is written for.
    Foreign(&'static SettingsReader),
}

/// Readers of frameworks that nothing is written for.
const FOREIGN: [&SettingsReader; 1] = [&GPT_NEOX];

impl FileKind {
    /// Names on the command line.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(SCRIPT)
            .chain(FRAMEWORKS.iter().map(|framework| framework.reader.kind))
            .chain(FOREIGN.map(|reader| reader.kind))
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        let of = |framework: &&&Framework| framework.reader.kind == name;
        let framework = || FRAMEWORKS.iter().find(of).map(|framework| Self::Of(framework));
        let foreign = || FOREIGN.into_iter().find(|reader| reader.kind == name).map(Self::Foreign);
        if name == SCRIPT { Some(Self::Script) } else { framework().or_else(foreign) }
    }
}

/// Name of the kind of scripts.
const SCRIPT: &str = "script";
