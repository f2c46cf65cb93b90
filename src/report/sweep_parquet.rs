//! Sweep as Parquet: the columns of the CSV, typed as text or number. Feature `parquet`.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::sweep_csv::{columns, row};
use crate::files::{Draft, Existing, FileMode};
use crate::sweep::choice::AXES;
use crate::sweep::record::Record;
use crate::sweep::{Sweep, SweepError, store};

/// Number of rows in a row group.
const GROUP: usize = 10_000;

/// Whether a column contains text.
fn is_text(column: &str) -> bool {
    ["status", "reason", "gpu_name"].contains(&column)
        || AXES.iter().any(|(name, _)| *name == column)
        || column.ends_with(".plan")
}

/// Converts a finished results file to Parquet, group by group.
///
/// # Errors
///
/// The input cannot be read, or the output is there or cannot be written.
pub fn write(sweep: &Sweep, results: &Path, to: &Path, existing: Existing) -> Result<(), SweepError> {
    let failed = |why: &dyn std::fmt::Display| SweepError::results(to, format!("cannot be written: {why}"));
    let columns = columns(sweep);
    let draft = Draft::new(to, existing, FileMode::Data)?;
    let schema = schema(&columns).map_err(|why| failed(&why))?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(draft, Arc::new(schema), properties).map_err(|why| failed(&why))?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    store::lines(results, &mut |bytes| {
        let record: Record = serde_json::from_slice(bytes).map_err(|why| SweepError::results(results, why))?;
        rows.push(row(sweep, &record));
        if rows.len() == GROUP {
            group(&mut writer, &columns, &rows).map_err(|why| failed(&why))?;
            rows.clear();
        }
        Ok(())
    })?;
    group(&mut writer, &columns, &rows).map_err(|why| failed(&why))?;
    Ok(writer.into_inner().map_err(|why| failed(&why))?.publish()?)
}

fn schema(columns: &[String]) -> Result<Type, ParquetError> {
    let field = |name: &String| {
        let (physical, converted) = if is_text(name) {
            (Physical::BYTE_ARRAY, ConvertedType::UTF8)
        } else {
            (Physical::DOUBLE, ConvertedType::NONE)
        };
        let builder = Type::primitive_type_builder(name, physical);
        builder.with_repetition(Repetition::OPTIONAL).with_converted_type(converted).build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("sweep").with_fields(fields).build()
}

/// Writes one row group; an empty cell is null.
fn group(
    writer: &mut SerializedFileWriter<Draft>,
    columns: &[String],
    rows: &[Vec<String>],
) -> Result<(), ParquetError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut group = writer.next_row_group()?;
    for (at, name) in columns.iter().enumerate() {
        let cells = || rows.iter().map(|row| row[at].as_str());
        let levels: Vec<i16> = cells().map(|cell| i16::from(!cell.is_empty())).collect();
        let present = cells().filter(|cell| !cell.is_empty());
        let Some(mut column) = group.next_column()? else { break };
        if is_text(name) {
            let values: Vec<ByteArray> = present.map(ByteArray::from).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        } else {
            let values: Vec<f64> = present.map(|cell| cell.parse().unwrap_or(f64::NAN)).collect();
            column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}
