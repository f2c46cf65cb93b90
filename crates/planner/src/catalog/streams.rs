//! Files, pipes and devices of the user's, opened so that no read waits without end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Longest wait for the next bytes of a pipe or a device.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are read from a pipe at once.
const CHUNK: usize = 1 << 16;

/// Opens a file, a pipe or a device for reading; what is no file may give nothing for at most ten seconds.
///
/// # Errors
///
/// There is no such file, it may not be read, or it is a folder.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let data = std::fs::metadata(path)?;
    if data.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "is a folder, not a file"));
    }
    if data.is_file() {
        return Ok(Box::new(File::open(path)?));
    }
    let (sender, chunks) = sync_channel(1);
    let path = path.to_owned();
    // Opening a pipe that nobody writes to waits, too, so the thread may outlive the reader and ends with the process.
    std::thread::spawn(move || {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(why) => return drop(sender.send(Err(why))),
        };
        loop {
            let mut chunk = vec![0; CHUNK];
            let read = file.read(&mut chunk);
            let ends = matches!(&read, Ok(0)) || read.as_ref().is_err_and(|why| why.kind() != ErrorKind::Interrupted);
            let sent = match read {
                Ok(length) => {
                    chunk.truncate(length);
                    sender.send(Ok(chunk))
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => Ok(()),
                Err(why) => sender.send(Err(why)),
            };
            if ends || sent.is_err() {
                return;
            }
        }
    });
    Ok(Box::new(Patient { chunks, chunk: Vec::new(), at: 0, patience: PATIENCE }))
}

/// Reader of the chunks of a pipe.
struct Patient {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    at: usize,
    patience: Duration,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            self.chunk = match self.chunks.recv_timeout(self.patience) {
                Ok(chunk) => chunk?,
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("is a pipe or a device that gave nothing for {} s", self.patience.as_secs());
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                Err(RecvTimeoutError::Disconnected) => Vec::new(),
            };
            self.at = 0;
        }
        let length = into.len().min(self.chunk.len() - self.at);
        into[..length].copy_from_slice(&self.chunk[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_chunks_gives_their_bytes_and_waits_no_longer_than_its_patience() {
        let (sender, chunks) = sync_channel(3);
        for chunk in ["ab", "cde"] {
            sender.send(Ok(chunk.into())).unwrap();
        }
        let mut reader = Patient { chunks, chunk: Vec::new(), at: 0, patience: Duration::from_millis(1) };
        let mut bytes = [0; 5];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abcde");
        assert_eq!(reader.read(&mut bytes).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(sender);
        assert_eq!(reader.read(&mut bytes).unwrap(), 0, "the end");
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_read() {
        let mut bytes = vec![1; 200_000];
        open(Path::new("/dev/zero")).unwrap().read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(open(Path::new("/dev/null")).unwrap().read(&mut bytes).unwrap(), 0);
        assert!(open(Path::new("/dev")).is_err());
    }
}
