//! Finds and reads models, devices, clusters and stacks: the built-in ones, and the user's own files.
//!
//! A name is one of the catalogue, or a path to a TOML file of the same form: anything with a `/` or `\` in it, anything
//! that ends in `.toml`, or the name of a file that exists. A cluster may be named by a number of GPUs and their kind too.

mod cached;
mod clusters;
mod constants;
mod default_fit;
pub mod defaults;
mod entries;
mod error;
mod fat_tree;
pub mod files;
pub mod fits;
pub mod gpu_names;
pub mod hf;
mod json;
pub mod layouts;
mod like;
mod machines;
mod one_line;
mod overrides;
mod parts;
mod pools;
mod read;
mod streams;
mod table_path;
mod typed;

pub use cached::CachedCatalog;
pub use clusters::ClusterOrPools;
pub use entries::{
    cluster_names, fit_names, gpu, gpu_names, gpu_with, market, model, model_names, stack, stack_names, transport,
};
pub use error::{CatalogError, EntryKind, nearest_expected};
pub use json::parse_json;
pub use machines::{cluster, fat_tree_of, is_counted, machine, on_boards_of_four};
pub use meshwright_engine::sources::SET_SOURCE;
pub use meshwright_engine::suggest::nearest;
pub use one_line::{is_one_line, visible};
pub use overrides::{Overrides, Setting};
pub use parts::head;
pub use read::{read as read_text, read_long};
pub use streams::open;
pub use typed::parse_toml;
