//! Tests of cron expressions, by topic.

use super::next::Note;
use super::{Cron, Dialect, PreviewLine};
use crate::domain::time::Timestamp;
use crate::domain::zone::{FoldRule, GapRule, Zone, ZoneRules};

mod oracle;
mod properties;
mod reading;
mod refusals;
mod rules;
mod table;
mod zones;

fn cron(text: &str) -> Cron {
    Cron::parse(text, Dialect::Crontab).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn quartz(text: &str) -> Cron {
    Cron::parse(text, Dialect::Quartz).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap()
}

fn rules(gap: GapRule, fold: FoldRule) -> ZoneRules {
    ZoneRules { gap: Some(gap), fold: Some(fold) }
}

/// The next fires in local time.
fn fires(text: &str, zone_name: &str, rules: ZoneRules, after: &str, count: usize) -> Vec<String> {
    let (cron, zone) = (cron(text), zone(zone_name));
    let mut at = zone.instant(after).unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let Some(next) = cron.next(&zone, rules, at) else { break };
        at = next.at;
        found.push(zone.rfc3339(at));
    }
    found
}
