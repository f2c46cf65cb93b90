//! Expansion of words: quotes, variables with their defaults and cuts, arithmetic, arrays.

use super::arithmetic::{self, NoValue};
use super::run::Shell;
use super::syntax::is_name;
use super::text::{Glyph, Quoting, Text, names};

/// Character that stands for `""`, a word that is there and empty.
pub const EMPTY: char = '\u{E002}';

impl Shell<'_> {
    /// The words that a written word becomes.
    pub fn fields(&mut self, raw: &Text) -> Vec<Text> {
        let mut words = self.expand(raw).words();
        for word in &mut words {
            word.0.retain(|glyph| glyph.char != EMPTY);
        }
        words
    }

    /// A written word expanded to one text, unsplit.
    pub fn expand_unsplit(&mut self, raw: &Text) -> Text {
        let mut text = self.expand(raw);
        text.0.retain(|glyph| glyph.char != EMPTY);
        text
    }

    /// A written word expanded; quoted characters are marked.
    pub(super) fn expand(&mut self, raw: &Text) -> Text {
        let glyphs = &raw.0;
        let mut out = Vec::with_capacity(glyphs.len());
        let mut at = 0;
        while let Some(&glyph) = glyphs.get(at) {
            match glyph.char {
                '\\' if !glyph.quoted => {
                    out.extend(glyphs.get(at + 1).map(|g| Glyph { quoted: true, ..*g }));
                    at += 2;
                }
                '\'' if !glyph.quoted => {
                    let end = close(glyphs, at, '\'');
                    push_quoted(&mut out, Text(glyphs[at + 1..end].to_vec()), glyph);
                    at = end + 1;
                }
                '"' if !glyph.quoted => {
                    let end = close(glyphs, at, '"');
                    let inner = self.double(&Text(glyphs[at + 1..end].to_vec()));
                    push_quoted_as_is(&mut out, inner, glyph);
                    at = end + 1;
                }
                '`' if !glyph.quoted => {
                    let end = close(glyphs, at, '`');
                    out.extend(self.substitute(&Text(glyphs[at + 1..end].to_vec())).0);
                    at = end + 1;
                }
                '$' if !glyph.quoted => {
                    let (text, next) = self.dollar(glyphs, at, Quoting::Bare);
                    out.extend(text.0);
                    at = next;
                }
                _ => {
                    out.push(glyph);
                    at += 1;
                }
            }
        }
        Text(out)
    }

    /// The inside of double quotes, and of here-documents.
    pub fn double(&mut self, raw: &Text) -> Text {
        let glyphs = &raw.0;
        let mut out = Vec::with_capacity(glyphs.len());
        let mut at = 0;
        while let Some(&glyph) = glyphs.get(at) {
            match (glyph.char, glyphs.get(at + 1)) {
                ('\\', Some(next)) if next.char == '\n' => at += 2,
                ('\\', Some(next)) if "$`\"\\".contains(next.char) => {
                    out.push(Glyph { quoted: true, ..*next });
                    at += 2;
                }
                ('`', _) => {
                    let end = close(glyphs, at, '`');
                    out.extend(self.substitute(&Text(glyphs[at + 1..end].to_vec())).quoted(true).0);
                    at = end + 1;
                }
                ('$', _) => {
                    let (text, next) = self.dollar(glyphs, at, Quoting::Double);
                    out.extend(text.0);
                    at = next;
                }
                _ => {
                    out.push(Glyph { quoted: true, ..glyph });
                    at += 1;
                }
            }
        }
        Text(out)
    }

    /// Expansion of the `$` at `at`, and the position after it.
    fn dollar(&mut self, glyphs: &[Glyph], at: usize, place: Quoting) -> (Text, usize) {
        let line = glyphs[at].line;
        let Some(next) = glyphs.get(at + 1).map(|g| g.char) else { return (literal(&glyphs[at]), at + 1) };
        let protect = |text: Text| text.quoted(place == Quoting::Double);
        match next {
            '(' => {
                let end = matching(glyphs, at + 1, '(', ')');
                let inner = Text(glyphs[at + 2..end].to_vec());
                let text = match inner.0.as_slice() {
                    [first, middle @ .., last] if first.char == '(' && last.char == ')' => {
                        self.arithmetic(&Text(middle.to_vec()), line)
                    }
                    _ => self.substitute(&inner),
                };
                (protect(text), end + 1)
            }
            '{' => {
                let end = matching(glyphs, at + 1, '{', '}');
                (self.braces(&Text(glyphs[at + 2..end].to_vec()), line, place), end + 1)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let long =
                    glyphs[at + 1..].iter().take_while(|g| g.char.is_ascii_alphanumeric() || g.char == '_').count();
                let name: String = glyphs[at + 1..=at + long].iter().map(|g| g.char).collect();
                (protect(self.value_or_missing(&name, line)), at + 1 + long)
            }
            c if c.is_ascii_digit() || "@*#?$!-".contains(c) => (self.special(c, line, place), at + 2),
            _ => (Text(vec![Glyph { quoted: true, ..glyphs[at] }]), at + 1),
        }
    }

    fn special(&mut self, c: char, line: u32, place: Quoting) -> Text {
        match c {
            '@' => joined(self.arguments(), place, line),
            '*' => joined(self.arguments(), Quoting::Bare, line).quoted(place == Quoting::Double),
            '#' => Text::on(&self.arguments().len().to_string(), line),
            '?' => Text::on("0", line),
            c if c.is_ascii_digit() => {
                let text = self.value_or_missing(&c.to_string(), line);
                text.quoted(place == Quoting::Double)
            }
            c => Text::unresolved(&format!("${c}"), line),
        }
    }

    /// The value of a variable; an unset one stays as its name.
    pub fn value_or_missing(&mut self, name: &str, line: u32) -> Text {
        self.scalar(name).unwrap_or_else(|| Text::unresolved(&format!("${name}"), line))
    }

    /// `$(( … ))`.
    pub fn arithmetic(&mut self, raw: &Text, line: u32) -> Text {
        let text = self.double(raw).plain();
        let vars = |name: &str| match self.scalar(name) {
            Some(text) => match text.missing().first() {
                Some(missing) => Err(NoValue::Missing(missing.clone())),
                None => Ok(text.plain()),
            },
            None => Err(NoValue::Missing(format!("${name}"))),
        };
        if let Some(missing) = names(&text).first() {
            return Text::unresolved(missing, line);
        }
        match arithmetic::evaluate(&text, &vars) {
            Ok(value) => Text::on(&value.to_string(), line),
            Err(NoValue::Missing(name)) => Text::unresolved(&name, line),
            Err(NoValue::Malformed(text)) => Text::unresolved(&format!("$(({text}))"), line),
        }
    }

    /// `${ … }`.
    fn braces(&mut self, inner: &Text, line: u32, place: Quoting) -> Text {
        let plain = inner.plain();
        let protect = |text: Text| text.quoted(place == Quoting::Double);
        let whole = || Text::unresolved(&format!("${{{plain}}}"), line);
        let chars: Vec<char> = plain.chars().collect();
        let (counted, indirect) = (chars.first() == Some(&'#') && chars.len() > 1, chars.first() == Some(&'!'));
        let start = usize::from(counted || indirect);
        let mut at = start;
        while chars.get(at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
            at += 1;
        }
        if at == start && chars.get(at).is_some_and(|c| "@*#?$!-".contains(*c)) {
            at += 1;
        }
        let mut name: String = chars[start..at].iter().collect();
        let subscript = (chars.get(at) == Some(&'[')).then(|| matching(&inner.0, at, '[', ']'));
        let key = subscript.map(|end| Text(inner.0[at + 1..end.min(inner.0.len())].to_vec()));
        let at = subscript.map_or(at, |end| end + 1);
        if at > chars.len() || name.is_empty() {
            return whole();
        }
        if indirect {
            match self.scalar(&name) {
                Some(text) if text.missing().is_empty() && is_name(&text.plain()) => name = text.plain(),
                Some(_) | None => return whole(),
            }
        }
        let all = key.as_ref().is_some_and(|key| matches!(key.plain().as_str(), "@" | "*"))
            || matches!(name.as_str(), "@" | "*");
        let value = if all {
            let items = if key.is_some() { self.items(&name) } else { Some(self.arguments().to_vec()) };
            if counted {
                return Text::on(&items.map_or(0, |items| items.len()).to_string(), line);
            }
            let star = key.as_ref().map_or(name == "*", |key| key.plain() == "*");
            items.filter(|items| !items.is_empty()).map(|items| {
                if star {
                    self.starred(&items, line).quoted(place == Quoting::Double)
                } else {
                    joined(&items, place, line)
                }
            })
        } else if let Some(key) = &key {
            self.element(&name, key).map(protect)
        } else if name.chars().all(|c| c.is_ascii_digit()) || is_name(&name) {
            self.scalar(&name).map(protect)
        } else {
            Some(self.special(name.chars().next().unwrap_or('?'), line, place))
        };
        if counted {
            return match value {
                Some(text) if text.missing().is_empty() => Text::on(&text.0.len().to_string(), line),
                Some(_) | None => whole(),
            };
        }
        let rest = Text(inner.0[at..].to_vec());
        if rest.0.is_empty() {
            // An array without elements is no word; a variable that is not set is named.
            let empty_array = all && (key.is_none() || self.is_set(&name));
            return value.unwrap_or_else(|| {
                if empty_array { Text::default() } else { whole_variable(&name, key.as_ref(), line) }
            });
        }
        self.operated(&name, value, &rest, line, place)
    }

    /// `${name[*]}`: elements joined by the first character of `IFS`.
    fn starred(&self, items: &[Text], line: u32) -> Text {
        let between = self.scalar("IFS").and_then(|text| text.plain().chars().next()).unwrap_or(' ');
        let mut text = joined(items, Quoting::Bare, line);
        if between != ' ' {
            text = Text::default();
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.0.push(Glyph { char: between, line, quoted: false, sourced: false });
                }
                text.0.extend(item.0.iter().copied());
            }
        }
        text
    }
}

