//! Decides which run may use which site now, for all nodes and runs together.
//!
//! The right to use a site is granted in *turns*: one run has it for one block at a node, until the block is reported,
//! lost, or given back. So only that node sends requests to the site, and the pace holds whatever the other nodes do.
//!
//! A run that needs the turns of several sites for one block has them all or none. While it waits for one site, others use the rest. But two busy
//! sites are hardly ever free at the same moment. So when the site that it waited for is free, the run keeps its priority there, and at its other
//! sites, for twice as long as it has waited. If that is not enough, it waits for another site in the same way, and for longer.

#[path = "borrower.rs"]
mod borrower;
#[path = "lender.rs"]
mod lender;
#[path = "lending.rs"]
mod lending;
#[path = "board_list.rs"]
mod list;

#[cfg(test)]
pub use lending::Hold;
pub use lending::{ToBorrower, ToLender};
pub use list::SiteView;

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
    /// How long the run keeps its priority if it does not use the turn.
    kept_until: Timestamp,
}

/// The run that gets the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Next {
    run: Identity,
    /// When it began to wait; `None`: the site was free for it, and it waits for another site.
    since: Option<Timestamp>,
    /// How long it keeps its priority unless it asks again.
    until: Timestamp,
    /// How long it may renew its priority while it waits for another site.
    kept_until: Timestamp,
}

#[derive(Debug, Default)]
struct Entry {
    state: SiteState,
    turn: Option<Turn>,
    next: Option<Next>,
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

/// What to store when a state has changed: see [`Board::learn`].
fn to_store(was: SiteState, is: SiteState, delay_ms: u32, now: Timestamp) -> Option<Option<SiteState>> {
    let was_stored = !was.is_usual(delay_ms, now) || was.was_held_by_hand();
    match (was_stored, is.is_usual(delay_ms, now)) {
        (false, true) => None,
        (true, true) => Some(None),
        (_, false) => Some(Some(is)),
    }
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
    part: lending::Part,
    /// Holds that other boards do not know yet, and whether they were ended by hand.
    news: HashMap<Arc<str>, bool>,
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
            self.hold_changed(name, false);
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
        let taken = self.take_free(name, pace, run, until, now);
        if taken.is_err() && pace != Pace::FREE {
            self.wait_for(name, run, now);
        }
        taken
    }

    /// A run that has the turns of some sites asks for those of `more`, for the same requests.
    ///
    /// # Errors
    /// The time when it may ask again, and the site that is not free until then. It has no turn any more.
    pub fn take_more(
        &mut self,
        has: &[Arc<str>],
        more: &[Arc<str>],
        pace: Pace,
        (run, until): (Identity, Timestamp),
        now: Timestamp,
    ) -> Result<(), (Timestamp, Arc<str>)> {
        let (mut taken, mut missing, mut later) = (has.iter().collect::<Vec<_>>(), Vec::new(), None);
        for name in more {
            match self.take_free(name, pace, run, until, now) {
                Ok(_) => taken.push(name),
                Err(at) => {
                    later = later.max(Some((at, Arc::clone(name))));
                    missing.push(name);
                }
            }
        }
        let Some(later) = later else { return Ok(()) };
        let kept_until =
            taken.iter().filter_map(|name| self.sites.get(*name)?.turn.filter(|turn| turn.run == run)).map(|turn| turn.kept_until);
        // A priority that ends before the run asks again is of no use. While the missing site is held, or has a long delay, others use the rest.
        let may_keep = |until: &Timestamp| *until > later.0 && later.0 <= now.plus_ms(REMEMBERED_MS);
        let kept_until = kept_until.max().filter(may_keep);
        let next =
            kept_until.map(|kept_until| Next { run, since: None, until: kept_until.min(later.0.plus_ms(REMEMBERED_MS)), kept_until });
        taken.iter().for_each(|name| self.give_up(name, run, next, now));
        // Without a priority it waits for one site only: for the one that it waits for already, if there is one.
        missing.sort_by_key(|name| self.waits_since(name, run).unwrap_or(now));
        let mut is_waiting = false;
        for name in missing {
            if is_waiting && kept_until.is_none() {
                self.sites.get_mut(name).and_then(|entry| entry.next.take_if(|next| next.run == run));
            } else {
                is_waiting |= self.wait_for(name, run, now);
            }
        }
        Err(later)
    }

