//! Simulates brokers that lend sites to each other: messages are delayed, connections break, brokers die, the leader changes, clocks differ,
//! and operators hold sites. No site is used through two brokers at once or faster than its pace, and no run waits without an end.

use super::simulation::Dice;
use super::{Board, Ended, Outcome, Pace, ToBorrower, ToLender};
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::time::Timestamp;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const T: Timestamp = Timestamp(1_800_000_000_000);
const TICK_MS: i64 = 25;
/// How long a node uses a turn after it has lost its broker.
const RIGHT_MS: i64 = 5_000;
/// The longest time of a message.
const DELAY_MS: u32 = 100;
const SITES: [(&str, u32); 5] = [("test", 100), ("a.test", 100), ("b.test", 100), ("c.test", 1_000), ("d.test", 300)];

fn pace(name: &str) -> Pace {
    Pace { connections: 1, delay_ms: SITES.iter().find(|(site, _)| *site == name).expect("a site").1 }
}

#[derive(Default)]
pub(super) struct Link {
    for_lender: VecDeque<(Timestamp, ToLender)>,
    to_borrower: VecDeque<(Timestamp, ToBorrower)>,
    /// The lender knows what the borrower has.
    is_known: bool,
}

pub(super) struct Broker {
    id: BrokerId,
    board: Board,
    is_alive: bool,
    /// How far its clock is ahead.
    ahead_ms: i64,
    link: Option<Link>,
    /// When it notices that its link is broken.
    notices_at: Option<Timestamp>,
    /// When the leader takes its runs, unless it connects.
    lost_at: Option<Timestamp>,
    /// Its right to own runs, as it knows it, and as the database has it.
    right: Option<u32>,
    stored_right: u32,
}

impl Broker {
    fn clock(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.ahead_ms)
    }
}

pub(super) struct Run {
    identity: Identity,
    broker: usize,
    needs: Vec<Arc<str>>,
    block_ms: u32,
    looks_at: Timestamp,
    /// Whether a block is dispatched, as its actor knows it.
    is_busy: bool,
    /// When the actor gives up a block that a node has lost.
    gives_up_at: Option<Timestamp>,
    waits_since: Timestamp,
    pub turns: u32,
    longest_ms: i64,
}

/// A block at a node.
pub(super) struct Use {
    run: usize,
    broker: usize,
    names: Vec<Arc<str>>,
    until: Timestamp,
    next_at: Timestamp,
    last_at: Timestamp,
    /// The last message from the broker, and how long the node continues without one.
    contact_at: Timestamp,
    right_ms: i64,
    /// The actor of the run does not know it any more.
    is_orphan: bool,
    has_stopped: bool,
}

pub(super) struct World {
    now: Timestamp,
    dice: Dice,
    leader: Option<usize>,
    next_leader_at: Timestamp,
    brokers: Vec<Broker>,
    pub runs: Vec<Run>,
    uses: Vec<Use>,
    last_request: BTreeMap<Arc<str>, Timestamp>,
    /// The pauses that sites have asked for.
    asked: BTreeMap<Arc<str>, Timestamp>,
    /// Since when each hold by hand is known at all brokers, and its end.
    by_hand: BTreeMap<Arc<str>, (Timestamp, Timestamp)>,
    is_calm: bool,
    /// Whether runs ask for turns.
    is_open: bool,
}

pub(super) fn run(n: usize, broker: usize, needs: &[&str], block_ms: u32) -> Run {
    Run {
        identity: Identity(uuid::Uuid::from_u128(n as u128)),
        broker,
        needs: needs.iter().map(|name| Arc::from(*name)).collect(),
        block_ms,
        looks_at: Timestamp(0),
        is_busy: false,
        gives_up_at: None,
        waits_since: T,
        turns: 0,
        longest_ms: 0,
    }
}

impl World {
    pub fn new(seed: u64, brokers: usize, runs: Vec<Run>) -> Self {
        let mut dice = Dice(seed);
        let broker = |n: usize| Broker {
            id: BrokerId(uuid::Uuid::from_u128(n as u128)),
            board: if n == 0 { Board::new(RIGHT_MS) } else { Board::of_borrower(RIGHT_MS) },
            is_alive: true,
            ahead_ms: i64::from(dice.below(7_200_000)) - 3_600_000,
            link: None,
            notices_at: None,
            lost_at: None,
            right: None,
            stored_right: 0,
        };
        let brokers = (0..brokers).map(broker).collect();
        let (last_request, asked, by_hand) = Default::default();
        let (leader, next_leader_at, now, uses) = (Some(0), T, T, Vec::new());
        Self { now, dice, leader, next_leader_at, brokers, runs, uses, last_request, asked, by_hand, is_calm: false, is_open: true }
    }

