//! `[ … ]` and `[[ … ]]`: true, false, or dependent on the machine.

use super::pattern;
use super::run::{Shell, Status};
use super::text::Text;

impl Shell<'_> {
    /// A word's text where the machine does not decide it; a variable that is not set is empty, and noted.
    pub fn known(&mut self, raw: &Text) -> Option<String> {
        let text = self.expand_unsplit(raw);
        self.emptied(&text)
    }

    fn emptied(&mut self, text: &Text) -> Option<String> {
        let missing = text.missing();
        if missing.iter().any(|name| name.starts_with("$(")) {
            return None;
        }
        for name in &missing {
            self.assume_unset(name, text.line().unwrap_or(1));
        }
        let mut inside = false;
        let visible = |c: &char| {
            let was = inside;
            inside = match *c {
                '\u{E000}' => true,
                '\u{E001}' => false,
                _ => inside,
            };
            !inside && !was
        };
        Some(text.plain().chars().filter(visible).collect())
    }

    /// The value of a condition; its words are as written inside of `[[ ]]`, and expanded inside of `[ ]`.
    pub fn test(&mut self, words: &[Text]) -> Status {
        let mut at = 0;
        let status = self.either(words, &mut at);
        if at < words.len() { Status::Unknown } else { status }
    }

    fn either(&mut self, words: &[Text], at: &mut usize) -> Status {
        let mut status = self.both(words, at);
        while words.get(*at).is_some_and(|word| matches!(word.plain().as_str(), "||" | "-o")) {
            *at += 1;
            status = match (status, self.both(words, at)) {
                (Status::Yes, _) | (_, Status::Yes) => Status::Yes,
                (Status::No, Status::No) => Status::No,
                _ => Status::Unknown,
            };
        }
        status
    }

    fn both(&mut self, words: &[Text], at: &mut usize) -> Status {
        let mut status = self.single(words, at);
        while words.get(*at).is_some_and(|word| matches!(word.plain().as_str(), "&&" | "-a")) {
            *at += 1;
            status = match (status, self.single(words, at)) {
                (Status::No, _) | (_, Status::No) => Status::No,
                (Status::Yes, Status::Yes) => Status::Yes,
                _ => Status::Unknown,
            };
        }
        status
    }

    fn single(&mut self, words: &[Text], at: &mut usize) -> Status {
        let Some(first) = words.get(*at) else { return Status::No };
        let plain = first.plain();
        let follows = words.get(*at + 1).map(Text::plain);
        let compares = follows.as_deref().is_some_and(|word| COMPARISONS.contains(&word));
        if plain == "!" && !compares {
            *at += 1;
            return self.single(words, at).not();
        }
        if plain == "(" && !compares {
            *at += 1;
            let status = self.either(words, at);
            *at += 1;
            return status;
        }
        if let (false, true, Some(operand)) = (compares, plain.starts_with('-'), words.get(*at + 1)) {
            *at += 2;
            return self.unary(&plain, operand);
        }
        if let (true, Some(operator), right) = (compares, follows, words.get(*at + 2)) {
            *at += 3;
            let (left, right) = (self.known(first), right.map_or(Some(String::new()), |right| self.known(right)));
            return match (left, right) {
                (Some(left), Some(right)) => compare(&left, &operator, &right),
                _ => Status::Unknown,
            };
        }
        *at += 1;
        self.known(first).map_or(Status::Unknown, |text| Status::of(!text.is_empty()))
    }

    fn unary(&mut self, operator: &str, operand: &Text) -> Status {
        if operator == "-v" {
            let name = operand.plain();
            if !self.is_set(&name) {
                self.assume_unset(&name, operand.line().unwrap_or(1));
            }
            return Status::of(self.is_set(&name));
        }
        let Some(text) = self.known(operand) else { return Status::Unknown };
        match operator {
            "-z" => Status::of(text.is_empty()),
            "-n" => Status::of(!text.is_empty()),
            _ => Status::Unknown, // -f, -d and their like look at the machine's files
        }
    }
}

const COMPARISONS: [&str; 12] = ["=", "==", "!=", "=~", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "<", ">"];

fn compare(left: &str, operator: &str, right: &str) -> Status {
    let numbers = || Some((left.trim().parse::<i64>().ok()?, right.trim().parse::<i64>().ok()?));
    let compared = |holds: fn(i64, i64) -> bool| numbers().map_or(Status::No, |(a, b)| Status::of(holds(a, b)));
    match operator {
        "=" | "==" => Status::of(pattern::matches(left, right)),
        "!=" => Status::of(!pattern::matches(left, right)),
        "-eq" => compared(|a, b| a == b),
        "-ne" => compared(|a, b| a != b),
        "-lt" => compared(|a, b| a < b),
        "-le" => compared(|a, b| a <= b),
        "-gt" => compared(|a, b| a > b),
        "-ge" => compared(|a, b| a >= b),
        "<" => Status::of(left < right),
        ">" => Status::of(left > right),
        _ => Status::Unknown, // a regular expression
    }
}
