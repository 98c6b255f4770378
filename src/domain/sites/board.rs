//! Decides which run may use which site now, for all nodes and runs together.
//!
//! The right to use a site is granted in *turns*: one run has it for one block at a node, until the block is reported,
//! lost, or given back. So only that node sends requests to the site, and the pace holds whatever the other nodes do.

use super::holds::Holds;
use super::{Begin, Ended, Outcome, Pace, SiteState, Why};
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How long a rejected run keeps its priority: it gets the next turn before the run that had the last one.
const REMEMBERED_MS: i64 = 3_000;
/// How long the node of an abandoned turn may continue, unless the broker's own times are longer.
const LEFTOVER_MS: i64 = 15_000;
/// Delay after which a run asks again while another run has the site.
const LOOK_AGAIN_MS: i64 = 500;
/// The longest hold-off of a site without a pace that it did not ask for: its owner expects an answer soon after a restart.
const MOST_UNPACED_HOLD_MS: u32 = 60_000;
/// Number of operations after which sites without any information are removed.
const SWEEP: u32 = 20_000;

/// A granted turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    run: Identity,
    /// When it ends unless it is renewed.
    until: Timestamp,
}

#[derive(Debug, Default)]
struct Entry {
    state: SiteState,
    turn: Option<Turn>,
    /// The run that was rejected first, and how long it keeps its priority.
    next: Option<(Identity, Timestamp)>,
    /// The pace of the last run that asked.
    pace: Option<Pace>,
    /// The operator that holds it, or held it last.
    held_by: Option<Arc<str>>,
}

/// A turn, as sent to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Milliseconds between the end of a response and the next request.
    pub delay_ms: u32,
    /// Maximum random addition to the delay, in milliseconds.
    pub jitter_ms: u32,
    /// Number of concurrent requests.
    pub connections: u16,
}

impl Granted {
    /// The slower of two turns that are used together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            delay_ms: self.delay_ms.max(other.delay_ms),
            jitter_ms: self.jitter_ms.max(other.jitter_ms),
            connections: self.connections.min(other.connections),
        }
    }
}

impl SiteState {
    fn granted(&self, pace: Pace) -> Granted {
        // After failures a single request probes the site.
        let connections = if self.failures() > 0 { 1 } else { pace.connections };
        Granted { delay_ms: self.delay_ms(pace), jitter_ms: pace.delay_ms / 10, connections }
    }
}

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

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Board {
    sites: HashMap<Arc<str>, Entry>,
    /// Sites that are held for any reason.
    holds: Holds,
    /// Sites without a pace that have failed or asked for a pause since they last answered well.
    unpaced: HashSet<Arc<str>>,
    /// From this time on no turns are granted for a while: nodes may still use turns of an earlier broker.
    quiet_from: Timestamp,
    quiet_until: Timestamp,
    leftover_ms: i64,
    operations: u32,
}

impl Board {
    /// An empty board. A node may continue for `right_ms` without a message from the broker.
    #[must_use]
    pub fn new(right_ms: i64) -> Self {
        Self { leftover_ms: right_ms.max(LEFTOVER_MS), ..Self::default() }
    }

    /// Loads stored sites.
    pub fn load(&mut self, rows: impl IntoIterator<Item = (Arc<str>, SiteState, Option<Arc<str>>)>, now: Timestamp) {
        for (name, state, held_by) in rows {
            // Only sites without a pace have the name of an origin.
            if name.contains("://") && !state.was_held_by_hand() {
                self.note_unpaced(&name, state, now);
            }
            self.note_held(&name, state, now);
            self.sites.insert(name, Entry { state, held_by, ..Entry::default() });
        }
    }

    fn note_held(&mut self, name: &Arc<str>, state: SiteState, now: Timestamp) {
        if let Some((until, _)) = state.held_until(now) {
            self.holds.note(name, until);
        }
    }

    fn note_unpaced(&mut self, name: &Arc<str>, state: SiteState, now: Timestamp) {
        if state.is_usual(0, now) {
            self.unpaced.remove(name);
        } else {
            self.unpaced.insert(Arc::clone(name));
        }
    }

