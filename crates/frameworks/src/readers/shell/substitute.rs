//! Output of `$( … )`, where it does not depend on the machine.

use super::assign::ArrayKind;
use super::grammar::{Command, CommandPipeline, HereDocument, Join};
use super::run::{Shell, Variable};
use super::text::Text;

impl Shell<'_> {
    /// The text of `echo` and `printf`, the value of `expr` and `bc`, a here-document, the parts of a path, the script's own
    /// folder; else unresolved. Assignments before it hold inside only.
    pub fn substitute(&mut self, raw: &Text) -> Text {
        let line = raw.line().unwrap_or(1);
        let unresolved = || Text::unresolved(&format!("$({})", raw.plain().trim()), line);
        let Ok(list) = self.read(raw) else { return unresolved() };
        let Some(((_, CommandPipeline { commands, .. }), before)) = list.split_last() else { return unresolved() };
        let outer = self.variables.clone();
        let output = if self.prepare(before) { self.output(commands, line) } else { None };
        self.variables = outer;
        output.unwrap_or_else(unresolved)
    }

    /// Follows what stands before the last command: assignments and `cd`; false where there is anything else.
    fn prepare(&mut self, before: &[(Join, CommandPipeline)]) -> bool {
        before.iter().all(|(join, CommandPipeline { negated, commands })| {
            let [Command::Simple { words, .. }] = commands.as_slice() else { return false };
            if *negated || *join == Join::Or {
                return false;
            }
            if words.iter().all(|word| super::assign::assignment(word).is_some()) {
                for word in words {
                    self.assign(word, ArrayKind::Indexed);
                }
                return true;
            }
            let words: Vec<Text> = words.iter().flat_map(|word| self.fields(word)).collect();
            match words.as_slice() {
                [cd, folder] if cd.plain() == "cd" => {
                    let folder = below(self.scalar("PWD").as_ref(), folder);
                    self.set("PWD", Variable::One(folder));
                    true
                }
                _ => false,
            }
        })
    }

    /// Text that commands print, where it is known.
    fn output(&mut self, commands: &[Command], line: u32) -> Option<Text> {
        let Command::Simple { words, heredoc, .. } = commands.first()? else { return None };
        let words: Vec<Text> = words.iter().flat_map(|word| self.fields(word)).collect();
        let (name, rest) = words.split_first()?;
        let next = match commands.get(1) {
            Some(Command::Simple { words, .. }) => Some(words.first().map(Text::plain)?),
            Some(_) => return None,
            None => None,
        };
        let path = || rest.iter().rfind(|word| !word.plain().starts_with('-')).cloned();
        Some(match (name.plain().as_str(), next.as_deref(), heredoc) {
            ("echo", None, _) => spoken(rest, line),
            ("printf", None, _) => printed(rest, line)?,
            ("echo", Some("bc"), _) | ("expr", None, _) => self.arithmetic(&spoken(rest, line), line),
            ("pwd", None, _) => self.scalar("PWD")?,
            ("realpath" | "readlink", None, _) => path()?,
            ("dirname", None, _) => folder_of(&path()?),
            ("basename", None, _) => name_of(rest)?,
            ("cat", None, Some(id)) => {
                let HereDocument { text, expands } = self.heredocs.get(*id).cloned().unwrap_or_default();
                if expands { self.double(&text).quoted(false) } else { text }
            }
            ("cat", None, None) if rest.len() == 1 => self.ran.written.get(&rest[0].plain()).cloned()?,
            _ => return None,
        })
    }
}

/// A folder named inside of another.
fn below(outer: Option<&Text>, folder: &Text) -> Text {
    let stays = matches!(outer.map(Text::plain).as_deref(), None | Some("." | ""));
    if stays || !folder.missing().is_empty() || folder.plain().starts_with('/') {
        return folder.clone();
    }
    let mut path = outer.cloned().unwrap_or_default();
    path.0.extend(Text::on("/", 1).0);
    path.0.extend(folder.0.iter().copied());
    path
}

fn folder_of(path: &Text) -> Text {
    let end = path.0.iter().rposition(|glyph| glyph.char == '/');
    match end {
        Some(0) => Text(path.0[..1].to_vec()),
        Some(end) => Text(path.0[..end].to_vec()),
        // What is not resolved has a folder that is not known either.
        None if !path.missing().is_empty() => path.clone(),
        None => Text::on(".", path.line().unwrap_or(1)),
    }
}

/// The last part of a path, without the ending that is named after it.
fn name_of(words: &[Text]) -> Option<Text> {
    let path = words.first()?;
    let start = path.0.iter().rposition(|glyph| glyph.char == '/').map_or(0, |at| at + 1);
    let mut name = Text(path.0[start..].to_vec());
    if let Some(ending) = words.get(1).map(Text::plain)
        && name.plain().ends_with(&ending)
    {
        name.0.truncate(name.0.len() - ending.chars().count());
    }
    Some(name)
}

fn spoken(words: &[Text], line: u32) -> Text {
    let mut text = Text::default();
    for (at, word) in words.iter().filter(|word| !matches!(word.plain().as_str(), "-e" | "-n")).enumerate() {
        if at > 0 {
            text.0.extend(Text::on(" ", line).0);
        }
        text.0.extend(word.clone().quoted(false).0);
    }
    text
}

/// Output of `printf`: `%s` and `%d` stand for its arguments, and the format is used until none is left.
pub(super) fn printed(words: &[Text], line: u32) -> Option<Text> {
    let (format, mut rest) = words.split_first()?;
    let mut out = Text::default();
    loop {
        let before = rest.len();
        let mut glyphs = format.0.iter();
        while let Some(glyph) = glyphs.next() {
            match glyph.char {
                '%' => match glyphs.next()?.char {
                    's' | 'd' | 'i' => {
                        if let Some((word, others)) = rest.split_first() {
                            out.0.extend(word.clone().quoted(false).0);
                            rest = others;
                        }
                    }
                    '%' => out.0.extend(Text::on("%", line).0),
                    _ => return None, // widths and reals
                },
                '\\' => out.0.extend(Text::on(if glyphs.next()?.char == 'n' { "\n" } else { " " }, line).0),
                _ => out.0.push(*glyph),
            }
        }
        if rest.is_empty() || rest.len() == before {
            return Some(out);
        }
    }
}
