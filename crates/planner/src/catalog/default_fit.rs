//! The fit that applies by default, of which a question needs the constants of a few entries: each constant is read when it first applies.

use std::sync::OnceLock;

use serde::Deserialize;

use super::constants::{Constant, DEFAULT, Fit, is_key_of};
use super::error::EntryKind;
use super::files::FITS;
use super::parts;
use super::typed::parse_toml;

/// One table of the file.
#[derive(Deserialize)]
struct Table {
    constant: [Constant; 1],
}

/// Constant of the built-in file.
struct Deferred {
    key: &'static str,
    text: &'static str,
    read: OnceLock<Constant>,
}

impl Deferred {
    /// The constant of a table that begins with its key, as `meshwright fit` writes it.
    fn new(text: &'static str) -> Self {
        let key = text.strip_prefix("[[constant]]\nkey = \"").and_then(|rest| rest.split('"').next());
        Self { key: key.expect("tests read every built-in fit"), text, read: OnceLock::new() }
    }

    fn constant(&self) -> &Constant {
        let read = || {
            let Table { constant: [constant] } = parse_toml(self.text).expect("tests read every built-in fit");
            constant
        };
        self.read.get_or_init(read)
    }
}

/// Text of the file.
fn text() -> &'static str {
    FITS.iter().find(|(name, _)| *name == DEFAULT).expect("the default fit is built in").1
}

/// Constants in the order of the file.
fn deferred() -> &'static [Deferred] {
    static CONSTANTS: OnceLock<Vec<Deferred>> = OnceLock::new();
    CONSTANTS.get_or_init(|| parts::tables(text(), "constant").map(Deferred::new).collect())
}

/// Constants of one catalogue entry, in the order of the file.
pub(super) fn of_entry<'a>(kind: EntryKind, name: &'a str) -> impl Iterator<Item = &'a Constant> {
    deferred()
        .iter()
        .filter(move |constant| is_key_of(constant.key, kind, name))
        .map(|deferred| -> &'a Constant { deferred.constant() })
}

/// The whole fit.
pub fn default_fit() -> &'static Fit {
    static FIT: OnceLock<Fit> = OnceLock::new();
    FIT.get_or_init(|| {
        let head: Fit = parse_toml(parts::head(text())).expect("tests read every built-in fit");
        Fit { constants: deferred().iter().map(|constant| constant.constant().clone()).collect(), ..head }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_file_are_the_file() {
        let whole: Fit = parse_toml(text()).unwrap();
        assert_eq!(*default_fit(), whole);
        for (kind, name) in
            [(EntryKind::Stack, "nemo-25"), (EntryKind::Gpu, "h100-sxm"), (EntryKind::Transport, "infiniband")]
        {
            assert!(of_entry(kind, name).eq(whole.of_entry(kind, name)), "{name}");
        }
        assert!(of_entry(EntryKind::Stack, "nemo-25").count() > 1);
    }
}
