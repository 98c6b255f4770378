//! The side of the leader's board: see [`super::lending`].

use super::Board;
use super::lending::{Lender, Lent, Loan, Part, ToBorrower, ToLender, Want};
use crate::domain::ids::BrokerId;
use crate::domain::sites::SiteState;
use crate::domain::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

impl Board {
    fn lender(&mut self) -> Option<&mut Lender> {
        match &mut self.part {
            Part::Lender(lender) => Some(lender),
            Part::Borrower(_) => None,
        }
    }

    /// A message from a borrower. The first one of a connection is [`ToLender::Have`]. [`Self::for_borrowers`] has the answers.
    pub fn borrower_sent(&mut self, broker: BrokerId, message: ToLender, now: Timestamp) {
        match message {
            ToLender::Have(sites, holds) => {
                self.announced(broker, sites, now);
                holds.into_iter().for_each(|hold| self.held_elsewhere(&hold.name, hold.state, now));
                let Some(lender) = self.lender() else { return };
                lender.brokers.insert(broker);
            }
            ToLender::Borrow(name, delay_ms) => self.borrow(name, broker, delay_ms, now),
            ToLender::Return(name, state) => self.returned(&name, broker, state, now),
            ToLender::Held(hold) => self.held_elsewhere(&hold.name, hold.state, now),
        }
    }

    /// A borrower announces what it has. Unless this board lent it, it is accepted only in the quiet time after a change of the leader, when no other board
    /// can have used it.
    fn announced(&mut self, broker: BrokerId, sites: Vec<Lent>, now: Timestamp) {
        let is_quiet = now < self.quiet_until;
        let has: HashSet<Arc<str>> = sites.iter().map(|site| Arc::clone(&site.name)).collect();
        let mut refused = Vec::new();
        for Lent { name, state, delay_ms } in sites {
            let is_new = is_quiet && !self.is_away(&name) && !self.has_turn(&name, now);
            let Some(lender) = self.lender() else { return };
            match lender.loans.get_mut(&name) {
                Some(loan) if loan.to == broker => (loan.delay_ms, loan.is_recalled) = (delay_ms, false),
                None if is_new => {
                    lender.loans.insert(Arc::clone(&name), Loan { to: broker, delay_ms, is_recalled: false });
                    self.arrived(&name, state, now);
                }
                _ => refused.push(name),
            }
        }
        // Their loan got lost on the way, or their return, and with it when the last request ended.
        self.free_loans(broker, now, now, &has);
        let holds = self.holds_to_send(now);
        let Some(lender) = self.lender() else { return };
        lender.answers.retain(|(to, _)| *to != broker);
        lender.answers.push((broker, ToBorrower::Start(refused, holds)));
    }

    /// The loans of a broker end, except some: their last requests may begin at `until`.
    fn free_loans(&mut self, broker: BrokerId, until: Timestamp, now: Timestamp, except: &HashSet<Arc<str>>) {
        let Some(lender) = self.lender() else { return };
        let ended: Vec<_> = lender.loans.extract_if(|name, loan| loan.to == broker && !except.contains(name)).collect();
        for (name, loan) in ended {
            self.entry(&name, now).state.wait_until(until.plus_ms(loan.delay_ms.into()), now);
        }
    }

    /// The connection to a borrower is broken. It still has its sites, and announces them when it connects again.
    pub fn borrower_disconnected(&mut self, broker: BrokerId) {
        let Some(lender) = self.lender() else { return };
        lender.brokers.remove(&broker);
        lender.answers.retain(|(to, _)| *to != broker);
        lender.wanted.values_mut().for_each(|queue| queue.retain(|want| want.by != Some(broker)));
        if lender.brokers.is_empty() {
            self.news.clear();
        }
    }

    /// A borrower is gone, and its runs were taken back. Nodes may use its turns until `until`. A site is free then, after the delay of the run for which it was lent.
    pub fn borrower_lost(&mut self, broker: BrokerId, until: Timestamp, now: Timestamp) {
        self.borrower_disconnected(broker);
        self.free_loans(broker, until, now, &HashSet::new());
    }

    fn borrow(&mut self, name: Arc<str>, broker: BrokerId, delay_ms: u32, now: Timestamp) {
        // A run that waits here already comes first.
        let own_is_first = !self.is_away(&name) && !self.has_turn(&name, now) && self.has_next(&name, now);
        let Some(lender) = self.lender() else { return };
        // A repeated message can cross the loan.
        if !lender.brokers.contains(&broker) || lender.loans.get(&name).is_some_and(|loan| loan.to == broker) {
            return;
        }
        let queue = lender.wanted.entry(name).or_default();
        if queue.is_empty() && own_is_first {
            queue.push_back(Want::OWN);
        }
        if queue.iter().all(|want| want.by != Some(broker)) {
            queue.push_back(Want { by: Some(broker), delay_ms });
        }
    }

