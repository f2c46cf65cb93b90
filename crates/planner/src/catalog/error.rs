//! What can be wrong with a name, a file or a `--set`.

use std::fmt;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device.
    Gpu,
    /// A cluster.
    Cluster,
    /// A software stack.
    Stack,
    /// A model.
    Model,
    /// Prices, power and failures.
    Market,
    /// A fit: constants laid over devices and stacks.
    Fit,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "GPU",
            Self::Cluster => "cluster",
            Self::Stack => "stack",
            Self::Model => "model",
            Self::Market => "market",
            Self::Fit => "fit",
        })
    }
}

/// An entry that cannot be had from the catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Neither a name of the catalogue nor a file.
    #[error(
        "there is no {kind} `{name}`{}\n\nhint: a path to a TOML file works too; the catalogue has: {}",
        did_you_mean(nearest.as_deref()), names.join(", ")
    )]
    Unknown {
        /// What was looked for.
        kind: Kind,
        /// The name.
        name: String,
        /// The nearest name there is.
        nearest: Option<String>,
        /// All names.
        names: Vec<&'static str>,
    },
    /// A file that cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why; part of the message, so not its source too.
        why: std::io::Error,
    },
    /// A file that was read and is no text to parse.
    #[error("{path}: {why}")]
    NotText {
        /// Its path.
        path: String,
        /// What it is instead.
        why: &'static str,
    },
    /// TOML that does not parse, or has a key or value that does not belong there.
    #[error("{origin}: {}{}", error.to_string().trim_end(), hint(nearest.as_deref()))]
    Toml {
        /// The file.
        origin: String,
        /// The parser's message, with line, column and key.
        error: Box<toml::de::Error>,
        /// The nearest key or word that would have been understood.
        nearest: Option<String>,
    },
    /// A `config.json` that is none that is known.
    #[error(transparent)]
    Config(#[from] super::hf::HfError),
    /// Values that do not fit together.
    #[error("{origin}: {why}")]
    Invalid {
        /// The file.
        origin: String,
        /// What is wrong, with its numbers.
        why: String,
    },
    /// A `--set` that cannot be applied.
    #[error("--set {item}: {why}{}", hint(nearest.as_deref()))]
    Set {
        /// As it was written.
        item: String,
        /// What is wrong.
        why: String,
        /// The nearest key or word that would have been understood.
        nearest: Option<String>,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
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
