//! Statements of a program, followed one after another.

use std::cell::Cell;

use super::arms::{arms, is_main, logs, only_refuses};
use super::assign::{assign, augmented, equals_signs, forget_assigned, path};
use super::binding::bind;
use super::functions::{Function, block, is_word, partial};
use super::library::{Library, OBJECT};
use super::modules::{ImportedConstant, MAIN, Module, Modules, Spot, Unread};
use super::names::Names;
use super::places::relocated;
use super::taking::take;
use super::tokens::{Line, Token};
use super::truth::truth;
use super::unread::decides;
use super::value::Expression;
use crate::import::context::Context;
use crate::readers::document::{Entries, Node, NodeValue, value_of};

/// Deepest nesting of functions that call one another.
const DEEPEST: u32 = 24;

/// Most calls of one program.
const MOST_CALLS: u32 = 20_000;

/// Call of a function by its name.
#[derive(Clone, Copy)]
pub(super) struct Call<'c> {
    pub name: &'c str,
    pub arguments: &'c Entries,
    pub line: u32,
}

/// Surroundings of a statement: its module, and how many calls lead to it.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    module: usize,
    depth: u32,
}

impl Frame {
    /// A statement at the top of a module.
    pub const fn of(module: usize) -> Self {
        Self { module, depth: 0 }
    }

    const fn inner(self) -> Self {
        Self { module: self.module, depth: self.depth + 1 }
    }

    const fn spot(self, line: u32) -> Spot {
        Spot { module: self.module, line }
    }
}

/// A program of modules.
pub(super) struct Program<'c> {
    pub modules: Modules<'c>,
    library: &'c dyn Library,
    calls: Cell<u32>,
}

/// End of statements.
pub(super) enum Step {
    /// The next statement follows.
    On,
    /// The function returned a value; none where it is not known.
    Returned(Option<Node>),
}

impl<'c> Program<'c> {
    /// A program that begins with a file.
    ///
    /// # Errors
    /// The line that is no Python.
    pub fn new(text: &str, context: &'c Context<'c>, library: &'c dyn Library) -> Result<Self, (u32, String)> {
        Ok(Self { modules: Modules::new(text, context)?, library, calls: Cell::new(0) })
    }

    /// Values of a module's names at its end, and what it returns.
    pub fn top_level(&self, module: &Module, unread: &mut Unread) -> (Names, Option<Node>) {
        let mut names = self.constants(MAIN);
        let given = self.follow(&module.lines, Frame::of(MAIN), &mut names, unread);
        (names, if let Step::Returned(value) = given { value } else { None })
    }

    /// Constants that a module imports.
    fn constants(&self, module: usize) -> Names {
        let mut names = Names::default();
        for ImportedConstant { local, from, name } in self.modules.imported_constants(module) {
            let known = from.map(|from| self.names_of(from));
            match known.as_ref().map(|known| (known.value(&name), known.is_unknown(&name))) {
                Some((Some(value), _)) => names.set(&local, value),
                Some((None, true)) | None => names.forget(&local),
                Some((None, false)) => {}
            }
        }
        names
    }

    /// Values of an imported module's names.
    fn names_of(&self, number: usize) -> Names {
        let module = self.modules.module(number);
        if let Some(known) = module.names.get() {
            return known.clone();
        }
        if self.modules.enter(number) {
            let mut names = self.constants(number);
            let _ = self.follow(&module.lines, Frame { module: number, depth: 1 }, &mut names, &mut Vec::new());
            return module.names.get_or_init(|| names).clone();
        }
        Names::default()
    }

    /// Values of the names that are set below `if __name__ == "__main__":`, and of the others.
    pub fn of_main(&self, module: &Module, names: &Names, unread: &mut Unread) -> Names {
        let mut names = names.clone();
        for (at, _) in module.lines.iter().enumerate().filter(|(_, line)| is_word(line, 0, "if") && is_main(line)) {
            let _ = self.follow(block(&module.lines, at), Frame::of(MAIN), &mut names, unread);
        }
        names
    }

    /// Result of a function, and the names of its body at its end.
    pub fn call(
        &self,
        function: &Function,
        arguments: &Entries,
        names: &Names,
        caller: Frame,
        unread: &mut Unread,
    ) -> (Option<Node>, Names) {
        let frame = Frame { module: function.module, depth: caller.depth };
        let mut names = if function.module == caller.module { names.clone() } else { self.names_of(function.module) };
        self.calls.set(self.calls.get() + 1);
        if frame.depth > DEEPEST || self.calls.get() > MOST_CALLS {
            return (None, names);
        }
        let parameters = function.parameters();
        let all = parameters.named().chain(parameters.rest).chain(parameters.more);
        all.for_each(|name| names.forget(name));
        self.defaults(function, &mut names, frame, unread);
        if bind(&parameters, arguments, &mut names, function.head.number).is_none() {
            return (None, names);
        }
        match self.follow(&function.body, frame, &mut names, unread) {
            Step::Returned(value) => (value, names),
            Step::On => (None, names),
        }
    }

