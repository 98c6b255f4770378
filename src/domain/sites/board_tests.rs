use super::super::Ended;
use super::*;

const T: Timestamp = Timestamp(1_000_000);
const PACE: Pace = Pace { connections: 1, delay_ms: 1_000 };
const SITE: &str = "example.org";

fn run(n: u128) -> Identity {
    Identity(uuid::Uuid::from_u128(n))
}

fn answered(status: u16, retry_after_ms: Option<u32>) -> Outcome {
    Outcome { ended: Ended::Answered(status), elapsed_ms: 10, retry_after_ms }
}

#[test]
fn one_turn_at_a_time_and_the_delay_after_it() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    let granted = board.take(SITE, PACE, run(1), later, T).expect("it is free");
    assert_eq!(granted, Granted { delay_ms: 1_000, jitter_ms: 100, connections: 1 });
    assert!(board.take(SITE, PACE, run(2), later, T).is_err() && board.take(SITE, PACE, run(1), later, T).is_err());
    assert!(board.take("other.org", PACE, run(2), later, T).is_ok());
    let end = T.plus_ms(5_000);
    assert_eq!(board.learn(SITE, PACE, &[answered(200, None)], end.plus_ms(-300), end), None, "as any other");
    let next = board.release(SITE, run(1), 0, end);
    assert!((700..=800).contains(&next.since_ms(end)), "{next}");
    // The second run asked meanwhile, so it goes first.
    assert!(board.take(SITE, PACE, run(2), later, end).is_err());
    assert!(board.take(SITE, PACE, run(1), later, next).is_err());
    assert!(board.take(SITE, PACE, run(2), later, next).is_ok());
}

#[test]
fn a_lost_turn_keeps_the_site_until_its_node_has_stopped() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take(SITE, PACE, run(1), later, T).expect("it is free");
    assert_eq!(board.release(SITE, run(2), 15_000, T), T.plus_ms(15_000), "of another run");
    assert!(board.take(SITE, PACE, run(2), later, T.plus_ms(20_000)).is_err(), "its turn goes on");
    board.release(SITE, run(1), 15_000, T);
    assert!(board.take(SITE, PACE, run(2), later, T.plus_ms(14_999)).is_err());
    assert!(board.take(SITE, PACE, run(2), later, T.plus_ms(15_000)).is_ok());
    let much_later = T.plus_ms(9_000_000);
    assert!(board.take(SITE, PACE, run(1), much_later, T.plus_ms(615_000)).is_ok(), "nothing was heard of it");
    // The run itself has no dispatched block: its turn belongs to a dead actor.
    assert!(board.take(SITE, PACE, run(1), much_later, T.plus_ms(617_000)).is_err());
    assert!(board.take(SITE, PACE, run(2), much_later, T.plus_ms(616_999 + LEFTOVER_MS)).is_err());
    assert!(board.take(SITE, PACE, run(2), much_later, T.plus_ms(622_000 + LEFTOVER_MS)).is_ok());
}

#[test]
fn a_run_that_ended_without_a_word_keeps_no_turn() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take(SITE, PACE, run(1), later, T).expect("it is free");
    board.take("other.org", PACE, run(2), later, T).expect("it is free");
    board.take("other.org", PACE, run(1), later, T).expect_err("it waits");
    board.run_gone(run(1), T);
    let end = T.plus_ms(LEFTOVER_MS + 1_000);
    assert!(board.take(SITE, PACE, run(3), later, end.plus_ms(-1)).is_err(), "its node may continue");
    assert!(board.take(SITE, PACE, run(3), later, end).is_ok());
    board.release("other.org", run(2), 0, T);
    assert!(board.take("other.org", PACE, run(2), later, T).is_ok(), "no other run waits for it");
}

