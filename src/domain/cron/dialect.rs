//! The two dialects, and the `@` names for whole expressions.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How weekday numbers and two restricted day fields are interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// As crontab(5): 0 and 7 are Sunday; a match of either day field is enough.
    #[default]
    Crontab,
    /// As Quartz: 1 is Sunday and 7 is Saturday, both day fields must match.
    Quartz,
}

impl Dialect {
    /// The name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crontab => "crontab",
            Self::Quartz => "quartz",
        }
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let dialects = [Self::Crontab, Self::Quartz];
        dialects.into_iter().find(|dialect| dialect.name() == text).ok_or_else(|| format!("{text:?} is neither crontab nor quartz"))
    }
}

/// The five fields that an `@` name stands for. The weekday is a name, because its number depends on the dialect.
pub(super) fn macro_fields(name: &str) -> Result<&'static str, &'static str> {
    match name.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * SUN"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        "@reboot" => Err("@reboot is not a time; trigger the job by hand or by its API when the machine starts"),
        name if name.starts_with("@every") => Err("@every is not a cron expression; give the job an interval trigger"),
        _ => Err("unknown name; expected @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly"),
    }
}
