//! The binary as its user meets it.
#![cfg(feature = "cli")]

mod cli_runs;
mod commands;
mod edges;
mod explain;
mod full_disk;
mod glance;
mod glossary;
mod goldens;
mod graphs;
mod hostile;
mod interrupted;
mod measure;
mod measured;
mod mutations;
mod one_price;
mod outputs;
mod pools;

mod questions;
mod reports;
mod serve;
mod sweep;
mod sweep_networks;
mod tune;
mod tune_session;
mod verify;
