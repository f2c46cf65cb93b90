//! Branches of conditions, and lines that only end a program or write a message.

use super::functions::{block, is_word};
use super::tokens::Line;

/// The arms of a condition: the place of each in its lines, its head, and what is below it.
pub(super) fn arms(lines: &[Line], at: usize) -> Vec<(usize, &Line, &[Line])> {
    let mut arms = vec![(at, &lines[at], block(lines, at))];
    while let Some((last, _, below)) = arms.last() {
        let next = last + 1 + below.len();
        let goes_on = |line: &&Line| is_word(line, 0, "elif") || is_word(line, 0, "else");
        match lines.get(next).filter(goes_on) {
            Some(line) if line.indent == lines[at].indent => arms.push((next, line, block(lines, next))),
            Some(_) | None => break,
        }
    }
    arms
}

/// Whether lines do nothing but end the program or write a message.
pub(super) fn only_refuses(lines: &[Line]) -> bool {
    lines.iter().all(|line| ["raise", "assert", "pass"].iter().any(|word| is_word(line, 0, word)) || logs(line))
}

/// `logger.warning(…)`, `warnings.warn(…)`, `print(…)`.
pub(super) fn logs(line: &Line) -> bool {
    ["logger", "log", "logging", "warnings", "print"].iter().any(|word| is_word(line, 0, word))
}

/// `if __name__ == "__main__":`
pub(super) fn is_main(line: &Line) -> bool {
    is_word(line, 1, "__name__")
}
