//! Places in a TOML table, by the path of their keys.

use toml::{Table, Value};

/// Puts `value` at `path`; a value with its source is replaced together with the source.
///
/// # Errors
///
/// A key on the path is not a table.
pub fn place(table: &mut Table, path: &[String], value: Value, source: &str) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return Err("the key is missing".into());
    };
    let mut at = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
    for key in rest {
        at = match at {
            Value::Table(table) => table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(array) => element(array, key)
                .ok_or_else(|| format!("there is no element `{key}`: give its place, from 0, or its name"))?,
            Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
                return Err(format!("`{key}` would be inside a plain value"));
            }
        };
    }
    match (&mut *at, value) {
        (Value::Table(old), Value::Table(new)) if new.contains_key("source") => old.extend(new),
        (Value::Table(old), new) if old.contains_key("value") => {
            old.insert("value".to_owned(), new);
            old.insert("source".to_owned(), Value::String(source.to_owned()));
        }
        (place, new) => *place = new,
    }
    Ok(())
}

/// Element of an array of tables, by index or by `name`.
fn element<'a>(array: &'a mut [Value], key: &str) -> Option<&'a mut Value> {
    let named = |value: &Value| value.get("name").and_then(Value::as_str) == Some(key);
    let at = key.parse().ok().or_else(|| array.iter().position(named))?;
    array.get_mut(at)
}
