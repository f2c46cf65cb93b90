//! The grammar of launch scripts: lists, pipelines, conditionals, loops, functions, arrays, here-documents.

use super::grammar::{Command, CommandPipeline, Join, List, LoopKind, Script, SyntaxError};
use super::text::{Glyph, Text};

/// Reads a script; its here-documents are numbered from `base`.
///
/// # Errors
/// Names the line where a quote, a bracket or a block is not closed.
pub fn parse(text: &Text, base: usize) -> Result<Script, SyntaxError> {
    let mut parser = Parser::new(text, base);
    let list = parser.list(&[])?;
    if parser.at < parser.text.len() {
        return Err(parser.error("a word that closes nothing"));
    }
    parser.script.list = list;
    Ok(parser.script)
}

/// The words of an array literal or a command line, unexpanded: line ends separate, comments are dropped.
///
/// # Errors
/// When a quote or bracket is not closed.
pub fn words(text: &Text) -> Result<Vec<Text>, SyntaxError> {
    let mut parser = Parser::new(text, 0);
    let mut words = Vec::new();
    loop {
        parser.blank_lines();
        if parser.at >= parser.text.len() {
            return Ok(words);
        }
        let before = parser.at;
        let word = parser.word()?;
        if parser.at == before {
            parser.at += 1; // an operator on its own: no part of a list of words
        } else {
            words.push(word);
        }
    }
}

/// Deepest nesting of blocks, so that a hostile script does not exhaust the stack.
const DEEPEST: u32 = 100;

/// Recursive-descent parser of a script.
pub(super) struct Parser<'a> {
    pub(super) text: &'a [Glyph],
    /// Place of the next character.
    pub(super) at: usize,
    /// Here-documents whose bodies follow the line end: number, delimiter, whether tabs are cut.
    pub(super) pending: Vec<(usize, Text, bool)>,
    pub(super) script: Script,
    /// Number of the first here-document.
    pub(super) base: usize,
    /// Blocks that the next character is in.
    pub(super) depth: u32,
}

