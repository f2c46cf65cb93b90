//! meshwright in the browser: the question of `plan`, and what a page shows in addition to its answer.
//!
//! A page writes a [`PageRequest`] as JSON into the module's memory and reads a reply: `{"ok": …}` or `{"error": "…"}`,
//! whose text is that of the command line.

#[cfg(target_arch = "wasm32")]
mod exports;

mod catalogue;
mod launch;
mod live;
mod network;
mod own_runs;
mod picture;
mod request;
mod roofline;

pub use request::{PageRequest, reply};
