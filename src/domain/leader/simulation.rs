//! Several brokers share one lease through crashes, hangs and clock changes. After every step the test checks that only one
//! can write, that no broker deposes a leader that keeps its lease, and that there is a leader again in time.

use super::*;

const TTL: u64 = 1_000;
const STEP: u64 = 25;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Life {
    Runs,
    Hangs,
    Dead,
}

struct Broker {
    life: Life,
    watch: Watch,
    /// The term that it leads under.
    term: Option<i64>,
    tenure: Tenure,
    next_renewal: u64,
    /// Its monotonic clock has an arbitrary origin.
    clock: u64,
}

struct World {
    dice: Dice,
    now: u64,
    lease: Option<Lease>,
    lock: Option<usize>,
    /// The broker that holds the term of the lease, and the time of its last renewal.
    leader: Option<(usize, u64)>,
    brokers: Vec<Broker>,
    terms: Vec<(i64, usize)>,
    take_overs: [u32; 4],
    refused: u32,
}

impl World {
    fn new(seed: u64, count: usize) -> Self {
        let mut dice = Dice(seed);
        let brokers = (0..count)
            .map(|_| Broker {
                life: Life::Runs,
                watch: Watch::default(),
                term: None,
                tenure: Tenure::new(TTL, 0),
                next_renewal: 0,
                clock: dice.roll(1_000_000),
            })
            .collect();
        Self { dice, now: 0, lease: None, lock: None, leader: None, brokers, terms: Vec::new(), take_overs: [0; 4], refused: 0 }
    }

    /// A write transaction: checks the term, then writes.
    fn write(&mut self, who: usize) -> bool {
        let is_own = self.lease.map(|lease| lease.term) == self.brokers[who].term && self.brokers[who].term.is_some();
        if is_own {
            assert_eq!(self.leader.map(|leader| leader.0), Some(who), "only the last that took over writes");
        } else {
            self.refused += 1;
            // It exits, and its supervisor restarts it.
            self.end(who, Life::Runs);
        }
        is_own
    }

    fn end(&mut self, who: usize, next: Life) {
        if self.lock == Some(who) {
            self.lock = None;
        }
        let clock = self.dice.roll(1_000_000);
        let broker = &mut self.brokers[who];
        (broker.life, broker.watch, broker.term, broker.clock) = (next, Watch::default(), None, clock);
    }

    fn lead(&mut self, who: usize) {
        let now = self.brokers[who].clock + self.now;
        if self.brokers[who].tenure.is_over(now) && !self.write(who) {
            return;
        }
        if now >= self.brokers[who].next_renewal {
            if !self.write(who) {
                return;
            }
            if self.lock.is_none() {
                self.lock = Some(who);
            }
            let is_locked = self.lock == Some(who);
            let lease = self.lease.as_mut().expect("it was checked");
            (lease.renewals, lease.is_locked) = (lease.renewals + 1, is_locked);
            self.leader = Some((who, self.now));
            let broker = &mut self.brokers[who];
            broker.tenure.renewed(now);
            broker.next_renewal = now + broker.tenure.every_ms();
        } else if self.dice.roll(20) == 0 {
            self.write(who);
        }
    }

    fn stand_by(&mut self, who: usize) {
        let lease = self.lease;
        let lock = if Watch::minds_the_lock(lease.as_ref()) && self.lock.is_none() { Lock::Ours } else { Lock::Theirs };
        let now = self.brokers[who].clock + self.now;
        let Decision::TakeOver(reason) = self.brokers[who].watch.look(lease.as_ref(), lock, now) else { return };
        let alive = self.leader.is_some_and(|(leader, _)| self.brokers[leader].life == Life::Runs && self.brokers[leader].term.is_some());
        match reason {
            Reason::Dead | Reason::First => assert!(!alive, "a living leader is not taken for dead"),
            Reason::Released => {}
            Reason::Silent => {
                let renewed = self.leader.expect("somebody wrote the lease").1;
                assert!(self.now - renewed >= TTL, "a leader that keeps its lease is left alone");
            }
        }
        self.take_overs[reason as usize] += 1;
        let term = lease.map_or(0, |lease| lease.term) + 1;
        if lock == Lock::Ours {
            self.lock = Some(who);
        }
        let is_locked = self.lock == Some(who);
        self.lease = Some(Lease { term, renewals: 0, ttl_ms: TTL, is_locked, is_released: false });
        self.leader = Some((who, self.now));
        self.terms.push((term, who));
        let broker = &mut self.brokers[who];
        (broker.term, broker.tenure) = (Some(term), Tenure::new(TTL, now));
        broker.next_renewal = now + broker.tenure.every_ms();
    }

    fn act(&mut self, who: usize) {
        match (self.brokers[who].life, self.brokers[who].term) {
            (Life::Runs, Some(_)) => self.lead(who),
            (Life::Runs, None) => self.stand_by(who),
            _ => {}
        }
    }

    fn mishap(&mut self) {
        let who = self.dice.roll(self.brokers.len() as u64) as usize;
        match (self.brokers[who].life, self.dice.roll(4)) {
            (Life::Runs, 0) => self.end(who, Life::Dead),
            (Life::Runs, 1) => self.brokers[who].life = Life::Hangs,
            (Life::Runs, 2) if self.brokers[who].term.is_some() && self.write(who) => {
                self.lease.as_mut().expect("it was checked").is_released = true;
                self.end(who, Life::Dead);
            }
            (Life::Hangs, 0) => self.end(who, Life::Dead),
            (Life::Hangs, _) => self.brokers[who].life = Life::Runs,
            (Life::Dead, _) => self.end(who, Life::Runs),
            _ => {}
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        // In any order.
        let first = self.dice.roll(self.brokers.len() as u64) as usize;
        for i in 0..self.brokers.len() {
            self.act((first + i) % self.brokers.len());
        }
    }

    fn somebody_leads(&self) -> bool {
        let term = self.lease.map(|lease| lease.term);
        self.brokers.iter().any(|broker| broker.life == Life::Runs && broker.term.is_some() && broker.term == term)
    }
}

#[test]
fn one_leads_whatever_happens() {
    let mut all = [0; 4];
    let mut refused = 0;
    for seed in 0..300 {
        let mut world = World::new(seed, 2 + (seed % 3) as usize);
        for _ in 0..40 {
            for _ in 0..=world.dice.roll(5) {
                world.mishap();
            }
            // Quiet phase: if any broker runs, one leads after the lease time and two checks, and keeps leading.
            let anybody = world.brokers.iter().any(|broker| broker.life == Life::Runs);
            for _ in 0..=(TTL / STEP + 2) {
                world.step();
            }
            assert!(!anybody || world.somebody_leads(), "seed {seed} at {}: nobody leads", world.now);
            let before = world.terms.len();
            for _ in 0..world.dice.roll(100) {
                world.step();
            }
            assert!(world.terms.len() == before || !anybody, "seed {seed} at {}: a leader was robbed", world.now);
        }
        assert!(world.terms.windows(2).all(|two| two[1].0 == two[0].0 + 1), "seed {seed}: terms are counted up");
        all.iter_mut().zip(world.take_overs).for_each(|(all, one)| *all += one);
        refused += world.refused;
    }
    assert!(all.iter().all(|count| *count > 100), "each reason occurred: {all:?}");
    assert!(refused > 100, "deposed leaders tried to write: {refused}");
}
