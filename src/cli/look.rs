//! How answers are to be shown: which format, which times. Set once, from the command line.

use clap::ValueEnum;
use std::sync::OnceLock;

/// In what form answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Tables of at most 100 columns, or of the terminal's width
    #[default]
    Table,
    /// Tables with all columns, and nothing cut
    Wide,
    /// The broker's answer as JSON, one document
    Json,
    /// The broker's answer as YAML
    Yaml,
    /// Names alone, or ids of what has no unique name, one a line
    Name,
}

/// How answers are to be shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// The form.
    pub format: Format,
    /// Tables without their first line.
    pub no_headers: bool,
    /// Times in UTC instead of `3 min ago`.
    pub utc: bool,
}

static LOOK: OnceLock<Look> = OnceLock::new();

impl Look {
    /// What tables go by from now on.
    pub fn set(self) {
        // The first one holds: a process runs one command.
        let _ = LOOK.set(self);
    }

    /// How answers are to be shown.
    pub fn get() -> Self {
        LOOK.get().copied().unwrap_or_default()
    }

    /// Whether the answer is printed for programs.
    pub fn is_document(self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }
}
