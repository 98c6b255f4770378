//! Preview: the next fires, and the local times that are skipped because the clock jumps over them.

use super::Cron;
use super::next::Occurrence;
use crate::domain::time::Timestamp;
use crate::domain::zone::{GapRule, Wall, Zone, ZoneRules};

/// A line of a preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviewLine {
    /// It fires.
    Fire(Occurrence),
    /// The clock jumps over matching local times, and the rule is to skip them.
    Missing {
        /// When the clock jumps.
        at: Timestamp,
        /// The first skipped local time.
        first: Wall,
    },
}

impl Cron {
    /// The next `count` fires after an instant, and what is skipped between them. Fewer if no more follow.
    #[must_use]
    pub fn preview(&self, zone: &Zone, rules: ZoneRules, after: Timestamp, count: usize) -> Vec<PreviewLine> {
        let skips = self.rules(rules).0 == GapRule::Skip;
        let (mut lines, mut from, mut fires) = (Vec::new(), after, 0);
        while fires < count {
            let next = self.next(zone, rules, from);
            if skips {
                self.add_missing(zone, from, next.map(|next| next.at), &mut lines);
            }
            let Some(next) = next else { break };
            lines.push(PreviewLine::Fire(next));
            (from, fires) = (next.at, fires + 1);
        }
        lines
    }

    /// Gaps after `from`, until `until`, in which a local time matches.
    fn add_missing(&self, zone: &Zone, from: Timestamp, until: Option<Timestamp>, lines: &mut Vec<PreviewLine>) {
        let mut second = from.0.div_euclid(1000);
        while let Some(change) = zone.change_after(second).filter(|change| until.is_none_or(|until| change.at * 1000 <= until.0)) {
            match self.next_wall(change.at + change.before - 1) {
                Some(first) if first < change.at + change.after => {
                    lines.push(PreviewLine::Missing { at: Timestamp(change.at * 1000), first: Wall(first) });
                }
                Some(_) => {}
                // There are no further matches.
                None => break,
            }
            second = change.at;
        }
    }
}
