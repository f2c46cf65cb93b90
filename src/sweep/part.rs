//! Lines of `results.part`: the version of the form, a checksum, and a record as JSON.
//!
//! A line that a loss of power has torn, another program has written or somebody has edited does not match, and its option is
//! computed again.

use super::digest::Digest;

/// Version of the form of a line.
const VERSION: &str = "1";

/// Line of a record, with its line break.
pub(super) fn line_of(json: &str) -> String {
    format!("{VERSION} {} {json}\n", checksum(json))
}

/// Hash over the version and the record.
fn checksum(json: &str) -> String {
    Digest::default().text(VERSION).text(json).hex()
}

/// Record of a line, as JSON.
///
/// # Errors
///
/// The line is no such record; the difference, in words.
pub(super) fn json_of(line: &[u8]) -> Result<&str, &'static str> {
    let whole = line.strip_suffix(b"\n").ok_or("is incomplete")?;
    let text = std::str::from_utf8(whole).map_err(|_| "is not text")?;
    let mut words = text.splitn(3, ' ');
    let (Some(version), Some(sum), Some(json)) = (words.next(), words.next(), words.next()) else {
        return Err("is not a result");
    };
    if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a result");
    }
    if version != VERSION {
        return Err("was written by another version");
    }
    if sum != checksum(json) {
        return Err("does not match its checksum");
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_and_no_other_is() {
        let json = r#"{"option":3,"label":"a b"}"#;
        let line = line_of(json);
        assert_eq!(json_of(line.as_bytes()), Ok(json));
        for at in 0..line.len() {
            assert!(json_of(&line.as_bytes()[..at]).is_err(), "torn after {at} bytes");
            let mut edited = line.clone().into_bytes();
            edited[at] ^= 1;
            assert!(json_of(&edited).is_err(), "edited at {at}");
        }
        assert_eq!(json_of(line.replacen('1', "2", 1).as_bytes()), Err("was written by another version"));
        assert_eq!(json_of(b"{\"schema\":1,\"option\":3}\n"), Err("is not a result"));
    }
}
