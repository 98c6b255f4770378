//! The slots of a block without a pace: decides which request begins next, and which one no longer counts. Values only: the time is an
//! argument, in milliseconds since the block came.
//!
//! It promises: at most `limit` requests are in a slot, and at most `limit` requests to one host are in progress. A request that stays in
//! progress for [`PATIENCE`] may leave its slot, so that requests to other hosts begin; it still counts at its host.

use std::collections::VecDeque;

/// Milliseconds since the block came.
pub type Millis = u64;

/// Time after which a request may leave its slot.
pub const PATIENCE: Millis = 500;

/// The state of the requests of a block, each named by its index in the block.
#[derive(Debug)]
pub struct Slots {
    limit: usize,
    /// Requests that have not begun.
    waiting: VecDeque<usize>,
    /// The host of each request.
    hosts: Vec<usize>,
    /// Requests in progress at each host.
    at_host: Vec<usize>,
    /// Requests in a slot, in the order of the times from which their patience counts.
    in_slot: VecDeque<(Millis, usize)>,
    /// Requests in progress that have left their slot.
    left: usize,
}

impl Slots {
    /// All requests wait. `hosts` has a number for the host of each request; equal numbers are one host.
    #[must_use]
    pub fn new(limit: usize, hosts: Vec<usize>) -> Self {
        let count = hosts.iter().max().map_or(0, |most| most + 1);
        Self { limit: limit.max(1), waiting: (0..hosts.len()).collect(), hosts, at_host: vec![0; count], in_slot: VecDeque::new(), left: 0 }
    }

    /// Begins the first request that may begin now. `is_welcome` tells whether the host of a request accepts one more.
    pub fn begin(&mut self, now: Millis, mut is_welcome: impl FnMut(usize) -> bool) -> Option<usize> {
        if self.in_slot.len() >= self.limit {
            return None;
        }
        let at = self.waiting.iter().position(|place| self.at_host[self.hosts[*place]] < self.limit && is_welcome(*place))?;
        let place = self.waiting.remove(at)?;
        self.at_host[self.hosts[place]] += 1;
        self.in_slot.push_back((now, place));
        Some(place)
    }

    /// When the oldest request in a slot may leave it; `None` if no slot is in use.
    #[must_use]
    pub fn next_leave(&self) -> Option<Millis> {
        self.in_slot.front().map(|(since, _)| since.saturating_add(PATIENCE))
    }

    /// The oldest request leaves its slot if its time has come and `may_leave` allows it; otherwise its patience begins again.
    pub fn leave(&mut self, now: Millis, may_leave: impl FnOnce(usize) -> bool) {
        if self.next_leave().is_none_or(|at| now < at) {
            return;
        }
        let Some((_, place)) = self.in_slot.pop_front() else { return };
        if may_leave(place) {
            self.left += 1;
        } else {
            self.in_slot.push_back((now, place));
        }
    }

    /// A request has ended.
    pub fn end(&mut self, place: usize) {
        let host = &mut self.at_host[self.hosts[place]];
        *host = host.saturating_sub(1);
        match self.in_slot.iter().position(|(_, other)| *other == place) {
            Some(at) => drop(self.in_slot.remove(at)),
            None => self.left = self.left.saturating_sub(1),
        }
    }

    /// Removes the requests that have not begun and for which this is true.
    pub fn withdraw(&mut self, mut is_it: impl FnMut(usize) -> bool) -> Vec<usize> {
        let (gone, stay) = std::mem::take(&mut self.waiting).into_iter().partition::<Vec<_>, _>(|place| is_it(*place));
        self.waiting = stay.into();
        gone
    }

    /// Whether all requests have begun, and all that are still in progress have left their slots.
    #[must_use]
    pub fn only_wait(&self) -> bool {
        self.waiting.is_empty() && self.in_slot.is_empty() && self.left > 0
    }

    /// Whether all requests have ended.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.waiting.is_empty() && self.in_slot.is_empty() && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(slots: &mut Slots, now: Millis) -> Vec<usize> {
        std::iter::from_fn(|| slots.begin(now, |_| true)).collect()
    }

    #[test]
    fn a_request_that_waits_leaves_its_slot_to_other_hosts_only() {
        // Two hosts: 0 hangs, 1 is fast.
        let mut slots = Slots::new(2, vec![0, 0, 0, 1, 1]);
        assert_eq!(begun(&mut slots, 10), [0, 1]);
        slots.leave(PATIENCE + 9, |_| true);
        assert_eq!((begun(&mut slots, PATIENCE + 9), slots.next_leave()), (vec![], Some(PATIENCE + 10)), "not yet");
        for _ in 0..2 {
            slots.leave(PATIENCE + 10, |_| true);
        }
        assert_eq!(begun(&mut slots, PATIENCE + 10), [3, 4], "its host has two requests already");
        slots.end(3);
        slots.end(4);
        assert_eq!((begun(&mut slots, PATIENCE + 20), slots.only_wait()), (vec![], false), "one has not begun");
        slots.end(0);
        assert_eq!(begun(&mut slots, PATIENCE + 30), [2]);
        slots.leave(3 * PATIENCE, |_| true);
        assert!(slots.only_wait() && !slots.are_over());
        slots.end(1);
        slots.end(2);
        assert!(slots.are_over() && !slots.only_wait() && slots.next_leave().is_none());
    }

    #[test]
    fn a_request_that_may_not_leave_keeps_its_slot_and_is_asked_again_later() {
        let mut slots = Slots::new(1, vec![0, 1]);
        assert_eq!(begun(&mut slots, 0), [0]);
        slots.leave(PATIENCE, |_| false);
        assert_eq!((begun(&mut slots, PATIENCE), slots.next_leave()), (vec![], Some(2 * PATIENCE)));
        slots.leave(2 * PATIENCE, |_| true);
        assert_eq!(slots.begin(2 * PATIENCE, |place| place != 1), None, "its host takes no more");
        assert_eq!(begun(&mut slots, 2 * PATIENCE), [1]);
    }

    #[test]
    fn requests_that_are_withdrawn_never_begin() {
        let mut slots = Slots::new(1, vec![0, 1, 0, 1]);
        assert_eq!(begun(&mut slots, 0), [0]);
        assert_eq!((slots.withdraw(|place| place != 1), slots.withdraw(|place| place == 0)), (vec![2, 3], vec![]), "one has begun");
        slots.end(0);
        assert_eq!(begun(&mut slots, 1), [1]);
        slots.end(1);
        assert!(slots.are_over());
    }

    #[test]
    fn never_more_than_the_limit_in_slots_or_at_a_host() {
        let hosts: Vec<usize> = (0..200).map(|place| place * place % 7).collect();
        let mut slots = Slots::new(4, hosts.clone());
        let (mut at_work, mut ended, mut now, mut dice) = (Vec::new(), 0, 0, 1_u64);
        while !slots.are_over() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += dice >> 56;
            at_work.extend(begun(&mut slots, now));
            slots.leave(now, |_| dice & 1 == 0);
            assert!(slots.in_slot.len() <= 4 && slots.in_slot.len() + slots.left == at_work.len());
            assert!((0..7).all(|host| at_work.iter().filter(|place: &&usize| hosts[**place] == host).count() <= 4), "{at_work:?}");
            if !at_work.is_empty() && dice >> 60 > 4 {
                let place = at_work.swap_remove((dice >> 33) as usize % at_work.len());
                slots.end(place);
                ended += 1;
            }
        }
        assert_eq!(ended, hosts.len());
    }
}
