//! The names under which sites are held, found by their host: a hold of one name applies to other sites of the same host ([`is_hold_of`]).

use super::{host_of_name, is_hold_of};
use crate::domain::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module documentation. Some holds may have ended.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Each name after its host.
    names: BTreeSet<(Arc<str>, Arc<str>)>,
    /// When the last hold ends.
    until: Timestamp,
}

impl Holds {
    pub fn note(&mut self, name: &Arc<str>, until: Timestamp) {
        let host = if name.contains("://") { host_of_name(name).into() } else { Arc::clone(name) };
        self.names.insert((host, Arc::clone(name)));
        self.until = self.until.max(until);
    }

    /// Whether there may be a hold.
    pub fn is_any(&self, now: Timestamp) -> bool {
        now < self.until && !self.names.is_empty()
    }

    /// The names whose holds apply to a site.
    pub fn of(&self, site: &str) -> impl Iterator<Item = &Arc<str>> {
        let host: Arc<str> = host_of_name(site).into();
        let of_host = self.names.range((Arc::clone(&host), Arc::from(""))..).take_while(move |(other, _)| *other == host);
        of_host.map(|(_, name)| name).filter(move |name| is_hold_of(name, site))
    }

    /// All names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter().map(|(_, name)| name)
    }

    /// Drops the names of holds that have ended.
    pub fn retain(&mut self, is_held: impl Fn(&str) -> bool) {
        self.names.retain(|(_, name)| is_held(name));
    }
}
