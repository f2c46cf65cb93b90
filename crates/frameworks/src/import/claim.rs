//! Claims of frameworks to a file whose kind nobody named.

/// A file's extension and text.
#[derive(Clone, Copy, Debug)]
pub struct FileSample<'a> {
    /// Extension of its name, in lower case; empty without one.
    pub extension: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// Strength of a framework's claim to a file, from none to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The file is another's, or a script.
    None,
    /// The extension is the framework's.
    Extension,
    /// The text is the framework's.
    Content,
}

impl FileSample<'_> {
    /// Whether a line begins with a key, indented or not, in quotes or not.
    pub fn has_key(&self, key: &str) -> bool {
        self.text.lines().any(|line| line.trim_start().trim_matches('"').starts_with(key))
    }

    /// Whether a line that is not indented begins with these characters.
    pub fn has_line(&self, start: &str) -> bool {
        self.text.lines().any(|line| line.trim_start_matches('\u{feff}').starts_with(start))
    }

    /// Whether it is YAML, by its extension.
    pub fn is_yaml(&self) -> bool {
        matches!(self.extension, "yaml" | "yml")
    }

    /// Whether its extension is one that settings have.
    pub fn is_settings(&self) -> bool {
        self.is_yaml() || matches!(self.extension, "json" | "toml" | "py")
    }
}
