//! Methods that change a table or a list inside an expression: `size = table.pop("size")`.

use super::assign::path;
use super::holes::is_plain_table;
use super::names::Names;
use super::tokens::Token;

/// Methods that change their object.
const CHANGING: &[&str] =
    &["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"];

/// Keywords of expressions that may not be evaluated, or more than once.
const CONDITIONAL: [&str; 5] = ["if", "and", "or", "for", "lambda"];

/// Takes out of tables what `pop` takes out of them in a statement, wherever in it; what other methods change there is not known.
pub(super) fn take(words: &[(Token, u32)], names: &mut Names) {
    let of_choice =
        |(word, _): &(Token, u32)| matches!(word, Token::Name(name) if CONDITIONAL.contains(&name.as_str()));
    let is_certain = !words.iter().skip(1).any(of_choice);
    for at in 2..words.len().saturating_sub(1) {
        let [(Token::Sign("."), _), (Token::Name(method), line), (Token::Sign("("), _)] = &words[at - 1..at + 2] else {
            continue;
        };
        if !CHANGING.contains(&method.as_str()) {
            continue;
        }
        // Names and dots before the method, without a keyword before them, as in `return table.pop(key)`.
        let is_part = |(word, _): &&(Token, u32)| matches!(word, Token::Name(_) | Token::Sign("."));
        let begin = at - 1 - words[..at - 1].iter().rev().take_while(is_part).count();
        let Some(object) = (begin..at - 1).find_map(|from| path(&words[from..at - 1])) else { continue };
        match words.get(at + 2..) {
            Some([(Token::Text(key), _), (Token::Sign("," | ")"), _), ..])
                if method == "pop" && is_certain && names.get(&object).is_some_and(is_plain_table) =>
            {
                names.remove(&[object, vec![key.clone()]].concat());
            }
            Some(_) | None => names.change(&object, *line),
        }
    }
}
