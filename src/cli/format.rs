//! Output formats of the commands.

use clap::ValueEnum;

/// Output format of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Table for people, fitted to the terminal.
    #[default]
    Table,
    /// Versioned JSON for programs.
    Json,
    /// Markdown for documents.
    Markdown,
    /// CSV for spreadsheets.
    Csv,
}
