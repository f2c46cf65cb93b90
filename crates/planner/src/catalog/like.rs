//! A file that names a relative of the catalogue: `like = "h100-sxm"`.

use toml::{Table, Value};

use super::error::{CatalogError, EntryKind};
use super::overrides::Overrides;
use super::read;
use super::read::fitted;

/// Text of a file, filled with the values of the entry that `like` names where it has none; that of a file without
/// `like` is unchanged.
///
/// The relative is an entry of the catalogue, under the fit that applies to it; a device's basis is `datasheet` unless its file
/// states one. Tables are joined key by key, and lists replaced whole.
///
/// # Errors
/// `like` names no such entry.
pub(super) fn joined(
    text: read::EntryText,
    kind: EntryKind,
    built_in: &'static [(&'static str, &'static str)],
    sets: &Overrides,
) -> Result<read::EntryText, CatalogError> {
    // What is no TOML is reported by its reader, with its line.
    let Ok(parsed) = text.table() else { return Ok(text) };
    if !parsed.contains_key("like") {
        return Ok(text);
    }
    let mut own = (*parsed).clone();
    let like = own.remove("like");
    let invalid = |why: String| CatalogError::Invalid { origin: text.origin.clone(), why };
    let Some(Value::String(like)) = like else {
        return Err(invalid(format!("`like` is the name of a {kind}")));
    };
    let relative = read::find(kind, built_in, &like, None, None)?;
    if !relative.is_built_in() {
        return Err(invalid(format!("`like = \"{like}\"` names a file, and a relative is a {kind} of the catalogue")));
    }
    let constants: Vec<_> = fitted(&relative, kind, &like, sets).collect();
    let relative = joined(relative, kind, built_in, sets)?; // it may name a relative of its own
    let mut table = relative.table().map(|table| (*table).clone()).map_err(|error| invalid(error.to_string()))?;
    for constant in constants {
        constant.place(&mut table)?;
    }
    if kind == EntryKind::Gpu {
        table.insert("basis".into(), Value::String("datasheet".into()));
    }
    join(&mut table, own);
    let content = toml::to_string(&table).map_err(|error| invalid(error.to_string()))?.into();
    Ok(read::EntryText { origin: format!("{} over {kind} `{like}`", text.origin), content, ..text })
}

/// Lays `own` over `table`, key by key.
fn join(table: &mut Table, own: Table) {
    for (key, value) in own {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => join(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}
