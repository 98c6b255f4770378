//! Settings, as the REST API shows them.

use serde::{Deserialize, Serialize};

/// A setting that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SettingOutput {
    /// The flag of `webloom broker`.
    pub name: String,
    /// Its value, for people.
    pub value: String,
    /// What it does.
    pub description: String,
}
