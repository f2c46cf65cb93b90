//! Rows of a runs file one by one, in bounded memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use super::row::{Row, RunsError, check_header, row_of};

/// Most bytes of one row; published rows have hundreds.
const LONGEST_ROW: u64 = 16 << 20;

/// Rows of a file that is being read.
pub struct Rows<R> {
    records: csv::StringRecordsIntoIter<Bounded<R>>,
    header: csv::StringRecord,
    left: Rc<Cell<u64>>,
}

/// Reader that errors where a row has no end.
struct Bounded<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            let why = format!("a row of over {} MiB is no row of runs", LONGEST_ROW >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let read = self.inner.read(into)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

/// Rows of a file of runs in its order. Unknown columns are ignored.
///
/// # Errors
///
/// An essential column is missing, or the header cannot be read.
pub fn rows<R: Read>(reader: R) -> Result<Rows<R>, RunsError> {
    let left = Rc::new(Cell::new(LONGEST_ROW));
    let bounded = Bounded { inner: reader, left: Rc::clone(&left) };
    let mut file = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bounded);
    let header = file.headers()?.clone();
    check_header(&header)?;
    Ok(Rows { records: file.into_records(), header, left })
}

impl<R: Read> Iterator for Rows<R> {
    type Item = Result<Row, RunsError>;

    /// The next row, or its error with line and column.
    fn next(&mut self) -> Option<Self::Item> {
        self.left.set(LONGEST_ROW);
        let record = self.records.next()?;
        Some(record.map_err(RunsError::from).and_then(|record| row_of(&record, &self.header)))
    }
}

/// Most rows of a file that is held whole.
const MOST_ROWS: usize = 1_000_000;

/// Reads a whole file of runs.
///
/// # Errors
///
/// As for [`rows`]; a row has too many or too few cells, or a number is invalid, with line and column; or it has over a million
/// rows.
pub fn read(reader: impl Read) -> Result<Vec<Row>, RunsError> {
    let mut all = Vec::new();
    for row in rows(reader)? {
        if all.len() == MOST_ROWS {
            return Err(RunsError::TooLong { most: MOST_ROWS });
        }
        all.push(row?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_an_end_is_an_error() {
        for (start, rest) in [("", "a"), ("", "\""), ("\"", "\n")] {
            let endless = start.bytes().chain(std::iter::repeat_n(rest, 40_000_000).flat_map(str::bytes));
            let text = read(FromBytes(endless)).unwrap_err().to_string();
            assert!(text.contains("over 16 MiB"), "{text}");
        }
    }

    struct FromBytes<I>(I);

    impl<I: Iterator<Item = u8>> Read for FromBytes<I> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let taken = into.iter_mut().zip(&mut self.0).map(|(place, byte)| *place = byte);
            Ok(taken.count())
        }
    }
}
