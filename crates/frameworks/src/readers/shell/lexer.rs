//! Tokens of a script: blanks, line ends with their here-documents, words, quotes and redirections.

use super::grammar::{HereDocument, Redirect, SyntaxError};
use super::syntax::{Parsed, Parser, is_name};
use super::text::{Glyph, Text};

impl Parser<'_> {
    /// Skips blanks, continuations, comments and line ends.
    pub(super) fn blank_lines(&mut self) {
        self.blank();
        while self.peek() == Some('\n') {
            self.line_end();
            self.blank();
        }
    }

    /// Skips blanks, continuations and comments.
    pub(super) fn blank(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.text.get(self.at + 1).is_some_and(|g| g.char == '\n') => self.at += 2,
                Some('#') => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                Some(_) | None => return,
            }
        }
    }

    /// Takes a line end, and the here-documents that follow it.
    pub(super) fn line_end(&mut self) {
        self.at += 1;
        for (id, delimiter, cut) in std::mem::take(&mut self.pending) {
            let end: String = delimiter.plain().chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
            let expand = end == delimiter.plain();
            let mut body = Vec::new();
            while self.at < self.text.len() {
                let long = self.text[self.at..].iter().position(|g| g.char == '\n');
                let next = long.map_or(self.text.len(), |n| self.at + n + 1);
                let mut row = &self.text[self.at..next];
                self.at = next;
                while cut && row.first().is_some_and(|g| g.char == '\t') {
                    row = &row[1..];
                }
                if row.iter().map(|g| g.char).collect::<String>().trim_end_matches('\n') == end {
                    break;
                }
                body.extend_from_slice(row);
            }
            self.script.heredocs[id] = HereDocument { text: Text(body), expands: expand };
        }
    }

    /// Takes one redirection or here-document; whether there was one.
    pub(super) fn redirects(&mut self, redirects: &mut Vec<Redirect>, heredoc: &mut Option<usize>) -> Parsed<bool> {
        self.blank();
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let operators = ["<<<", "<<-", "<<", "<(", ">(", "&>>", "&>", ">>", ">&", "<&", ">|", ">", "<"];
        let Some(operator) = operators.into_iter().find(|operator| self.starts(operator)) else {
            self.at = start;
            return Ok(false);
        };
        if matches!(operator, "<(" | ">(") {
            self.at += 1;
            let _ = self.matched('(', ')')?; // a process stands for a file
            return Ok(true);
        }
        self.at += operator.len();
        self.blank();
        if self.starts("<(") || self.starts(">(") {
            self.at += 1;
            let _ = self.matched('(', ')')?;
            return Ok(true);
        }
        let target = self.word()?;
        if matches!(operator, "<<" | "<<-") {
            *heredoc = Some(self.base + self.script.heredocs.len());
            self.pending.push((self.script.heredocs.len(), target, operator == "<<-"));
            self.script.heredocs.push(HereDocument::default());
        } else {
            redirects.push(Redirect { operator: operator.to_owned(), target });
        }
        Ok(true)
    }

    /// One word as written, with its quotes; empty at an operator.
    pub(super) fn word(&mut self) -> Parsed<Text> {
        let mut word: Vec<Glyph> = Vec::new();
        while let Some(c) = self.peek() {
            match c {
                '\\' if self.text.get(self.at + 1).is_some_and(|g| g.char == '\n') => self.at += 2,
                '\\' => {
                    word.extend(self.text.get(self.at..(self.at + 2).min(self.text.len())).unwrap_or_default());
                    self.at = (self.at + 2).min(self.text.len());
                }
                '\'' | '"' | '`' => word.extend(self.quoted(c)?.0),
                '$' if self.text.get(self.at + 1).is_some_and(|g| g.char == '\'') => {
                    word.extend(self.with_escapes()?);
                }
                '$' if self.text.get(self.at + 1).is_some_and(|g| "({".contains(g.char)) => {
                    word.push(self.text[self.at]);
                    self.at += 1;
                    let (open, close) = if self.starts("(") { ('(', ')') } else { ('{', '}') };
                    word.extend(self.matched(open, close)?.0);
                }
                '(' if is_assignment(&word) => word.extend(self.matched('(', ')')?.0),
                '(' if word.last().is_some_and(|g| "@!?*+".contains(g.char)) => word.extend(self.matched('(', ')')?.0),
                c if c.is_whitespace() || ";&|<>()".contains(c) => break,
                _ => {
                    word.push(self.text[self.at]);
                    self.at += 1;
                }
            }
        }
        Ok(Text(word))
    }

    /// A part between `$'` and `'` as a quoted one, its escapes decoded: line breaks, tabs, and the character itself of others.
    fn with_escapes(&mut self) -> Parsed<Vec<Glyph>> {
        let (dollar, line) = (self.text[self.at], self.line());
        let glyph = |char: char| Glyph { char, ..dollar };
        let mut word = vec![glyph('\'')];
        self.at += 2;
        while let Some(c) = self.peek() {
            self.at += 1;
            let decoded = match (c, self.peek()) {
                ('\'', _) => {
                    word.push(glyph('\''));
                    return Ok(word);
                }
                ('\\', Some(escaped)) => {
                    self.at += 1;
                    match escaped {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    }
                }
                _ => c,
            };
            match decoded {
                '\'' => word.extend("'\"'\"'".chars().map(glyph)),
                plain => word.push(glyph(plain)),
            }
        }
        Err(SyntaxError { line, why: "the $' that starts here is not closed".to_owned() })
    }

    /// A quoted part with its quotes.
    pub(super) fn quoted(&mut self, quote: char) -> Parsed<Text> {
        let (start, line) = (self.at, self.line());
        self.at += 1;
        while let Some(c) = self.peek() {
            match c {
                c if c == quote => {
                    self.at += 1;
                    return Ok(Text(self.text[start..self.at].to_vec()));
                }
                '\\' if quote != '\'' => self.at += 2,
                '$' if quote == '"' && self.text.get(self.at + 1).is_some_and(|g| "({".contains(g.char)) => {
                    self.at += 1;
                    let (open, close) = if self.starts("(") { ('(', ')') } else { ('{', '}') };
                    let _ = self.matched(open, close)?;
                }
                _ => self.at += 1,
            }
        }
        Err(SyntaxError { line, why: format!("the {quote} that starts here is not closed") })
    }

    /// Text from an opening bracket to the one that closes it.
    pub(super) fn matched(&mut self, open: char, close: char) -> Parsed<Text> {
        let (start, line) = (self.at, self.line());
        let mut depth = 0_u32;
        let mut comments = open == '(';
        while let Some(c) = self.peek() {
            let before = self.at.checked_sub(1).map_or(' ', |at| self.text[at].char);
            match c {
                '\\' => self.at += 1,
                '\'' | '"' | '`' if open == '(' || c != '\'' => {
                    let _ = self.quoted(c)?;
                    continue;
                }
                '#' if comments && (before.is_whitespace() || before == '(') => {
                    self.blank();
                    continue;
                }
                c if c == open => depth += 1,
                c if c == close => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Ok(Text(self.text[start..self.at].to_vec()));
                    }
                }
                _ => {}
            }
            if c == '(' && before == '(' && self.at == start + 1 {
                comments = false; // $(( 16#ff )): a base, not a comment
            }
            self.at += 1;
        }
        Err(SyntaxError { line, why: format!("the `{open}` that starts here is not closed") })
    }
}

/// Whether a word so far is `name=` or `name+=`: a bracket that follows opens an array.
fn is_assignment(word: &[Glyph]) -> bool {
    let text: String = word.iter().map(|glyph| glyph.char).collect();
    let Some(name) = text.strip_suffix('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name)
}
