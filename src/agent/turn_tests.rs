use super::*;

const LIMITS: Limits = Limits { delay: 100, jitter: 0, connections: 1, not_before: 0, right: 1_000, tries: 4, first_wait: 0 };

fn begun(turn: &mut Turn, now: Millis) -> usize {
    let Claim::Take(place) = turn.claim(now, now) else { panic!("nothing at {now}: {turn:?}") };
    assert_eq!(turn.begin(place, now, now, 0.0), Begin::Go);
    place
}

#[test]
fn beginnings_keep_their_distance_and_their_number() {
    let mut turn = Turn::new(Limits { connections: 2, not_before: 50, ..LIMITS }, 4);
    assert_eq!(turn.claim(0, 0), Claim::At(50));
    assert_eq!(begun(&mut turn, 50), 0);
    assert_eq!(turn.claim(60, 60), Claim::At(150));
    assert_eq!(begun(&mut turn, 150), 1);
    assert_eq!(turn.claim(400, 400), Claim::Later, "two are under way");
    assert_eq!(turn.end(0, End::Done, 1, 400), NextStep::Report);
    assert_eq!(turn.claim(400, 400), Claim::At(500), "the delay counts from the end of the answer");
    assert_eq!(turn.claim(500, 500), Claim::Take(2));
    assert_eq!(turn.claim(500, 500), Claim::Later, "the third has not begun");
    // The second is redirected, and its next hop comes first.
    turn.answered(500);
    assert_eq!(turn.begin(1, 500, 500, 0.0), Begin::At(600));
    assert_eq!(turn.begin(1, 600, 600, 0.0), Begin::Go);
    assert_eq!(turn.begin(2, 650, 650, 0.0), Begin::At(700));
    assert_eq!(turn.begin(2, 700, 700, 0.0), Begin::Go);
    assert_eq!(turn.end(1, End::Done, 1, 710), NextStep::Report);
    assert_eq!(turn.claim(720, 720), Claim::At(810));
    assert_eq!(begun(&mut turn, 810), 3);
    assert_eq!((turn.end(3, End::Done, 1, 820), turn.end(2, End::Done, 1, 820)), (NextStep::Report, NextStep::Report));
    assert_eq!((turn.claim(900, 900), turn.hold()), (Claim::Over, None));
}

#[test]
fn a_request_that_was_not_sent_costs_no_delay() {
    let mut turn = Turn::new(LIMITS, 2);
    assert_eq!(turn.claim(0, 0), Claim::Take(0));
    assert_eq!(turn.end(0, End::Done, 0, 5), NextStep::Report);
    assert_eq!(turn.claim(5, 5), Claim::Take(1));
}

#[test]
fn jitter_is_added_to_the_delay() {
    let mut turn = Turn::new(Limits { jitter: 50, ..LIMITS }, 2);
    assert_eq!(turn.claim(0, 0), Claim::Take(0));
    assert_eq!(turn.begin(0, 0, 0, 0.5), Begin::Go);
    turn.end(0, End::Done, 1, 1);
    assert_eq!(turn.claim(1, 1), Claim::At(125));
}

#[test]
fn without_a_word_from_the_broker_nothing_begins() {
    let mut turn = Turn::new(LIMITS, 2);
    assert_eq!(turn.claim(999, 0), Claim::Take(0));
    assert_eq!(turn.begin(0, 1_000, 0, 0.0), Begin::Later);
    assert_eq!(turn.begin(0, 1_001, 1, 0.0), Begin::Later);
    assert_eq!(turn.begin(0, 1_001, 2, 0.0), Begin::Go);
    turn.end(0, End::Done, 1, 1_100);
    assert_eq!(turn.claim(1_200, 2), Claim::Later);
    assert_eq!(turn.claim(1_200, 1_200), Claim::Take(1));
}

#[test]
fn a_site_that_wants_to_be_left_alone_ends_the_turn() {
    let mut turn = Turn::new(Limits { connections: 2, ..LIMITS }, 4);
    begun(&mut turn, 0);
    begun(&mut turn, 100);
    assert_eq!(turn.end(1, End::Hold(Some(5_000), true), 1, 150), NextStep::GiveBack);
    assert_eq!((turn.claim(900, 900), turn.begin(0, 900, 900, 0.0)), (Claim::Over, Begin::Over));
    // Of several waits the longest counts.
    assert_eq!(turn.end(0, End::Hold(None, true), 4, 200), NextStep::Report);
    assert_eq!((turn.hold(), turn.take_rest().collect::<Vec<_>>()), (Some(Some(5_150)), vec![2, 3]));
}

