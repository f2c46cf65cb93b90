//! Text of a file under construction.

/// Lines of a file under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(String);

impl Lines {
    /// Adds a line, or several where it holds line ends.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }

    /// Adds lines as comments of shell, YAML and Python.
    pub fn comments<S: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = S>) {
        for line in lines {
            self.line(format!("# {}", line.as_ref()).trim_end());
        }
    }

    /// A shell array, one item a line.
    pub fn array<S: AsRef<str>>(&mut self, name: &str, items: impl IntoIterator<Item = S>) {
        self.line(format!("{name}=("));
        for item in items {
            self.line(format!("    {}", item.as_ref()));
        }
        self.line(")");
    }

    /// The finished text.
    pub fn into_string(self) -> String {
        self.0
    }
}
