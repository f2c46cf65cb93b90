//! Built-in data files, sorted by name: name and TOML of those in `models/`, in `clusters/`, and in the folders of `clusters/` that the
//! build script names.
//!
//! The build script lists the folders, so that a new file needs no line of code.

include!(concat!(env!("OUT_DIR"), "/files.rs"));
