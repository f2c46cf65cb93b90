//! Kinds of launch files that `import` and `lint` read.

use crate::framework::Framework;
use crate::table::FRAMEWORKS;

/// Kind of launch file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A shell script that launches training.
    Script,
    /// A framework's own settings.
    Of(&'static Framework),
}

impl FileKind {
    /// Names on the command line.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(SCRIPT).chain(FRAMEWORKS.iter().map(|framework| framework.reader.kind))
    }

    /// Kind with this name on the command line; none if there is no such kind.
    pub fn named(name: &str) -> Option<Self> {
        let reads_it = |framework: &&&Framework| framework.reader.kind == name;
        let framework = || FRAMEWORKS.iter().find(reads_it).map(|framework| Self::Of(framework));
        if name == SCRIPT { Some(Self::Script) } else { framework() }
    }
}

/// Name of the kind of scripts.
const SCRIPT: &str = "script";
