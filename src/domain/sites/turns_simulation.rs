//! Simulates runs that need the turns of one site or of several, at sites that are always busy. No run waits without an end. A run that waits for
//! one site leaves its other sites to the runs that need only these.

use super::simulation::Dice;
use super::{Board, Ended, Outcome, Pace};
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use std::sync::Arc;

const PACE: Pace = Pace { connections: 1, delay_ms: 100 };
const T: Timestamp = Timestamp(1_800_000_000_000);
const MINUTE_MS: i64 = 60_000;
const TICK_MS: i64 = 25;

/// A run that always has blocks: what they need, and how long a node takes for one.
struct Party {
    run: Identity,
    needs: Vec<Arc<str>>,
    block_ms: (u32, u32),
    looks_at: Timestamp,
    block_until: Option<Timestamp>,
    turns: u32,
}

fn party(n: u128, needs: &[&str], block_ms: (u32, u32)) -> Party {
    let needs = needs.iter().map(|name| Arc::from(*name)).collect();
    Party { run: Identity(uuid::Uuid::from_u128(n)), needs, block_ms, looks_at: T, block_until: None, turns: 0 }
}

impl Party {
    fn take(&self, board: &mut Board, now: Timestamp) -> Result<(), Timestamp> {
        let until = now.plus_ms(60 * MINUTE_MS);
        board.take(&self.needs[0], PACE, self.run, until, now)?;
        board.take_more(&self.needs[..1], &self.needs[1..], PACE, (self.run, until), now).map_err(|(at, _)| at)
    }

    fn step(&mut self, board: &mut Board, dice: &mut Dice, now: Timestamp) {
        if self.block_until.is_some_and(|until| until <= now) {
            let answered = Outcome { ended: Ended::Answered(200), elapsed_ms: 10, retry_after_ms: None };
            for name in &self.needs {
                board.learn(name, PACE, &[answered], now, now);
                self.looks_at = self.looks_at.max(board.release(name, self.run, 0, now));
            }
            (self.block_until, self.turns) = (None, self.turns + 1);
        }
        if self.block_until.is_none() && self.looks_at <= now {
            match self.take(board, now) {
                Ok(()) => self.block_until = Some(now.plus_ms((self.block_ms.0 + dice.below(self.block_ms.1 - self.block_ms.0)).into())),
                Err(at) => self.looks_at = at,
            }
        }
    }
}

/// The numbers of turns that each party has had after some time.
fn turns(mut parties: Vec<Party>, minutes: i64, seed: u64) -> Vec<u32> {
    let (mut board, mut dice) = (Board::new(0), Dice(seed));
    for tick in 0..minutes * MINUTE_MS / TICK_MS {
        let first = dice.below(parties.len() as u32) as usize;
        for n in 0..parties.len() {
            let at = (first + n) % parties.len();
            parties[at].step(&mut board, &mut dice, T.plus_ms(TICK_MS * tick));
        }
    }
    parties.iter().map(|party| party.turns).collect()
}

#[test]
fn a_run_that_waits_for_one_site_leaves_the_others_to_those_who_need_only_them() {
    for (seed, block_ms) in [(1, (50, 150)), (2, (200, 900)), (3, (1_000, 3_000))] {
        let quick = || party(3, &["a.test"], block_ms);
        let alone = turns(vec![quick()], 30, seed)[0];
        let slow = party(2, &["b.test"], (29 * MINUTE_MS as u32, 30 * MINUTE_MS as u32));
        let all = turns(vec![slow, party(1, &["test", "a.test", "b.test"], block_ms), quick()], 30, seed);
        assert!(all[2] > alone * 95 / 100, "{all:?} of {alone}");
    }
}

#[test]
fn a_run_that_does_not_ask_any_more_loses_its_priority_soon() {
    let names = ["test", "a.test", "b.test", "c.test"].map(Arc::from);
    let [of_b, of_c, several, other] = [1, 2, 3, 4].map(|n| Identity(uuid::Uuid::from_u128(n)));
    let (mut board, until) = (Board::new(0), T.plus_ms(60 * MINUTE_MS));
    let take = |board: &mut Board, name: &str, run, at| board.take(name, PACE, run, until, at);
    let all = |board: &mut Board, at| {
        board.take(&names[0], PACE, several, until, at).expect("nobody else needs it");
        board.take_more(&names[..1], &names[1..], PACE, (several, until), at)
    };
    take(&mut board, "b.test", of_b, T).expect("it is free");
    // It waits ten minutes for b.test.
    let mut now = T;
    while now < T.plus_ms(10 * MINUTE_MS) {
        now = all(&mut board, now).expect_err("b.test is busy").0;
    }
    take(&mut board, "c.test", of_c, now).expect("nobody waits for it");
    board.release("b.test", of_b, 0, now);
    let (next, missing) = all(&mut board, now).expect_err("c.test is busy");
    assert_eq!(&*missing, "c.test");
    assert!(take(&mut board, "a.test", other, next).is_err(), "the run that has waited for ten minutes has priority");
    assert!(take(&mut board, "a.test", other, next.plus_ms(4_000)).is_ok(), "it does not ask any more");
}

#[test]
fn a_run_leaves_its_sites_to_others_while_one_of_them_is_held() {
    let names = ["test", "a.test", "b.test", "c.test"].map(Arc::from);
    let [of_b, several, other] = [1, 2, 3].map(|n| Identity(uuid::Uuid::from_u128(n)));
    let (mut board, until) = (Board::new(0), T.plus_ms(60 * MINUTE_MS));
    board.take("b.test", PACE, of_b, until, T).expect("it is free");
    let mut now = T;
    while now < T.plus_ms(10 * MINUTE_MS) {
        board.take(&names[0], PACE, several, until, now).expect("nobody else needs it");
        now = board.take_more(&names[..1], &names[1..], PACE, (several, until), now).expect_err("b.test is busy").0;
    }
    board.release("b.test", of_b, 0, now);
    board.hold("c.test", now.plus_ms(5 * MINUTE_MS), None, now);
    board.take(&names[0], PACE, several, until, now).expect("nobody else needs it");
    let (next, _) = board.take_more(&names[..1], &names[1..], PACE, (several, until), now).expect_err("c.test is held");
    assert_eq!(next, now.plus_ms(5 * MINUTE_MS));
    assert!(board.take("a.test", PACE, other, until, now).is_ok());
}

#[test]
fn runs_that_need_several_busy_sites_go_on() {
    let short = [(50, 150); 2];
    for [of_a, of_b] in [short, [(200, 900); 2], [(5_000, 9_000); 2], [(100, 200), (20_000, 60_000)], [(30_000, 40_000), (200, 900)]] {
        for seed in [1, 2] {
            let several = |n| party(n, &["test", "a.test", "b.test"], (200, 900));
            let one = [party(3, &["a.test"], of_a), party(4, &["b.test"], of_b), party(5, &["test"], of_a)];
            let all = turns([several(1), several(2)].into_iter().chain(one).collect(), 60, seed);
            assert!(all.iter().all(|turns| *turns >= 10), "{all:?} {of_a:?} {of_b:?}");
        }
    }
}
