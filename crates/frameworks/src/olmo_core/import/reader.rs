//! Reader of a model's configuration, and the settings that its blocks share.

use crate::import::finding::Finding;
use crate::readers::document::{CALLED, Document};
use meshwright_engine::model::{Details, Norm};

/// The last name of a member of an enumeration, or the text that stands for it.
pub(super) fn member(word: &str) -> &str {
    word.rsplit('.').next().unwrap_or_default()
}

/// Reader of one document.
pub(super) struct Reader<'d> {
    pub document: &'d Document,
}

impl Reader<'_> {
    /// Names of settings that affect the training and are not read.
    pub fn refuse(&self, path: &str, is: &str) {
        let message = format!("`{path}` {is}, and decides what is trained");
        let finding = Finding::error("unread-setting", message).at_maybe(self.document.place(path).as_ref());
        self.document.note(finding.expected("--model NAME, or --model config.json"));
    }

    /// The member of an enumeration at the path, or the default.
    pub fn kind(&self, path: &str, usual: &str) -> String {
        self.document.word(path).map_or_else(|| usual.to_owned(), |word| member(&word).to_owned())
    }

    /// A switch, or the usual value where it is not given.
    pub fn on(&self, path: &str, usual: bool) -> bool {
        self.document.switch(path).unwrap_or(usual)
    }

    /// Whether the value is an object.
    pub fn is_object(&self, path: &str) -> bool {
        !self.document.keys(path).is_empty() || self.document.has(&format!("{path}.{CALLED}"))
    }
}

/// Settings of a model that its blocks say.
pub(super) struct Parts {
    pub details: Details,
    pub norm: Option<Norm>,
    pub dropout: bool,
    pub drops_tokens: bool,
}

impl Parts {
    /// Notes a setting of its own, once.
    pub fn other(&mut self, name: &str, value: f64) {
        if !self.details.others.iter().any(|(known, _)| known == name) {
            self.details.others.push((name.to_owned(), value));
        }
    }
}