#[test]
fn what_a_site_asks_for_is_kept_and_stored() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take(SITE, PACE, run(1), later, T).expect("it is free");
    let stored = board.learn(SITE, PACE, &[answered(429, Some(60_000))], T, T).flatten().expect("it is out of the ordinary");
    board.release(SITE, run(1), 0, T);
    let mut after = Board::new(0);
    after.load([(SITE.into(), SiteState::of_row(&stored.to_row()).expect("a row"), None)], T);
    for board in [&mut board, &mut after] {
        let next = board.take(SITE, PACE, run(1), later, T.plus_ms(1_000)).expect_err("it is held off");
        assert_eq!(next, T.plus_ms(60_000));
        assert_eq!(board.view(SITE, T).and_then(|view| view.held), Some((T.plus_ms(60_000), Why::RetryAfter)));
        let granted = board.take(SITE, PACE, run(1), later, next).expect("its time has come");
        assert!(granted.delay_ms > PACE.delay_ms, "it is asked less often");
    }
    after.quiet(T, T.plus_ms(90_000));
    assert_eq!(after.take("other.org", PACE, run(1), later, T.plus_ms(80_000)), Err(T.plus_ms(90_000)));
    assert!(after.take("http://localhost", Pace::FREE, run(1), later, T.plus_ms(80_000)).is_ok());
}

#[test]
fn a_hold_counts_from_when_it_is_known() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take(SITE, PACE, run(1), later, T).expect("it is free");
    // The last request began half a minute before the report that contained the site's `Retry-After`.
    let (began, timed_out) = (T, Outcome { ended: Ended::TimedOut, elapsed_ms: 30_000, retry_after_ms: None });
    board.learn(SITE, PACE, &[timed_out, answered(429, Some(30_000))], began, T.plus_ms(30_000));
    let next = board.release(SITE, run(1), 0, T.plus_ms(30_000));
    assert!(next >= T.plus_ms(60_000), "{next}");
}

#[test]
fn a_turn_of_another_run_is_not_taken_over() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take(SITE, PACE, run(1), later, T).expect("it is free");
    assert!(!board.renew(&[SITE.into()], run(2), later, T) && board.renew(&[SITE.into()], run(1), later, T));
    assert!(board.renew(&[SITE.into()], run(2), later.plus_ms(1_000), later), "it is over");
}

#[test]
fn after_the_quiet_time_a_site_waits_for_its_own_delay() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.quiet(T, T.plus_ms(15_000));
    let slow = Pace { delay_ms: 60_000, ..PACE };
    assert_eq!(board.take(SITE, slow, run(1), later, T), Err(T.plus_ms(15_000)));
    assert_eq!(board.take(SITE, slow, run(1), later, T.plus_ms(15_000)), Err(T.plus_ms(75_000)));
    assert!(board.take(SITE, slow, run(1), later, T.plus_ms(75_000)).is_ok());
}

#[test]
fn what_somebody_holds_no_run_begins_whatever_its_pace() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    let until = T.plus_ms(60_000);
    let stored = board.hold("127.0.0.1", until, Some("admin".into()), T);
    let mut after = Board::new(0);
    after.load([("127.0.0.1".into(), SiteState::of_row(&stored.to_row()).expect("a row"), Some("admin".into()))], T);
    for board in [&mut board, &mut after] {
        assert!(board.has_holds(T) && !board.has_holds(until));
        for name in ["127.0.0.1", "http://127.0.0.1:8000", "https://127.0.0.1"] {
            for pace in [PACE, Pace::FREE] {
                assert_eq!(board.take(name, pace, run(1), later, T), Err(until), "{name}");
            }
            let view = board.view(name, T).expect("it is held");
            assert_eq!((view.held, view.held_by.as_deref()), (Some((until, Why::Operator)), Some("admin")), "{name}");
        }
        assert_eq!(board.page("", Some(true), None, 9, T).len(), 1, "only what was named is listed");
        assert!(board.take("http://127.0.0.10", Pace::FREE, run(1), later, T).is_ok());
        assert!(board.take("http://127.0.0.1", Pace::FREE, run(1), later, until).is_ok(), "it is over");
    }
    assert_eq!(board.free("127.0.0.1", T), None, "nothing is to be kept of it");
    assert!(!board.has_holds(T) && board.take("127.0.0.1", Pace::FREE, run(1), later, T).is_ok());

    board.hold("http://build.test:8080", until, None, T);
    assert_eq!(board.take("build.test", PACE, run(1), later, T), Err(until), "the host is one site for this run");
    assert!(board.take("http://build.test", Pace::FREE, run(1), later, T).is_ok(), "it is another origin");
    assert_eq!(board.counts(T), (2, 0, 1));
    board.take("other.test", PACE, run(1), later, T).expect("it is free");
    assert_eq!((board.counts(T), board.counts(later)), ((3, 1, 1), (3, 0, 0)));
}

