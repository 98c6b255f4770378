//! Log lines of a run, as its worker or node sends them.

use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The level of a line, by name or by number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum LogLevel {
    /// trace 0, debug 1, info 2, warning 3, error 4, critical 5.
    Number(#[cfg_attr(feature = "broker", schemars(range(min = 0, max = 5)))] u8),
    /// By name, ignoring case.
    Name(String),
}

/// A log line from the worker or node of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "broker", schemars(extend("examples" = [{ "text": "page 3 of 7", "level": "info", "at": "2026-01-01T00:00:00Z" }])))]
#[serde(rename_all = "camelCase")]
pub struct LogInput {
    /// The text, at most 8,192 bytes.
    #[cfg_attr(feature = "broker", schemars(length(max = 8_192)))]
    pub text: String,
    /// trace, debug, info, warning, error, critical, or 0 to 5; info if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// worker, stdout, stderr …: at most 50 characters; `worker` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = 50)))]
    pub source: Option<String>,
    /// The time; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}
