//! The catalogue: built-in files, Hugging Face configurations, overrides.

mod catalog;
mod defaults;
mod examples;
mod hf;
mod hf_absent;
mod hf_families;
mod hf_refused;
mod hf_variants;
mod overrides;
#[path = "../random/mod.rs"]
mod random;
mod schema;
mod superchips;
