//! Devices and stacks read once and taken many times: a file of runs names few of them, over and over.

use std::sync::OnceLock;

use super::{Overrides, gpu_names, gpu_with, stack, stack_names};
use meshwright_engine::gpu::Gpu;
use meshwright_engine::stack::Stack;

/// The catalogue under one set of overrides. An entry is read when it is first asked for.
#[derive(Debug)]
pub struct Shelf<'a> {
    sets: &'a Overrides,
    gpus: Vec<(&'static str, OnceLock<Result<Gpu, String>>)>,
    stacks: Vec<(&'static str, OnceLock<Result<Stack, String>>)>,
}

impl<'a> Shelf<'a> {
    /// An empty shelf.
    pub fn new(sets: &'a Overrides) -> Self {
        Self {
            sets,
            gpus: gpu_names().into_iter().map(|name| (name, OnceLock::new())).collect(),
            stacks: stack_names().into_iter().map(|name| (name, OnceLock::new())).collect(),
        }
    }

    /// A device of the catalogue.
    ///
    /// # Errors
    /// As [`gpu_with`], in words.
    pub fn gpu(&self, name: &str) -> Result<Gpu, String> {
        let load = || gpu_with(name, self.sets).map_err(|error| error.to_string());
        self.gpus
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(load, |(_, entry)| entry.get_or_init(load).clone())
    }

    /// A stack of the catalogue.
    ///
    /// # Errors
    /// As [`stack`], in words.
    pub fn stack(&self, name: &str) -> Result<Stack, String> {
        let load = || stack(name, self.sets).map_err(|error| error.to_string());
        self.stacks
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(load, |(_, entry)| entry.get_or_init(load).clone())
    }
}