#[test]
fn a_hold_that_is_over_leaves_nothing_behind() {
    let (mut board, until) = (Board::new(0), T.plus_ms(60_000));
    board.hold(SITE, until, None, T);
    assert_eq!(board.learn(SITE, PACE, &[answered(200, None)], T, T).flatten().and_then(|state| state.held_by_hand(T)), Some(until));
    assert_eq!(board.learn(SITE, PACE, &[answered(200, None)], until, until), Some(None), "its row goes");
    assert_eq!(board.learn(SITE, PACE, &[answered(200, None)], until, until), None);
    let held = board.hold("other.org", until, None, T);
    assert!(!held.is_forgettable(T) && held.is_forgettable(until), "nobody asked it since");
    board.hold(SITE, until.plus_ms(1), None, until);
    // A `Retry-After` of the site can extend the hold, but not shorten it.
    let longer = board.learn(SITE, PACE, &[answered(429, Some(90_000))], until, until).flatten().expect("it is held");
    assert_eq!(longer.held_by_hand(until), Some(until.plus_ms(90_000)));
}

#[test]
fn sites_are_listed_by_name_in_pages() {
    let mut board = Board::new(0);
    for name in ["b.org", "a.org", "c.com", "d.org"] {
        board.take(name, PACE, run(1), T.plus_ms(9), T).expect("it is free");
    }
    board.hold("d.org", T.plus_ms(500), None, T);
    let names = |views: Vec<SiteView>| views.iter().map(|view| view.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(board.page(".org", None, None, 2, T)), ["a.org", "b.org"]);
    assert_eq!(names(board.page(".org", None, Some("b.org"), 2, T)), ["d.org"]);
    assert_eq!(names(board.page("", Some(true), None, 9, T)), ["d.org"]);
    let view = board.view("a.org", T).expect("it is known");
    assert_eq!((view.run, view.delay_ms, view.held), (Some(run(1)), Some(1_000), None));
    assert_eq!(board.view("nowhere.org", T), None);
}

#[test]
fn a_site_without_a_pace_is_held_off_for_all_runs() {
    let (mut board, site) = (Board::new(15_000), "http://10.0.0.1:8000");
    let take = |board: &mut Board, now| board.take(site, Pace::FREE, run(1), now, now);
    assert!(board.learn_unpaced(site, &[answered(200, None)], T).is_none() && !board.has_unpaced() && !board.has_holds(T));
    let state =
        board.learn_unpaced(site, &[answered(429, Some(5_000)), answered(429, Some(5_000))], T).flatten().expect("a state to store");
    assert_eq!(board.held(site, T.plus_ms(4_999)), Some(T.plus_ms(5_000)));
    assert_eq!(take(&mut board, T), Err(T.plus_ms(5_000)));
    assert!(board.has_holds(T) && board.has_unpaced() && board.held("http://10.0.0.1:9000", T).is_none(), "only this origin");

    let mut restarted = Board::new(15_000);
    restarted.load([(site.into(), state, None)], T);
    assert!(restarted.has_holds(T) && restarted.has_unpaced());
    assert_eq!(take(&mut restarted, T.plus_ms(1)), Err(T.plus_ms(5_000)));

    let later = T.plus_ms(5_000);
    assert!(!board.has_holds(later) && take(&mut board, later).is_ok());
    assert_eq!(board.learn_unpaced(site, &[answered(200, None)], later), Some(None), "nothing is stored any more");
    assert!(!board.has_unpaced());
}

