//! Files of the catalogue: name and TOML of every file of `models/` and of the folders of `clusters/`, sorted by name.
//!
//! The build script lists the folders, so that a new file needs no line of code.

include!(concat!(env!("OUT_DIR"), "/files.rs"));