    /// No turns are granted between these times, and for each site until its own delay has passed after that.
    pub fn quiet(&mut self, from: Timestamp, until: Timestamp) {
        (self.quiet_from, self.quiet_until) = (from, self.quiet_until.max(until));
    }

    fn entry(&mut self, name: &str, now: Timestamp) -> &mut Entry {
        self.operations += 1;
        if self.operations >= SWEEP {
            self.operations = 0;
            self.sites.retain(|_, entry| entry.turn.is_some_and(|turn| turn.until > now) || !entry.state.is_forgettable(now));
            self.forget_holds(now);
            let sites = &self.sites;
            self.unpaced.retain(|name| sites.contains_key(name));
        }
        if !self.sites.contains_key(name) {
            self.sites.insert(name.into(), Entry::default());
        }
        self.sites.get_mut(name).expect("the entry was just inserted")
    }

    /// A run asks for a turn at a site; the turn lasts until `until` unless it is renewed.
    ///
    /// # Errors
    /// The time when it may ask again.
    pub fn take(&mut self, name: &str, pace: Pace, run: Identity, until: Timestamp, now: Timestamp) -> Result<Granted, Timestamp> {
        let held = self.hold_of(name, now);
        if let Some((_, until, _)) = held.filter(|(held, _, why)| pace == Pace::FREE || **held != *name || *why == Why::Operator) {
            return Err(until);
        }
        if pace == Pace::FREE {
            // Without a pace there are no turns.
            return Ok(Granted { delay_ms: 0, jitter_ms: 0, connections: pace.connections });
        }
        if now < self.quiet_until {
            return Err(self.quiet_until);
        }
        let (quiet_from, after_quiet, leftover_ms) = (self.quiet_from, self.quiet_until.plus_ms(pace.delay_ms.into()), self.leftover_ms);
        let entry = self.entry(name, now);
        if now < after_quiet && entry.state.changed_at() < quiet_from {
            // A request of an earlier turn may have begun when the quiet time ended.
            return Err(after_quiet);
        }
        entry.pace = Some(pace);
        if let Some(turn) = entry.turn.as_mut().filter(|turn| turn.run == run) {
            // A run that asks has no dispatched block of the site: the turn belongs to a dead actor of the run.
            turn.until = turn.until.min(now.plus_ms(leftover_ms));
        }
        if entry.turn.is_some_and(|turn| turn.until <= now) {
            entry.turn = None;
        }
        let again = now.plus_ms(LOOK_AGAIN_MS);
        let is_others_turn = entry.next.is_some_and(|(next, until)| next != run && until > now);
        if entry.turn.is_some() {
            if !is_others_turn && entry.turn.is_some_and(|turn| turn.run != run) {
                entry.next = Some((run, again.plus_ms(REMEMBERED_MS)));
            }
            return Err(again);
        }
        if is_others_turn {
            return Err(again);
        }
        match entry.state.may_begin(now, pace) {
            Begin::Yes => {}
            Begin::NotBefore(at, _) => {
                // The site may wait longer than the run keeps its priority, so extend it.
                entry.next = entry.next.filter(|(next, _)| *next == run).map(|_| (run, at.plus_ms(REMEMBERED_MS)));
                return Err(at);
            }
            Begin::Full => return Err(again),
        }
        (entry.turn, entry.next) = (Some(Turn { run, until }), None);
        Ok(entry.state.granted(pace))
    }

    /// What a turn at a site would grant now: also for a turn that is known from elsewhere.
    #[must_use]
    pub fn granted(&self, name: &str, pace: Pace) -> Granted {
        self.sites.get(name).map(|entry| entry.state).unwrap_or_default().granted(pace)
    }

    /// Extends the turns of a run, or registers those that it already has. Returns false if another run has one of the sites now.
    pub fn renew(&mut self, names: &[Arc<str>], run: Identity, until: Timestamp, now: Timestamp) -> bool {
        let is_mine = |turn: Turn| turn.run == run || turn.until <= now;
        let is_all_mine = names.iter().all(|name| self.sites.get(name).and_then(|entry| entry.turn).is_none_or(is_mine));
        if is_all_mine {
            names.iter().for_each(|name| self.entry(name, now).turn = Some(Turn { run, until }));
        }
        is_all_mine
    }

