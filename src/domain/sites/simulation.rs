//! Simulates many sites with seeded random numbers: paces, responses, failures, restarts and clocks that go back. After every step
//! the guarantees hold, and a recovered site returns to its pace.

use super::state::MOST_HOLD_MS;
use super::*;
use crate::domain::time::Timestamp;
use proptest::prelude::*;

pub(super) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    pub fn below(&mut self, most: u32) -> u32 {
        self.roll() % most.max(1)
    }
}

/// A site, and the log that it keeps itself.
struct Site {
    state: SiteState,
    pace: Pace,
    /// The start and the end of each request in progress.
    under_way: Vec<(Timestamp, Timestamp, Outcome)>,
    /// The start of the last request, or the end of the last response.
    last: Option<Timestamp>,
    asked_until: Option<Timestamp>,
}

fn outcome(dice: &mut Dice, is_well: bool) -> Outcome {
    let elapsed_ms = if is_well { dice.below(50) } else { dice.below(8_000) };
    let ended = match dice.below(if is_well { 1 } else { 10 }) {
        0..=3 => Ended::Answered([200, 301, 404][dice.below(3) as usize]),
        4 => Ended::Answered(429),
        5 => Ended::Answered(503),
        6 => Ended::TimedOut,
        7 => Ended::Refused,
        8 => Ended::Answered(500),
        _ => [Ended::Dns, Ended::Tls, Ended::Unknown][dice.below(3) as usize],
    };
    let may_ask = matches!(ended, Ended::Answered(429 | 503)) && dice.below(2) == 0;
    Outcome { ended, elapsed_ms, retry_after_ms: may_ask.then(|| dice.below(600_000)) }
}

impl Site {
    fn step(&mut self, now: Timestamp, dice: &mut Dice, is_well: bool) -> Result<(), TestCaseError> {
        self.under_way.sort_unstable_by_key(|(_, end, _)| *end);
        while self.under_way.first().is_some_and(|(_, end, _)| *end <= now) {
            let (_, end, outcome) = self.under_way.remove(0);
            self.state.ended(end, self.pace, outcome);
            self.last = self.last.max(Some(end));
            if let (Ended::Answered(429 | 503), Some(ms)) = (outcome.ended, outcome.retry_after_ms) {
                self.asked_until = self.asked_until.max(Some(end.plus_ms(ms.into())));
            }
        }
        while self.state.may_begin(now, self.pace) == Begin::Yes {
            prop_assert!(self.under_way.len() < usize::from(self.pace.connections), "more connections than allowed");
            if let Some(last) = self.last {
                prop_assert!(now.since_ms(last) >= i64::from(self.pace.delay_ms), "closer than the delay");
            }
            prop_assert!(self.asked_until.is_none_or(|until| until <= now), "asked while it said to wait");
            prop_assert!(self.state.held_until(now).is_none(), "asked while held");
            let outcome = outcome(dice, is_well);
            self.state.begun(now, self.pace, dice.roll());
            self.under_way.push((now, now.plus_ms(outcome.elapsed_ms.into()), outcome));
            self.last = Some(now);
            prop_assert_eq!(usize::from(self.state.connections()), self.under_way.len());
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    #[test]
    fn no_site_is_asked_too_early_and_each_recovers(seed in 1..u64::MAX) {
        let mut dice = Dice(seed);
        let mut now = Timestamp(1_800_000_000_000);
        let mut sites: Vec<Site> = (0..24)
            .map(|_| {
                let pace = Pace { connections: 1 + dice.below(4) as u16, delay_ms: [0, 100, 1_000, 5_000][dice.below(4) as usize] };
                Site { state: SiteState::default(), pace, under_way: Vec::new(), last: None, asked_until: None }
            })
            .collect();
        for _ in 0..2_000 {
            now = now.plus_ms(i64::from(dice.below(700)));
            for site in &mut sites {
                // A restart: the broker loses the requests in progress, and so does the site.
                if dice.below(500) == 0 {
                    site.state = SiteState::of_row(&site.state.to_row()).expect("a row");
                    site.under_way.clear();
                }
                site.step(now, &mut dice, false)?;
            }
        }
        // All sites are healthy from now on. The longest hold-off ends after ten minutes (requested by a site) or an hour.
        let well_from = now;
        for site in &mut sites {
            let mut now = well_from;
            site.under_way.sort_unstable_by_key(|(_, end, _)| *end);
            for (_, end, outcome) in site.under_way.drain(..) {
                now = now.max(end);
                site.state.ended(end, site.pace, outcome);
            }
            now = site.state.next_at(now);
            prop_assert!(now.since_ms(well_from) <= i64::from(MOST_HOLD_MS) + 60_000, "held for ever");
            // One probe and a dozen successful responses restore the pace.
            for _ in 0..16 {
                now = site.state.next_at(now);
                prop_assert_eq!(site.state.may_begin(now, site.pace), Begin::Yes);
                site.state.begun(now, site.pace, 0);
                site.state.ended(now.plus_ms(5), site.pace, Outcome { ended: Ended::Answered(200), elapsed_ms: 5, retry_after_ms: None });
                now = now.plus_ms(5);
            }
            prop_assert!(site.state.delay_ms(site.pace) <= site.pace.delay_ms.max(8), "not back at its pace: {:?}", site.state);
            prop_assert_eq!(site.state.failures(), 0);
        }
    }

    /// When the clock goes back, no wait gets longer, and no site gets stuck.
    #[test]
    fn no_wait_grows_when_the_clock_goes_back(seed in 1..u64::MAX) {
        let mut dice = Dice(seed);
        let mut now = Timestamp(1_800_000_000_000);
        let mut state = SiteState::default();
        let pace = Pace::default();
        for _ in 0..500 {
            now = now.plus_ms(i64::from(dice.below(20_000)));
            let left = state.next_at(now).since_ms(now);
            if dice.below(4) == 0 {
                now = now.plus_ms(-i64::from(dice.below(1_000_000)));
                if let Begin::NotBefore(until, _) = state.may_begin(now, pace) {
                    // Seen from the time of its last change a wait may have been longer, but never longer than originally set.
                    prop_assert!(until.since_ms(now) <= left.max(i64::from(u32::from_le_bytes(state.to_row()[8..12].try_into().expect("4"))))
                        .max(i64::from(u32::from_le_bytes(state.to_row()[12..16].try_into().expect("4")))));
                    now = until;
                    prop_assert_eq!(state.may_begin(now, pace), Begin::Yes);
                }
            }
            if state.may_begin(now, pace) == Begin::Yes {
                state.begun(now, pace, dice.roll());
                let outcome = outcome(&mut dice, false);
                now = now.plus_ms(outcome.elapsed_ms.into());
                state.ended(now, pace, outcome);
            }
        }
    }
}
