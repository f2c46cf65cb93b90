//! Catalogue that reads each device, stack and transport once: a file of runs names few of them, many times.

use std::sync::OnceLock;

use super::entries::{gpu_names, gpu_with, names, stack, stack_names, transport};
use super::error::CatalogError;
use super::files::TRANSPORTS;
use super::overrides::Overrides;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::stack::Stack;
use meshwright_engine::transport::Transport;

/// Entries of one kind by name, each with the message of its error; filled on first use.
type Cache<T> = Vec<(&'static str, OnceLock<Result<T, String>>)>;

fn empty<T>(names: impl IntoIterator<Item = &'static str>) -> Cache<T> {
    names.into_iter().map(|name| (name, OnceLock::new())).collect()
}

/// Entry of a cache, loaded on first use; a name that the cache lacks is loaded each time, for its error.
fn entry<T: Clone>(cache: &Cache<T>, name: &str, load: impl Fn() -> Result<T, CatalogError>) -> Result<T, String> {
    let load = || load().map_err(|error| error.to_string());
    cache.iter().find(|(known, _)| *known == name).map_or_else(load, |(_, entry)| entry.get_or_init(load).clone())
}

/// Catalogue under one set of overrides, in which each entry is read on first use and kept.
#[derive(Debug)]
pub struct CachedCatalog<'a> {
    sets: &'a Overrides,
    gpus: Cache<Gpu>,
    stacks: Cache<Stack>,
    transports: Cache<Transport>,
}

impl<'a> CachedCatalog<'a> {
    /// Creates an empty cache.
    pub fn new(sets: &'a Overrides) -> Self {
        Self { sets, gpus: empty(gpu_names()), stacks: empty(stack_names()), transports: empty(names(TRANSPORTS)) }
    }

    /// Device of the catalogue.
    ///
    /// # Errors
    ///
    /// The message of [`gpu_with`].
    pub fn gpu(&self, name: &str) -> Result<Gpu, String> {
        entry(&self.gpus, name, || gpu_with(name, self.sets))
    }

    /// Stack of the catalogue.
    ///
    /// # Errors
    ///
    /// The message of [`stack`].
    pub fn stack(&self, name: &str) -> Result<Stack, String> {
        entry(&self.stacks, name, || stack(name, self.sets))
    }

    /// Transport of the catalogue.
    ///
    /// # Errors
    ///
    /// The message of [`transport`].
    pub fn transport(&self, name: &str) -> Result<Transport, String> {
        entry(&self.transports, name, || transport(name, self.sets))
    }
}
