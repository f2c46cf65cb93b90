//! Readers of file forms that several frameworks share: shell scripts, Python modules, and JSON, TOML and YAML documents.

pub(crate) mod document;
pub(crate) mod python;
pub(crate) mod shell;
