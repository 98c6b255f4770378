//! The side of the board of a broker that is not the leader: see [`super::lending`].

use super::Board;
use super::lending::{Borrower, Hold, Lent, Part, Phase, Stay, ToBorrower, ToLender};
use crate::domain::sites::SiteState;
use crate::domain::time::Timestamp;
use std::sync::Arc;

/// A site that no run has used for this long is returned.
const IDLE_MS: i64 = 60_000;
/// How often the lender is asked for a site.
const ASK_AGAIN_MS: i64 = 5_000;

impl Board {
    /// The board of a broker that is not the leader: all sites are at the lender.
    #[must_use]
    pub fn of_borrower(right_ms: i64) -> Self {
        Self { part: Part::Borrower(Borrower::default()), ..Self::new(right_ms) }
    }

    fn borrower(&mut self) -> Option<&mut Borrower> {
        match &mut self.part {
            Part::Borrower(here) => Some(here),
            Part::Lender(_) => None,
        }
    }

    /// The first message of a new connection. Until its answer comes, no turns are granted.
    pub fn lender_connected(&mut self, now: Timestamp) -> Option<ToLender> {
        self.lender_disconnected();
        let Part::Borrower(here) = &self.part else { return None };
        let sites = here.stays.keys().map(|name| Lent {
            name: Arc::clone(name),
            state: self.state_to_send(name, now),
            delay_ms: self.delay_of(name),
        });
        let message = ToLender::Have(sites.collect(), self.holds_to_send(now));
        self.news.clear();
        Some(message)
    }

    /// The connection to the lender is broken: no more turns are granted, and present ones go on.
    pub fn lender_disconnected(&mut self) {
        let Some(here) = self.borrower() else { return };
        here.is_started = false;
        here.wanted.values_mut().for_each(|asked| *asked = None);
        // The next lender recalls the sites that it needs.
        for name in std::mem::take(&mut here.leaving) {
            if let Some(stay) = here.stays.get_mut(&name) {
                stay.phase = Phase::Kept;
            }
        }
    }

    /// A message from the lender.
    pub fn lender_sent(&mut self, message: ToBorrower, now: Timestamp) {
        match message {
            ToBorrower::Start(refused, holds) => self.start(&refused, holds, now),
            ToBorrower::Lend(name, state, is_recalled) => self.lent(&name, state, is_recalled, now),
            ToBorrower::Recall(name) => self.recall(&name, now),
            ToBorrower::Held(hold) => self.held_by_lender(hold, now),
            ToBorrower::Freed(name) => {
                self.entry(&name, now).state.release(now);
                self.holds.forget(&name);
            }
        }
    }

    fn start(&mut self, refused: &[Arc<str>], holds: Vec<Hold>, now: Timestamp) {
        let Some(here) = self.borrower() else { return };
        here.is_started = true;
        for name in refused {
            here.stays.remove(name);
        }
        for name in refused {
            self.sites.get_mut(name).and_then(|entry| entry.turn.take());
        }
        // Holds by hand that are not announced were ended.
        let known: Vec<_> = self.all_held(now).cloned().collect();
        for name in known {
            let hold = Hold { name, state: SiteState::default(), held_by: None };
            self.held_by_lender(hold, now);
        }
        holds.into_iter().for_each(|hold| self.held_by_lender(hold, now));
    }

    fn lent(&mut self, name: &Arc<str>, state: SiteState, is_recalled: bool, now: Timestamp) {
        self.set_state(name, state.received(now), now);
        let Some(here) = self.borrower() else { return };
        here.wanted.remove(name);
        here.stays.insert(Arc::clone(name), Stay { phase: Phase::Kept, seen_at: now });
        here.seen.push_back((now, Arc::clone(name)));
        if is_recalled {
            self.recall(name, now);
        }
    }

    fn recall(&mut self, name: &Arc<str>, now: Timestamp) {
        let phase = if self.has_turn(name, now) { Phase::Spent } else { Phase::Recalled };
        let Some(here) = self.borrower() else { return };
        // It may be on its way back.
        if let Some(stay) = here.stays.get_mut(name) {
            stay.phase = phase;
            here.leaving.insert(Arc::clone(name));
        }
    }

    /// The lender announces a hold.
    fn held_by_lender(&mut self, Hold { name, state, held_by }: Hold, now: Timestamp) {
        let mut own = self.sites.get(&name).map(|entry| entry.state).unwrap_or_default();
        own.join_hold(state.received(now), now);
        self.set_state(&name, own, now);
        self.entry(&name, now).held_by = held_by;
    }

    /// What must be sent to the lender now, in this order: to be called after each message, and every few hundredths of a second.
    pub fn for_lender(&mut self, now: Timestamp) -> Vec<ToLender> {
        let mut messages = Vec::new();
        let Some(here) = self.borrower().filter(|here| here.is_started) else { return messages };
        let (mut to_return, mut idle) = (here.leaving.iter().cloned().collect::<Vec<_>>(), Vec::new());
        while here.seen.front().is_some_and(|(at, _)| at.plus_ms(IDLE_MS) <= now) {
            let Some((at, name)) = here.seen.pop_front() else { break };
            // It may have been returned and lent again.
            if here.stays.get(&name).is_some_and(|stay| stay.seen_at == at) {
                idle.push(name);
            }
        }
        for name in idle {
            let is_used = self.sites.get(&name).is_some_and(|entry| entry.state.changed_at().plus_ms(IDLE_MS) > now);
            if !is_used && !self.has_turn(&name, now) && !self.has_next(&name, now) {
                to_return.push(name);
            } else if let Some(here) = self.borrower() {
                if let Some(stay) = here.stays.get_mut(&name) {
                    stay.seen_at = now;
                }
                here.seen.push_back((now, name));
            }
        }
        for name in std::mem::take(&mut self.news).into_keys() {
            messages.extend(self.hold_to_send(&name, now).map(ToLender::Held));
        }
        messages.extend(to_return.into_iter().filter_map(|name| self.give_back(name, now)));
        let Some(here) = self.borrower() else { return messages };
        let mut wanted = std::mem::take(&mut here.wanted);
        wanted.retain(|name, asked| {
            let is_wanted = self.has_next(name, now);
            if is_wanted && asked.is_none_or(|at| now.since_ms(at) >= ASK_AGAIN_MS) {
                *asked = Some(now);
                messages.push(ToLender::Borrow(Arc::clone(name), self.delay_of(name)));
            }
            is_wanted
        });
        if let Some(here) = self.borrower() {
            here.wanted = wanted;
        }
        messages
    }

    /// Returns a site, unless a run has its turn, or waits for the last one.
    fn give_back(&mut self, name: Arc<str>, now: Timestamp) -> Option<ToLender> {
        let (has_turn, has_next) = (self.has_turn(&name, now), self.has_next(&name, now));
        let state = self.state_to_send(&name, now);
        let here = self.borrower()?;
        if has_turn || has_next && here.stays.get(&name)?.phase == Phase::Recalled {
            return None;
        }
        here.stays.remove(&name)?;
        here.leaving.remove(&name);
        if has_next {
            here.wanted.insert(Arc::clone(&name), None);
        }
        Some(ToLender::Return(name, state))
    }
}
