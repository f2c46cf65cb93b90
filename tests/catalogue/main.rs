//! The catalogue: built-in files, Hugging Face configurations, overrides.

mod catalog;
mod hf;
mod hf_refused;
mod overrides;
