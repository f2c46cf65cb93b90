//! Modules of a program: the file that is read, and those of the same clone that it imports from.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::functions::{Function, functions, is_word};
use super::names::Names;
use super::tokens::{self, Line, Token};
use crate::import::context::Context;

/// Number of the file that is read.
pub(super) const MAIN: usize = 0;

/// Most modules of one program.
const MOST_MODULES: usize = 200;

/// Longest text of an imported module, bytes.
const LONGEST: usize = 2_000_000;

/// Deepest chain of modules that hand a name on.
const DEEPEST: u32 = 12;

/// A statement with a value that was not read: its module and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    pub module: usize,
    pub line: u32,
}

/// Statements with values that were not read.
pub(super) type Unread = Vec<Spot>;

/// A file of the program.
pub(super) struct Module {
    /// Its path, as its imports would name it; the file that is read has its own name.
    pub file: String,
    pub text: String,
    pub lines: Vec<Line>,
    pub functions: Vec<Rc<Function>>,
    /// Values of its names at its end; nothing while they are being read.
    pub names: OnceCell<Names>,
    imports: Vec<Import>,
}

/// `from a.b import name as local`.
struct Import {
    local: String,
    /// `a/b`.
    from: String,
    name: String,
}

/// Constant that a module imports.
pub(super) struct ImportedConstant {
    /// Its name in the module.
    pub local: String,
    /// Module that it is imported from, where that is a file of the clone.
    pub from: Option<usize>,
    /// Its name there.
    pub name: String,
}

/// The modules that are known so far.
pub(super) struct Modules<'c> {
    context: &'c Context<'c>,
    loaded: RefCell<Vec<Rc<Module>>>,
    by_path: RefCell<BTreeMap<String, Option<usize>>>,
    entered: RefCell<BTreeSet<usize>>,
}

impl<'c> Modules<'c> {
    /// The file that is read.
    ///
    /// # Errors
    /// The line of a text or a bracket that is never closed.
    pub fn new(text: &str, context: &'c Context<'c>) -> Result<Self, (u32, String)> {
        let main = Module::new(context.file, text, MAIN, &[])?;
        Ok(Self {
            context,
            loaded: RefCell::new(vec![Rc::new(main)]),
            by_path: RefCell::default(),
            entered: RefCell::default(),
        })
    }

    /// A module by its number.
    pub fn module(&self, at: usize) -> Rc<Module> {
        Rc::clone(&self.loaded.borrow()[at])
    }

    /// Whether a module's names are asked for the first time: modules may import each other in a circle.
    pub fn enter(&self, at: usize) -> bool {
        self.entered.borrow_mut().insert(at)
    }

    /// The function that a name means in a module: its own, one that it imports from a file of the clone, or one of a file that it
    /// imports.
    pub fn function(&self, at: usize, name: &str) -> Option<Rc<Function>> {
        self.function_within(at, name, DEEPEST)
    }

    fn function_within(&self, at: usize, name: &str, depth: u32) -> Option<Rc<Function>> {
        let module = self.module(at);
        if let Some(own) = module.functions.iter().find(|function| function.name == name) {
            return Some(Rc::clone(own));
        }
        let depth = depth.checked_sub(1)?;
        // `from a import b` and `b.name(…)`, where `a/b.py` is a module.
        if let Some((of, name)) = name.split_once('.') {
            let import = module.imports.iter().find(|import| import.local == of)?;
            return self.function_within(self.load(&format!("{}/{}", import.from, import.name))?, name, depth);
        }
        let mut candidates = module.imports.iter().filter(|import| import.local == name || import.name == "*");
        candidates.find_map(|import| {
            let wanted = if import.name == "*" { name } else { &import.name };
            self.function_within(self.load(&import.from)?, wanted, depth)
        })
    }

    /// Constants that a module imports: names in capitals.
    pub fn imported_constants(&self, at: usize) -> Vec<ImportedConstant> {
        let module = self.module(at);
        let is_constant = |name: &str| name.len() > 1 && !name.contains(|c: char| c.is_lowercase());
        let constants = module.imports.iter().filter(|import| is_constant(&import.name) && import.name != "*");
        let constant = |import: &Import| {
            let Import { local, from, name } = import;
            ImportedConstant { local: local.clone(), from: self.load(from), name: name.clone() }
        };
        constants.map(constant).collect()
    }