    fn soon(&mut self, most_ms: u32) -> Timestamp {
        self.now.plus_ms(self.dice.below(most_ms).into())
    }

    /// Whether the nodes of a broker get its messages.
    fn reaches_nodes(&self, at: usize) -> bool {
        self.brokers[at].is_alive && (self.leader == Some(at) || self.brokers[at].link.as_ref().is_some_and(|link| link.is_known))
    }

    /// A broker has no runs any more: they begin again at another one.
    fn take_runs(&mut self, from: usize) {
        let to: Vec<usize> = (0..self.brokers.len()).filter(|at| *at != from && self.reaches_nodes(*at)).collect();
        for n in 0..self.runs.len() {
            if self.runs[n].broker == from {
                let to = to.get(self.dice.below(to.len() as u32) as usize).copied().or(self.leader).unwrap_or(from);
                self.restart_run(n, to);
            }
        }
    }

    fn restart_run(&mut self, n: usize, to: usize) {
        self.uses.iter_mut().filter(|node| node.run == n).for_each(|node| node.is_orphan = true);
        let run = &mut self.runs[n];
        (run.broker, run.is_busy, run.gives_up_at, run.looks_at) = (to, false, None, Timestamp(0));
        // A node may still have its block.
        let Some(node) = self.uses.iter_mut().rfind(|node| node.run == n && !node.has_stopped) else { return };
        let broker = &mut self.brokers[to];
        let until = broker.clock(self.now).plus_ms(60_000);
        let may_adopt = self.leader == Some(to) && node.contact_at.plus_ms(node.right_ms) >= self.now && self.dice.below(2) == 0;
        if may_adopt && broker.board.renew(&node.names, run.identity, until, broker.clock(self.now)) {
            (node.is_orphan, node.broker, run.is_busy) = (false, to, true);
        }
    }

    fn break_link(&mut self, at: usize) {
        if self.brokers[at].link.take().is_none() {
            return;
        }
        self.brokers[at].notices_at = Some(self.soon(500));
        self.brokers[at].lost_at = Some(self.soon(3_000));
        let id = self.brokers[at].id;
        if let Some(leader) = self.leader {
            self.brokers[leader].board.borrower_disconnected(id);
        }
    }

    /// The leader takes the runs of a broker.
    fn lose(&mut self, at: usize) {
        let Some(leader) = self.leader else { return };
        (self.brokers[at].lost_at, self.brokers[at].stored_right) = (None, self.brokers[at].stored_right + 1);
        let (id, now) = (self.brokers[at].id, self.brokers[leader].clock(self.now));
        self.brokers[leader].board.borrower_lost(id, now.plus_ms(RIGHT_MS), now);
        self.asked.clear();
        self.take_runs(at);
    }

    fn connect(&mut self, at: usize) {
        if self.brokers[at].right != Some(self.brokers[at].stored_right) {
            self.lose(at);
            self.brokers[at].board = Board::of_borrower(RIGHT_MS);
            self.brokers[at].right = Some(self.brokers[at].stored_right);
        }
        let broker = &mut self.brokers[at];
        (broker.notices_at, broker.lost_at) = (None, None);
        let have = broker.board.lender_connected(broker.clock(self.now)).expect("a borrower");
        let at_ms = self.dice.below(DELAY_MS).into();
        broker.link = Some(Link { for_lender: [(self.now.plus_ms(at_ms), have)].into(), ..Link::default() });
    }

    fn die(&mut self, at: usize) {
        self.brokers[at].is_alive = false;
        (self.brokers[at].right, self.brokers[at].notices_at) = (None, None);
        self.asked.clear();
        if self.leader == Some(at) {
            (0..self.brokers.len()).for_each(|other| self.break_link(other));
            self.leader = None;
            self.next_leader_at = self.soon(3_000);
        } else {
            self.break_link(at);
        }
        self.uses.iter_mut().filter(|node| node.broker == at).for_each(|node| node.is_orphan = true);
    }

