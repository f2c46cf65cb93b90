//! Values of one axis: a single value, a list, or a range.

use toml::Value;

use super::error::SweepError;

/// Largest number of values in a range; more is taken for an error.
const MOST_VALUES: usize = 1_000_000;

/// Values of an axis, as text.
///
/// * `8192`, `"400 Gb/s"`: one value.
/// * `[8192, 16384]`: a list.
/// * `{ from = 8192, to = 24576, step = 8192 }`, `{ from = "200 Gb/s", to = "800 Gb/s", times = 2 }`: a range with both ends.
///
/// # Errors
/// A text that is no value, or a range that never ends.
pub fn values(key: &str, value: &Value) -> Result<Vec<String>, SweepError> {
    match value {
        Value::Array(items) => items.iter().map(|item| scalar(key, item)).collect(),
        Value::Table(range) => {
            let known = ["from", "to", "step", "times"];
            if let Some(unknown) = range.keys().find(|name| !known.contains(&name.as_str())) {
                return Err(SweepError::value(
                    key,
                    format!("unknown field `{unknown}`; a range has {}", known.join(", ")),
                ));
            }
            let part = |name: &str| range.get(name).map(|value| scalar(key, value)).transpose();
            let needed =
                |name: &str| part(name)?.ok_or_else(|| SweepError::value(key, format!("a range needs `{name}`")));
            range_of(key, &needed("from")?, &needed("to")?, part("step")?.as_deref(), part("times")?.as_deref())
        }
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            Ok(vec![scalar(key, value)?])
        }
    }
}

fn scalar(key: &str, value: &Value) -> Result<String, SweepError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            Err(SweepError::value(key, format!("`{value}` is neither a number nor a text")))
        }
    }
}

/// Number and the text after it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+'))).unwrap_or(text.len());
    let number = text[..end].replace('_', "").parse().ok()?;
    Some((number, &text[end..]))
}

/// Number and unit of a text, or an error.
fn number<'a>(key: &str, text: &'a str) -> Result<(f64, &'a str), SweepError> {
    split(text).ok_or_else(|| SweepError::value(key, format!("`{text}` does not start with a number")))
}

fn range_of(
    key: &str,
    from: &str,
    to: &str,
    step: Option<&str>,
    times: Option<&str>,
) -> Result<Vec<String>, SweepError> {
    let bad = |why: String| SweepError::value(key, why);
    let ((low, unit), (high, unit_to)) = (number(key, from)?, number(key, to)?);
    if unit != unit_to {
        return Err(bad(format!("the range goes from `{from}` to `{to}`: write both in one unit")));
    }
    if low > high {
        return Err(bad(format!("the range from `{from}` to `{to}` is empty")));
    }
    let next: Box<dyn Fn(f64) -> f64> = match (step, times) {
        (Some(step), None) => {
            let (by, unit_by) = number(key, step)?;
            if by <= 0.0 || !(unit_by.is_empty() || unit_by == unit) {
                return Err(bad(format!("`step = {step}` must be above 0 and in the unit of the ends")));
            }
            Box::new(move |n| low + by * n)
        }
        (None, Some(times)) => {
            let (by, rest) = number(key, times)?;
            if by <= 1.0 || !rest.is_empty() || low <= 0.0 {
                return Err(bad(format!("`times = {times}` must be a number above 1, and `from` above 0")));
            }
            Box::new(move |n| low * by.powf(n))
        }
        (Some(_), Some(_)) | (None, None) => return Err(bad("a range needs either `step` or `times`".into())),
    };
    // A margin over the end, so that rounding does not exclude it: 0.1 + 0.1 + 0.1 counts as 0.3.
    let inside = |value: f64| value <= high * (1.0 + 1e-12);
    let mut values = Vec::new();
    for n in 0.. {
        let value = next(f64::from(n));
        if !inside(value) {
            break;
        }
        if values.len() == MOST_VALUES {
            return Err(bad(format!("the range has over {MOST_VALUES} values")));
        }
        let rounded = (value * 1e6).round() / 1e6;
        values.push(format!("{rounded}{unit}"));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let table: toml::Table = toml::from_str(&format!("x = {text}")).unwrap();
        values("x", &table["x"]).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_and_ranges_expand() {
        assert_eq!(read("8").unwrap(), ["8"]);
        assert_eq!(read("[1, \"400 Gb/s\"]").unwrap(), ["1", "400 Gb/s"]);
        assert_eq!(read("{ from = 8192, to = 24576, step = 8192 }").unwrap(), ["8192", "16384", "24576"]);
        assert_eq!(
            read("{ from = \"200 Gb/s\", to = \"800 Gb/s\", times = 2 }").unwrap(),
            ["200 Gb/s", "400 Gb/s", "800 Gb/s"]
        );
        assert_eq!(
            read("{ from = \"0.1 $/h\", to = \"0.3 $/h\", step = 0.1 }").unwrap(),
            ["0.1 $/h", "0.2 $/h", "0.3 $/h"]
        );
    }

    #[test]
    fn ranges_that_are_none_are_named() {
        for (text, word) in [
            ("{ from = 8, to = 4, step = 1 }", "empty"),
            ("{ from = 1, to = 4 }", "either"),
            ("{ from = 1, to = 4, step = 0 }", "above 0"),
            ("{ from = 1, to = 4, times = 1 }", "above 1"),
            ("{ from = \"1 GB\", to = \"4 MB\", step = 1 }", "one unit"),
            ("{ from = 1, to = 4, by = 1 }", "`by`"),
            ("{ from = 0, to = 100000000, step = 1 }", "1000000 values"),
            ("true", "neither"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
