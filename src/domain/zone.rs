//! Stand-in.
use super::time::Timestamp;
use serde::{Deserialize, Serialize};
/// A zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone;
/// None of that name.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no time zone")]
pub struct UnknownZone(pub String);
impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        Self
    }
    /// By name.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        if name == "UTC" { Ok(Self) } else { Err(UnknownZone(name.into())) }
    }
    /// Its name.
    pub fn name(&self) -> &str {
        "UTC"
    }
    /// Seconds.
    pub fn offset_seconds(&self, _: Timestamp) -> i32 {
        0
    }
}
/// Gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GapRule {
    /// a
    Skip,
    /// a
    After,
    /// a
    Shift,
}
/// Fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FoldRule {
    /// a
    First,
    /// a
    Second,
    /// a
    Both,
}
/// Rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneRules {
    /// a
    pub gap: Option<GapRule>,
    /// a
    pub fold: Option<FoldRule>,
}