    fn lead(&mut self, at: usize) {
        let old: Vec<usize> = self.runs.iter().map(|run| run.broker).collect();
        self.leader = Some(at);
        let broker = &mut self.brokers[at];
        let (now, mut board) = (broker.clock(self.now), Board::new(RIGHT_MS));
        board.quiet(now, now.plus_ms(RIGHT_MS));
        for (name, (_, until)) in &self.by_hand {
            board.hold(name, broker.clock(*until), None, now);
        }
        (broker.board, broker.link, broker.right, broker.lost_at, broker.notices_at) = (board, None, None, None, None);
        broker.stored_right += 1;
        self.asked.clear();
        for other in 0..self.brokers.len() {
            if other != at && self.brokers[other].lost_at.is_none() {
                self.brokers[other].lost_at = Some(self.soon(3_000));
            }
        }
        for (n, from) in old.into_iter().enumerate() {
            if from == at || !self.brokers[from].is_alive {
                self.restart_run(n, at);
            }
        }
    }

    fn chaos(&mut self) {
        let at = self.dice.below(self.brokers.len() as u32) as usize;
        let alive = self.brokers.iter().filter(|broker| broker.is_alive).count();
        match self.dice.below(400) {
            0 | 1 => self.break_link(at),
            2 if alive > 1 && self.brokers[at].is_alive => self.die(at),
            3 if alive > 1 && self.leader.is_some() && self.dice.below(3) == 0 => self.die(self.leader.expect("a leader")),
            4 | 5 => {
                let name: Arc<str> = SITES[self.dice.below(SITES.len() as u32) as usize].0.into();
                let Some(leader) = self.leader else { return };
                let (now, until) = (self.brokers[leader].clock(self.now), self.now.plus_ms(10_000));
                let end = self.brokers[leader].clock(until);
                if self.by_hand.remove(&name).is_some() {
                    self.brokers[leader].board.free(&name, now);
                    self.asked.remove(&name);
                } else {
                    self.brokers[leader].board.hold(&name, end, None, now);
                    self.by_hand.insert(name, (self.now.plus_ms(i64::from(DELAY_MS) + 3 * TICK_MS), until));
                }
            }
            _ => {}
        }
    }

    fn recover(&mut self) {
        if self.leader.is_none() && self.next_leader_at <= self.now {
            let alive: Vec<usize> = (0..self.brokers.len()).filter(|at| self.brokers[*at].is_alive).collect();
            let at = alive[self.dice.below(alive.len() as u32) as usize];
            self.lead(at);
        }
        for at in 0..self.brokers.len() {
            if !self.brokers[at].is_alive && self.dice.below(if self.is_calm { 4 } else { 200 }) == 0 {
                (self.brokers[at].is_alive, self.brokers[at].board) = (true, Board::of_borrower(RIGHT_MS));
            }
            if self.brokers[at].notices_at.is_some_and(|when| when <= self.now) {
                self.brokers[at].notices_at = None;
                self.brokers[at].board.lender_disconnected();
            }
            if self.leader.is_none() || self.leader == Some(at) || self.brokers[at].link.is_some() {
                continue;
            }
            if self.brokers[at].lost_at.is_some_and(|when| when <= self.now) {
                self.lose(at);
            }
            if self.brokers[at].is_alive && self.dice.below(if self.is_calm { 4 } else { 80 }) == 0 {
                self.connect(at);
            }
        }
    }

    fn deliver(&mut self) {
        let Some(leader) = self.leader else { return };
        let (now, lenders) = (self.now, self.brokers[leader].clock(self.now));
        for at in 0..self.brokers.len() {
            let id = self.brokers[at].id;
            while let Some((_, message)) =
                self.brokers[at].link.as_mut().and_then(|link| link.for_lender.pop_front_if(|(when, _)| *when <= now))
            {
                self.brokers[at].link.as_mut().expect("it is linked").is_known = true;
                self.brokers[leader].board.borrower_sent(id, message, lenders);
            }
            let broker = &mut self.brokers[at];
            let clock = broker.clock(now);
            while let Some((_, message)) = broker.link.as_mut().and_then(|link| link.to_borrower.pop_front_if(|(when, _)| *when <= now)) {
                broker.board.lender_sent(message, clock);
            }
            let messages = if broker.link.is_some() { broker.board.for_lender(clock) } else { Vec::new() };
            if let Some(link) = broker.link.as_mut() {
                for message in messages {
                    let when = now.plus_ms(self.dice.below(DELAY_MS).into()).max(link.for_lender.back().map_or(now, |(last, _)| *last));
                    link.for_lender.push_back((when, message));
                }
            }
        }
        for (to, message) in self.brokers[leader].board.for_borrowers(lenders) {
            let link = self.brokers.iter_mut().find(|broker| broker.id == to).and_then(|broker| broker.link.as_mut());
            let link = link.expect("the lender sends only to brokers that are connected");
            let when = now.plus_ms(self.dice.below(DELAY_MS).into()).max(link.to_borrower.back().map_or(now, |(last, _)| *last));
            link.to_borrower.push_back((when, message));
        }
    }

