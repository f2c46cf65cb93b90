//! Errors of the catalogue: an unknown name, an invalid file, an invalid `--set`.

use std::fmt;

use meshwright_engine::suggest::did_you_mean;

/// Kind of catalogue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// GPU or other accelerator.
    Gpu,
    /// Cluster of devices.
    Cluster,
    /// Software stack: framework and release.
    Stack,
    /// Model architecture.
    Model,
    /// Market: prices, power and failure rates.
    Market,
    /// Transport of a network.
    Transport,
    /// Fit: constants laid over devices, stacks and transports.
    Fit,
}

/// First word of a key, and the entries whose values it names.
pub(super) const SECTIONS: [(&str, EntryKind); 6] = [
    ("cluster", EntryKind::Cluster),
    ("gpu", EntryKind::Gpu),
    ("stack", EntryKind::Stack),
    ("model", EntryKind::Model),
    ("market", EntryKind::Market),
    ("transport", EntryKind::Transport),
];

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "GPU",
            Self::Cluster => "cluster",
            Self::Stack => "stack",
            Self::Model => "model",
            Self::Market => "market",
            Self::Transport => "transport",
            Self::Fit => "fit",
        })
    }
}

/// An entry that cannot be had from the catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Neither a name of the catalogue nor a file.
    #[error(
        "there is no {kind} `{name}`{}\n\nhint: a path to a TOML file works too{}; the catalogue has: {}",
        did_you_mean(nearest.as_deref()), other_forms(*kind), names.join(", ")
    )]
    Unknown {
        /// Kind of the entry that was requested.
        kind: EntryKind,
        /// Name that was requested.
        name: String,
        /// Nearest name of the catalogue.
        nearest: Option<String>,
        /// All names of that kind.
        names: Vec<&'static str>,
    },
    /// A file cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Cause; part of the message, so it is not the error's source too.
        why: std::io::Error,
    },
    /// A file is not a text to parse.
    #[error("{path}: {why}")]
    NotText {
        /// Path of the file.
        path: String,
        /// Description of its content.
        why: String,
    },
    /// A TOML file does not parse, or has an unknown key or value.
    #[error("{origin}: {}{}", error.to_string().trim_end(), hint(nearest.as_deref()))]
    Toml {
        /// Path or name of the file.
        origin: String,
        /// The parser's message, with line, column and key.
        error: Box<toml::de::Error>,
        /// Nearest key or word that is valid there.
        nearest: Option<String>,
    },
    /// A name of the Hugging Face Hub, which is not reached from here.
    #[error(
        "{id}: there is no such file or folder\n\nhint: of a model of the Hugging Face Hub its config.json is read: \
         `hf download {id} config.json --local-dir {folder}`, then name the folder, {folder}{}",
        nearest.as_deref().map_or_else(String::new, |near| format!("; the catalogue's nearest name is `{near}`"))
    )]
    HubModel {
        /// Name as given, `owner/model`.
        id: String,
        /// Name of the model alone.
        folder: String,
        /// Nearest name of the catalogue.
        nearest: Option<String>,
    },
    /// A `config.json` is not of a known family.
    #[error(transparent)]
    Config(#[from] super::hf::HfError),
    /// Values of a file contradict each other.
    #[error("{origin}: {why}")]
    Invalid {
        /// Path or name of the file.
        origin: String,
        /// Contradiction, with its numbers.
        why: String,
    },
    /// A `--set` cannot be applied.
    #[error("--set {item}: {why}{}", hint(nearest.as_deref()))]
    Set {
        /// The item as written.
        item: String,
        /// Reason for the refusal.
        why: String,
        /// Nearest key or word that is valid there.
        nearest: Option<String>,
    },
}

/// Names of other forms that an entry may have.
fn other_forms(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Cluster => {
            ", and so does a number of GPUs of a kind, as `512xh100-sxm` (`meshwright gpus` lists the kinds)"
        }
        _ => "",
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("\n\nhint: did you mean `{name}`?"))
}

/// The nearest of the words that serde says it expected: "unknown field `a`, expected one of `b`, `c`".
pub fn nearest_expected(message: &str) -> Option<String> {
    let (wrong, expected) = message
        .split_once("unknown field ")
        .or_else(|| message.split_once("unknown variant "))?
        .1
        .split_once(", expected ")?;
    let quoted = expected.lines().next()?.split('`').skip(1).step_by(2);
    meshwright_engine::suggest::nearest(wrong.trim_matches('`'), quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_come_from_what_was_expected() {
        let message = "unknown field `trafic`, expected one of `name`, `traffic`, `casts`";
        assert_eq!(nearest_expected(message).as_deref(), Some("traffic"));
        assert_eq!(nearest_expected("invalid type"), None);
    }
}