#[test]
fn a_site_without_a_pace_that_does_not_answer_is_held_off_for_a_minute_at_most() {
    let (mut board, site, mut now) = (Board::new(15_000), "http://10.0.0.1:8000", T);
    let refused = Outcome { ended: Ended::Refused, elapsed_ms: 1, retry_after_ms: None };
    let mut holds = Vec::new();
    for _ in 0..8 {
        board.learn_unpaced(site, &[refused], now);
        let until = board.held(site, now).unwrap_or(now);
        holds.push(until.since_ms(now) / 1_000);
        now = until;
    }
    assert_eq!(holds, [0, 0, 10, 20, 40, 60, 60, 60]);
}

#[test]
fn a_request_with_an_unknown_outcome_delays_the_next_turn() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take(SITE, PACE, run(1), later, T).expect("it is free");
    let nothing = Outcome { ended: Ended::Unknown, elapsed_ms: 0, retry_after_ms: None };
    let end = T.plus_ms(5_000);
    assert_eq!(board.learn(SITE, PACE, &[nothing], end.plus_ms(-300), end), None);
    let next = board.release(SITE, run(1), 0, end);
    assert!((700..=800).contains(&next.since_ms(end)), "{next}");
}

#[test]
fn server_errors_hold_a_site_longer_each_time() {
    let (mut board, later) = (Board::new(0), T.plus_ms(90_000_000));
    let (mut now, mut holds) = (T, Vec::new());
    for turn in 0..5 {
        board.take(SITE, PACE, run(1), later, now).expect("it is free");
        // A turn of three requests that fail; later ones probe the site.
        let failed = vec![answered(502, None); if turn == 0 { 3 } else { 1 }];
        board.learn(SITE, PACE, &failed, now, now);
        let next = board.release(SITE, run(1), 0, now);
        holds.push(next.since_ms(now));
        now = next;
    }
    assert_eq!(holds, [10_000, 20_000, 40_000, 80_000, 160_000]);
}

#[test]
fn a_hold_that_a_run_has_caused_counts_for_runs_with_another_pace() {
    let (mut board, later, host, origin) = (Board::new(0), T.plus_ms(600_000), "build.test", "http://build.test:8080");
    board.learn(host, PACE, &[answered(429, Some(90_000))], T, T);
    let until = T.plus_ms(90_000);
    assert!(board.has_holds(T));
    assert_eq!(board.take(origin, Pace::FREE, run(1), later, T), Err(until));
    assert_eq!(board.view(origin, T).and_then(|view| view.held), Some((until, Why::RetryAfter)));
    // What the site has not asked for does not stop a run without a pace for longer than its own failures would.
    let refused = Outcome { ended: Ended::Refused, elapsed_ms: 1, retry_after_ms: None };
    let mut now = until;
    while board.held(host, now).is_none_or(|until| until.since_ms(now) < 300_000) {
        now = board.held(host, now).unwrap_or(now);
        board.learn(host, PACE, &[refused], now, now);
    }
    assert_eq!(board.take(origin, Pace::FREE, run(1), later, now), Err(now.plus_ms(60_000)));
    assert!(board.take(origin, Pace::FREE, run(1), later, now.plus_ms(60_000)).is_ok() && board.has_holds(now.plus_ms(60_000)));

    // The other way round: an origin without a pace has asked for a pause.
    let (mut board, until) = (Board::new(0), T.plus_ms(5_000));
    board.learn_unpaced(origin, &[answered(429, Some(5_000))], T);
    assert_eq!(board.take(host, PACE, run(1), later, T), Err(until));
    assert!(board.take("http://build.test", Pace::FREE, run(1), later, T).is_ok(), "it is another origin");
    assert!(board.take(host, PACE, run(1), later, until).is_ok());
}

