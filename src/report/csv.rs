//! Sheets and ranked plans as CSV.

use serde_json::Value;

use super::Sheet;

/// Renders a sheet as CSV with a header line.
///
/// # Errors
///
/// A row cannot be written, which does not happen in memory.
pub fn render(sheet: &Sheet) -> Result<String, csv::Error> {
    write(&sheet.columns, &sheet.rows)
}

/// Renders JSON objects as CSV with a header line.
///
/// # Errors
///
/// A row cannot be written, which does not happen in memory.
pub fn render_objects(rows: &[Value]) -> Result<String, csv::Error> {
    let columns = columns(rows);
    Ok(header(&columns)? + &objects(&columns, rows)?)
}

/// Columns of JSON objects: nested objects become `outer.inner`.
pub fn columns(objects: &[Value]) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for (key, _) in objects.iter().flat_map(flattened) {
        if !columns.contains(&key) {
            columns.push(key);
        }
    }
    // An object that is null in one row and expanded in another has no column of its own.
    let open: Vec<String> =
        columns.iter().filter_map(|key| key.rsplit_once('.')).map(|(outer, _)| outer.into()).collect();
    columns.retain(|key| !open.contains(key));
    columns
}

/// Header line of CSV.
///
/// # Errors
///
/// A row cannot be written, which does not happen in memory.
pub fn header(columns: &[String]) -> Result<String, csv::Error> {
    write(columns, &[])
}

/// Renders JSON objects under a header, one per line; missing keys become empty cells.
///
/// # Errors
///
/// A row cannot be written, which does not happen in memory.
pub fn objects(columns: &[String], objects: &[Value]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in objects.iter().map(flattened) {
        let cell = |column: &String| row.iter().find(|(key, _)| key == column).map_or("", |(_, value)| value.as_str());
        writer.write_record(columns.iter().map(cell))?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn flattened(object: &Value) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    flatten("", object, &mut cells);
    cells
}

fn flatten(prefix: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, inner, cells);
            }
        }
        Value::Null => cells.push((prefix.to_owned(), String::new())),
        Value::String(text) => cells.push((prefix.to_owned(), text.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => cells.push((prefix.to_owned(), value.to_string())),
    }
}

fn write(columns: &[String], rows: &[Vec<String>]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns)?;
    for row in rows {
        writer.write_record(row)?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_objects_become_dotted_columns() {
        let rows = [serde_json::json!({"id": "a", "terms": {"x_s": 1.5}}), serde_json::json!({"id": "b, c"})];
        let text = render_objects(&rows).unwrap();
        assert_eq!(text, "id,terms.x_s\na,1.5\n\"b, c\",\n");
    }
}
