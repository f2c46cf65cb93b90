//! The binary as its user meets it.
#![cfg(feature = "cli")]

mod cli_runs;
mod commands;
mod edges;
mod explain;
mod fleet;
mod glossary;
mod goldens;
mod hostile;
mod interrupted;
mod measure;
mod mutations;
mod outputs;
mod page;
mod questions;
mod serve;
mod sweep;
mod tune;
