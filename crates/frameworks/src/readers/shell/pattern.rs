//! The shell's patterns: `*`, `?`, `[abc]`.

/// Whether a text matches as a whole.
pub fn matches(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    whole(&text, &pattern)
}

fn whole(text: &[char], pattern: &[char]) -> bool {
    // The last `*` and what it has taken so far: tried again with one character more when the rest fails.
    let (mut t, mut p, mut star): (usize, usize, Option<(usize, usize)>) = (0, 0, None);
    while t < text.len() {
        match one(text[t], &pattern[p..]) {
            _ if pattern.get(p) == Some(&'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(long) => {
                t += 1;
                p += long;
            }
            None => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, t) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Length of the pattern that one character matches, if it does.
fn one(c: char, pattern: &[char]) -> Option<usize> {
    match *pattern.first()? {
        '?' => Some(1),
        '[' => {
            let end = pattern.iter().skip(2).position(|c| *c == ']').map(|n| n + 2);
            let Some(end) = end else { return (c == '[').then_some(1) };
            let (negated, set) = match pattern[1] {
                '!' | '^' => (true, &pattern[2..end]),
                _ => (false, &pattern[1..end]),
            };
            let ranged = set.windows(3).any(|w| w[1] == '-' && (w[0]..=w[2]).contains(&c));
            ((ranged || set.contains(&c)) != negated).then_some(end + 1)
        }
        '\\' => (pattern.get(1) == Some(&c)).then_some(2),
        literal => (literal == c).then_some(1),
    }
}

/// Length of the text that a pattern cuts off, of those that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutLength {
    Shortest,
    Longest,
}

/// Matches that are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    First,
    All,
}

/// `${text%pattern}`, or `%%` for the longest.
pub fn cut_end(text: &str, pattern: &str, cut: CutLength) -> String {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut found = starts.iter().filter(|at| matches(&text[**at..], pattern));
    let at = if cut == CutLength::Longest { found.next() } else { found.next_back() };
    at.map_or(text, |at| &text[..*at]).to_owned()
}

/// `${text#pattern}`, or `##` for the longest.
pub fn cut_start(text: &str, pattern: &str, cut: CutLength) -> String {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut found = ends.iter().filter(|at| matches(&text[..**at], pattern));
    let at = if cut == CutLength::Longest { found.next_back() } else { found.next() };
    at.map_or(text, |at| &text[*at..]).to_owned()
}

/// `${text/from/to}`, or `//` for all. A pattern in `from` matches its shortest text.
pub fn replace(text: &str, from: &str, to: &str, replaced: Replaced) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let ends = rest.char_indices().skip(1).map(|(at, _)| at).chain([rest.len()]);
        let found = ends.into_iter().find(|end| !from.is_empty() && matches(&rest[..*end], from));
        if let Some(end) = found {
            out.push_str(to);
            rest = &rest[end..];
            if replaced == Replaced::First {
                break;
            }
        } else {
            let next = rest.char_indices().nth(1).map_or(rest.len(), |(at, _)| at);
            out.push_str(&rest[..next]);
            rest = &rest[next..];
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_cut_and_replace() {
        assert!(matches("H100-80GB", "H100*") && matches("7B", "[0-9]B") && !matches("70B", "?B"));
        assert!(matches("", "*") && matches("ab", "a*b") && !matches("abc", "a*b") && matches("aXbXb", "a*b"));
        assert_eq!(cut_end("run.tar.gz", ".*", CutLength::Shortest), "run.tar");
        assert_eq!(cut_end("run.tar.gz", ".*", CutLength::Longest), "run");
        assert_eq!(cut_start("a/b/c", "*/", CutLength::Longest), "c");
        assert_eq!(cut_start("a/b/c", "*/", CutLength::Shortest), "b/c");
        assert_eq!(replace("a-b-c", "-", "_", Replaced::All), "a_b_c");
        assert_eq!(replace("a-b-c", "-", "", Replaced::First), "ab-c");
    }
}
