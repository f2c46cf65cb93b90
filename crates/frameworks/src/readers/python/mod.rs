//! A configuration written in Python, followed but not run: assignments, calls by keyword, constants and their arithmetic.
//!
//! Values that depend on conditions, loops or other modules are named by their line.

mod functions;
mod tokens;
mod unread;
mod value;

use crate::import::context::{Context, ImportError};
use crate::readers::document::{Document, Entries, Node, NodeValue};
use functions::{Function, block, functions, is_word};
use tokens::{Line, Token};
use unread::note_unread;
use value::{Expression, Names};

pub(crate) use unread::OTHER_MODULE;

/// Deepest nesting of functions that call one another.
const DEEPEST: u32 = 16;

/// Statements with values that were not read.
type Unread = Vec<u32>;

/// Reads the configuration that a file's function gives: the one that was named, or the only one that gives a `Config` or
/// `ConfigContainer`; without such a function, what stands in `config` or `cfg` at the end.
///
/// # Errors
/// The line that is no Python, or the names to choose from.
pub(crate) fn parse(text: &str, wanted: Option<&str>, context: &Context) -> Result<Document, ImportError> {
    let bad = |line: u32, why: String, expected: String| ImportError { file: context.file.into(), line, why, expected };
    let lines =
        tokens::lines(text.trim_start_matches('\u{feff}')).map_err(|(line, why)| bad(line, why, String::new()))?;
    let program = Program { functions: functions(&lines) };
    let mut unread = Vec::new();
    let mut module = Names::default();
    let given = program.follow(&lines, 0, &mut module, 0, &mut unread);
    let offered: Vec<&Function> =
        program.functions.iter().filter(|function| !function.needs && !function.name.starts_with('_')).collect();
    let likely: Vec<&&Function> = offered.iter().filter(|function| function.gives.contains("Config")).collect();
    let named = |name: &str| offered.iter().find(|function| function.name == name);
    let chosen = match (wanted, likely.as_slice()) {
        (Some(name), _) => Some(named(name).ok_or_else(|| {
            let near = meshwright_engine::suggest::nearest(name, offered.iter().map(|function| function.name));
            let expected = near.map_or_else(|| choice(&offered), |near| format!("did you mean `{near}`?"));
            bad(1, format!("no function `{name}` gives a configuration here"), expected)
        })?),
        (None, [only]) => Some(*only),
        (None, []) => ["config", "train", "main_config"].iter().find_map(|name| named(name)),
        (None, several) => {
            let all: Vec<&Function> = several.iter().map(|function| **function).collect();
            return Err(bad(1, format!("{} functions give a configuration", all.len()), choice(&all)));
        }
    };
    let root = match chosen {
        Some(function) => {
            unread.clear();
            program.call(function, &[], &module, 0, &mut unread).0
        }
        None => given.or_else(|| ["cfg", "config"].iter().find_map(|name| module.value(name))),
    };
    let Some(root @ Node { value: NodeValue::Map(_), .. }) = root else {
        let expected = "a function that returns a configuration, or `cfg` with its settings".to_owned();
        return Err(bad(chosen.map_or(1, |function| function.head.number), "no configuration in it".into(), expected));
    };
    let document = Document::new(root, context.file);
    note_unread(&document, text, unread, context);
    Ok(document)
}

fn choice(functions: &[&Function]) -> String {
    let names: Vec<&str> = functions.iter().take(12).map(|function| function.name).collect();
    format!("one of them behind `--`: -- --config {}", names.join(" | "))
}

struct Program<'p> {
    functions: Vec<Function<'p>>,
}

