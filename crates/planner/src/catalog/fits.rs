//! Fits: constants laid over the devices and stacks of the catalogue, with their provenance.
//!
//! The files of `clusters/gpus/` and `clusters/stacks/` hold the specification's own constants. A fit is a file of its own,
//! so that both remain available: `--fit none` is the specification.

use std::path::Path;
use std::sync::Arc;

use toml::{Table, Value};

use super::constants::covers;
use super::entries::{gpu_with, stack, transport};
use super::error::{CatalogError, EntryKind};
use super::files::{FITS, GPUS, STACKS, TRANSPORTS};
use super::overrides::Overrides;
use meshwright_engine::suggest::nearest_hint;

pub use super::constants::{Constant, DEFAULT, FOLDS, Fit, NONE};
pub use super::default_fit::default_fit;
use super::read;

/// Names of the built-in entries of a kind that constants may apply to.
fn names(kind: EntryKind) -> Vec<&'static str> {
    let list = match kind {
        EntryKind::Gpu => GPUS,
        EntryKind::Stack => STACKS,
        EntryKind::Transport => TRANSPORTS,
        EntryKind::Cluster | EntryKind::Model | EntryKind::Market | EntryKind::Fit => &[],
    };
    list.iter().map(|(name, _)| *name).collect()
}

impl Fit {
    /// Checks that every constant names an existing key with a valid value.
    ///
    /// # Errors
    ///
    /// Names the first invalid constant.
    pub fn check(self: &Arc<Self>) -> Result<(), CatalogError> {
        let sets = Overrides::specification().with_fit(Some(Arc::clone(self)));
        for constant in &self.constants {
            let (kind, pattern, _) = constant.parts().map_err(|why| constant.error(why))?;
            if !matches!(constant.folds.len(), 0 | FOLDS) {
                return Err(constant.error(format!("`folds` must have {FOLDS} values")));
            }
            let known = names(kind);
            let mut covered = known.iter().filter(|name| covers(pattern, name)).peekable();
            if covered.peek().is_none() {
                return Err(constant.error(format!("there is no {kind} `{pattern}`{}", nearest_hint(pattern, known))));
            }
            for name in covered {
                match kind {
                    EntryKind::Gpu => {
                        drop(gpu_with(name, &sets).map_err(|error| constant.error(error.to_string()))?);
                    }
                    EntryKind::Transport => {
                        drop(transport(name, &sets).map_err(|error| constant.error(error.to_string()))?);
                    }
                    _ => drop(stack(name, &sets).map_err(|error| constant.error(error.to_string()))?),
                }
            }
        }
        Ok(())
    }
}

/// Value at the key of a constant under these overrides; `None` if the entry leaves the key to its default.
///
/// # Errors
///
/// The key names no entry of the catalogue, or contains a `*`.
pub fn value_at(key: &str, sets: &Overrides) -> Result<Option<Value>, CatalogError> {
    let constant = Constant::plain(key.to_owned(), Value::Boolean(false));
    let (kind, name, keys) = constant.parts().map_err(|why| constant.error(why))?;
    let list = match kind {
        EntryKind::Gpu => GPUS,
        EntryKind::Transport => TRANSPORTS,
        _ => STACKS,
    };
    let text = read::find(kind, list, name, None, None)?;
    let mut table: Table = read::parse(&text, [])?;
    for fitted in sets.constants_of(kind, name) {
        fitted.place(&mut table)?;
    }
    let mut at = Some(Value::Table(table));
    for key in keys.split('.') {
        at = at.and_then(|value| value.get(key).cloned());
    }
    Ok(match at {
        Some(Value::Table(sourced)) => sourced.get("value").cloned(),
        plain => plain,
    })
}

/// Overrides with a fit by name or path in place of theirs; `none` leaves none. The default fit is not checked: the tests check it.
///
/// # Errors
///
/// No fit has this name, or one of its constants is invalid.
pub fn over(sets: Overrides, name: &str) -> Result<Overrides, CatalogError> {
    if name == NONE && !Path::new(name).is_file() {
        return Ok(sets.with_fit(None));
    }
    if name == DEFAULT {
        return Ok(sets.with_default_fit());
    }
    let text = read::find(EntryKind::Fit, FITS, name, None, None)?;
    let fit: Arc<Fit> = Arc::new(read::parse(&text, [])?);
    fit.check().map_err(|error| CatalogError::Invalid { origin: text.origin, why: error.to_string() })?;
    Ok(sets.with_fit(Some(fit)))
}
