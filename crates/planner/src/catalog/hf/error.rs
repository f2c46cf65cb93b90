//! Reasons why a `config.json` is not read.

use meshwright_engine::model::ModelError;

/// Why a configuration was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HfError {
    /// The text is not JSON.
    #[error("{origin}:{line}:{column}: not JSON: {why}")]
    NotJson {
        /// Path of the file.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// Column number, from 1.
        column: usize,
        /// Message of the parser.
        why: String,
    },
    /// A model would get a name of several lines.
    #[error(
        "{origin}: {what}, which names the model, holds a line break or another control character, and must be one line \
             of printable characters"
    )]
    Name {
        /// Path of the file, with such characters escaped.
        origin: String,
        /// Part of the path that gives the name.
        what: &'static str,
    },
    /// A part of the file is not a JSON object.
    #[error("{origin}: {what} must be an object, found: {found}")]
    NotAnObject {
        /// Path of the file.
        origin: String,
        /// Name of the part.
        what: &'static str,
        /// Value that was found.
        found: String,
    },
    /// A field that the family needs is missing.
    #[error("{origin}: `{field}`{aliases} is missing")]
    MissingField {
        /// Path of the file.
        origin: String,
        /// Name of the field.
        field: String,
        /// Other names of the field, in brackets.
        aliases: String,
    },
    /// A field has the wrong type.
    #[error("{origin}: `{field}` must be {wanted}, found: {found}")]
    WrongType {
        /// Path of the file.
        origin: String,
        /// Name of the field.
        field: String,
        /// Required type.
        wanted: &'static str,
        /// Value that was found.
        found: String,
    },
    /// A number is too small or too large.
    #[error("{origin}: `{field}` must be from {least} to {most}, found: {value}")]
    OutOfRange {
        /// Path of the file.
        origin: String,
        /// Name of the field.
        field: String,
        /// Value that was found.
        value: String,
        /// Least value allowed.
        least: u32,
        /// Largest value allowed.
        most: u32,
    },
    /// The model type is unknown; no family is approximated by another.
    #[error(
        "{origin}: the model type `{model_type}` is not known\n\nhint: known are: {known}; or write the model as TOML"
    )]
    UnknownModelType {
        /// Path of the file.
        origin: String,
        /// Model type of the file.
        model_type: String,
        /// Model types that are known.
        known: String,
    },
    /// The model type is known, and a part of its layers has no price here.
    #[error("{origin}: models of type `{model_type}` are not supported: {part} cannot be priced")]
    Unpriced {
        /// Path of the file.
        origin: String,
        /// Model type of the file.
        model_type: String,
        /// Part without a price.
        part: &'static str,
    },
    /// A field has a value that the model types here cannot express, or that the family does not have.
    #[error("{origin}: `{field}` = {value} is not supported: {why}")]
    Unsupported {
        /// Path of the file.
        origin: String,
        /// Name of the field.
        field: String,
        /// Value of the field.
        value: String,
        /// Reason for the refusal.
        why: String,
    },
    /// The fields describe an impossible model.
    #[error("{origin}: {why}")]
    Impossible {
        /// Path of the file.
        origin: String,
        /// Reason for the refusal.
        why: ModelError,
    },
}
