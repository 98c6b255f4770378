//! Stand-in.
use super::time::Timestamp;
use super::zone::{Zone, ZoneRules};
use serde::{Deserialize, Serialize};
/// Dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// a
    #[default]
    Crontab,
    /// a
    Quartz,
}
/// Cron.
#[derive(Debug, Clone)]
pub struct Cron(i64, String);
/// Occurrence.
#[derive(Debug)]
pub struct Occurrence {
    /// a
    pub at: Timestamp,
    /// a
    pub note: Option<String>,
}
/// Bad.
#[derive(Debug, thiserror::Error)]
#[error("bad cron {0}")]
pub struct InvalidCron(String);
impl Cron {
    /// Every n minutes only.
    pub fn parse(text: &str, _: Dialect) -> Result<Self, InvalidCron> {
        let (first, rest) = text.split_once(' ').ok_or_else(|| InvalidCron(text.into()))?;
        let ms = if rest.split(' ').count() == 5 { 1_000 } else { 60_000 };
        let n = if first == "*" { 1 } else { first.trim_start_matches("*/").parse::<i64>().map_err(|_| InvalidCron(text.into()))? };
        Ok(Self(n * ms, text.into()))
    }
    /// Next.
    pub fn next(&self, _: &Zone, _: ZoneRules, after: Timestamp) -> Option<Occurrence> {
        Some(Occurrence { at: Timestamp((after.0.div_euclid(self.0) + 1) * self.0), note: None })
    }
    /// Understood.
    pub fn understood(&self) -> String {
        self.1.clone()
    }
    /// Words.
    pub fn describe(&self) -> String {
        self.1.clone()
    }
}
