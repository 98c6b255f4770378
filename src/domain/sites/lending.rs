//! Lends the sites of the leader's board (the *lender*) to the boards of other brokers (the *borrowers*).
//!
//! A site is at one board at a time, and only this board grants its turns. It is at the lender unless the lender has lent it.
//!
//! | message | sent | effect |
//! | --- | --- | --- |
//! | `Have` | first on each connection, by the borrower | the lender knows again what is lent, and what got lost on the way |
//! | `Start` | the answer | the borrower gives up what was refused, knows all holds, and grants turns |
//! | `Borrow` | a run waits for a site that is not there | the borrower stands in the queue for the site |
//! | `Lend` | the site is free and the borrower is first in the queue | the site is at the borrower |
//! | `Recall` | another broker stands in the queue for a lent site | the borrower returns it after the present turn, or after the next one |
//! | `Return` | the site was recalled, or no run uses it | the site is at the lender, which lends it to the first in the queue |
//! | `Held`, `Freed` | a hold begins or changes; an operator ends it | holds are known at all boards, wherever their sites are |
//!
//! A site at a borrower is *kept*; *recalled*: one more turn is granted, to the run that waits for it; or *spent*: none is granted. A recall during a
//! turn makes it spent, and so does a turn that begins after the recall. Without the one turn, two brokers could pass a site to each other for ever, because
//! a run asks only twice a second. The runs of the lender stand in the queue as those of any other broker: one turn, then the next broker.
//!
//! The connection delivers messages in order, or breaks. A state travels as durations that count from its arrival, so clocks may differ. What
//! the caller promises: a node uses a turn of a borrower only while the borrower is connected, and not longer than until the time that
//! [`Board::borrower_lost`] gets, or the end of [`Board::quiet`]. The lender takes the runs of a borrower before it calls it lost, and this borrower begins with a new board.

use super::Board;
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::sites::SiteState;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A site of a borrower, as it announces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lent {
    /// Its name.
    pub name: Arc<str>,
    /// Its state; durations count from now.
    pub state: SiteState,
    /// The delay of the last run that asked for it.
    pub delay_ms: u32,
}

/// A hold of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The name of the site.
    pub name: Arc<str>,
    /// The state that contains the hold; durations count from now.
    pub state: SiteState,
    /// The operator that holds it.
    pub held_by: Option<Arc<str>>,
}

impl Hold {
    /// Whether an operator holds the site.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.state.was_held_by_hand()
    }
}

/// From a borrower. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum ToLender {
    /// Everything that it has, and the holds that it knows.
    Have(Vec<Lent>, Vec<Hold>),
    /// A run with this delay in milliseconds waits for a site.
    Borrow(Arc<str>, u32),
    /// A site, with its state.
    Return(Arc<str>, SiteState),
    /// A hold has begun or changed.
    Held(Hold),
}

/// From the lender. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum ToBorrower {
    /// The sites that the borrower announced, but must not use any more; all holds.
    Start(Vec<Arc<str>>, Vec<Hold>),
    /// A site, with its state, and whether it is recalled already.
    Lend(Arc<str>, SiteState, bool),
    /// Another broker waits for the site.
    Recall(Arc<str>),
    /// A hold has begun or changed.
    Held(Hold),
    /// An operator has ended any hold.
    Freed(Arc<str>),
}

/// A site that a broker has.
#[derive(Debug)]
pub(super) struct Loan {
    pub to: BrokerId,
    /// The delay of the run for which it was lent.
    pub delay_ms: u32,
    pub is_recalled: bool,
}

/// A broker that stands in the queue for a site, and the delay of its run.
#[derive(Debug)]
pub(super) struct Want {
    /// `None`: the lender.
    pub by: Option<BrokerId>,
    pub delay_ms: u32,
}

impl Want {
    pub const OWN: Self = Self { by: None, delay_ms: 0 };
}

