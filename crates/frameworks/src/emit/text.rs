//! Text of a file under construction.

use super::language::{Language, Shell};
use super::request::EmittedFile;
use super::snippet::Snippet;
use meshwright_planner::catalog::visible;

/// File of the language `L` under construction: its lines are code or comments.
#[derive(Clone, Debug)]
pub(crate) struct Lines<L> {
    text: String,
    language: std::marker::PhantomData<L>,
}

impl<L: Language> Lines<L> {
    /// A file with the first line that every file of its language has.
    pub fn new() -> Self {
        let text = L::FIRST.map_or_else(String::new, |first| format!("{first}\n"));
        Self { text, language: std::marker::PhantomData }
    }

    /// Adds code, and a line end.
    pub fn line(&mut self, code: Snippet<L>) {
        self.push_line(&code.into_text());
    }

    /// Adds code of this program's own source, and a line end.
    pub fn fixed(&mut self, code: &'static str) {
        self.push_line(code);
    }

    fn push_line(&mut self, code: &str) {
        self.text.push_str(code);
        self.text.push('\n');
    }

    /// Adds comments, one line each: line breaks and invisible characters are escaped.
    pub fn comments<S: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = S>) {
        for line in lines {
            self.push_line(format!("# {}", visible(line.as_ref())).trim_end());
        }
    }

    /// The finished file.
    pub fn into_file(self, name: &str) -> EmittedFile {
        EmittedFile { name: name.to_owned(), text: self.text }
    }
}

impl Lines<Shell> {
    /// A shell array, one item a line.
    pub fn array(&mut self, name: &'static str, items: impl IntoIterator<Item = Snippet<Shell>>) {
        self.line(Snippet::filled("{}=(", &[Snippet::fixed(name)]));
        for item in items {
            self.line(Snippet::filled("    {}", &[item]));
        }
        self.fixed(")");
    }
}
