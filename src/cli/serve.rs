//! `meshwright serve`: the page on this machine.

use std::convert::Infallible;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::output;
use crate::serve::{PageFiles, Server};

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Port of 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 8317)]
    port: u16,
    /// Folder of a built page [default: the page in this program].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Serves the page until the process is ended.
pub fn run(args: &Args) -> Result<Infallible> {
    let files = args.folder.as_deref().map_or_else(PageFiles::built_in, PageFiles::of_folder)?;
    let server = Server::bind(args.port, files)?;
    let address = server.address().context("127.0.0.1 has no port")?;
    output::print(&format!("http://{address}/\n"))?;
    output::talk("open this address in a browser of this machine; Ctrl-C ends the server");
    server.run()
}