/// What the leader's board knows of the others. Empty if there are none.
#[derive(Debug, Default)]
pub(super) struct Lender {
    /// Those that are connected.
    pub brokers: HashSet<BrokerId>,
    pub loans: HashMap<Arc<str>, Loan>,
    /// The queue for each site. The queue of a site that is here contains other brokers.
    pub wanted: HashMap<Arc<str>, VecDeque<Want>>,
    pub answers: Vec<(BrokerId, ToBorrower)>,
}

/// How long a site stays. See the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Kept,
    Recalled,
    Spent,
}

/// A site at a borrower.
#[derive(Debug)]
pub(super) struct Stay {
    pub phase: Phase,
    /// When it was last seen in use.
    pub seen_at: Timestamp,
}

/// What a borrower's board knows.
#[derive(Debug, Default)]
pub(super) struct Borrower {
    /// Whether the lender knows what is here.
    pub is_started: bool,
    pub stays: HashMap<Arc<str>, Stay>,
    /// Those that are not kept.
    pub leaving: HashSet<Arc<str>>,
    /// The sites that runs wait for, and when the lender was asked.
    pub wanted: HashMap<Arc<str>, Option<Timestamp>>,
    /// When to look whether a site is still in use: each [`Stay::seen_at`], in order.
    pub seen: VecDeque<(Timestamp, Arc<str>)>,
}

/// The part of a board.
#[derive(Debug)]
pub(super) enum Part {
    Lender(Lender),
    Borrower(Borrower),
}

impl Default for Part {
    fn default() -> Self {
        Self::Lender(Lender::default())
    }
}

impl Board {
    /// Whether this board may grant a turn at a site now, if the site is free.
    pub(super) fn may_grant(&self, name: &str) -> bool {
        match &self.part {
            Part::Lender(lender) => {
                let first = lender.wanted.get(name).and_then(VecDeque::front);
                !lender.loans.contains_key(name) && first.is_none_or(|want| want.by.is_none())
            }
            Part::Borrower(here) => here.is_started && here.stays.get(name).is_some_and(|stay| stay.phase != Phase::Spent),
        }
    }

    /// Whether a site is at another board.
    pub(in crate::domain::sites) fn is_away(&self, name: &str) -> bool {
        match &self.part {
            Part::Lender(lender) => lender.loans.contains_key(name),
            Part::Borrower(here) => !here.stays.contains_key(name),
        }
    }

    /// Whether this board borrows sites and does not have this one.
    pub(in crate::domain::sites) fn is_elsewhere(&self, name: &str) -> bool {
        matches!(&self.part, Part::Borrower(here) if !here.stays.contains_key(name))
    }

    /// A run waits for a site: if it is at another board, this board needs it.
    pub(super) fn want(&mut self, name: &str) {
        if !self.is_away(name) {
            return;
        }
        match &mut self.part {
            Part::Lender(lender) => {
                let queue = lender.wanted.entry(name.into()).or_default();
                if queue.iter().all(|want| want.by.is_some()) {
                    queue.push_back(Want::OWN);
                }
            }
            Part::Borrower(here) if here.wanted.contains_key(name) => {}
            Part::Borrower(here) => drop(here.wanted.insert(name.into(), None)),
        }
    }

    /// A turn begins: if other brokers wait, it is the last one.
    pub(super) fn turn_begins(&mut self, name: &str) {
        match &mut self.part {
            Part::Lender(lender) => {
                if let Some(queue) = lender.wanted.get_mut(name) {
                    queue.pop_front_if(|want| want.by.is_none());
                }
            }
            Part::Borrower(here) => {
                if let Some(stay) = here.stays.get_mut(name).filter(|stay| stay.phase == Phase::Recalled) {
                    stay.phase = Phase::Spent;
                }
            }
        }
    }