    fn returned(&mut self, name: &Arc<str>, broker: BrokerId, state: SiteState, now: Timestamp) {
        let Some(lender) = self.lender() else { return };
        if lender.loans.get(name).is_some_and(|loan| loan.to == broker) {
            lender.loans.remove(name);
            self.arrived(name, state, now);
        }
    }

    /// The state of a site arrives from a borrower.
    fn arrived(&mut self, name: &Arc<str>, state: SiteState, now: Timestamp) {
        let (own, mut state) = (self.sites.get(name).map(|entry| entry.state).unwrap_or_default(), state.received(now));
        state.join_hold(own, now);
        self.set_state(name, state, now);
    }

    /// A run of a borrower has caused a hold.
    fn held_elsewhere(&mut self, name: &Arc<str>, state: SiteState, now: Timestamp) {
        let mut own = self.sites.get(name).map(|entry| entry.state).unwrap_or_default();
        if own.extend_hold(state.received(now), now) {
            self.set_state(name, own, now);
            self.hold_changed(name, false);
        }
    }

    /// What must be sent to borrowers now, in this order: to be called after each message, and every few hundredths of a second.
    pub fn for_borrowers(&mut self, now: Timestamp) -> Vec<(BrokerId, ToBorrower)> {
        let Some(lender) = self.lender() else { return Vec::new() };
        let mut messages = std::mem::take(&mut lender.answers);
        let names: Vec<_> = lender.wanted.keys().cloned().collect();
        let brokers: Vec<_> = lender.brokers.iter().copied().collect();
        for (name, is_freed) in std::mem::take(&mut self.news) {
            let held = self.hold_to_send(&name, now).map(ToBorrower::Held);
            let all = is_freed.then_some(ToBorrower::Freed(name)).into_iter().chain(held);
            messages.extend(all.flat_map(|message| brokers.iter().map(move |broker| (*broker, message.clone()))));
        }
        messages.extend(names.into_iter().filter_map(|name| self.pass_on(&name, now)));
        messages
    }

    /// What must be sent now because of this site.
    pub fn lend_now(&mut self, name: &Arc<str>, now: Timestamp) -> Option<(BrokerId, ToBorrower)> {
        self.pass_on(name, now)
    }

    /// A site is wanted: recalls it, or lends it to the first in the queue.
    fn pass_on(&mut self, name: &Arc<str>, now: Timestamp) -> Option<(BrokerId, ToBorrower)> {
        let (has_turn, has_next, is_quiet) = (self.has_turn(name, now), self.has_next(name, now), now < self.quiet_until);
        let lender = self.lender()?;
        let mut queue = lender.wanted.remove(name)?;
        if !has_turn && !has_next {
            queue.retain(|want| want.by.is_some());
        }
        let (mut message, mut lends) = (None, None);
        match (lender.loans.get_mut(name), queue.front()) {
            (Some(loan), Some(_)) if !loan.is_recalled && lender.brokers.contains(&loan.to) => {
                loan.is_recalled = true;
                message = Some((loan.to, ToBorrower::Recall(Arc::clone(name))));
            }
            (None, Some(Want { by: Some(to), delay_ms })) if !has_turn && !is_quiet => lends = Some((*to, *delay_ms)),
            _ => {}
        }
        if let Some((to, delay_ms)) = lends {
            queue.pop_front();
            if has_next {
                queue.retain(|want| want.by.is_some());
                queue.push_back(Want::OWN);
            }
            lender.loans.insert(Arc::clone(name), Loan { to, delay_ms, is_recalled: !queue.is_empty() });
        }
        // The lender needs no queue for a site that is here.
        if !queue.is_empty() && (lender.loans.contains_key(name) || queue.iter().any(|want| want.by.is_some())) {
            lender.wanted.insert(Arc::clone(name), queue);
        }
        let Some((to, delay_ms)) = lends else { return message };
        let mut state = self.state_to_send(name, now);
        if self.sites.get(name).is_none_or(|entry| entry.state.changed_at() < self.quiet_from) {
            state.wait_until(self.quiet_until.plus_ms(delay_ms.into()), now);
        }
        let is_recalled = self.lender()?.loans.get(name)?.is_recalled;
        Some((to, ToBorrower::Lend(Arc::clone(name), state, is_recalled)))
    }
}
