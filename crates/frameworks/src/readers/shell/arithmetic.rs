//! Whole-number arithmetic: `$(( GPUS_PER_NODE * NNODES ))`.

/// Reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// Name of a variable that is not resolved.
    Missing(String),
    /// Text that is no arithmetic expression.
    Malformed(String),
}

/// The value of an expression; `variable` gives the text of a name.
///
/// # Errors
/// The variable that has no value, or the malformed part.
pub fn evaluate(text: &str, variable: &dyn Fn(&str) -> Result<String, NoValue>) -> Result<i64, NoValue> {
    value_of(text, variable, 0)
}

/// Deepest nesting of brackets, and of variables that hold expressions which name variables.
const DEEPEST: u32 = 20;

fn value_of(text: &str, variable: &dyn Fn(&str) -> Result<String, NoValue>, depth: u32) -> Result<i64, NoValue> {
    if depth > DEEPEST {
        return Err(NoValue::Malformed(text.to_owned()));
    }
    if text.is_empty() {
        return Ok(0);
    }
    let mut parser = Parser { text: text.chars().collect(), at: 0, variable, depth };
    parser.blank();
    let value = parser.binary(0)?;
    if parser.at < parser.text.len() { Err(parser.malformed()) } else { Ok(value) }
}

struct Parser<'a> {
    text: Vec<char>,
    at: usize,
    variable: &'a dyn Fn(&str) -> Result<String, NoValue>,
    depth: u32,
}

/// Operators by precedence, the loosest first. Those of one level group from the left, `**` from the right.
const LEVELS: &[&[&str]] = &[
    &["?"],
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
    &["**"],
];

impl Parser<'_> {
    fn malformed(&self) -> NoValue {
        NoValue::Malformed(self.text.iter().collect())
    }

    fn blank(&mut self) {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.text.get(self.at + i) == Some(&c))
    }

    /// The operator of this level at this position that is not the beginning of a longer one.
    fn operator(&self, level: usize) -> Option<&'static str> {
        let found = LEVELS[level].iter().copied().find(|operator| self.starts(operator))?;
        let longer = LEVELS.iter().flat_map(|level| level.iter()).any(|o| o.len() > found.len() && self.starts(o));
        (!longer).then_some(found)
    }

    fn binary(&mut self, level: usize) -> Result<i64, NoValue> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        loop {
            self.blank();
            let Some(operator) = self.operator(level) else { return Ok(left) };
            self.at += operator.len();
            if operator == "?" {
                let yes = self.binary(0)?;
                self.blank();
                if !self.starts(":") {
                    return Err(self.malformed());
                }
                self.at += 1;
                let no = self.binary(0)?;
                return Ok(if left != 0 { yes } else { no });
            }
            let right = self.binary(if operator == "**" { level } else { level + 1 })?;
            left = apply(operator, left, right).ok_or_else(|| self.malformed())?;
        }
    }

    fn unary(&mut self) -> Result<i64, NoValue> {
        self.blank();
        let Some(&c) = self.text.get(self.at) else { return Err(self.malformed()) };
        match c {
            '-' | '+' | '!' | '~' => {
                self.at += 1;
                let value = self.unary()?;
                Ok(match c {
                    '-' => value.wrapping_neg(),
                    '!' => i64::from(value == 0),
                    '~' => !value,
                    _ => value,
                })
            }
            '(' => {
                self.at += 1;
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(self.malformed());
                }
                let value = self.binary(0)?;
                self.blank();
                if !self.starts(")") {
                    return Err(self.malformed());
                }
                self.at += 1;
                self.depth -= 1;
                Ok(value)
            }
            c if c.is_ascii_digit() => {
                let digits = self.take(|c| c.is_ascii_alphanumeric());
                number(&digits).ok_or_else(|| self.malformed())
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                let text = (self.variable)(&name)?;
                value_of(text.trim(), self.variable, self.depth + 1)
            }
            _ => Err(self.malformed()),
        }
    }

    fn take(&mut self, of: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|c| of(*c)) {
            self.at += 1;
        }
        self.text[start..self.at].iter().collect()
    }
}

/// Value of a constant: hexadecimal after `0x`, octal after `0`, else decimal.
fn number(digits: &str) -> Option<i64> {
    if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        return i64::from_str_radix(hex, 16).ok();
    }
    let radix = if digits.starts_with('0') { 8 } else { 10 };
    i64::from_str_radix(digits, radix).ok()
}

fn apply(operator: &str, a: i64, b: i64) -> Option<i64> {
    Some(match operator {
        "||" => i64::from(a != 0 || b != 0),
        "&&" => i64::from(a != 0 && b != 0),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<=" => i64::from(a <= b),
        ">=" => i64::from(a >= b),
        "<" => i64::from(a < b),
        ">" => i64::from(a > b),
        "<<" => a.checked_shl(u32::try_from(b).ok()?)?,
        ">>" => a.checked_shr(u32::try_from(b).ok()?)?,
        "+" => a.checked_add(b)?,
        "-" => a.checked_sub(b)?,
        "*" => a.checked_mul(b)?,
        "/" => a.checked_div(b)?,
        "%" => a.checked_rem(b)?,
        "**" => a.checked_pow(u32::try_from(b).ok()?)?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<i64, NoValue> {
        evaluate(text, &|name| match name {
            "GPUS" => Ok("8".into()),
            "WORLD" => Ok("GPUS*NODES".into()),
            "NODES" => Ok("4".into()),
            _ => Err(NoValue::Missing(name.into())),
        })
    }

    #[test]
    fn expressions_have_the_shells_value() {
        for (text, expected) in [
            ("GPUS * 2", 16),
            ("1+2*3", 7),
            ("(1+2)*3", 9),
            ("7/2", 3),
            ("2**10", 1024),
            ("2**3**2", 512),
            ("010 + 0x10 + 0", 24),
            ("WORLD / 4 - 1", 7),
            ("GPUS > 4 ? 1 : 0", 1),
            ("-3 + 5", 2),
            ("10 % 4 == 2 && 1", 1),
            ("1 << 4", 16),
            ("", 0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        assert_eq!(value("NNODES * 8"), Err(NoValue::Missing("NNODES".into())));
        for wrong in ["1/0", "1 +", "(1", "1 2", "08x", "08", "a.b"] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
    }
}
