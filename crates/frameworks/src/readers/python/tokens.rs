//! Lexer for Python: the tokens of logical lines, with their indentation.

/// Token of a program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or a keyword.
    Name(String),
    /// A number, as written but for its underscores.
    Number(String),
    /// A text without its quotes.
    Text(String),
    /// An f-string, whose text is known only when the program runs.
    Formatted,
    /// An operator or a bracket.
    Sign(&'static str),
}

impl Token {
    /// Change of the depth of brackets: 1 at one that opens, −1 at one that closes, else 0.
    pub fn nesting(&self) -> i32 {
        match self {
            Self::Sign("(" | "[" | "{") => 1,
            Self::Sign(")" | "]" | "}") => -1,
            Self::Sign(_) | Self::Name(_) | Self::Number(_) | Self::Text(_) | Self::Formatted => 0,
        }
    }
}

/// One logical line: the tokens up to a line end outside of brackets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// Its first line in the file, from 1.
    pub number: u32,
    /// Columns before its first word.
    pub indent: usize,
    /// Its words, each with its own line.
    pub words: Vec<(Token, u32)>,
}

/// Operators and brackets, the longest first.
const SIGNS: [&str; 38] = [
    "**=", "//=", "...", ">>=", "<<=", "**", "//", "->", "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=", "|=",
    "%=", "<<", ">>", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=", "+", "-", "*", "/", "%", "@", "|",
];
/// Operators that the reader does not evaluate.
const OTHERS: [&str; 6] = ["<", ">", "&", "^", "~", ";"];

struct Reader<'t> {
    rest: &'t str,
    line: u32,
}

impl<'t> Reader<'t> {
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, of: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// The text after its opening quotes.
    fn text(&mut self, raw: bool) -> Result<String, (u32, String)> {
        let begun = self.line;
        let mark = &self.rest[..1];
        let triple = self.rest.starts_with(&mark.repeat(3));
        let end = if triple { mark.repeat(3) } else { mark.to_owned() };
        self.take(end.len());
        let mut text = String::new();
        loop {
            if self.rest.starts_with(&end) {
                self.take(end.len());
                return Ok(text);
            }
            match self.rest.chars().next() {
                Some('\\') if !raw => {
                    self.take(1);
                    let next = self.rest.chars().next().unwrap_or(' ');
                    text.push(match next {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    });
                    self.take(next.len_utf8().min(self.rest.len()));
                }
                Some(c) if c != '\n' || triple => {
                    text.push(c);
                    self.take(c.len_utf8());
                }
                Some(_) | None => return Err((begun, "a text without its closing quote".into())),
            }
        }
    }

    /// The next token; `None` where the line has no more.
    fn word(&mut self) -> Result<Option<Token>, (u32, String)> {
        self.take_while(|c| c == ' ' || c == '\t' || c == '\r' || c == '\u{c}');
        let Some(first) = self.rest.chars().next().filter(|first| *first != '\n') else { return Ok(None) };
        if first == '#' {
            self.take_while(|c| c != '\n');
            return Ok(None);
        }
        if first == '"' || first == '\'' {
            return Ok(Some(Token::Text(self.text(false)?)));
        }
        if first.is_alphabetic() || first == '_' {
            let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
            let is_prefix = name.len() <= 2 && name.chars().all(|c| "rRbBuUfF".contains(c));
            if is_prefix && self.rest.starts_with(['"', '\'']) {
                let formatted = name.contains(['f', 'F']);
                let text = self.text(name.contains(['r', 'R']))?;
                return Ok(Some(if formatted { Token::Formatted } else { Token::Text(text) }));
            }
            return Ok(Some(Token::Name(name.to_owned())));
        }
        let numeric = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if first.is_ascii_digit() || first == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
            let mut number = self.take_while(numeric).to_owned();
            if number.ends_with(['e', 'E']) && self.rest.starts_with(['-', '+']) && !number.starts_with("0x") {
                number.push_str(self.take(1));
                number.push_str(self.take_while(numeric));
            }
            return Ok(Some(Token::Number(number.replace('_', ""))));
        }
        match SIGNS.iter().chain(&OTHERS).find(|sign| self.rest.starts_with(**sign)) {
            Some(sign) => {
                self.take(sign.len());
                Ok(Some(Token::Sign(sign)))
            }
            None => Err((self.line, format!("`{first}` is no part of Python"))),
        }
    }
}