#[test]
fn two_troubles_one_after_the_other_end_the_turn() {
    let mut turn = Turn::new(LIMITS, 4);
    begun(&mut turn, 0);
    assert_eq!(turn.end(0, End::Trouble(true), 1, 10), NextStep::Retry);
    begun(&mut turn, 110);
    assert_eq!(turn.end(1, End::Done, 1, 120), NextStep::Report);
    begun(&mut turn, 220);
    assert_eq!(turn.end(2, End::Trouble(false), 1, 230), NextStep::Report);
    begun(&mut turn, 330);
    assert_eq!(turn.end(3, End::Trouble(true), 3, 340), NextStep::GiveBack);
    assert_eq!((turn.hold(), turn.take_rest().collect::<Vec<_>>()), (Some(None), vec![0]));
}

#[test]
fn three_requests_that_fail_one_after_the_other_end_the_turn() {
    let mut turn = Turn::new(LIMITS, 6);
    let fails = |turn: &mut Turn, now: Millis, end, tries| {
        let place = begun(turn, now);
        (place, turn.end(place, end, tries, now + 10))
    };
    assert_eq!(fails(&mut turn, 0, End::Failed(true), 1), (0, NextStep::Retry));
    assert_eq!(fails(&mut turn, 200, End::Failed(false), 1), (1, NextStep::Report));
    assert_eq!(fails(&mut turn, 400, End::Done, 1), (2, NextStep::Report), "the site is well");
    assert_eq!(fails(&mut turn, 600, End::Failed(true), 1), (3, NextStep::Retry));
    assert_eq!(fails(&mut turn, 800, End::Trouble(true), 1), (4, NextStep::Retry));
    assert_eq!(fails(&mut turn, 1_000, End::Failed(true), 1), (5, NextStep::GiveBack));
    assert_eq!((turn.claim(2_000, 2_000), turn.hold()), (Claim::Over, Some(None)));
    assert_eq!(turn.take_rest().collect::<Vec<_>>(), vec![0, 3, 4]);
    // A request that fails again and again is one broken page.
    let mut turn = Turn::new(LIMITS, 1);
    for (now, tries) in [(0, 1), (200, 2), (400, 3)] {
        assert_eq!(fails(&mut turn, now, End::Failed(true), tries), (0, NextStep::Retry));
    }
    assert_eq!(fails(&mut turn, 600, End::Failed(true), 4), (0, NextStep::Report));
    assert_eq!(turn.hold(), None);
}

#[test]
fn a_site_that_answers_slowly_rests_as_long() {
    let mut turn = Turn::new(LIMITS, 9);
    let mut answer = |now: Millis, took: Millis| {
        let place = begun(&mut turn, now);
        turn.end(place, End::Done, 1, now + took);
        let Claim::At(next) = turn.outlook(now + took, now + took) else { panic!("{turn:?}") };
        next - now - took
    };
    assert_eq!(answer(1_000, 10), 100, "the delay is longer");
    assert_eq!(answer(2_000, 900), 900);
    assert_eq!(answer(4_000, 100), 500, "a quick answer halves the difference");
    assert_eq!(answer(5_000, 2_000), 2_000);
    assert_eq!(answer(10_000, 60_000), 30_000, "at most");
    let mut turn = Turn::new(Limits { connections: 2, ..LIMITS }, 2);
    let place = begun(&mut turn, 0);
    turn.end(place, End::Done, 1, 900);
    assert_eq!(turn.outlook(900, 900), Claim::At(1_000), "with several at once the broker adapts the delay");
}

#[test]
fn a_request_that_failed_is_tried_at_the_end_until_its_tries_are_used_up() {
    let mut turn = Turn::new(Limits { first_wait: 300, ..LIMITS }, 2);
    begun(&mut turn, 0);
    assert_eq!(turn.end(0, End::Failed(true), 1, 10), NextStep::Retry);
    assert_eq!(begun(&mut turn, 110), 1);
    assert_eq!(turn.end(1, End::Done, 1, 120), NextStep::Report);
    assert_eq!(turn.claim(200, 200), Claim::At(310));
    assert_eq!(begun(&mut turn, 310), 0);
    assert_eq!(turn.end(0, End::Moved, 2, 320), NextStep::Retry);
    assert_eq!(begun(&mut turn, 420), 0);
    assert_eq!(turn.end(0, End::Failed(true), 4, 430), NextStep::Report, "earlier nodes have tried it too");
    assert_eq!(turn.claim(430, 430), Claim::Over);
}

