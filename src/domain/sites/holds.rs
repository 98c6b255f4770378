//! The names under which sites are or were held, found by their host: a hold of one name applies to other sites of the same host ([`is_hold_of`]).

use super::{host_of_name, is_hold_of};
use crate::domain::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module documentation. Some holds may have ended.
#[derive(Debug, Default)]
pub struct Holds {
    /// Each name after its host.
    names: BTreeSet<(Arc<str>, Arc<str>)>,
    /// When the last hold ends.
    until: Timestamp,
}

fn by_host(name: &Arc<str>) -> (Arc<str>, Arc<str>) {
    let host = if name.contains("://") { host_of_name(name).into() } else { Arc::clone(name) };
    (host, Arc::clone(name))
}

impl<'a> FromIterator<&'a Arc<str>> for Holds {
    fn from_iter<T: IntoIterator<Item = &'a Arc<str>>>(names: T) -> Self {
        Self { names: names.into_iter().map(by_host).collect(), until: Timestamp::default() }
    }
}

impl Holds {
    pub(super) fn note(&mut self, name: &Arc<str>, until: Timestamp) {
        self.names.insert(by_host(name));
        self.until = self.until.max(until);
    }

    pub(super) fn forget(&mut self, name: &Arc<str>) {
        self.names.remove(&by_host(name));
    }

    /// Whether there may be a hold.
    pub(super) fn is_any(&self, now: Timestamp) -> bool {
        now < self.until && !self.names.is_empty()
    }

    /// Whether one of the holds applies to a site.
    #[must_use]
    pub fn is_any_of(&self, site: &str) -> bool {
        self.of(site).next().is_some()
    }

    /// The names whose holds apply to a site.
    pub(super) fn of(&self, site: &str) -> impl Iterator<Item = &Arc<str>> {
        let host: Arc<str> = host_of_name(site).into();
        let of_host = self.names.range((Arc::clone(&host), Arc::from(""))..).take_while(move |(other, _)| *other == host);
        of_host.map(|(_, name)| name).filter(move |name| is_hold_of(name, site))
    }

    /// All names.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter().map(|(_, name)| name)
    }

    /// Drops the names of holds that have ended.
    pub(super) fn retain(&mut self, is_held: impl Fn(&str) -> bool) {
        self.names.retain(|(_, name)| is_held(name));
    }
}
