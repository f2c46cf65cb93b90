//! The built-in models, and the readers of models that are written down elsewhere.

pub mod hf;
pub mod models;