    /// A run asks for turns, and its node begins.
    fn ask(&mut self, n: usize) -> Result<(), TestCaseError> {
        let reaches_nodes = self.reaches_nodes(self.runs[n].broker);
        let run = &mut self.runs[n];
        let broker = &mut self.brokers[run.broker];
        let clock = broker.clock(self.now);
        if run.gives_up_at.take_if(|when| *when <= self.now).is_some() {
            for name in &run.needs {
                let wait_ms = RIGHT_MS + i64::from(pace(name).delay_ms);
                run.looks_at = run.looks_at.max(broker.board.release(name, run.identity, wait_ms, clock));
            }
            run.is_busy = false;
        }
        if run.is_busy || !broker.is_alive || run.looks_at > clock || !self.is_open {
            return Ok(());
        }
        let until = clock.plus_ms(60_000);
        let slowest = run.needs.iter().map(|name| pace(name)).max_by_key(|pace| pace.delay_ms).expect("a site");
        let taken = broker.board.take(&run.needs[0], slowest, run.identity, until, clock).and_then(|_| {
            let more = broker.board.take_more(&run.needs[..1], &run.needs[1..], slowest, (run.identity, until), clock);
            more.map_err(|(at, _)| at)
        });
        if let Err(at) = taken {
            prop_assert!(at > clock);
            run.looks_at = at;
            return Ok(());
        }
        (run.is_busy, run.turns) = (true, run.turns + 1);
        run.longest_ms = run.longest_ms.max(self.now.since_ms(run.waits_since));
        run.waits_since = self.now;
        if !reaches_nodes {
            run.gives_up_at = Some(self.now.plus_ms(2_000));
            return Ok(());
        }
        for name in &run.needs {
            let is_held = self.by_hand.get(name).is_some_and(|(since, until)| *since <= self.now && *until > self.now);
            prop_assert!(!is_held, "{name} is held by hand");
        }
        let (names, broker, block_ms) = (run.needs.clone(), run.broker, run.block_ms);
        let until = self.soon(block_ms);
        let right_ms = self.dice.below(RIGHT_MS as u32 + 1).max(self.dice.below(RIGHT_MS as u32 * 2)).min(RIGHT_MS as u32).into();
        let now = self.now;
        let (next_at, last_at, contact_at) = (now, now, now);
        let node = Use { run: n, broker, names, until, next_at, last_at, contact_at, right_ms, is_orphan: false, has_stopped: false };
        for other in &self.uses {
            let is_shared = other.names.iter().any(|name| node.names.contains(name));
            prop_assert!(!is_shared, "{:?} is in use through broker {} and {}", node.names, other.broker, node.broker);
        }
        self.uses.push(node);
        Ok(())
    }