    /// A run does not use a turn that it has just taken, because another site that it needs for the same requests is not free. It keeps its priority.
    pub fn give_up(&mut self, name: &str, run: Identity, now: Timestamp) {
        let entry = self.entry(name, now);
        if entry.turn.is_some_and(|turn| turn.run == run) {
            (entry.turn, entry.next) = (None, Some((run, now.plus_ms(LOOK_AGAIN_MS + REMEMBERED_MS))));
        }
    }

    /// Applies the outcomes of requests to a site; `began` is when the last request ended, or began if it has
    /// not ended. Returns the state to store if the stored
    /// state must change: `Some(None)` deletes it, because the site has the default state.
    pub fn learn(&mut self, name: &str, pace: Pace, outcomes: &[Outcome], began: Timestamp, now: Timestamp) -> Option<Option<SiteState>> {
        let state = &mut self.entry(name, now).state;
        let was = *state;
        let dice = |i: usize| (i as u32).wrapping_mul(0x9E37_79B9) ^ now.0 as u32;
        for (i, outcome) in outcomes.iter().enumerate() {
            state.begun(began, pace, dice(i));
            // A requested pause, and the effects of a failure, count from when they are known.
            let at = if outcome.ended.is_well() || outcome.ended == Ended::Unknown { began } else { now };
            state.ended(at, pace, *outcome);
        }
        let state = *state;
        if state.held_until(now).is_some() {
            self.note_held(&name.into(), state, now);
        }
        let (was_stored, is_usual) = (!was.is_usual(pace.delay_ms, now) || was.was_held_by_hand(), state.is_usual(pace.delay_ms, now));
        match (was_stored, is_usual) {
            (false, true) => None,
            (true, true) => Some(None),
            (_, false) => Some(Some(state)),
        }
    }

    /// Applies the outcomes of requests to a site without a pace: it is held off like any other, but needs no turns. Returns what to store, as
    /// [`Board::learn`] does.
    pub fn learn_unpaced(&mut self, name: &str, outcomes: &[Outcome], now: Timestamp) -> Option<Option<SiteState>> {
        if outcomes.iter().all(|outcome| outcome.ended.is_well()) && !self.unpaced.contains(name) {
            return None;
        }
        let entry = self.entry(name, now);
        let was = entry.state;
        for outcome in outcomes {
            entry.state.begun(now, Pace::FREE, 0);
            entry.state.ended(now, Pace::FREE, *outcome);
        }
        // What the site asked for counts, and a hold by hand. It does not grow beyond that by itself.
        let asked = outcomes.iter().filter_map(|outcome| outcome.retry_after_ms).max().unwrap_or(0);
        let before = was.held_until(now).map_or(0, |(until, _)| u32::try_from(until.since_ms(now)).unwrap_or(u32::MAX));
        entry.state.without_pace(MOST_UNPACED_HOLD_MS.max(asked).max(before));
        let state = entry.state;
        let name = Arc::from(name);
        self.note_unpaced(&name, state, now);
        self.note_held(&name, state, now);
        let was_stored = !was.is_usual(0, now) || was.was_held_by_hand();
        match (was_stored, state.is_usual(0, now)) {
            (false, true) => None,
            (true, true) => Some(None),
            (_, false) => Some(Some(state)),
        }
    }

    /// Whether the answers of sites without a pace are of interest: one of them has failed.
    #[must_use]
    pub fn has_unpaced(&self) -> bool {
        !self.unpaced.is_empty()
    }

