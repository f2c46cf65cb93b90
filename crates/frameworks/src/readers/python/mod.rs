//! A configuration written in Python, followed but not run: assignments, calls, constants, their arithmetic and comparisons, and
//! functions of this file and of those that it imports from the same clone. Where an interpreter is at hand, it is run instead
//! (`recorder/`), and what it sets goes the same way.
//!
//! Values that depend on unknown conditions, loops or modules that are not there are named by their line.

mod arms;
mod assign;
mod binding;
mod builtins;
#[cfg(test)]
mod calls;
mod evaluated;
mod followed;
mod functions;
mod holes;
mod library;
mod logic;
mod methods;
mod modules;
mod names;
mod operators;
mod places;
mod program;
mod tables;
mod taking;
mod tokens;
mod truth;
mod unread;
mod value;

use crate::import::context::{Context, ImportError};
use crate::readers::document::{Document, Entries, Node, NodeValue};
use evaluated::evaluated;
use functions::Function;
use holes::closed;
use modules::{MAIN, Spot, Unread};
use program::{Frame, Program};
use unread::{note_opened, note_unread};

pub(crate) use followed::{Followed, FunctionSignature};
pub(crate) use library::Library;
pub(crate) use unread::OTHER_MODULE;

/// Reads the configuration that a file's function gives: the one that was named, or the only one that gives a
/// `Partial`, a `Config` or a `ConfigContainer`; without such a function, what stands in `config` or `cfg` at the end.
///
/// # Errors
/// The line that is no Python, or the names to choose from.
pub(crate) fn parse(text: &str, wanted: Option<&str>, context: &Context) -> Result<Document, ImportError> {
    let bad = |line: u32, why: String, expected: String| ImportError { file: context.file.into(), line, why, expected };
    let text = text.trim_start_matches('\u{feff}');
    let program = Program::new(text, context, &()).map_err(|(line, why)| bad(line, why, String::new()))?;
    let mut unread = Vec::new();
    let main = program.modules.module(MAIN);
    let (module, given) = program.top_level(&main, &mut unread);
    let offered: Vec<&Function> =
        main.functions.iter().map(AsRef::as_ref).filter(|function| function.is_offered()).collect();
    // Of NeMo 2's functions, those that give a `Partial` are whole; those that give a `Config` are its parts.
    let kind =
        ["Partial", "Config"].into_iter().find(|kind| offered.iter().any(|function| function.gives.contains(kind)));
    let likely: Vec<&&Function> =
        offered.iter().filter(|function| kind.is_some_and(|kind| function.gives.contains(kind))).collect();
    let named = |name: &str| offered.iter().find(|function| function.name == name);
    let chosen = match (wanted, likely.as_slice()) {
        (Some(name), _) => Some(named(name).ok_or_else(|| {
            let near = meshwright_engine::suggest::nearest(name, offered.iter().map(|function| function.name.as_str()));
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
    let chosen: Option<&Function> = chosen.copied();
    if let Some(python) = context.python {
        let name = chosen.map(|function| function.name.as_str());
        let (root, unread) = evaluated(context.file, text, name, python).map_err(|(line, why)| {
            let expected = "without --run-python it is read, not run".to_owned();
            bad(line, why, expected)
        })?;
        let spot = |(path, line): (String, u32)| Some(Spot { module: program.modules.named(&path)?, line });
        return documented(root, &program, unread.into_iter().filter_map(spot).collect(), chosen, context);
    }
    let root = match chosen {
        Some(function) => {
            unread.clear();
            program.call(function, &Entries::new(), &module, Frame::of(MAIN), &mut unread).0
        }
        None => given.or_else(|| ["cfg", "config"].iter().find_map(|name| module.value(name))),
    };
    let nothing = Node { value: NodeValue::List(Vec::new()), line: 1 };
    documented(root.unwrap_or(nothing), &program, unread, chosen, context)
}

/// A configuration as a document, with a finding for each line that was not read.
fn documented(
    root: Node,
    program: &Program,
    unread: Unread,
    chosen: Option<&Function>,
    context: &Context,
) -> Result<Document, ImportError> {
    if !matches!(root.value, NodeValue::Map(_)) {
        let line = chosen.map_or(1, |function| function.head.number);
        let expected = "a function that returns a configuration, or `cfg` with its settings".to_owned();
        return Err(ImportError { file: context.file.into(), line, why: "no configuration in it".into(), expected });
    }
    let mut root = root;
    let opened = closed(&mut root);
    let document = Document::new(root, context.file);
    note_unread(&document, &program.modules, unread);
    note_opened(&document, &opened);
    Ok(document)
}

fn choice(functions: &[&Function]) -> String {
    let names: Vec<&str> = functions.iter().take(12).map(|function| function.name.as_str()).collect();
    format!("one of them behind `--`: -- --config {}", names.join(" | "))
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
    if cfg.unknown > 1:
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
    fn imports_of_the_same_clone_are_followed() {
        let common = "
from p.base import WIDE as W, start
LAYOUTS = {(8, 4): [['E'] + ['t'] * 2, ['t', 'L']]}

def precision(kind: str, more: int = W):
    if kind == 'bf16':
        cfg = plain()
    elif kind == 'fp8':
        cfg = other()
        cfg.last = False
    else:
        raise ValueError(kind)
    cfg.width = more
    return cfg

def layout(model, given: list | None = None) -> None:
    if given is not None:
        model.layout = given
        return
    stages = model.stages or 1
    model.layout = LAYOUTS[(model.pp, stages)]
    model.kept = [list(x) for x in model.layout]
";
        let base = "WIDE = 7\ndef start() -> Config:\n    return Config(model=None, train=T(batch=32, micro=2 if WIDE \
        > 4 else 1))\n";
        let main = "
from p.common import precision, layout, start as begin

def config() -> Config:
    cfg = begin()
    cfg.model.pp = 8
    cfg.model.stages = 4
    cfg.mixed = precision('fp8')
    layout(cfg.model)
    if getattr(cfg.train, 'batch', 1) == 32 and not cfg.mixed.last:
        cfg.train.batch = 64
    if cfg.model.vocab is None:
        raise ValueError
    return cfg
";
        let files = |name: &str| match name {
            "p/common.py" => Some(common.to_owned()),
            "p/base/__init__.py" => Some(base.to_owned()),
            _ => None,
        };
        let context = Context { files: &files, ..Context::alone("f.py") };
        let document = parse(main, None, &context).unwrap();
        assert_eq!(document.findings.borrow().len(), 0, "{:?}", document.findings);
        assert_eq!((document.number("train.batch"), document.number("train.micro")), (Some(64), Some(2)));
        assert_eq!((document.number("mixed.width"), document.switch("mixed.last")), (Some(7), Some(false)));
        assert_eq!(document.word(&format!("mixed.{CALLED}")).as_deref(), Some("other"));
        assert_eq!((document.words("model.layout.0").len(), document.words("model.kept.1").len()), (3, 2));
        // Places are lines of the file that is read.
        let line = |path: &str| document.place(path).unwrap().line;
        assert_eq!(
            (line("train.micro"), line("mixed.width"), line("model.layout"), line("train.batch")),
            (5, 8, 9, 11)
        );
        let alone = parse(main, None, &Context::alone("f.py")).unwrap();
        let rules: Vec<_> = alone.findings.borrow().iter().map(|finding| finding.rule).collect();
        assert!(rules.contains(&OTHER_MODULE), "{rules:?}");
    }

    #[test]
    fn layouts_are_joined_and_made_by_functions() {
        let text = "
JOINED = '|'.join(('E' + 't' * 2, 't' * 3 + 'L'))

def stages(pp: int, vpp: int | None, *, small: bool):
    table = {(2, 1): [['t'], ['t', 'L']] if small else [['E'], ['L']]}
    return table[(pp, 1 if vpp is None else vpp)]

def config() -> Config:
    name = 'a/b-7b'
    cfg = Config(model=Bridge.of(name).provider(load=False))
    model = cfg.model
    model.pp = 2
    model.text = JOINED
    builder = partial(stages, small=True)
    model.layout = builder(model.pp, None)
    model.pp *= 2
    return cfg
";
        let document = read(text, None).unwrap();
        assert!(document.findings.borrow().is_empty(), "{:?}", document.findings);
        assert_eq!(document.word("model.text").as_deref(), Some("Ett|tttL"));
        assert_eq!(document.words("model.layout.1"), ["t", "L"]);
        assert_eq!((document.word("model.0").as_deref(), document.number("model.pp")), (Some("a/b-7b"), Some(4)));
    }

    #[test]
    fn names_that_are_not_known_are_no_texts() {
        let text = "
from there import LAYOUT
STAGES = [f(x) for x in range(3) if x]
size = 1

def config() -> Config:
    cfg = Config()
    cfg.model.pipeline_model_parallel_layout = STAGES
    cfg.other.pipeline_model_parallel_layout = LAYOUT
    if unknown():
        size = 2
    cfg.train.micro_batch_size = size
    part = given(1)[0]
    part.tensor_model_parallel_size = 2
    return cfg
";
        let document = read(text, None).unwrap();
        let findings = document.findings.borrow();
        let errors = findings.iter().filter(|finding| finding.level == crate::import::Severity::Error);
        let lines: Vec<u32> = errors.filter_map(|finding| Some(finding.place.as_ref()?.line)).collect();
        assert_eq!(lines, [8, 9, 12, 14], "{findings:?}");
        assert!(!document.has("model.pipeline_model_parallel_layout") && !document.has("train.micro_batch_size"));
    }

    #[test]
    fn calls_are_bounded() {
        let doubling = |at: u32| format!("def f{at}(x=0):\n    a = f{0}(x)\n    return f{0}(a)\n", at - 1);
        let functions: String = (1..24).map(doubling).collect();
        let text = format!(
            "def f0(x=0):\n    return x\n{functions}def config() -> Config:\n    return Config(a=f23(1), b=2)\n"
        );
        assert_eq!(read(&text, None).unwrap().number("b"), Some(2));
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
