//! The audit, as the REST API shows it.

use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A call that changes something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditOutput {
    /// Its id: the order of ids is that of time.
    pub id: String,
    /// When it was made.
    pub at: Timestamp,
    /// The name of the token, or of its role. Absent: the broker needs no token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub caller: Option<String>,
    /// The role of the token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<String>,
    /// The address that the connection came from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// The caller's address according to a proxy or a standby (`X-Forwarded-For`). The broker does not check it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forwarded_for: Option<String>,
    /// The operation, by its name in the OpenAPI document: `updateJob`.
    pub operation: String,
    /// The kind of the object: `job`.
    pub kind: String,
    /// The object: as the call named it, or what the call created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<String>,
    /// The names of the members in the body, without their values.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub members: Option<String>,
    /// The status of the answer. Absent: the call has not been answered yet, or the broker ended before, so that its outcome is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
}