#[test]
fn a_run_that_needs_several_turns_has_them_all_or_none() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    let names: [Arc<str>; 4] = ["test", "a.test", "b.test", "c.test"].map(Into::into);
    let take = |board: &mut Board, now| {
        board.take("test", PACE, run(1), later, now).map_err(|at| (at, "test".into()))?;
        board.take_more(&names[..1], &names[1..], PACE, (run(1), later), now)
    };
    board.take("b.test", PACE, run(2), later, T).expect("it is free");
    board.take("c.test", PACE, run(3), later, T).expect("it is free");
    let (again, busy) = take(&mut board, T).expect_err("two are busy");
    assert_eq!((again, &*busy), (T.plus_ms(500), "c.test"));
    board.take("test", PACE, run(4), later, T).expect("it has no turn");
    board.release("test", run(4), 0, T);
    board.take("a.test", PACE, run(4), later, T).expect("it leaves what is free to others");
    board.release("a.test", run(4), 0, T);
    board.release("c.test", run(3), 0, T);
    board.take("c.test", PACE, run(4), later, T).expect("it waits for one of them only");
    board.release("c.test", run(4), 0, T);

    // It has waited for that one, and keeps what is free.
    let now = again.plus_ms(500);
    take(&mut board, again).expect_err("one is busy");
    board.release("b.test", run(2), 0, now);
    board.take("c.test", PACE, run(3), later, now).expect("it is free");
    take(&mut board, now).expect_err("another one is busy");
    for name in ["test", "a.test", "b.test"] {
        assert!(board.take(name, PACE, run(4), later, now.plus_ms(1_999)).is_err(), "{name}");
    }
    // For twice the time that it has waited.
    let mut expired = now.plus_ms(2_000);
    for name in ["test", "a.test", "b.test"] {
        board.take(name, PACE, run(4), later, expired).expect("the priority is over");
        board.release(name, run(4), 0, expired);
    }
    // It came second at the other one.
    board.release("c.test", run(3), 0, expired);
    board.take("c.test", PACE, run(4), later, expired).expect_err("the first run comes first");
    expired = expired.plus_ms(1_000);
    take(&mut board, expired).expect("all are free");
    assert!(names.iter().all(|name| board.take(name, PACE, run(4), later, expired).is_err()));
}

#[test]
fn a_run_registers_several_turns_or_none() {
    let (mut board, later) = (Board::new(0), T.plus_ms(600_000));
    board.take("b.test", PACE, run(1), later, T).expect("it is free");
    assert!(!board.renew(&["c.test".into(), "b.test".into()], run(2), later, T));
    assert!(board.take("c.test", PACE, run(3), later, T).is_ok(), "nothing was taken of it");
}

#[test]
fn what_is_held_by_hand_is_told_from_the_rest() {
    let (mut board, until) = (Board::new(0), T.plus_ms(60_000));
    board.hold("a.test", until, None, T);
    board.learn("b.test", PACE, &[answered(429, Some(60_000))], T, T);
    board.hold("c.test", until, Some("admin".into()), T);
    board.learn("c.test", PACE, &[answered(429, Some(90_000))], T, T);
    assert_eq!((board.held_off(T), board.all_held(T).count()), (vec!["b.test".into()], 3));
    board.free("b.test", T);
    assert_eq!((board.held_off(T), board.all_held(T).count()), (vec![], 2));
    board.hold("d.test", until.plus_ms(1), None, T);
    assert_eq!(board.all_held(until).map(|name| name.to_string()).collect::<Vec<_>>(), ["c.test", "d.test"], "the hold of one is over");
}
