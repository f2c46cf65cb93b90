//! Logs of any length, reduced to the lines that say something about the run.

use std::io::{self, BufRead, BufReader, Read};

use super::{CRASHED, OUT_OF_MEMORY, deepspeed, lines, megatron, shape, torchtitan};

/// Most bytes of a line that are looked at.
const LOOKED_AT: u64 = 1 << 16;

/// Longest line of a log in bytes.
const LONGEST_LINE: usize = 16 << 20;

/// Most bytes of all lines that are kept: some hundred thousand steps.
const MOST_BYTES: usize = 64 << 20;

/// Lines of a log that [`read`](super::read) looks at, from a stream of any length. What is no UTF-8 is replaced.
///
/// # Errors
///
/// The stream cannot be read, has over 64 MiB of such lines, or a line of over 16 MiB.
pub fn condensed(log: impl Read) -> io::Result<String> {
    let mut log = BufReader::new(log);
    let (mut kept, mut bytes) = (String::new(), Vec::new());
    let mut length = 0; // of the line whose beginning was read
    loop {
        bytes.clear();
        if log.by_ref().take(LOOKED_AT).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(kept);
        }
        let line = String::from_utf8_lossy(&bytes);
        if length == 0 && tells(&line) {
            if kept.len() + line.len() > MOST_BYTES {
                let why = format!("has over {} MiB of lines on the run: cut it", MOST_BYTES >> 20);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            kept.push_str(line.trim_end_matches(['\n', '\r']));
            kept.push('\n');
        }
        length = if bytes.ends_with(b"\n") { 0 } else { length + bytes.len() };
        if length > LONGEST_LINE {
            let why = format!("has a line of over {} MiB, which is none of a log", LONGEST_LINE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    }
}

/// Whether a line says something about the run.
fn tells(line: &str) -> bool {
    let words = [megatron::WORDS, deepspeed::WORDS, torchtitan::WORDS, &OUT_OF_MEMORY, &CRASHED];
    words.into_iter().flatten().any(|words| line.contains(words))
        || lines::dotted(line).is_some()
        || deepspeed::json_setting(line).is_some()
        || shape::of_titan(line).is_some()
}