impl Program<'_> {
    /// Result of a function, and the names of its body at its end.
    fn call(
        &self,
        function: &Function,
        arguments: &[(String, u32, Node)],
        module: &Names,
        depth: u32,
        unread: &mut Unread,
    ) -> (Option<Node>, Names) {
        let mut names = module.clone();
        if depth > DEEPEST {
            return (None, names);
        }
        let parameters = function.parameters();
        for name in &parameters {
            names.forget(name);
        }
        self.defaults(function, &mut names, depth, unread);
        for (key, _, value) in arguments {
            let name = key.parse().ok().and_then(|at: usize| parameters.get(at).copied()).unwrap_or(key);
            names.set(name, value.clone());
        }
        let indent = function.body.first().map_or(0, |line| line.indent);
        let given = self.follow(function.body, indent, &mut names, depth, unread);
        (given, names)
    }

    /// A statement that is a call of a function of the same file: what it sets in the configuration that it takes.
    fn change(&self, line: &Line, names: &mut Names, depth: u32, unread: &mut Unread) -> Option<()> {
        let [(Token::Name(name), _), (Token::Sign("("), _), (Token::Name(first), _), (Token::Sign("," | ")"), _), ..] =
            line.words.as_slice()
        else {
            return None;
        };
        let function = self.functions.iter().find(|function| function.name == name)?;
        let parameter = *function.parameters().first()?;
        let mut inner = None;
        let mut functions = |_: &str, entries: &Entries| {
            inner = Some(entries.clone());
            None
        };
        let mut expression = Expression { words: &line.words, names, functions: &mut functions, unread: Vec::new() };
        let _ = expression.value();
        let arguments = inner?;
        let mut lines = Vec::new();
        let (_, after) = self.call(function, &arguments, names, depth + 1, &mut lines);
        unread.append(&mut lines);
        names.set(first, after.value(parameter)?);
        Some(())
    }

    /// Parameters with constants behind them.
    fn defaults(&self, function: &Function, names: &mut Names, depth: u32, unread: &mut Unread) {
        let words = &function.head.words;
        for (at, pair) in words.windows(2).enumerate() {
            let ([(Token::Name(name), _), (Token::Sign(":" | "="), _)], true) = (pair, at > 2) else { continue };
            let rest = &words[at + 1..];
            let Some(equals) = rest.iter().position(|(word, _)| matches!(word, Token::Sign("=" | ","))) else {
                continue;
            };
            if rest[equals].0 == Token::Sign("=")
                && let Some(value) = self.value(&rest[equals + 1..], names, depth, unread)
            {
                names.set(name, value);
            }
        }
    }

    fn value(&self, words: &[(Token, u32)], names: &Names, depth: u32, unread: &mut Unread) -> Option<Node> {
        let mut inner = Vec::new();
        let mut functions = |name: &str, arguments: &Entries| {
            let can = |function: &&Function| function.name == name && (!function.needs || !arguments.is_empty());
            let function = self.functions.iter().find(can)?;
            let mut unread = Vec::new();
            let given = self.call(function, arguments, names, depth + 1, &mut unread).0?;
            let whole = unread.is_empty();
            // Of a configuration it inherits, every line counts; of a part of it, that it was not read whole.
            if function.gives.contains("Config") {
                inner.append(&mut unread);
                return Some((given, true));
            }
            Some((given, whole))
        };
        let mut expression = Expression { words, names, functions: &mut functions, unread: Vec::new() };
        let mut items = Vec::new();
        let mut whole = true;
        let mut tuple = false;
        while !expression.words.is_empty() {
            match expression.value() {
                Some(item) => items.push(item),
                None => whole = false,
            }
            match expression.words.first() {
                Some((Token::Sign(","), _)) => {
                    tuple = true;
                    expression.words = &expression.words[1..];
                }
                Some(_) | None => break,
            }
        }
        unread.append(&mut expression.unread);
        unread.append(&mut inner);
        let line = items.first()?.line;
        if !whole {
            return None;
        }
        if tuple { Some(Node { value: NodeValue::List(items), line }) } else { items.pop() }
    }

    /// Follows statements of one indentation; what they return.
    fn follow(
        &self,
        lines: &[Line],
        indent: usize,
        names: &mut Names,
        depth: u32,
        unread: &mut Unread,
    ) -> Option<Node> {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            let below = block(lines, at);
            if line.indent == indent {
                match self.statement(line, below, names, depth, unread) {
                    Step::On => {}
                    Step::Returned(value) => return value,
                }
            }
            at += 1 + below.len();
        }
        None
    }

    fn statement(&self, line: &Line, below: &[Line], names: &mut Names, depth: u32, unread: &mut Unread) -> Step {
        let first = match line.words.first() {
            Some((Token::Name(name), _)) => name.as_str(),
            Some((Token::Text(_) | Token::Sign("@"), _)) => return Step::On,
            Some(_) | None => {
                unread.push(line.number);
                return Step::On;
            }
        };
        match first {
            "return" => return Step::Returned(self.value(&line.words[1..], names, depth, unread)),
            "import" | "from" | "assert" | "pass" | "global" | "def" | "class" | "raise" => return Step::On,
            "if" if is_main(line) => return Step::On,
            _ if !below.is_empty() => {
                unread.push(line.number);
                return Step::On;
            }
            _ => {}
        }
        let mut depth_of = 0_i32;
        let equals: Vec<usize> = line
            .words
            .iter()
            .enumerate()
            .filter_map(|(at, (word, _))| {
                match word {
                    Token::Sign("(" | "[" | "{") => depth_of += 1,
                    Token::Sign(")" | "]" | "}") => depth_of -= 1,
                    _ => {}
                }
                (depth_of == 0 && *word == Token::Sign("=")).then_some(at)
            })
            .collect();
        let Some(last) = equals.last() else {
            if self.change(line, names, depth, unread).is_none() {
                unread.push(line.number);
            }
            return Step::On;
        };
        let right = &line.words[last + 1..];
        let value = self.value(right, names, depth, unread);
        let mut from = 0;
        for end in &equals {
            assign(&line.words[from..*end], right, value.as_ref(), names, line.number, unread);
            from = end + 1;
        }
        Step::On
    }
}

enum Step {
    On,
    Returned(Option<Node>),
}

/// `if __name__ == "__main__":`
fn is_main(line: &Line) -> bool {
    is_word(line, 1, "__name__")
}

