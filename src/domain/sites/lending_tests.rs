use super::board::Hold;
use super::lending_simulation::{Run, World, run};
use super::{Board, Ended, Outcome, Pace, SiteState, ToBorrower, ToLender, Why};
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::time::Timestamp;
use proptest::prelude::*;
use std::sync::Arc;

const T: Timestamp = Timestamp(1_800_000_000_000);
const PACE: Pace = Pace { connections: 1, delay_ms: 1_000 };
const SITE: &str = "example.org";
const RIGHT_MS: i64 = 15_000;

fn identity(n: u128) -> Identity {
    Identity(uuid::Uuid::from_u128(n))
}

fn broker(n: u128) -> BrokerId {
    BrokerId(uuid::Uuid::from_u128(n))
}

fn name() -> Arc<str> {
    SITE.into()
}

fn take(board: &mut Board, run: u128, now: Timestamp) -> bool {
    board.take(SITE, PACE, identity(run), now.plus_ms(60_000), now).is_ok()
}

/// Delivers all messages between the lender and a borrower.
fn exchange(lender: &mut Board, borrowers: &mut [Board], now: Timestamp) -> Vec<ToBorrower> {
    let mut all = Vec::new();
    loop {
        for (n, board) in borrowers.iter_mut().enumerate() {
            board.for_lender(now).into_iter().for_each(|message| lender.borrower_sent(broker(n as u128), message, now));
        }
        let messages = lender.for_borrowers(now);
        if messages.is_empty() {
            return all;
        }
        for (to, message) in messages {
            all.push(message.clone());
            borrowers[to.0.as_u128() as usize].lender_sent(message, now);
        }
    }
}

/// A lender and two connected borrowers.
fn connected() -> (Board, [Board; 2]) {
    let (mut lender, mut borrowers) = (Board::new(RIGHT_MS), [Board::of_borrower(RIGHT_MS), Board::of_borrower(RIGHT_MS)]);
    for (n, board) in borrowers.iter_mut().enumerate() {
        lender.borrower_sent(broker(n as u128), board.lender_connected(T).expect("a borrower"), T);
    }
    exchange(&mut lender, &mut borrowers, T);
    (lender, borrowers)
}

#[test]
fn a_site_goes_from_board_to_board_and_back() {
    let (mut lender, mut borrowers) = connected();
    assert!(!take(&mut borrowers[0], 1, T), "it is not here");
    assert!(matches!(&exchange(&mut lender, &mut borrowers, T)[..], [ToBorrower::Lend(_, _, false)]));
    assert!(take(&mut borrowers[0], 1, T) && !take(&mut lender, 9, T) && !take(&mut borrowers[1], 2, T));
    assert!(matches!(&exchange(&mut lender, &mut borrowers, T)[..], [ToBorrower::Recall(_)]), "it is in use");
    borrowers[0].release(SITE, identity(1), 0, T);
    assert!(!take(&mut borrowers[0], 3, T), "no other turn begins");
    assert!(matches!(&exchange(&mut lender, &mut borrowers, T)[..], []), "the run of the lender came first");
    assert!(take(&mut lender, 9, T));
    lender.release(SITE, identity(9), 0, T);
    assert!(!take(&mut lender, 9, T));
    let lent = exchange(&mut lender, &mut borrowers, T);
    assert!(matches!(&lent[..], [ToBorrower::Lend(_, _, true), ..]), "the first borrower waits again: {lent:?}");
    assert!(take(&mut borrowers[1], 2, T));
}

#[test]
fn a_borrower_lists_only_what_it_has() {
    let (mut lender, mut borrowers) = connected();
    let names = |board: &Board| board.page("", None, None, 10, T).into_iter().map(|site| site.name.to_string()).collect::<Vec<_>>();
    assert!(!take(&mut borrowers[0], 1, T));
    assert_eq!(names(&borrowers[0]), Vec::<String>::new());
    exchange(&mut lender, &mut borrowers, T);
    assert!(take(&mut borrowers[0], 1, T));
    assert_eq!(names(&borrowers[0]), [SITE]);
}

#[test]
fn a_site_that_no_run_uses_is_returned() {
    let (mut lender, mut borrowers) = connected();
    take(&mut borrowers[0], 1, T);
    exchange(&mut lender, &mut borrowers, T);
    take(&mut borrowers[0], 1, T);
    let (end, later) = (T.plus_ms(30_000), T.plus_ms(60_000));
    let outcome = Outcome { ended: Ended::Answered(200), elapsed_ms: 10, retry_after_ms: None };
    borrowers[0].learn(SITE, PACE, &[outcome], end, end);
    borrowers[0].release(SITE, identity(1), 0, end);
    assert_eq!(borrowers[0].for_lender(later), [], "it was used half a minute ago");
    let (mut now, mut returned) = (later, Vec::new());
    while returned.is_empty() {
        now = now.plus_ms(1_000);
        returned = borrowers[0].for_lender(now);
    }
    assert!(now <= T.plus_ms(120_000) && matches!(&returned[..], [ToLender::Return(..)]), "{returned:?} {now}");
    lender.borrower_sent(broker(0), returned.remove(0), now);
    assert!(take(&mut lender, 9, now));
}

