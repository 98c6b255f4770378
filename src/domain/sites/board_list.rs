//! Lists the sites of the board for operators.

use super::{Board, Entry};
use crate::domain::ids::Identity;
use crate::domain::sites::Why;
use crate::domain::time::Timestamp;
use std::sync::Arc;

/// A site as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteView {
    /// Its name.
    pub name: Arc<str>,
    /// The run that has the turn.
    pub run: Option<Identity>,
    /// Earliest time of the next request, unless the site is in use.
    pub next_at: Timestamp,
    /// Milliseconds between two requests; `None`: no run has asked for a turn since the broker started.
    pub delay_ms: Option<u32>,
    /// The end of its hold-off, and the reason.
    pub held: Option<(Timestamp, Why)>,
    /// The operator that holds it.
    pub held_by: Option<Arc<str>>,
    /// Failures in a row.
    pub failures: u8,
}

impl Board {
    /// The view of a site.
    #[must_use]
    pub fn view(&self, name: &str, now: Timestamp) -> Option<SiteView> {
        let hold = self.hold_of(name, now);
        let held_by = hold.as_ref().and_then(|(held, ..)| self.held_by(held, now));
        let held = hold.map(|(_, until, why)| (until, why));
        let unknown = Entry::default();
        let (name, entry) = match self.sites.get_key_value(name) {
            Some((name, entry)) => (Arc::clone(name), entry),
            None => (name.into(), held.map(|_| &unknown)?),
        };
        let turn = entry.turn.filter(|turn| turn.until > now);
        Some(SiteView {
            name,
            run: turn.map(|turn| turn.run),
            next_at: entry.state.next_at(now).max(self.quiet_until).max(held.map_or(now, |(until, _)| until)),
            delay_ms: entry.pace.map(|pace| entry.state.delay_ms(pace)),
            held,
            held_by,
            failures: entry.state.failures(),
        })
    }

    /// Sites with information, by name: those after `after` whose name contains `part`; with `held` only those that are held, or only
    /// those that are not.
    #[must_use]
    pub fn page(&self, part: &str, held: Option<bool>, after: Option<&str>, most: usize, now: Timestamp) -> Vec<SiteView> {
        let follows = |name: &str| name.contains(part) && after.is_none_or(|after| name > after) && !self.is_elsewhere(name);
        let mut names: Vec<&Arc<str>> = self.sites.keys().filter(|name| follows(name)).collect();
        names.sort_unstable();
        let views = names.into_iter().filter_map(|name| self.view(name, now));
        views.filter(|view| held.is_none_or(|held| held == view.held.is_some())).take(most).collect()
    }

    /// The names of the sites that are held, but not by hand.
    pub fn held_off(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        self.forget_holds(now);
        let is_by_hand = |name: &&Arc<str>| self.sites.get(*name).is_some_and(|entry| entry.state.held_by_hand(now).is_some());
        self.holds.all().filter(|name| !is_by_hand(name)).cloned().collect()
    }

    /// The names of all sites that are held.
    pub fn all_held(&mut self, now: Timestamp) -> impl Iterator<Item = &Arc<str>> {
        self.forget_holds(now);
        self.holds.all()
    }

    /// Number of sites with information, how many of them a node may request now, and how many are held.
    pub fn counts(&mut self, now: Timestamp) -> (usize, usize, usize) {
        let active = self.sites.values().filter(|entry| entry.turn.is_some_and(|turn| turn.until > now)).count();
        (self.sites.len(), active, self.all_held(now).count())
    }
}
