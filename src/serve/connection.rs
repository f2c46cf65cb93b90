//! Connections of browsers: each is read, answered and closed on a thread of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::ServeError;
use super::files::PageFiles;
use super::response::response;

/// Longest head of a request in bytes.
const LONGEST_HEAD: usize = 32 << 10;
/// Time within which a request must be there, and within which each part of the response must be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most connections at once; further ones wait for the system.
const MOST_CONNECTIONS: usize = 64;

/// Listening socket on 127.0.0.1 with the files that it serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    files: Arc<PageFiles>,
}

impl Server {
    /// Server on a port of 127.0.0.1; port 0 is any free one.
    ///
    /// # Errors
    ///
    /// The port is taken, or the user may not listen there.
    pub fn bind(port: u16, files: PageFiles) -> Result<Self, ServeError> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|source| ServeError::Port { port, source })?;
        Ok(Self { listener, files: Arc::new(files) })
    }

    /// Address that it listens on.
    ///
    /// # Errors
    ///
    /// The system does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until the process ends. A browser that goes away or sends nonsense ends its own connection only.
    pub fn run(&self) -> ! {
        loop {
            let Ok((stream, _)) = self.listener.accept() else {
                std::thread::sleep(Duration::from_millis(50)); // out of descriptors, for a moment
                continue;
            };
            while Arc::strong_count(&self.files) > MOST_CONNECTIONS {
                std::thread::sleep(Duration::from_millis(1));
            }
            let files = Arc::clone(&self.files);
            // Without a thread to spare the connection is closed.
            let _ = std::thread::Builder::new().spawn(move || serve(&stream, &files));
        }
    }
}

fn serve(mut stream: &TcpStream, files: &PageFiles) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = head(stream)?;
    stream.write_all(&response(files, &head))?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Bytes up to the empty line that ends the head of a request, or as many as a head may have.
fn head(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let started = Instant::now();
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    while head.len() < LONGEST_HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.checked_sub(started.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        let read = stream.read(&mut part)?;
        if read == 0 {
            break;
        }
        head.extend_from_slice(&part[..read]);
    }
    Ok(head)
}