#[test]
fn a_borrower_asks_once_and_again_after_a_pause() {
    let (_, mut borrowers) = connected();
    let asks = |board: &mut Board, ms| {
        assert!(!take(board, 1, T.plus_ms(ms)));
        board.for_lender(T.plus_ms(ms)) == [ToLender::Borrow(name(), PACE.delay_ms)]
    };
    assert_eq!([0, 500, 2_500, 5_000, 5_500].map(|ms| asks(&mut borrowers[0], ms)), [true, false, false, true, false]);
    assert_eq!(borrowers[0].for_lender(T.plus_ms(20_000)), [], "the run does not ask any more");
}

#[test]
fn a_run_that_does_not_ask_any_more_keeps_no_site() {
    let (mut lender, mut borrowers) = connected();
    take(&mut lender, 8, T);
    assert!(!take(&mut lender, 9, T));
    lender.release(SITE, identity(8), 0, T);
    take(&mut borrowers[0], 1, T);
    assert_eq!(exchange(&mut lender, &mut borrowers, T), [], "a run of the lender comes first");
    let lent = exchange(&mut lender, &mut borrowers, T.plus_ms(3_500));
    assert!(matches!(&lent[..], [ToBorrower::Lend(_, _, false)]), "the run of the lender does not ask any more: {lent:?}");
}

#[test]
fn the_pace_goes_with_the_site_whatever_the_clocks() {
    let (mut lender, mut borrowers) = connected();
    let outcome = Outcome { ended: Ended::Answered(200), elapsed_ms: 10, retry_after_ms: None };
    take(&mut lender, 9, T);
    lender.learn(SITE, PACE, &[outcome], T, T);
    lender.release(SITE, identity(9), 0, T);
    take(&mut borrowers[0], 1, T);
    borrowers[0].for_lender(T).into_iter().for_each(|message| lender.borrower_sent(broker(0), message, T));
    let (_, message) = lender.for_borrowers(T.plus_ms(300)).remove(0);
    // The clock of the borrower is an hour ahead.
    let ahead = T.plus_ms(3_600_000);
    borrowers[0].lender_sent(message, ahead);
    // The delay has a random part.
    assert!(!take(&mut borrowers[0], 1, ahead.plus_ms(699)) && take(&mut borrowers[0], 1, ahead.plus_ms(800)));
}

#[test]
fn the_sites_of_a_lost_broker_wait_for_its_nodes() {
    let (mut lender, mut borrowers) = connected();
    take(&mut borrowers[0], 1, T);
    exchange(&mut lender, &mut borrowers, T);
    lender.borrower_disconnected(broker(0));
    assert!(!take(&mut lender, 9, T.plus_ms(60_000)), "it may connect again");
    lender.borrower_lost(broker(0), T.plus_ms(75_000), T.plus_ms(60_000));
    assert!(!take(&mut lender, 9, T.plus_ms(75_999)) && take(&mut lender, 9, T.plus_ms(76_000)));
}

#[test]
fn a_new_leader_learns_what_is_lent() {
    let (mut lender, mut borrowers) = connected();
    take(&mut borrowers[0], 1, T);
    exchange(&mut lender, &mut borrowers, T);
    assert!(take(&mut borrowers[0], 1, T));
    let [mut first, mut second] = borrowers;
    for (ms, is_refused) in [(0, false), (RIGHT_MS, true)] {
        let (now, mut after) = (T.plus_ms(ms), Board::new(RIGHT_MS));
        after.quiet(T, T.plus_ms(RIGHT_MS));
        first.lender_disconnected();
        after.borrower_sent(broker(0), first.lender_connected(now).expect("a borrower"), now);
        let (_, message) = after.for_borrowers(now).remove(0);
        assert_eq!(message, ToBorrower::Start(if is_refused { vec![name()] } else { vec![] }, vec![]));
        first.lender_sent(message, now);
        assert_eq!(first.renew(&[name()], identity(1), now.plus_ms(1), now), !is_refused);
        assert_eq!(take(&mut after, 9, T.plus_ms(RIGHT_MS + 1_000)), is_refused);
        // Nothing is lent in the quiet time, and after it a site waits for its delay.
        after.borrower_sent(broker(1), second.lender_connected(now).expect("a borrower"), now);
        after.borrower_sent(broker(1), ToLender::Borrow("b.test".into(), 5_000), now);
        let lent = after.for_borrowers(now).into_iter().find_map(|(_, message)| match message {
            ToBorrower::Lend(_, state, _) => Some(state.next_at(now)),
            _ => None,
        });
        assert_eq!(lent, is_refused.then(|| now.plus_ms(5_000)));
    }
}

