//! Text whose characters know the line that they were written on, and whether quotes protect them.

/// Character of a script, with its line, whether it is quoted and whether a sourced file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyph {
    /// The character.
    pub char: char,
    /// The line that it was written on, from 1.
    pub line: u32,
    /// Whether quotes keep the shell from splitting or expanding it.
    pub quoted: bool,
    /// Whether it comes from a value of a sourced file, which no message repeats.
    pub sourced: bool,
}

/// Place of an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// Outside of quotes: results are split into words.
    Bare,
    /// Within double quotes.
    Double,
}

/// Text of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub Vec<Glyph>);

/// Character before the name of something unresolved inside a text; a private one, which no script has.
const OPEN: char = '\u{E000}';
/// Character after such a name.
const CLOSE: char = '\u{E001}';

impl Text {
    /// A text that begins on `line`; line ends count.
    pub fn of(text: &str, mut line: u32) -> Self {
        let mut glyphs = Vec::with_capacity(text.len());
        for char in text.chars().filter(|c| *c != '\r' && *c != OPEN && *c != CLOSE) {
            glyphs.push(Glyph { char, line, quoted: false, sourced: false });
            line += u32::from(char == '\n');
        }
        Self(glyphs)
    }

    /// A text that is on one line as a whole.
    pub fn on(text: &str, line: u32) -> Self {
        Self(text.chars().map(|char| Glyph { char, line, quoted: false, sourced: false }).collect())
    }

    /// Lines of another file, as if all of them were on `line` of this one.
    pub fn on_lines_of(text: &str, line: u32) -> Self {
        Self(
            text.chars()
                .filter(|c| *c != '\r')
                .map(|char| Glyph { char, line, quoted: false, sourced: false })
                .collect(),
        )
    }

    /// Text that stands for something unresolved: a variable, a command's output.
    pub fn unresolved(name: &str, line: u32) -> Self {
        Self::on(&format!("{OPEN}{}{CLOSE}", name.replace(char::is_whitespace, "\u{A0}")), line).quoted(true)
    }

    /// Names of the unresolved variables of the text.
    pub fn missing(&self) -> Vec<String> {
        names(&self.plain())
    }

    /// Its characters, with the marks around unresolved names.
    pub fn plain(&self) -> String {
        self.0.iter().map(|glyph| glyph.char).collect()
    }

    /// The line of its first character.
    pub fn line(&self) -> Option<u32> {
        self.0.iter().find(|g| !g.char.is_whitespace()).or(self.0.first()).map(|glyph| glyph.line)
    }

    /// A copy of the text, protected or not.
    #[must_use]
    pub fn quoted(mut self, quoted: bool) -> Self {
        let mut inside = false; // of a name: it is never expanded again
        for glyph in &mut self.0 {
            inside |= glyph.char == OPEN;
            glyph.quoted = quoted || inside;
            inside &= glyph.char != CLOSE;
        }
        self
    }

    /// A copy of the text as a value of a sourced file, or of none.
    #[must_use]
    pub fn sourced(mut self, sourced: bool) -> Self {
        self.0.iter_mut().for_each(|glyph| glyph.sourced = sourced);
        self
    }

    /// Whether some of it comes from a value of a sourced file.
    pub fn is_sourced(&self) -> bool {
        self.0.iter().any(|glyph| glyph.sourced)
    }

    /// The words of it: split where white space is not protected.
    pub fn words(&self) -> Vec<Self> {
        let mut words = Vec::new();
        let mut word: Option<Vec<Glyph>> = None;
        for glyph in &self.0 {
            if glyph.char.is_ascii_whitespace() && !glyph.quoted {
                words.extend(word.take().map(Self));
            } else {
                word.get_or_insert_default().push(*glyph);
            }
        }
        words.extend(word.map(Self));
        words
    }
}

/// Names of the unresolved variables of a text.
pub fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split(OPEN)
        .skip(1)
        .filter_map(|part| part.split_once(CLOSE))
        .map(|(name, _)| name.replace('\u{A0}', " "))
        .collect();
    names.dedup();
    names
}

/// The rest of a text after its last unresolved name.
pub fn after_unresolved(text: &str) -> &str {
    text.rsplit(CLOSE).next().unwrap_or(text)
}

/// A text for people: unresolved parts as they are in the script.
pub fn readable(text: &str) -> String {
    text.replace([OPEN, CLOSE], "").replace('\u{A0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_know_their_lines() {
        let words = Text::of("--a 1\n  --b", 3).words();
        let seen: Vec<(String, u32)> = words.iter().map(|word| (word.plain(), word.line().unwrap())).collect();
        assert_eq!(seen, [("--a".to_owned(), 3), ("1".to_owned(), 3), ("--b".to_owned(), 4)]);
    }

    #[test]
    fn what_is_not_resolved_stays_one_word_and_keeps_its_name() {
        let mut text = Text::on("x", 1);
        text.0.extend(Text::unresolved("$(nproc --all)", 1).0);
        assert_eq!(text.words().len(), 1);
        assert_eq!(text.missing(), ["$(nproc --all)"]);
        assert_eq!(readable(&text.plain()), "x$(nproc --all)");
    }
}
