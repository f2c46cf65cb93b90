//! Text files that `calibrate` and `measure` read.

use std::path::Path;

use anyhow::{Result, anyhow};

pub(super) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| anyhow!("{}: cannot be read: {error}", path.display()))
}