#[test]
fn holds_are_known_everywhere_and_the_leader_decides_about_those_by_hand() {
    let (mut lender, mut borrowers) = connected();
    let (until, origin) = (T.plus_ms(60_000), "http://example.org:8080");
    take(&mut borrowers[0], 1, T);
    exchange(&mut lender, &mut borrowers, T);
    lender.hold(SITE, until, Some("admin".into()), T);
    exchange(&mut lender, &mut borrowers, T);
    for board in &borrowers {
        assert_eq!(board.hold_of(origin, T), Some((name(), until, Why::Operator)));
        assert_eq!(board.held_by(SITE, T).as_deref(), Some("admin"));
    }
    // The site returns while its release is on the way.
    lender.free(SITE, T);
    let held = borrowers[0].own_hold(SITE, T);
    lender.borrower_sent(broker(0), ToLender::Return(name(), held_state()), T);
    assert!(held.is_some() && lender.held(SITE, T).is_none());
    exchange(&mut lender, &mut borrowers, T);
    assert!(borrowers.iter().all(|board| board.held(origin, T).is_none()));

    // A run of a borrower causes a hold at a site without a pace.
    let asked = Outcome { ended: Ended::Answered(429), elapsed_ms: 10, retry_after_ms: Some(30_000) };
    borrowers[1].learn_unpaced(origin, &[asked], T);
    exchange(&mut lender, &mut borrowers, T);
    for board in borrowers.iter().chain([&lender]) {
        assert_eq!(board.held(origin, T), Some(T.plus_ms(30_000)));
        assert!(board.has_unpaced(), "a good answer ends its failures");
    }
    lender.free(origin, T);
    lender.hold(SITE, until, None, T);
    exchange(&mut lender, &mut borrowers, T);
    assert!(borrowers.iter().all(|board| board.own_hold(origin, T).is_none()));

    // A hold by hand that ends while the connection is broken.
    lender.borrower_disconnected(broker(0));
    lender.free(SITE, T);
    assert_eq!(lender.for_borrowers(T), [(broker(1), ToBorrower::Freed(name()))]);
    borrowers[1].lender_sent(ToBorrower::Freed(name()), T);
    borrowers[0].lender_disconnected();
    lender.borrower_sent(broker(0), borrowers[0].lender_connected(T).expect("a borrower"), T);
    exchange(&mut lender, &mut borrowers, T);
    assert!(borrowers.iter().chain([&lender]).all(|board| board.own_hold(SITE, T).is_none()));
}

fn held_state() -> SiteState {
    let mut state = SiteState::default();
    state.hold(T, T.plus_ms(60_000));
    state
}

#[test]
fn what_gets_lost_with_a_connection_is_known_after_the_next_one() {
    let (mut lender, mut borrowers) = connected();
    // A loan gets lost.
    take(&mut borrowers[0], 1, T);
    borrowers[0].for_lender(T).into_iter().for_each(|message| lender.borrower_sent(broker(0), message, T));
    assert!(matches!(&lender.for_borrowers(T)[..], [(_, ToBorrower::Lend(..))]));
    let connect = |lender: &mut Board, borrower: &mut Board| {
        lender.borrower_disconnected(broker(0));
        lender.borrower_sent(broker(0), borrower.lender_connected(T).expect("a borrower"), T);
    };
    connect(&mut lender, &mut borrowers[0]);
    assert!(!take(&mut borrowers[0], 1, T), "the connection has not begun");
    let messages = exchange(&mut lender, &mut borrowers, T);
    assert!(matches!(&messages[..], [ToBorrower::Start(..), ToBorrower::Lend(..)]), "it asks again: {messages:?}");
    // A site, its recall and a request for a site get lost.
    let now = T.plus_ms(1_000);
    assert!(take(&mut borrowers[0], 1, now) && !take(&mut lender, 9, now));
    assert!(matches!(&lender.for_borrowers(now)[..], [(_, ToBorrower::Recall(_))]));
    connect(&mut lender, &mut borrowers[0]);
    let messages = exchange(&mut lender, &mut borrowers, now);
    assert!(matches!(&messages[..], [ToBorrower::Start(..), ToBorrower::Recall(..)]), "{messages:?}");
    let asked = Outcome { ended: Ended::Answered(429), elapsed_ms: 10, retry_after_ms: Some(30_000) };
    borrowers[0].learn(SITE, PACE, &[asked], now, now);
    borrowers[0].release(SITE, identity(1), 0, now);
    assert!(matches!(&borrowers[0].for_lender(now)[..], [ToLender::Held(_), ToLender::Return(..)]));
    connect(&mut lender, &mut borrowers[0]);
    assert!(lender.held(SITE, now) >= Some(now.plus_ms(29_000)) && !lender.is_away(SITE));
}

