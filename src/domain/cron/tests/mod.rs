//! Cron expressions, by theme.

use super::{Cron, Dialect};
use crate::domain::time::Timestamp;
use crate::domain::zone::{Zone, ZoneRules};

mod smoke;

fn cron(text: &str) -> Cron {
    Cron::parse(text, Dialect::Crontab).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn fires(text: &str, zone: &str, rules: ZoneRules, after: &str, count: usize) -> Vec<String> {
    let (cron, zone) = (cron(text), Zone::named(zone).unwrap());
    let mut at: Timestamp = zone.instant(after).unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let Some(next) = cron.next(&zone, rules, at) else { break };
        at = next.at;
        found.push(zone.rfc3339(at));
    }
    found
}