/// The logical lines of a program.
///
/// # Errors
/// The line of a text or a bracket that is never closed.
pub(super) fn lines(text: &str) -> Result<Vec<Line>, (u32, String)> {
    let mut reader = Reader { rest: text, line: 1 };
    let mut lines = Vec::new();
    let mut open: Vec<(&'static str, u32)> = Vec::new();
    let mut current = Line { number: 1, indent: 0, words: Vec::new() };
    let mut begins = true;
    loop {
        if begins {
            let white = reader.take_while(|c| c == ' ' || c == '\t');
            current.indent = white.chars().map(|c| if c == '\t' { 8 } else { 1 }).sum();
            current.number = reader.line;
            begins = false;
        }
        reader.take_while(|c| c == ' ' || c == '\t');
        let line = reader.line;
        if let Some(rest) = reader.rest.strip_prefix('\\')
            && rest.trim_start_matches('\r').starts_with('\n')
        {
            let end = reader.rest.find('\n').unwrap_or(0);
            reader.take(end + 1);
            continue;
        }
        match reader.word()? {
            Some(word) => {
                if let Token::Sign(sign) = word {
                    balance(&mut open, sign, line)?;
                }
                if word == Token::Sign(";") && open.is_empty() {
                    let next = Line { words: Vec::new(), ..current };
                    lines.push(std::mem::replace(&mut current, next));
                } else {
                    current.words.push((word, line));
                }
            }
            None if reader.rest.starts_with('\n') => {
                reader.take(1);
                if open.is_empty() {
                    begins = true;
                    if !current.words.is_empty() {
                        let next = Line { number: reader.line, indent: 0, words: Vec::new() };
                        lines.push(std::mem::replace(&mut current, next));
                    }
                }
            }
            None if reader.rest.is_empty() => break,
            None => {}
        }
    }
    if let Some((sign, line)) = open.last() {
        return Err((*line, format!("`{sign}` is never closed")));
    }
    if !current.words.is_empty() {
        lines.push(current);
    }
    Ok(lines)
}

fn balance(open: &mut Vec<(&'static str, u32)>, sign: &'static str, line: u32) -> Result<(), (u32, String)> {
    let closes = match sign {
        "(" | "[" | "{" => {
            open.push((sign, line));
            return Ok(());
        }
        ")" => "(",
        "]" => "[",
        "}" => "{",
        _ => return Ok(()),
    };
    match open.pop() {
        Some((opened, _)) if opened == closes => Ok(()),
        Some((opened, at)) => Err((line, format!("`{sign}` closes the `{opened}` of line {at}"))),
        None => Err((line, format!("`{sign}` closes nothing"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logical_lines() {
        let lines = lines(
            "a = 1_000  # x\nif b:\n    c(\n        'd\\n', f'{e}',\n    )\n\"\"\"two\nlines\"\"\"\nx = \
        1e-4 + \\\n  y\n",
        )
        .unwrap();
        let shown: Vec<(u32, usize, usize)> = lines.iter().map(|l| (l.number, l.indent, l.words.len())).collect();
        assert_eq!(shown, [(1, 0, 3), (2, 0, 3), (3, 4, 7), (6, 0, 1), (8, 0, 5)]);
        assert_eq!(lines[0].words[2].0, Token::Number("1000".into()));
        assert_eq!(lines[2].words[2].0, Token::Text("d\n".into()));
        assert_eq!(lines[4].words[2].0, Token::Number("1e-4".into()));
    }

    #[test]
    fn what_is_open_is_named() {
        for (text, line) in [("a\nb = (1,\n 2", 2), ("x = 'abc\n", 1), ("\n)", 2), ("a = [\n1)", 2), ("a = ?", 1)] {
            assert_eq!(lines(text).unwrap_err().0, line, "{text}");
        }
    }
}