    /// A turn ends that was not used, and its run keeps the priority: the last turn is still to come.
    pub(super) fn turn_unused(&mut self, name: &str) {
        match &mut self.part {
            Part::Lender(lender) => {
                if let Some(queue) = lender.wanted.get_mut(name) {
                    queue.retain(|want| want.by.is_some());
                    queue.push_front(Want::OWN);
                }
            }
            Part::Borrower(here) => {
                if let Some(stay) = here.stays.get_mut(name).filter(|stay| stay.phase == Phase::Spent) {
                    stay.phase = Phase::Recalled;
                }
            }
        }
    }

    /// A hold of a site has changed here: other boards must know it.
    pub(super) fn hold_changed(&mut self, name: &Arc<str>, is_freed: bool) {
        if !matches!(&self.part, Part::Lender(lender) if lender.brokers.is_empty()) {
            *self.news.entry(Arc::clone(name)).or_default() |= is_freed;
        }
    }

    pub(super) fn has_turn(&self, name: &str, now: Timestamp) -> bool {
        self.sites.get(name).and_then(|entry| entry.turn).is_some_and(|turn| turn.until > now)
    }

    pub(super) fn has_next(&self, name: &str, now: Timestamp) -> bool {
        self.sites.get(name).and_then(|entry| entry.next).is_some_and(|next| next.until > now)
    }

    /// The state of a site, to be sent.
    pub(super) fn state_to_send(&self, name: &str, now: Timestamp) -> SiteState {
        self.sites.get(name).map(|entry| entry.state).unwrap_or_default().sent(now)
    }

    pub(super) fn delay_of(&self, name: &str) -> u32 {
        self.sites.get(name).and_then(|entry| entry.pace).map_or(0, |pace| pace.delay_ms)
    }

    /// The hold of a site, to be sent; `None`: it is not held.
    pub(super) fn hold_to_send(&self, name: &Arc<str>, now: Timestamp) -> Option<Hold> {
        let entry = self.sites.get(name).filter(|entry| entry.state.held_until(now).is_some())?;
        Some(Hold { name: Arc::clone(name), state: entry.state.sent(now), held_by: entry.held_by.clone() })
    }

    /// All holds, to be sent.
    pub(super) fn holds_to_send(&self, now: Timestamp) -> Vec<Hold> {
        self.holds.all().filter_map(|name| self.hold_to_send(name, now)).collect()
    }

    /// What the store has to know of a site that another board has changed; `None`: nothing.
    #[must_use]
    pub fn state_to_store(&self, name: &str, now: Timestamp) -> Option<SiteState> {
        let entry = self.sites.get(name)?;
        Some(entry.state).filter(|state| !state.is_usual(entry.pace.map_or(0, |pace| pace.delay_ms), now))
    }

    /// The run that gets the next turn at a site.
    #[must_use]
    pub fn next_run(&self, name: &str, now: Timestamp) -> Option<Identity> {
        self.sites.get(name)?.next.filter(|next| next.until > now).map(|next| next.run)
    }

    /// Sets a state that came from another board.
    pub(super) fn set_state(&mut self, name: &Arc<str>, state: SiteState, now: Timestamp) {
        self.entry(name, now).state = state;
        if let Some((until, why)) = state.held_until(now) {
            self.holds.note(name, until);
            if name.contains("://") && why != super::Why::Operator {
                self.note_unpaced(name, state, now);
            }
        }
    }
}

#[cfg(test)]
impl Board {
    pub(in crate::domain::sites) fn is_started(&self) -> bool {
        matches!(&self.part, Part::Borrower(here) if here.is_started)
    }

    /// The sizes of all tables about sites that are lent or wanted.
    pub(in crate::domain::sites) fn lending_sizes(&self) -> Vec<usize> {
        match &self.part {
            Part::Lender(lender) => vec![lender.loans.len(), lender.wanted.len(), lender.answers.len(), self.news.len()],
            Part::Borrower(here) => {
                vec![here.stays.len(), here.leaving.len(), here.wanted.len(), here.seen.len(), self.news.len()]
            }
        }
    }
}
