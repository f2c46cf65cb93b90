//! Parsers of log lines.

/// Text after `label`, without leading blanks, up to the next blank or one of `|,;)]`.
pub fn after<'a>(line: &'a str, label: &str) -> Option<&'a str> {
    let rest = line[line.find(label)? + label.len()..].trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || "|,;)]".contains(c)).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// Number after `label`, with or without commas between thousands; text after its digits is ignored.
pub fn number_after(line: &str, label: &str) -> Option<f64> {
    let rest = line[line.find(label)? + label.len()..].trim_start();
    let end = rest
        .char_indices()
        .find(|(at, c)| {
            let in_number = c.is_ascii_digit()
                || *c == '.'
                || (*c == '-' && *at == 0)
                || (*c == ',' && is_thousands(&rest[at + 1..]))
                || (matches!(c, 'e' | 'E') && rest[at + 1..].starts_with(['+', '-', '0', '1', '2']))
                || (matches!(c, '+' | '-') && rest[..*at].ends_with(['e', 'E']));
            !in_number
        })
        .map_or(rest.len(), |(at, _)| at);
    rest[..end].replace(',', "").trim_end_matches('.').parse().ok().filter(|value: &f64| value.is_finite())
}

/// Whether a comma is followed by exactly three digits.
fn is_thousands(rest: &str) -> bool {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits == 3
}

/// Name and value of a line `name ..... value` in a dump of settings, whatever precedes the name.
pub fn dotted(line: &str) -> Option<(&str, &str)> {
    let dots = line.find(" ..")?;
    let name = line[..dots].rsplit(|c: char| c.is_whitespace() || ":>]".contains(c)).next()?;
    let value = line[dots..].trim_start_matches([' ', '.']).trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value))
}

/// Year of a date such as `2024-10-24` that follows `[` or starts the line.
pub fn year(line: &str) -> Option<f64> {
    line.match_indices("20").find_map(|(at, _)| {
        let date = line.get(at..at + 10)?;
        let bytes = date.as_bytes();
        let shaped = bytes[4] == b'-'
            && bytes[7] == b'-'
            && [0, 1, 2, 3, 5, 6, 8, 9].iter().all(|&place| bytes[place].is_ascii_digit());
        let alone = at == 0 || !line.as_bytes()[at - 1].is_ascii_alphanumeric();
        if shaped && alone { date[..4].parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_unit_begins() {
        assert_eq!(number_after("memory: 40.43GiB(42.56%)  tps: 5,762  tflops", "memory:"), Some(40.43));
        assert_eq!(number_after("memory: 40.43GiB(42.56%)  tps: 5,762  tflops", "tps:"), Some(5762.0));
        assert_eq!(number_after("loss: 7.1E-02 |", "loss:"), Some(0.071));
        assert_eq!(number_after("a=8, b", "a="), Some(8.0));
        assert_eq!(number_after("tps: nan", "tps:"), None);
    }

    #[test]
    fn settings_are_read_through_prefixes() {
        assert_eq!(dotted("  num_layers ...................................... 32"), Some(("num_layers", "32")));
        assert_eq!(dotted("[default0]:  num_experts ......... None"), Some(("num_experts", "None")));
        assert_eq!(
            dotted("[2023-11-07 01:55] [INFO] [config.py:983:print]   train_batch_size ... 96"),
            Some(("train_batch_size", "96"))
        );
        assert_eq!(dotted("loading .. done"), Some(("loading", "done")));
        assert_eq!(dotted("no setting"), None);
    }

    #[test]
    fn years_are_those_of_dates() {
        assert_eq!(year(" [2024-10-24 21:02:23] iteration 20/40000"), Some(2024.0));
        assert_eq!(year("consumed samples: 2048-10"), None);
    }
}
