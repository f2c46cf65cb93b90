//! Cache of devices and stacks: a file of runs names few of them, many times.

use std::sync::OnceLock;

use super::entries::{gpu_names, gpu_with, names, stack, stack_names, transport};
use super::files::TRANSPORTS;
use super::overrides::Overrides;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::stack::Stack;
use meshwright_engine::transport::Transport;

/// Catalogue under one set of overrides; each entry is read on first use.
#[derive(Debug)]
pub struct Shelf<'a> {
    sets: &'a Overrides,
    gpus: Vec<(&'static str, OnceLock<Result<Gpu, String>>)>,
    stacks: Vec<(&'static str, OnceLock<Result<Stack, String>>)>,
    transports: Vec<(&'static str, OnceLock<Result<Transport, String>>)>,
}

impl<'a> Shelf<'a> {
    /// Creates an empty cache.
    pub fn new(sets: &'a Overrides) -> Self {
        Self {
            sets,
            gpus: gpu_names().into_iter().map(|name| (name, OnceLock::new())).collect(),
            stacks: stack_names().into_iter().map(|name| (name, OnceLock::new())).collect(),
            transports: names(TRANSPORTS).into_iter().map(|name| (name, OnceLock::new())).collect(),
        }
    }

    /// Device of the catalogue.
    ///
    /// # Errors
    ///
    /// The message of [`gpu_with`].
    pub fn gpu(&self, name: &str) -> Result<Gpu, String> {
        let load = || gpu_with(name, self.sets).map_err(|error| error.to_string());
        self.gpus
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(load, |(_, entry)| entry.get_or_init(load).clone())
    }

    /// Stack of the catalogue.
    ///
    /// # Errors
    ///
    /// The message of [`stack`].
    pub fn stack(&self, name: &str) -> Result<Stack, String> {
        let load = || stack(name, self.sets).map_err(|error| error.to_string());
        self.stacks
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(load, |(_, entry)| entry.get_or_init(load).clone())
    }

    /// Transport of the catalogue.
    ///
    /// # Errors
    ///
    /// The message of [`transport`].
    pub fn transport(&self, name: &str) -> Result<Transport, String> {
        let load = || transport(name, self.sets).map_err(|error| error.to_string());
        self.transports
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(load, |(_, entry)| entry.get_or_init(load).clone())
    }
}