#[test]
fn the_longer_hold_counts_but_not_a_released_one() {
    let asked = |ms| {
        let mut board = Board::new(0);
        let outcome = Outcome { ended: Ended::Answered(429), elapsed_ms: 10, retry_after_ms: Some(ms) };
        board.learn(SITE, PACE, &[outcome], T, T).flatten().expect("it is held")
    };
    let joined = |mut own: SiteState, leaders: SiteState| {
        own.join_hold(leaders, T);
        own.held_until(T).map(|(until, why)| (until.since_ms(T), why))
    };
    assert_eq!(joined(asked(5_000), asked(9_000)), Some((9_000, Why::RetryAfter)));
    assert_eq!(joined(asked(9_000), asked(5_000)), Some((9_000, Why::RetryAfter)));
    assert_eq!(joined(asked(90_000), held_state()), Some((90_000, Why::Operator)));
    assert_eq!(joined(held_state(), asked(5_000)), Some((5_000, Why::RetryAfter)), "the hold by hand has ended");
    assert_eq!(joined(held_state(), SiteState::default()), None);
    let hold = Hold { name: name(), state: held_state(), held_by: None };
    let mut lender = connected().0;
    lender.borrower_sent(broker(0), ToLender::Held(hold), T);
    assert!(lender.own_hold(SITE, T).is_none());
}

/// Runs at all brokers that use the same sites, some of them several at once.
fn runs(brokers: usize) -> Vec<Run> {
    let needs: [&[&str]; 5] = [&["a.test"], &["a.test"], &["c.test"], &["d.test"], &["b.test"]];
    let single = (0..2 * brokers).map(|n| run(n, n % brokers, needs[n % needs.len()], 400));
    let several = (0..2).map(|n| run(100 + n, brokers - 1 - n, &["test", "a.test", "b.test"], 400));
    single.chain(several).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..Default::default() })]

    #[test]
    fn a_site_is_used_through_one_broker_at_a_time_and_none_is_lost(seed in 1..u64::MAX, brokers in 2..5_usize) {
        let mut world = World::new(seed, brokers, runs(brokers));
        world.ticks(180_000)?;
        let waits = world.calm(300_000)?;
        let (single, several) = waits.split_at(2 * brokers);
        prop_assert!(single.iter().all(|ms| *ms < 60_000) && several.iter().all(|ms| *ms < 250_000), "{waits:?}");
        world.close()?;
    }
}

#[test]
fn runs_at_several_brokers_take_turns() {
    let at = |brokers: &[usize], block_ms| {
        let runs = brokers.iter().enumerate().map(|(n, broker)| run(n, *broker, &["a.test"], block_ms)).collect();
        let mut world = World::new(7, 3, runs);
        let waits = world.calm(300_000).expect("no rule is broken");
        (world.runs.iter().map(|run| run.turns).collect::<Vec<_>>(), waits)
    };
    for block_ms in [50, 1_000, 5_000] {
        for brokers in [&[0, 1][..], &[1, 2], &[0, 1, 2]] {
            let (turns, waits) = at(brokers, block_ms);
            let (least, most) = (turns.iter().min().expect("a run"), turns.iter().max().expect("a run"));
            assert!(least * 4 >= most * 3, "{block_ms} {brokers:?} {turns:?} {waits:?}");
        }
        // Two at the lender, two at a borrower: a broker with more runs has no more turns.
        let (turns, waits) = at(&[0, 0, 1, 1, 2], block_ms);
        let all: u32 = turns.iter().sum();
        assert!(turns.iter().all(|turns| turns * 12 >= all), "{block_ms} {turns:?} {waits:?}");
    }
}

#[test]
fn runs_that_need_several_busy_sites_go_on_at_several_brokers() {
    for (brokers, seed) in [(2, 1), (3, 2), (4, 3)] {
        let mut world = World::new(seed, brokers, runs(brokers));
        let waits = world.calm(600_000).expect("no rule is broken");
        assert!(world.runs.iter().all(|run| run.turns >= 10), "{waits:?}");
    }
}