fn whole_variable(name: &str, key: Option<&Text>, line: u32) -> Text {
    let key = key.map_or_else(String::new, |key| format!("[{}]", key.plain()));
    Text::unresolved(&format!("${name}{key}"), line)
}

/// Elements as words, each whole within quotes.
fn joined(items: &[Text], place: Quoting, line: u32) -> Text {
    let whole = place == Quoting::Double;
    let mut out = Vec::new();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(Glyph { char: ' ', line, quoted: false, sourced: false });
        }
        if whole && item.0.is_empty() {
            out.push(Glyph { char: EMPTY, line, quoted: true, sourced: false });
        }
        out.extend(item.0.iter().map(|glyph| Glyph { quoted: whole, ..*glyph }));
    }
    Text(out)
}

fn literal(glyph: &Glyph) -> Text {
    Text(vec![*glyph])
}

fn push_quoted(out: &mut Vec<Glyph>, text: Text, at: Glyph) {
    push_quoted_as_is(out, text.quoted(true), at);
}

fn push_quoted_as_is(out: &mut Vec<Glyph>, text: Text, at: Glyph) {
    if text.0.is_empty() {
        out.push(Glyph { char: EMPTY, line: at.line, quoted: true, sourced: false });
    }
    out.extend(text.0);
}

/// The place of the closing quote, or the end.
fn close(glyphs: &[Glyph], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while let Some(glyph) = glyphs.get(at) {
        match glyph.char {
            c if c == quote => return at,
            '\\' if quote != '\'' => at += 2,
            '$' if quote == '"' && glyphs.get(at + 1).is_some_and(|g| g.char == '(') => {
                at = matching(glyphs, at + 1, '(', ')') + 1;
            }
            '$' if quote == '"' && glyphs.get(at + 1).is_some_and(|g| g.char == '{') => {
                at = matching(glyphs, at + 1, '{', '}') + 1;
            }
            _ => at += 1,
        }
    }
    glyphs.len()
}

/// The place of the bracket that closes the one at `start`, or the end.
fn matching(glyphs: &[Glyph], start: usize, open: char, close_char: char) -> usize {
    let mut depth = 0_u32;
    let mut at = start;
    while let Some(glyph) = glyphs.get(at) {
        match glyph.char {
            '\\' => at += 1,
            '"' => at = close(glyphs, at, '"'),
            '\'' if open == '(' => at = close(glyphs, at, '\''),
            c if c == open => depth += 1,
            c if c == close_char => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
        at += 1;
    }
    glyphs.len()
}
