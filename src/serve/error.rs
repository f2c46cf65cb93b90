//! Errors of the web server.

use std::io;
use std::path::PathBuf;

/// Reason why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The program was built without the page, and no folder is named.
    #[error(
        "this build of meshwright has no page in it\n\nhint: `bash web/build.sh` makes it (docs/page.md says what that \
         needs), then `meshwright serve --folder web/dist`; the binaries of a release have it"
    )]
    NotBuiltIn,
    /// The folder cannot be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable {
        /// Folder or file.
        path: PathBuf,
        /// Reason of the system.
        source: io::Error,
    },
    /// The folder has no page.
    #[error("{}: has no index.html\n\nhint: `bash web/build.sh` makes the page in web/dist", .0.display())]
    NoPage(PathBuf),
    /// A file is larger than any of the page.
    #[error("{}: {bytes} bytes, more than any file of the page has", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The port cannot be had.
    #[error("127.0.0.1:{port}: cannot listen there\n\nhint: --port 0 takes a free port")]
    Port {
        /// Port that was asked for.
        port: u16,
        /// Reason of the system.
        source: io::Error,
    },
}