    /// A statement that is a call of a function of the program: what it sets in the configuration that it takes first.
    fn change(&self, line: &Line, names: &mut Names, frame: Frame, unread: &mut Unread) -> Option<()> {
        let [(Token::Name(name), _), (Token::Sign("("), _), rest @ ..] = line.words.as_slice() else { return None };
        let end = rest.iter().position(|(word, _)| matches!(word, Token::Sign("," | ")")))?;
        let first = path(&rest[..end])?;
        let before = names.get(&first).cloned()?;
        let function = self.modules.function(frame.module, name)?;
        let parameter = (*function.parameters().by_place.first()?).to_owned();
        let mut own = None;
        let mut lines = Vec::new();
        let mut functions = |called: &str, entries: &Entries| {
            if called == name {
                own = Some(entries.clone());
                return None;
            }
            self.called(Call { name: called, arguments: entries, line: line.number }, names, frame, &mut lines)
        };
        let mut expression = Expression { words: &line.words, names, functions: &mut functions, unread: Vec::new() };
        let _ = expression.value();
        let arguments = own?;
        unread.append(&mut lines);
        let (_, after) = self.call(&function, &arguments, names, frame.inner(), unread);
        let mut after = after.value(&parameter)?;
        if function.module != frame.module {
            after = relocated(after, Some(&before), line.number);
        }
        if let [only] = first.as_slice() {
            names.set_whole(only, after);
        } else {
            names.put(&first, Some(after), line.number);
        }
        Some(())
    }

    /// Result of a call of a function of the program, and whether all of it was read.
    pub fn called(&self, call: Call, names: &Names, frame: Frame, inner: &mut Unread) -> Option<(Node, bool)> {
        let Call { name, arguments, line } = call;
        if let Some((name, arguments)) = partial(names.value(name).as_ref(), arguments) {
            let call = Call { name: &name, arguments: &arguments, line };
            return self.called(call, &Names::default(), frame, inner);
        }
        if let Some(method) = name.strip_prefix('.') {
            let object = value_of(arguments, OBJECT)?;
            let others: Entries = arguments.iter().filter(|entry| entry.key != OBJECT).cloned().collect();
            return self.library.method(object, method, &others, line).map(|node| (node, true));
        }
        let is_own = self.modules.module(frame.module).functions.iter().any(|function| function.name == name);
        if !is_own && let Some(node) = self.library.called(name, arguments, line) {
            return Some((node, true));
        }
        let function = self.modules.function(frame.module, name)?;
        if function.needs && arguments.is_empty() {
            return None;
        }
        let mut lines = Vec::new();
        let given = self.call(&function, arguments, names, frame.inner(), &mut lines).0?;
        let first = value_of(arguments, "0");
        let given = if function.module == frame.module { given } else { relocated(given, first, line) };
        let is_whole = lines.is_empty();
        // Of a configuration it inherits, every line counts; of a part of it, those that decide, and that it was not read whole.
        let is_base = ["Config", "Partial"].iter().any(|kind| function.gives.contains(kind));
        lines.retain(|spot: &Spot| is_base || decides(&self.modules.module(spot.module).text, spot.line));
        inner.append(&mut lines);
        Some((given, is_base || is_whole))
    }

    /// Parameters with constants behind them.
    fn defaults(&self, function: &Function, names: &mut Names, frame: Frame, unread: &mut Unread) {
        let words = &function.head.words;
        for (at, pair) in words.windows(2).enumerate() {
            let ([(Token::Name(name), _), (Token::Sign(":" | "="), _)], true) = (pair, at > 2) else { continue };
            // The annotation and the constant behind it end at the next comma between parameters.
            let mut depth = 0_i32;
            let between = words[at + 1..].split(|(word, _)| {
                depth += word.nesting();
                depth < 0 || depth == 0 && *word == Token::Sign(",")
            });
            let own = between.into_iter().next().unwrap_or_default();
            let Some(equals) = own.iter().position(|(word, _)| *word == Token::Sign("=")) else { continue };
            if let Some(value) = self.value(&own[equals + 1..], names, frame, unread) {
                names.set(name, value);
            }
        }
    }

    /// Value of an expression: of several behind commas, a list; none where one of them is not known.
    fn value(&self, words: &[(Token, u32)], names: &Names, frame: Frame, unread: &mut Unread) -> Option<Node> {
        let mut inner = Vec::new();
        let line = words.first().map_or(1, |(_, line)| *line);
        let mut functions =
            |name: &str, arguments: &Entries| self.called(Call { name, arguments, line }, names, frame, &mut inner);
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
        unread.extend(expression.unread.iter().map(|line| frame.spot(*line)));
        unread.append(&mut inner);
        let line = items.first()?.line;
        if !whole {
            return None;
        }
        if tuple { Some(Node { value: NodeValue::List(items), line }) } else { items.pop() }
    }