    fn take_free(&mut self, name: &str, pace: Pace, run: Identity, until: Timestamp, now: Timestamp) -> Result<Granted, Timestamp> {
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
        let may_grant = self.may_grant(name);
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
        entry.turn = entry.turn.filter(|turn| turn.until > now);
        // A run that asks a little late goes on waiting.
        entry.next = entry.next.filter(|next| next.until.plus_ms(if next.run == run { REMEMBERED_MS } else { 0 }) > now);
        let again = now.plus_ms(LOOK_AGAIN_MS);
        if !may_grant || entry.turn.is_some() || entry.next.is_some_and(|next| next.run != run) {
            return Err(again);
        }
        match entry.state.may_begin(now, pace) {
            Begin::Yes => {}
            Begin::NotBefore(at, _) => {
                // The site may wait longer than the run keeps its priority, so extend it.
                entry.next = entry.next.map(|next| Next { until: next.until.max(at.plus_ms(REMEMBERED_MS)), ..next });
                return Err(at);
            }
            Begin::Full => return Err(again),
        }
        let kept_until =
            entry.next.take().map_or(now, |next| next.since.map_or(next.kept_until, |since| now.plus_ms(2 * now.since_ms(since))));
        entry.turn = Some(Turn { run, until, kept_until });
        let granted = entry.state.granted(pace);
        self.turn_begins(name);
        Ok(granted)
    }

    /// A run waits for the turn of another run. Returns whether it gets the next one.
    fn wait_for(&mut self, name: &str, run: Identity, now: Timestamp) -> bool {
        let (since, may_grant) = (self.waits_since(name, run).unwrap_or(now), self.may_grant(name));
        if !may_grant {
            self.want(name);
        }
        // A site that is held under another name may have no entry.
        let Some(entry) = self.sites.get_mut(name) else { return false };
        if entry.next.is_some_and(|next| next.run != run && next.until > now) {
            return false;
        }
        if !may_grant || entry.turn.is_some_and(|turn| turn.run != run) {
            entry.next = Some(Next { run, since: Some(since), until: now.plus_ms(LOOK_AGAIN_MS + REMEMBERED_MS), kept_until: now });
        }
        entry.next.is_some()
    }

    /// Since when a run waits for a site at which it gets the next turn.
    fn waits_since(&self, name: &str, run: Identity) -> Option<Timestamp> {
        self.sites.get(name)?.next.filter(|next| next.run == run)?.since
    }

    /// A run does not use the turn of a site. `next` is its priority there.
    fn give_up(&mut self, name: &str, run: Identity, next: Option<Next>, now: Timestamp) {
        let Some(entry) = self.sites.get_mut(name) else { return };
        if entry.turn.take_if(|turn| turn.run == run).is_some() {
            entry.next = entry.next.filter(|next| next.until > now).or(next);
            if next.is_some() {
                self.turn_unused(name);
            }
        }
    }

    /// What a turn at a site would grant now: also for a turn that is known from elsewhere.
    #[must_use]
    pub fn granted(&self, name: &str, pace: Pace) -> Granted {
        self.sites.get(name).map(|entry| entry.state).unwrap_or_default().granted(pace)
    }

    /// Extends the turns of a run, or registers those that it already has. Returns false if another run has one of the sites now.
    pub fn renew(&mut self, names: &[Arc<str>], run: Identity, until: Timestamp, now: Timestamp) -> bool {
        let is_mine = |turn: Turn| turn.run == run || turn.until <= now;
        let turn_of = |name: &Arc<str>| self.sites.get(name).and_then(|entry| entry.turn);
        let is_all_mine = names.iter().all(|name| !self.is_away(name) && turn_of(name).is_none_or(is_mine));
        if is_all_mine {
            names.iter().for_each(|name| self.entry(name, now).turn = Some(Turn { run, until, kept_until: now }));
        }
        is_all_mine
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
        to_store(was, state, pace.delay_ms, now)
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
        to_store(was, state, 0, now)
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
            entry.turn = (wait_ms > 0).then(|| Turn { run, until: now.plus_ms(wait_ms), kept_until: now });
        }
        entry.state.next_at(now).max(now.plus_ms(wait_ms))
    }

    /// A run has ended without giving up its turns. Their nodes may continue for a while.
    pub fn run_gone(&mut self, run: Identity, now: Timestamp) {
        for entry in self.sites.values_mut() {
            entry.next.take_if(|next| next.run == run);
            let wait_ms = self.leftover_ms + entry.pace.map_or(0, |pace| i64::from(pace.delay_ms));
            if let Some(turn) = entry.turn.as_mut().filter(|turn| turn.run == run) {
                turn.until = turn.until.min(now.plus_ms(wait_ms));
            }
        }
    }

    /// Holds a site by hand: no run begins a turn there. Returns the state to store.
    pub fn hold(&mut self, name: &str, until: Timestamp, by: Option<Arc<str>>, now: Timestamp) -> SiteState {
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
        self.holds.forget(&name.into());
        self.hold_changed(&name.into(), true);
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
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
