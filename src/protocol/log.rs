//! Lines of a run's log, as whoever carries it out sends them.

use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How much a line matters, by name or by number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum LogLevel {
    /// trace 0, debug 1, info 2, warning 3, error 4, critical 5.
    Number(#[cfg_attr(feature = "broker", schemars(range(min = 0, max = 5)))] u8),
    /// By name, in any case.
    Name(String),
}

/// A line that a worker, or whoever carries a run out, has to say.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "broker", schemars(extend("examples" = [{ "text": "page 3 of 7", "level": "info", "at": "2026-01-01T00:00:00Z" }])))]
#[serde(rename_all = "camelCase")]
pub struct LogInput {
    /// At most 8,192 bytes.
    #[cfg_attr(feature = "broker", schemars(length(max = 8_192)))]
    pub text: String,
    /// trace, debug, info, warning, error, critical, or 0 to 5 for the same; info if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// worker, stdout, stderr …: at most 50 characters; `worker` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = 50)))]
    pub source: Option<String>,
    /// When; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}