/// A request in progress in the simulation.
struct Flight {
    place: usize,
    ends: Millis,
    is_begun: bool,
    hops: u32,
}

/// A site and a broker with random behaviour, many times.
#[test]
fn whatever_happens_the_pace_is_kept() {
    for seed in 1..=400_u64 {
        let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |most: u64| {
            z ^= z << 13;
            z ^= z >> 7;
            z ^= z << 17;
            z % (most + 1)
        };
        let limits = Limits {
            delay: random(120),
            jitter: random(1) * random(80),
            connections: random(4) as u32,
            not_before: random(1) * random(300),
            right: 50 + random(400),
            tries: 1 + random(3) as u32,
            first_wait: random(100),
        };
        let count = random(30) as usize;
        let is_hostile = random(2) == 0;
        let mut turn = Turn::new(limits, count);
        let (mut heard, mut flights, mut tries) = (0, Vec::<Flight>::new(), vec![0_u32; count]);
        let (mut ends, mut last, mut now) = (vec![None; count], None::<Millis>, 0);
        loop {
            assert!(now < 1_000_000, "seed {seed} does not end: {turn:?}");
            // Messages of the broker arrive often, with gaps.
            if random(20) == 0 || now - heard > 600 {
                heard = now;
            }
            let claim = turn.claim(now, heard);
            match claim {
                Claim::Take(place) => flights.push(Flight { place, ends: 0, is_begun: false, hops: random(5) as u32 / 4 }),
                Claim::At(at) => assert!(at > now, "seed {seed}"),
                Claim::Over if flights.is_empty() => break,
                Claim::Over | Claim::Later => {}
            }
            let (mut n, mut ended) = (0, Vec::new());
            while n < flights.len() {
                let flight = &mut flights[n];
                if !flight.is_begun {
                    match turn.begin(flight.place, now, heard, random(100) as f64 / 100.0) {
                        Begin::Go => {
                            assert!(turn.hold().is_none() && now >= limits.not_before && now - heard < limits.right, "seed {seed}");
                            assert!(last.is_none_or(|last| now >= last + limits.delay), "seed {seed}: {now} after {last:?}");
                            last = Some(now);
                            flight.is_begun = true;
                            flight.ends = now + random(200);
                            tries[flight.place] += 1;
                        }
                        Begin::At(at) => assert!(at > now, "seed {seed}"),
                        Begin::Later => assert!(now - heard >= limits.right, "seed {seed}"),
                        Begin::Over => ended.push((flights.remove(n).place, End::Stopped)),
                    }
                } else if flight.ends <= now {
                    if flight.hops > 0 {
                        (flight.hops, flight.is_begun) = (flight.hops - 1, false);
                        tries[flight.place] -= 1;
                        turn.answered(now);
                        last = Some(now);
                    } else {
                        let end = match random(if is_hostile { 12 } else { 60 }) {
                            0 => End::Hold((random(1) == 0).then(|| random(1_000)), random(3) > 0),
                            1 | 2 => End::Trouble(random(3) > 0),
                            3 | 4 => End::Failed(random(3) > 0),
                            5 => End::Moved,
                            _ => End::Done,
                        };
                        ended.push((flights.remove(n).place, end));
                    }
                }
                n += 1;
            }
            assert!(flights.len() <= limits.connections.max(1) as usize, "seed {seed}");
            for (place, end) in ended {
                if end != End::Stopped {
                    last = Some(now);
                }
                match turn.end(place, end, tries[place], now) {
                    NextStep::Retry => assert!(turn.hold().is_none(), "seed {seed}"),
                    next => assert_eq!(ends[place].replace(next), None, "seed {seed}: {place} ended twice"),
                }
            }
            now += 1 + random(1) * random(15);
        }
        let is_held = turn.hold().is_some();
        for place in turn.take_rest() {
            assert!(is_held, "seed {seed}");
            assert_eq!(ends[place].replace(NextStep::GiveBack), None, "seed {seed}");
        }
        assert!(ends.iter().all(Option::is_some), "seed {seed}: {ends:?}");
    }
}
