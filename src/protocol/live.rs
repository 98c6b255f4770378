//! Messages on the socket of a window that watches answers of the API.

use super::problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The subprotocol of the socket.
pub const PROTOCOL: &str = "webloom.live";
/// The beginning of a subprotocol that carries the token: the rest is its base64url without padding. A browser cannot set headers of a socket.
pub const TOKEN: &str = "webloom.token.";

/// From a window to the broker.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromWindow {
    /// Send the answer to `GET` of this path, now and whenever it changes.
    Watch {
        /// The window's number for it. A number that is in use now stands for the new path.
        id: u32,
        /// The path with its query.
        path: String,
    },
    /// Send it no more.
    Unwatch {
        /// The number.
        id: u32,
    },
}

/// From the broker to a window.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToWindow<'a> {
    /// The whole answer.
    Value {
        /// The window's number.
        id: u32,
        /// The body of the answer.
        value: &'a RawValue,
    },
    /// The difference from the last answer that was sent for this number.
    Patch {
        /// The window's number.
        id: u32,
        /// A JSON Patch (RFC 6902).
        patch: &'a RawValue,
    },
    /// The path cannot be watched, or no more: the number is free.
    Problem {
        /// The window's number.
        id: u32,
        /// The problem that a call of the path gets.
        problem: &'a Problem,
    },
    /// A message that cannot be read.
    Error(Problem),
    /// Nothing has changed, and the connection is alive.
    Beat,
}