/// `a.b.c`, where that is all there is.
fn path(words: &[(Token, u32)]) -> Option<Vec<String>> {
    let mut path = Vec::new();
    for (at, (word, _)) in words.iter().enumerate() {
        match (at % 2, word) {
            (0, Token::Name(name)) => path.push(name.clone()),
            (1, Token::Sign(".")) => {}
            _ => return None,
        }
    }
    (words.len() % 2 == 1).then_some(path)
}

fn assign(
    target: &[(Token, u32)],
    right: &[(Token, u32)],
    value: Option<&Node>,
    names: &mut Names,
    line: u32,
    unread: &mut Unread,
) {
    let plain = target.iter().position(|(word, _)| *word == Token::Sign(":")).map_or(target, |at| &target[..at]);
    if plain.iter().any(|(word, _)| *word == Token::Sign(",")) {
        let targets = plain.split(|(word, _)| *word == Token::Sign(","));
        let values: Vec<Option<&Node>> = match value.map(|node| &node.value) {
            Some(NodeValue::List(items)) => items.iter().map(Some).collect(),
            Some(NodeValue::Scalar(..) | NodeValue::Map(_)) | None => Vec::new(),
        };
        for (at, target) in targets.enumerate() {
            assign(target, &[], values.get(at).copied().flatten(), names, line, unread);
        }
        return;
    }
    match path(plain).as_deref() {
        Some([name]) => {
            let part = path(right).filter(|part| part.len() > 1);
            match (part, value) {
                (Some(part), Some(Node { value: NodeValue::Map(_), .. })) => names.alias(name, &part),
                (_, Some(value)) => names.set(name, value.clone()),
                (_, None) => names.forget(name),
            }
        }
        Some(whole @ [_, ..]) => names.put(whole, value.cloned(), line),
        Some([]) | None => unread.push(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::document::CALLED;

    fn read(text: &str, wanted: Option<&str>) -> Result<Document, ImportError> {
        parse(text, wanted, &Context::alone("f.py"))
    }

    #[test]
    fn a_configuration_is_followed() {
        let text = "
import os
WIDTH, KIND = 8 * 1024, 'x'

def base() -> Trainer.Config:
    spec = registry('8B', n=2)
    return Trainer.Config(spec=spec, a=A.Config(width=WIDTH, ok=True, none=None), list=[1] * 3 + [2])

def big() -> Trainer.Config:
    '''Inherits.'''
    config = base()
    part = config.a
    part.width = WIDTH // 3
    config.b.c = torch.bfloat16
    return config
";
        let document = read(text, Some("big")).unwrap();
        assert_eq!(document.number("a.width"), Some(2730));
        assert_eq!(document.word("b.c").as_deref(), Some("torch.bfloat16"));
        assert_eq!(document.word("spec.0").as_deref(), Some("8B"));
        assert_eq!(document.word(&format!("a.{CALLED}")).as_deref(), Some("A.Config"));
        assert_eq!((document.switch("a.ok"), document.word("a.none")), (Some(true), None));
        assert_eq!(document.words("list"), ["1", "1", "1", "2"]);
        assert_eq!(document.place("a.width").unwrap().line, 13);
        assert!(document.findings.borrow().is_empty(), "{:?}", document.findings);
    }

    #[test]
    fn what_must_be_run_is_named() {
        let text = "
def config() -> C.Config:
    cfg = C.Config(a=1, b=[x for x in y], c=f'{z}')
    if cfg.a > 1:
        cfg.a = 2
    cfg.list.append(3)
    return cfg
";
        let document = read(text, None).unwrap();
        assert_eq!(document.number("a"), Some(1));
        let lines: Vec<u32> = document.findings.borrow().iter().map(|f| f.place.as_ref().unwrap().line).collect();
        assert_eq!(lines, [3, 4, 6]);
    }

    #[test]
    fn tables_keep_what_is_constant_in_them() {
        let document =
            read("cfg = C()\ncfg.env = {**BASE, 'A': 1, 'B': [2, 3],}\ncfg.n = {'x': {'y': 4}}\n", None).unwrap();
        assert_eq!(
            (document.number("env.A"), document.count("env.B"), document.number("n.x.y")),
            (Some(1), Some(2), Some(4))
        );
        assert_eq!(document.findings.borrow().len(), 1, "only the star");
    }

    #[test]
    fn functions_are_chosen_by_name() {
        let two = "def a() -> X.Config:\n    return X(p=1)\ndef b() -> X.Config:\n    return X(p=2)\n";
        assert!(read(two, None).err().unwrap().expected.contains("a | b"));
        assert_eq!(read(two, Some("b")).unwrap().number("p"), Some(2));
        assert!(read(two, Some("c")).is_err());
        assert_eq!(read("cfg = get()\ncfg.model.tp = 4\n", None).unwrap().number("model.tp"), Some(4));
        assert!(read("x = 1\n", None).is_err() && read("a = (1\n", None).is_err());
        let endless = "def a() -> X.Config:\n    return b()\ndef b() -> Y:\n    return a()\n";
        assert!(read(endless, Some("a")).is_ok_and(|document| document.has(CALLED)));
    }
}
