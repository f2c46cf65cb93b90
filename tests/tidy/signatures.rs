//! Signatures of functions.

use crate::all_sources;

/// Parameters of each function of a file, with the function's name.
fn signatures(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let rest = &text[at + 3..];
        let (name, behind) =
            rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()));
        let behind = &behind[generics(behind)..];
        let starts_word = at == 0 || !text.as_bytes()[at - 1].is_ascii_alphanumeric();
        if starts_word && !name.is_empty() && behind.starts_with('(') {
            found.push((name, parameters(&behind[1..])));
        }
    }
    found
}

/// Length of the generic parameters that `text` begins with.
fn generics(text: &str) -> usize {
    let (mut depth, mut before) = (0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { 0 } else { at + 1 };
        }
        before = c;
    }
    0
}

/// Parameters of a list that `text` begins with, up to its closing parenthesis.
fn parameters(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut start, mut before) = (Vec::new(), 0, 0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            ',' | ')' if depth == 0 => {
                all.push(text[start..at].trim());
                start = at + 1;
                if c == ')' {
                    break;
                }
            }
            '(' | '[' | '<' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = c;
    }
    all.retain(|parameter| !parameter.is_empty());
    all
}

/// Values that several parameters have in common are a struct with documented fields. An adapter of pairs, as iterators
/// take it, has one parameter.
#[test]
fn no_function_takes_a_tuple_apart() {
    let mut functions = 0;
    for (path, text) in all_sources() {
        for (name, parameters) in signatures(&text) {
            functions += 1;
            let own: Vec<&&str> = parameters.iter().filter(|parameter| !parameter.ends_with("self")).collect();
            let tuple = own.iter().find(|parameter| parameter.starts_with('('));
            assert!(own.len() < 2 || tuple.is_none(), "{path}: {name} takes {}", tuple.unwrap());
        }
    }
    assert!(functions > 5000, "{functions}");
}

#[test]
fn parameters_are_read_from_signatures() {
    let text = "pub fn of<'a, T: Fn(u32) -> u32>(&self, (a, b): (u32, f64), f: impl Fn(u8) -> Vec<u8>,\n) -> u32 {}";
    assert_eq!(signatures(text), [("of", vec!["&self", "(a, b): (u32, f64)", "f: impl Fn(u8) -> Vec<u8>"])]);
}