    /// Number of a module by its path without extension; the file that is read has none.
    pub fn named(&self, path: &str) -> Option<usize> {
        if path.is_empty() { Some(MAIN) } else { self.load(path.strip_suffix("/__init__").unwrap_or(path)) }
    }

    /// Number of the module of a path without its extension.
    fn load(&self, path: &str) -> Option<usize> {
        if let Some(known) = self.by_path.borrow().get(path) {
            return *known;
        }
        let number = self.loaded.borrow().len();
        let read = |file: String| (self.context.files)(&file).map(|text| (file, text));
        let found = read(format!("{path}.py")).or_else(|| read(format!("{path}/__init__.py")));
        let module =
            found.filter(|(_, text)| number < MOST_MODULES && text.len() <= LONGEST).and_then(|(file, text)| {
                let mut package: Vec<&str> = file.split('/').collect();
                package.pop();
                Module::new(&file, &text, number, &package).ok()
            });
        let known = module.map(|module| {
            self.loaded.borrow_mut().push(Rc::new(module));
            number
        });
        self.by_path.borrow_mut().insert(path.to_owned(), known);
        known
    }
}

impl Module {
    fn new(file: &str, text: &str, number: usize, package: &[&str]) -> Result<Self, (u32, String)> {
        let lines = tokens::lines(text)?;
        let functions = functions(&lines, number);
        let imports = lines.iter().flat_map(|line| imports(line, package)).collect();
        Ok(Self { file: file.to_owned(), text: text.to_owned(), lines, functions, names: OnceCell::new(), imports })
    }
}

/// The names that a line imports, `from a.b import (c, d as e)`, where `package` is the folder that dots begin from.
fn imports(line: &Line, package: &[&str]) -> Vec<Import> {
    let Some(end) = (1..line.words.len()).find(|at| is_word(line, *at, "import")).filter(|_| is_word(line, 0, "from"))
    else {
        return Vec::new();
    };
    let (mut dots, mut parts) = (0, Vec::new());
    for (word, _) in &line.words[1..end] {
        match word {
            Token::Sign(".") if parts.is_empty() => dots += 1,
            Token::Sign("...") if parts.is_empty() => dots += 3,
            Token::Name(name) => parts.push(name.as_str()),
            Token::Sign(_) | Token::Number(_) | Token::Text(_) | Token::Formatted => {}
        }
    }
    let above = usize::saturating_sub(dots, 1);
    let kept = if dots == 0 { &[][..] } else { &package[..package.len().saturating_sub(above)] };
    let outside = std::iter::repeat_n("..", above.saturating_sub(package.len()));
    let from: Vec<&str> = outside.chain(kept.iter().copied()).chain(parts).collect();
    let from = from.join("/");
    let names = line.words[end + 1..].split(|(word, _)| matches!(word, Token::Sign("," | "(" | ")")));
    let named = |words: &[(Token, u32)]| {
        let (name, local) = match words {
            [(Token::Name(name), _)] => (name, name),
            [(Token::Name(name), _), (Token::Name(of), _), (Token::Name(local), _)] if of == "as" => (name, local),
            [(Token::Sign("*"), _)] => {
                return Some(Import { local: String::new(), from: from.clone(), name: "*".to_owned() });
            }
            _ => return None,
        };
        Some(Import { local: local.clone(), from: from.clone(), name: name.clone() })
    };
    names.filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_name_a_file_of_the_clone() {
        let imports_of = |text: &str, package: &[&str]| {
            let lines = tokens::lines(text).unwrap();
            let found: Vec<Import> = lines.iter().flat_map(|line| imports(line, package)).collect();
            found.iter().map(|import| format!("{} = {}:{}", import.local, import.from, import.name)).collect::<Vec<_>>()
        };
        assert_eq!(imports_of("from a.b import (\n  c,\n  d as e,\n)\n", &[]), ["c = a/b:c", "e = a/b:d"]);
        assert_eq!(imports_of("from .x import f\nfrom ..y.z import *\n", &["p", "q"]), ["f = p/q/x:f", " = p/y/z:*"]);
        assert_eq!(imports_of("from ..x import f\n", &[]), ["f = ../x:f"]);
        assert!(imports_of("import a.b as c\nx = 1\n", &[]).is_empty());
    }
}
