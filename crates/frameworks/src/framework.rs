//! One training framework as a row of the table.

use std::fmt;

use crate::emit::request::{EmittedFile, Request};
use crate::import::context::{Context, ImportError};
use crate::import::imported::Imported;
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, Obstacle};

/// A training framework: plans are restricted to it, written for it and read from its files. Two are equal where their names are.
pub struct Framework {
    /// Limits of the plans that its files can express, with its name, title and family.
    pub limits: &'static Limits,
    /// Other names on the command line.
    pub aliases: &'static [&'static str],
    /// The software profile of the catalogue that is priced where none is named.
    pub stack: &'static str,
    /// Settings of that stack that its files choose, as `--set` takes them.
    pub stack_settings: &'static [&'static str],
    /// Whether it is taken where a stack or a file names its family alone.
    pub(crate) stands_for_family: bool,
    /// Writes the files of a plan within the limits; the launcher runs the first. The error lists obstacles of the model.
    pub emit: fn(&Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>>,
    /// The obstacle of the optimizer recipe that a request names.
    pub recipe_obstacle: fn(&Request) -> Option<Obstacle>,
    /// Releases that its files can be written for, oldest first; where none is named, the last.
    pub releases: fn() -> &'static [&'static str],
    /// Reader of its files.
    pub reader: SettingsReader,
}

/// Error of a release that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no release `{text}` of {framework} is known\n\nhint: there are: {}", known.join(", "))]
pub struct UnknownRelease {
    /// Name of the framework in prose.
    pub framework: &'static str,
    /// The release that was asked for.
    pub text: String,
    /// Releases that are known, oldest first.
    pub known: &'static [&'static str],
}

/// Reader of a framework's settings.
pub struct SettingsReader {
    /// Name of this kind of file on the command line.
    pub kind: &'static str,
    /// Reads a file.
    pub read: fn(&str, &Context) -> Result<Imported, ImportError>,
}

impl PartialEq for SettingsReader {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for SettingsReader {}

impl fmt::Debug for SettingsReader {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("SettingsReader").field(&self.kind).finish()
    }
}

impl Framework {
    /// Name on the command line.
    pub const fn name(&self) -> &'static str {
        self.limits.name
    }

    /// The release that a text names: `0.13`, or as its branches and tags are called, `core_r0.13.0` and `v0.13.1`.
    ///
    /// # Errors
    /// No release of that name is known.
    pub fn release(&self, text: &str) -> Result<&'static str, UnknownRelease> {
        let bare = text.trim_start_matches("core_").trim_start_matches(['r', 'v']);
        let is_called = |name: &&&'static str| {
            bare == **name || bare.strip_prefix(**name).is_some_and(|patch| patch.starts_with('.'))
        };
        let known = (self.releases)();
        let unknown = || UnknownRelease { framework: self.limits.title, text: text.to_owned(), known };
        known.iter().find(is_called).copied().ok_or_else(unknown)
    }

    /// Name of the script that launches its files, which every plan has.
    pub fn script(&self) -> String {
        format!("{}.sh", self.name().replace('-', "_"))
    }

    /// Family of software that the cost model prices it as.
    pub const fn family(&self) -> Family {
        self.limits.family
    }
}

impl PartialEq for Framework {
    fn eq(&self, other: &Self) -> bool {
        self.limits == other.limits
    }
}

impl Eq for Framework {}

impl fmt::Debug for Framework {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Framework").field(&self.name()).finish()
    }
}

/// The framework's name in prose, as messages begin.
impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.limits.fmt(f)
    }
}

/// No obstacle: every optimizer recipe that the workload allows can be written.
pub(crate) const fn any_recipe(_: &Request) -> Option<Obstacle> {
    None
}
