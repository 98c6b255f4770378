//! The output format: which form, which times. Set once, from the command line.

use clap::ValueEnum;
use std::sync::OnceLock;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Tables of at most 100 columns, or of the terminal's width
    #[default]
    Table,
    /// Tables with all columns, nothing cut
    Wide,
    /// The broker's response as JSON, one document
    Json,
    /// The broker's response as YAML
    Yaml,
    /// Only names, or ids of entries without a unique name, one per line
    Name,
}

/// The output format.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// The form.
    pub format: Format,
    /// Tables without a header line.
    pub no_headers: bool,
    /// Times in UTC instead of `3 min ago`.
    pub utc: bool,
}

static LOOK: OnceLock<Look> = OnceLock::new();

impl Look {
    /// Sets the format of the process.
    pub fn set(self) {
        // The first call wins: a process runs one command.
        let _ = LOOK.set(self);
    }

    /// The format of the process.
    pub fn get() -> Self {
        LOOK.get().copied().unwrap_or_default()
    }

    /// Whether the output is for programs.
    pub fn is_document(self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }
}
