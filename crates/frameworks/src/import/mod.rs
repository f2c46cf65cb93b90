//! Files that frameworks read, and the scripts that launch them → model, workload, plan.
//!
//! Nothing is guessed in silence: a setting that a file leaves open is a [`Finding`], a flag that no release knows is
//! [`Unknown`], one without effect on time or memory here is named in [`Imported::without_effect`].

pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod finding;
pub(crate) mod imported;
pub mod known;
mod launch;
mod masked;
mod scripts;
mod swift;
mod trainer;

use crate::framework::Framework;
use crate::table::FRAMEWORKS;

use claim::{Claim, FileSample};

pub use context::{Context, ImportError};
pub use finding::{Finding, Place, Severity};
pub use imported::{Imported, ImportedWorkload, StackSettings, Unknown};

/// Kind of a file.
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

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        let of = |framework: &&&Framework| framework.reader.kind == name;
        let framework = || FRAMEWORKS.iter().find(of).map(|framework| Self::Of(framework));
        if name == SCRIPT { Some(Self::Script) } else { framework() }
    }
}

/// Name of the kind of scripts.
const SCRIPT: &str = "script";

/// The kind of a file by its name and its text: that of the framework with the strongest claim, a script without one.
pub fn kind_of(file: &str, text: &str) -> FileKind {
    let extension = std::path::Path::new(file).extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let sample = FileSample { extension: &extension.to_ascii_lowercase(), text };
    let claims = FRAMEWORKS.iter().rev().map(|framework| ((framework.reader.claim)(&sample), framework));
    match claims.max_by_key(|(claim, _)| *claim) {
        Some((claim, framework)) if claim > Claim::None => FileKind::Of(framework),
        Some(_) | None => FileKind::Script,
    }
}

/// Reads a file.
///
/// # Errors
/// A file that does not parse, or holds nothing that launches training; everything less is a [`Finding`].
pub fn read(text: &str, kind: FileKind, context: &Context) -> Result<Imported, ImportError> {
    match kind {
        FileKind::Script => scripts::read(text, context),
        FileKind::Of(framework) => (framework.reader.read)(text, context),
    }
}