    /// Ends the turn of a run; no other run may begin one for `wait_ms`. Returns when the site may be used again.
    pub fn release(&mut self, name: &str, run: Identity, wait_ms: i64, now: Timestamp) -> Timestamp {
        let entry = self.entry(name, now);
        if entry.turn.is_some_and(|turn| turn.run == run) {
            // The node may still send requests until the turn ends.
            entry.turn = (wait_ms > 0).then(|| Turn { run, until: now.plus_ms(wait_ms) });
        }
        entry.state.next_at(now).max(now.plus_ms(wait_ms))
    }

    /// Holds a site by hand: no run begins a turn there. Returns the state to store.
    pub fn hold(&mut self, name: &str, until: Timestamp, by: Option<Arc<str>>, now: Timestamp) -> SiteState {
        self.forget_holds(now);
        let entry = self.entry(name, now);
        entry.state.hold(now, until);
        entry.held_by = by;
        let state = entry.state;
        self.note_held(&Arc::from(name), state, now);
        state
    }

    /// Ends any hold of a site. Returns the state to store.
    pub fn free(&mut self, name: &str, now: Timestamp) -> Option<SiteState> {
        let state = &mut self.entry(name, now).state;
        state.release(now);
        let state = *state;
        self.forget_holds(now);
        Some(state).filter(|state| !state.is_usual(0, now))
    }

    /// Until when exactly this site is held, and why.
    #[must_use]
    pub fn own_hold(&self, name: &str, now: Timestamp) -> Option<(Timestamp, Why)> {
        self.sites.get(name)?.state.held_until(now)
    }

    /// The operator that holds exactly this site.
    #[must_use]
    pub fn held_by(&self, name: &str, now: Timestamp) -> Option<Arc<str>> {
        let entry = self.sites.get(name).filter(|entry| entry.state.held_by_hand(now).is_some())?;
        entry.held_by.clone()
    }

    fn forget_holds(&mut self, now: Timestamp) {
        let sites = &self.sites;
        self.holds.retain(|name| sites.get(name).is_some_and(|entry| entry.state.held_until(now).is_some()));
    }

    /// Whether blocks without a pace must be checked for requests to held sites: there may be a hold.
    #[must_use]
    pub fn has_holds(&self, now: Timestamp) -> bool {
        self.holds.is_any(now)
    }

    /// Until when a site is held, by hand or for any other reason.
    #[must_use]
    pub fn held(&self, name: &str, now: Timestamp) -> Option<Timestamp> {
        self.hold_of(name, now).map(|(_, until, _)| until)
    }

    /// The longest hold that applies to a site ([`super::is_hold_of`]): its name, its end and its reason. So a hold that one run has caused, or an
    /// operator, counts for all runs, whether they have a pace at the host or not.
    #[must_use]
    pub fn hold_of(&self, name: &str, now: Timestamp) -> Option<(Arc<str>, Timestamp, Why)> {
        if !self.holds.is_any(now) {
            return None;
        }
        let end = |held: &Arc<str>| {
            let state = self.sites.get(held)?.state;
            let (mut until, why) = state.held_until(now)?;
            if name.contains("://") && !why.is_asked_for() {
                until = until.min(state.changed_at().plus_ms(MOST_UNPACED_HOLD_MS.into()));
            }
            (until > now).then(|| (Arc::clone(held), until, why))
        };
        self.holds.of(name).filter_map(end).max_by_key(|(_, until, _)| *until)
    }

    /// The manual hold that applies to a site, and its end.
    #[must_use]
    pub fn held_by_hand(&self, name: &str, now: Timestamp) -> Option<(Arc<str>, Timestamp)> {
        if !self.holds.is_any(now) {
            return None;
        }
        let end = |held: &Arc<str>| Some((Arc::clone(held), self.sites.get(held)?.state.held_by_hand(now)?));
        self.holds.of(name).filter_map(end).max_by_key(|(_, until)| *until)
    }

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
        let follows = |name: &str| name.contains(part) && after.is_none_or(|after| name > after);
        let mut names: Vec<&Arc<str>> = self.sites.keys().filter(|name| follows(name)).collect();
        names.sort_unstable();
        let views = names.into_iter().filter_map(|name| self.view(name, now));
        views.filter(|view| held.is_none_or(|held| held == view.held.is_some())).take(most).collect()
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

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
