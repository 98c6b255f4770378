//! Named tokens, as the REST API shows them.

use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A token to create.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenInput {
    /// Its name, unique: 1 to 50 letters, digits or one of `._@-`. Histories show it.
    pub name: String,
    /// admin, editor, operator, readonly (or viewer), agent or worker.
    pub role: String,
    /// The groups of jobs that it is limited to; only for editor, operator and readonly. Absent: all jobs.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
    /// When it expires. Absent: when it is revoked.
    #[serde(default)]
    pub expire_time: Option<Timestamp>,
}

/// A token, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenOutput {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: String,
    /// The groups of jobs that it is limited to. Absent: all jobs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub groups: Option<Vec<String>>,
    /// When it expires. Absent: when it is revoked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expire_time: Option<Timestamp>,
    /// Whether it has expired.
    pub is_expired: bool,
    /// Who created it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub create_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
}

/// A new token.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// The token.
    #[serde(flatten)]
    pub token: TokenOutput,
    /// Its text, which a client sends. The broker does not store it and shows it only here.
    pub text: String,
}