    /// A node sends requests and reports. Returns whether it may still use its turn.
    fn node(&mut self, node: &mut Use) -> Result<bool, TestCaseError> {
        let has_contact = !node.is_orphan && self.reaches_nodes(node.broker);
        if has_contact && !node.has_stopped {
            node.contact_at = self.now;
        }
        node.has_stopped |= node.contact_at.plus_ms(node.right_ms) < self.now;
        if !node.has_stopped && node.next_at <= self.now {
            let slowest = node.names.iter().map(|name| pace(name).delay_ms).max().expect("a site");
            for name in &node.names {
                let last = self.last_request.insert(Arc::clone(name), self.now);
                let since_ms = last.map_or(i64::MAX, |last| self.now.since_ms(last));
                prop_assert!(since_ms >= pace(name).delay_ms.into(), "{name} was asked {since_ms} ms ago");
                prop_assert!(self.asked.get(name).is_none_or(|until| *until <= self.now), "{name} has asked for a pause");
            }
            (node.last_at, node.next_at) = (self.now, self.now.plus_ms(slowest.into()));
        }
        let run = &mut self.runs[node.run];
        if has_contact && !node.has_stopped && node.until <= self.now {
            let asks = !self.is_calm && self.dice.below(20) == 0;
            let ended = Ended::Answered(if asks { 429 } else { 200 });
            let outcome = Outcome { ended, elapsed_ms: 10, retry_after_ms: asks.then_some(3_000) };
            let broker = &mut self.brokers[node.broker];
            let (clock, last) = (broker.clock(self.now), broker.clock(node.last_at));
            let slowest = node.names.iter().map(|name| pace(name)).max_by_key(|pace| pace.delay_ms).expect("a site");
            for name in &node.names {
                broker.board.learn(name, slowest, &[outcome], last, clock);
                run.looks_at = run.looks_at.max(broker.board.release(name, run.identity, 0, clock));
                if asks {
                    self.asked.insert(Arc::clone(name), self.now.plus_ms(3_000));
                }
            }
            (run.is_busy, run.waits_since, run.gives_up_at) = (false, self.now, None);
            return Ok(false);
        }
        if !node.is_orphan && node.has_stopped && run.gives_up_at.is_none() {
            run.gives_up_at = Some(self.now.plus_ms(1_000));
        }
        if node.until <= self.now {
            node.next_at = Timestamp(i64::MAX);
        }
        // It may have stopped before.
        Ok(node.contact_at.plus_ms(RIGHT_MS) >= self.now)
    }

    fn tick(&mut self) -> Result<(), TestCaseError> {
        self.now = self.now.plus_ms(TICK_MS);
        if !self.is_calm {
            self.chaos();
        }
        self.by_hand.retain(|_, (_, until)| *until > self.now);
        self.recover();
        self.deliver();
        let first = self.dice.below(self.runs.len() as u32) as usize;
        for n in 0..self.runs.len() {
            self.ask((first + n) % self.runs.len())?;
        }
        let mut uses = std::mem::take(&mut self.uses);
        for mut node in uses.drain(..) {
            if self.node(&mut node)? {
                self.uses.push(node);
            }
        }
        for at in 0..self.brokers.len() {
            let broker = &self.brokers[at];
            prop_assert!(broker.board.lending_sizes().iter().all(|size| *size <= 4 * 60_000 / TICK_MS as usize));
            let knows_holds = self.leader == Some(at) || broker.board.is_started();
            for (name, (since, until)) in self.by_hand.iter().filter(|_| self.reaches_nodes(at) && knows_holds) {
                let is_held = broker.board.held(&format!("http://{name}:8080"), broker.clock(self.now)).is_some();
                prop_assert!(is_held || *since > self.now || *until <= self.now, "broker {at} does not know that {name} is held");
            }
        }
        Ok(())
    }

    pub fn ticks(&mut self, ms: i64) -> Result<(), TestCaseError> {
        (0..ms / TICK_MS).try_for_each(|_| self.tick())
    }

    /// Nothing breaks any more; returns the longest time that each run has waited since then.
    pub fn calm(&mut self, ms: i64) -> Result<Vec<i64>, TestCaseError> {
        self.is_calm = true;
        // Messages get lost once more, and all brokers connect again in time.
        for _ in 0..10 {
            for at in 0..self.brokers.len() {
                self.break_link(at);
                self.brokers[at].lost_at = self.brokers[at].lost_at.map(|_| self.now.plus_ms(60_000));
            }
            self.ticks(1_500)?;
        }
        // Leases, rests and holds end.
        self.ticks(60_000)?;
        self.runs.iter_mut().for_each(|run| (run.turns, run.longest_ms) = (0, 0));
        self.ticks(ms)?;
        let now = self.now;
        Ok(self
            .runs
            .iter()
            .map(|run| if run.is_busy { run.longest_ms } else { run.longest_ms.max(now.since_ms(run.waits_since)) })
            .collect())
    }

    /// No run asks any more: all sites return, and all tables are empty.
    pub fn close(&mut self) -> Result<(), TestCaseError> {
        self.is_open = false;
        self.ticks(180_000)?;
        for broker in &self.brokers {
            prop_assert!(broker.board.lending_sizes().iter().all(|size| *size == 0), "{:?}", broker.board.lending_sizes());
        }
        let leader = &mut self.brokers[self.leader.expect("a leader")];
        let clock = leader.clock(self.now);
        for (name, _) in SITES {
            let taken = leader.board.take(name, pace(name), self.runs[0].identity, clock.plus_ms(1), clock);
            prop_assert!(taken.is_ok(), "{name} is lost");
        }
        Ok(())
    }
}