pub(super) type Parsed<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    fn new(text: &'a Text, base: usize) -> Self {
        Self { text: &text.0, at: 0, pending: Vec::new(), script: Script::default(), base, depth: 0 }
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.text.get(self.at).map(|glyph| glyph.char)
    }

    pub(super) fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.text.get(self.at + i).is_some_and(|g| g.char == c))
    }

    pub(super) fn line(&self) -> u32 {
        self.text.get(self.at).or(self.text.last()).map_or(1, |glyph| glyph.line)
    }

    pub(super) fn error(&self, why: &str) -> SyntaxError {
        SyntaxError { line: self.line(), why: why.to_owned() }
    }

    /// Whether the next word is this one; it is taken if so.
    fn keyword(&mut self, word: &str) -> bool {
        let ends =
            self.text.get(self.at + word.len()).is_none_or(|g| g.char.is_whitespace() || ";&|()".contains(g.char));
        let found = self.starts(word) && ends;
        if found {
            self.at += word.len();
        }
        found
    }

    fn expect(&mut self, word: &str, opened: u32) -> Parsed<()> {
        self.blank_lines();
        if self.keyword(word) {
            return Ok(());
        }
        let found = self.word().map(|w| w.plain()).unwrap_or_default();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
        Err(SyntaxError {
            line: opened,
            why: format!("the block that starts here is not closed: `{word}` expected, {found} found"),
        })
    }

    /// Takes the redirections behind a block, which change nothing here.
    fn skip_redirects(&mut self) -> Parsed<()> {
        while self.redirects(&mut Vec::new(), &mut None)? {}
        Ok(())
    }

    /// Pipelines up to one of the closing words, which is not taken.
    fn list(&mut self, closers: &[&str]) -> Parsed<List> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("blocks nested too deeply"));
        }
        let mut list = List::new();
        let mut join = Join::Then;
        loop {
            self.blank_lines();
            while self.starts(";") && !self.starts(";;") || self.starts("&") && !self.starts("&&") && !self.starts("&>")
            {
                self.at += 1;
                self.blank_lines();
            }
            let at = self.at;
            if self.peek().is_none() || self.starts(";;") || closers.iter().any(|word| self.keyword(word)) {
                self.at = at;
                self.depth -= 1;
                return Ok(list);
            }
            if self.peek() == Some(')') {
                self.depth -= 1;
                return Ok(list);
            }
            list.push((join, self.pipeline()?));
            self.blank();
            join = if self.starts("&&") {
                self.at += 2;
                Join::And
            } else if self.starts("||") {
                self.at += 2;
                Join::Or
            } else {
                Join::Then
            };
        }
    }

    fn pipeline(&mut self) -> Parsed<CommandPipeline> {
        let mut negated = false;
        self.blank();
        while self.keyword("!") {
            negated = !negated;
            self.blank();
        }
        let mut commands = vec![self.command()?];
        loop {
            self.blank();
            if !self.starts("|") || self.starts("||") {
                return Ok(CommandPipeline { negated, commands });
            }
            self.at += if self.starts("|&") { 2 } else { 1 };
            self.blank_lines();
            commands.push(self.command()?);
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        let line = self.line();
        if self.keyword("if") {
            return self.conditional(line);
        }
        if self.keyword("case") {
            return self.case(line);
        }
        if self.keyword("for") || self.keyword("select") {
            return self.for_loop(line);
        }
        let kind = if self.starts("until") { LoopKind::Until } else { LoopKind::While };
        if self.keyword("while") || self.keyword("until") {
            let condition = self.list(&["do"])?;
            self.expect("do", line)?;
            let body = self.list(&["done"])?;
            self.expect("done", line)?;
            self.skip_redirects()?;
            return Ok(Command::While { kind, condition, body, line });
        }
        if self.keyword("[[") {
            return self.test(line);
        }
        if self.starts("((") {
            let inner = self.matched('(', ')')?;
            return Ok(Command::Arithmetic(Text(inner.0[2..inner.0.len() - 2].to_vec())));
        }
        if self.keyword("{") {
            let body = self.list(&["}"])?;
            self.expect("}", line)?;
            self.skip_redirects()?;
            return Ok(Command::Group(body));
        }
        if self.starts("(") {
            self.at += 1;
            let body = self.list(&[])?;
            if self.peek() != Some(')') {
                return Err(SyntaxError { line, why: "the `(` is not closed".into() });
            }
            self.at += 1;
            self.skip_redirects()?;
            return Ok(Command::Group(body));
        }
        self.simple(line)
    }

    fn conditional(&mut self, line: u32) -> Parsed<Command> {
        let mut arms = Vec::new();
        loop {
            let condition = self.list(&["then"])?;
            self.expect("then", line)?;
            arms.push((condition, self.list(&["elif", "else", "fi"])?));
            self.blank_lines();
            if self.keyword("elif") {
                continue;
            }
            let otherwise = if self.keyword("else") { self.list(&["fi"])? } else { List::new() };
            self.expect("fi", line)?;
            self.skip_redirects()?;
            return Ok(Command::If { arms, otherwise, line });
        }
    }

    fn case(&mut self, line: u32) -> Parsed<Command> {
        self.blank();
        let word = self.word()?;
        self.expect("in", line)?;
        let mut arms = Vec::new();
        loop {
            self.blank_lines();
            if self.keyword("esac") {
                return Ok(Command::Case { word, arms });
            }
            if self.starts("(") {
                self.at += 1;
            }
            let mut patterns = Vec::new();
            loop {
                self.blank_lines();
                let before = self.at;
                patterns.push(self.word()?);
                self.blank_lines();
                if self.starts("|") {
                    self.at += 1;
                } else if self.starts(")") {
                    self.at += 1;
                    break;
                } else if self.at == before || self.peek().is_none() {
                    return Err(SyntaxError {
                        line,
                        why: "the `case` that starts here is not closed by `esac`".into(),
                    });
                }
            }
            let body = self.list(&["esac"])?;
            self.blank_lines();
            if self.starts(";;") {
                self.at += 2;
                if self.starts("&") {
                    self.at += 1;
                }
            }
            arms.push((patterns, body));
        }
    }

    fn for_loop(&mut self, line: u32) -> Parsed<Command> {
        self.blank();
        let mut words = Vec::new();
        let name = if self.starts("((") {
            let header = self.matched('(', ')')?;
            words.push(header);
            String::new()
        } else {
            let name = self.word()?.plain();
            self.blank();
            if self.keyword("in") {
                words = self.words_of_line()?;
            } else {
                words.push(Text::on("\"$@\"", line));
            }
            name
        };
        self.blank_lines();
        if self.starts(";") {
            self.at += 1;
        }
        self.expect("do", line)?;
        let body = self.list(&["done"])?;
        self.expect("done", line)?;
        self.skip_redirects()?;
        Ok(Command::For { name, words, body })
    }

    /// Words up to an operator or the line end.
    fn words_of_line(&mut self) -> Parsed<Vec<Text>> {
        let mut words = Vec::new();
        loop {
            self.blank();
            let before = self.at;
            let word = self.word()?;
            if self.at == before {
                return Ok(words);
            }
            words.push(word);
        }
    }

    fn test(&mut self, line: u32) -> Parsed<Command> {
        let mut words = Vec::new();
        loop {
            self.blank_lines();
            if self.keyword("]]") {
                return Ok(Command::Test(words));
            }
            let Some(c) = self.peek() else {
                return Err(SyntaxError { line, why: "the `[[` is not closed".into() });
            };
            let operator = ["&&", "||", "(", ")", "<", ">"].into_iter().find(|operator| self.starts(operator));
            if let Some(operator) = operator {
                words.push(Text::on(operator, self.line()));
                self.at += operator.len();
            } else if words.last().is_some_and(|word| word.plain() == "=~") {
                let start = self.at; // a regular expression: anything up to a blank
                while self.peek().is_some_and(|c| !c.is_whitespace()) {
                    self.at += 1;
                }
                words.push(Text(self.text[start..self.at].to_vec()));
            } else {
                let before = self.at;
                words.push(self.word()?);
                if self.at == before {
                    return Err(self.error(&format!("`{c}` inside of [[ ]]")));
                }
            }
        }
    }

    fn simple(&mut self, line: u32) -> Parsed<Command> {
        let (mut words, mut redirects, mut heredoc) = (Vec::new(), Vec::new(), None);
        loop {
            self.blank();
            if self.redirects(&mut redirects, &mut heredoc)? {
                continue;
            }
            let before = self.at;
            let word = self.word()?;
            if self.at > before {
                words.push(word);
                continue;
            }
            if self.starts("(") && words.len() == 1 {
                self.at += 1;
                self.blank();
                if self.starts(")") {
                    self.at += 1;
                    self.blank_lines();
                    return self.function(words[0].plain());
                }
            }
            if words.len() == 2 && words[0].plain() == "function" {
                self.blank_lines();
                if self.starts("{") {
                    return self.function(words[1].plain());
                }
            }
            if words.is_empty() && redirects.is_empty() && heredoc.is_none() {
                return Err(self.error(&format!("`{}` where a command should be", self.peek().unwrap_or(' '))));
            }
            if words.len() == 3 && words[0].plain() == "function" && words[2].plain() == "{" {
                return Err(self.error("a function without a body"));
            }
            return Ok(Command::Simple { words, redirects, heredoc, line });
        }
    }

    fn function(&mut self, name: String) -> Parsed<Command> {
        let body = match self.command()? {
            Command::Group(body) => body,
            other => vec![(Join::Then, CommandPipeline { negated: false, commands: vec![other] })],
        };
        Ok(Command::Function { name, body })
    }
}

/// Whether a text is the name of a variable.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