    /// Arguments of a call, whose words follow its bracket, with these names.
    pub fn arguments_of(&self, words: &[(Token, u32)], names: &Names) -> Entries {
        let line = words.first().map_or(1, |(_, line)| *line);
        let mut inner = Vec::new();
        let mut functions = |name: &str, arguments: &Entries| {
            self.called(Call { name, arguments, line }, names, Frame::of(MAIN), &mut inner)
        };
        Expression { words, names, functions: &mut functions, unread: Vec::new() }.arguments()
    }

    /// Follows statements of one indentation, that of the first.
    pub fn follow(&self, lines: &[Line], frame: Frame, names: &mut Names, unread: &mut Unread) -> Step {
        let indent = lines.first().map_or(0, |line| line.indent);
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            let below = block(lines, at);
            let mut next = at + 1 + below.len();
            if line.indent == indent {
                let step = if is_word(line, 0, "if") && !below.is_empty() && !is_main(line) {
                    let arms = arms(lines, at);
                    next = arms.last().map_or(next, |(at, _, below)| at + 1 + below.len());
                    self.branch(&arms, frame, names, unread)
                } else if is_word(line, 0, "try") && !below.is_empty() {
                    self.follow(below, frame, names, unread)
                } else {
                    self.statement(line, below, names, frame, unread)
                };
                if let Step::Returned(value) = step {
                    return Step::Returned(value);
                }
            }
            at = next;
        }
        Step::On
    }

    /// The arm of `if`, `elif`, `else` whose condition holds; where that is not known, what the arms set is not read.
    fn branch(&self, arms: &[(usize, &Line, &[Line])], frame: Frame, names: &mut Names, unread: &mut Unread) -> Step {
        for (at, (_, line, below)) in arms.iter().enumerate() {
            let holds = if is_word(line, 0, "else") {
                Some(true)
            } else {
                self.value(&line.words[1..], names, frame, &mut Vec::new()).as_ref().and_then(truth)
            };
            take(&line.words, names);
            match holds {
                Some(true) => return self.follow(below, frame, names, unread),
                Some(false) => {}
                None => {
                    let set = arms[at..].iter().filter(|(.., below)| !only_refuses(below));
                    unread.extend(set.map(|(_, line, _)| frame.spot(line.number)));
                    arms[at..].iter().for_each(|(.., below)| forget_assigned(below, names));
                    return Step::On;
                }
            }
        }
        Step::On
    }

    /// Follows one statement that is neither a condition nor a `try`; of one with a block below, the names that the block sets are
    /// unknown after it.
    fn statement(&self, line: &Line, below: &[Line], names: &mut Names, frame: Frame, unread: &mut Unread) -> Step {
        let first = match line.words.first() {
            Some((Token::Name(name), _)) => name.as_str(),
            Some((Token::Text(_) | Token::Sign("@"), _)) => return Step::On,
            Some(_) | None => {
                unread.push(frame.spot(line.number));
                return Step::On;
            }
        };
        match first {
            "return" => return Step::Returned(self.value(&line.words[1..], names, frame, unread)),
            "import" | "from" | "assert" | "pass" | "global" | "def" | "class" | "raise" | "except" | "finally" => {
                return Step::On;
            }
            "if" if is_main(line) => return Step::On,
            _ if !below.is_empty() => {
                unread.push(frame.spot(line.number));
                forget_assigned(below, names);
                return Step::On;
            }
            _ => {}
        }
        if let Some((target, whole)) = augmented(line) {
            let value = self.value(&whole, names, frame, unread);
            assign(&target, &[], value.as_ref(), names, frame.spot(line.number), unread);
            take(&line.words, names);
            return Step::On;
        }
        match equals_signs(&line.words).as_slice() {
            [] => self.call_alone(line, names, frame, unread),
            [targets @ .., last] => {
                let right = &line.words[last + 1..];
                let value = self.value(right, names, frame, unread);
                let mut from = 0;
                for end in targets.iter().chain([last]) {
                    assign(&line.words[from..*end], right, value.as_ref(), names, frame.spot(line.number), unread);
                    from = end + 1;
                }
                take(right, names);
            }
        }
        Step::On
    }

    /// A statement without a target, such as a call: what it changes, or a finding where that is not known.
    fn call_alone(&self, line: &Line, names: &mut Names, frame: Frame, unread: &mut Unread) {
        if self.change(line, names, frame, unread).is_some() {
            return;
        }
        match self.change_inside(line, names, frame, unread) {
            Some(true) => {}
            Some(false) => unread.push(frame.spot(line.number)),
            None => {
                take(&line.words, names);
                if !logs(line) {
                    unread.push(frame.spot(line.number));
                }
            }
        }
    }
}
