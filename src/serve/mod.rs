//! Web server of the page: a few files from memory, for browsers of this machine.
//!
//! It listens on 127.0.0.1 alone and answers only requests that name this machine as their host, so that no page of
//! another site reads it through a name that is made to point here. Files are read before the first request and looked
//! up by their whole name: no path leads out of the folder.

mod connection;
mod error;
mod files;
mod response;

pub use connection::Server;
pub use error::ServeError;
pub use files::PageFiles;
pub use response::response;
