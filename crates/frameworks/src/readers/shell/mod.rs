//! Launch scripts, run without running anything: assignments, arrays, conditionals and loops are followed, commands are
//! only noted. What depends on the machine — environment, files, output of commands — stays named.
//!
//! A parser of the whole language would bring forty crates (docs/decisions/0004-own-shell-reader.md).

mod arithmetic;
mod assign;
mod call;
mod condition;
mod expand;
mod flow;
mod grammar;
mod hidden;
mod lexer;
mod operators;
mod pattern;
mod run;
mod simple;
mod slurm;
mod substitute;
mod syntax;
pub mod text;

pub use hidden::Hidden;
pub use run::{Called, Inputs, Ran, run, words};
