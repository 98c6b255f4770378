//! Which job is told when: the part of the scheduler that decides. It knows no store and no actor; the scheduler and the simulation
//! drive it with a clock, and do what it returns.
//!
//! It holds nothing that is not stored. A job that is told twice decides once, so whatever may have been lost is told again.

use super::AHEAD_MS;
use super::agenda::Agenda;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use std::collections::HashMap;

/// The longest sleep: a clock that was set, or a machine that slept, is noticed after so long at most.
pub const LONGEST_SLEEP_MS: i64 = 250;
/// A job that was told and has not answered is told again after so long.
const ASK_AGAIN_MS: i64 = 10_000;
/// Jobs are read so long before they are told, so that nothing need be read when their time has come.
const READ_MS: i64 = 3_000;
/// Jobs that are read in one go.
const MOST_READ: usize = 20_000;
/// Jobs that are told in one go.
const TOLD_AT_ONCE: usize = 64;
/// Jobs that come within so many milliseconds are told together: what they write shares a commit, and nothing is urgent yet.
const TOGETHER_MS: i64 = 25;

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Jobs that are due.
    pub tell: Vec<JobId>,
    /// There are more of them: another turn at once.
    pub more: bool,
    /// The clock went back by so many milliseconds since the last turn: all jobs whose plans know of a later time are to be looked
    /// for, and given to [`Ticker::revise`].
    pub went_back_ms: Option<i64>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Ticker {
    agenda: Agenda,
    /// Jobs that were told, and when; they stand in the agenda again when they have answered.
    told: HashMap<JobId, Timestamp>,
    /// Jobs that come until then were given out to be read.
    read_until: Timestamp,
    /// The latest turn, or when the clock was seen after it.
    last_turn: Timestamp,
}

impl Ticker {
    /// One that knows no job yet. What is stored is read after `now`: if the clock goes back meanwhile, that is seen.
    #[must_use]
    pub fn starting(now: Timestamp) -> Self {
        Self { last_turn: now, ..Self::default() }
    }

    /// When a job comes: it is told a little before, or, if `at_its_time`, not before that.
    pub fn planned(&mut self, job: JobId, at: Option<Timestamp>, at_its_time: bool) {
        self.told.remove(&job);
        self.agenda.set(job, at.map(|at| if at_its_time { at } else { ahead_of(at) }));
    }

    /// These jobs know of a time that is still to come: they are told in the next turn, and decide what that means.
    pub fn revise(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        for job in jobs {
            self.agenda.set(job, Some(Timestamp::default()));
        }
    }

    /// The clock is seen between two turns: if it goes back from here before the next one, that is a step back too.
    pub fn see(&mut self, now: Timestamp) {
        self.last_turn = self.last_turn.max(now);
    }

    /// What is to be done at `now`.
    pub fn turn(&mut self, now: Timestamp) -> Turn {
        let back = self.last_turn.since_ms(now);
        self.last_turn = now;
        let mut turn = Turn { went_back_ms: (back > 0).then_some(back), ..Turn::default() };
        while let Some((_, job)) = self.agenda.pop_due(now) {
            self.told.insert(job, now);
            turn.tell.push(job);
            if turn.tell.len() == TOLD_AT_ONCE {
                turn.more = true;
                break;
            }
        }
        turn
    }

    /// Jobs whose time is near and that were not named before.
    pub fn read_ahead(&mut self, now: Timestamp) -> Vec<JobId> {
        let until = now.plus_ms(READ_MS);
        // After a step of the clock what was read is not what comes.
        let from = if self.read_until > until { now } else { self.read_until.max(now) };
        let near: Vec<(Timestamp, JobId)> = self.agenda.between(from, until).take(MOST_READ).collect();
        self.read_until = if near.len() == MOST_READ { near.last().map_or(until, |(at, _)| *at) } else { until };
        near.into_iter().map(|(_, job)| job).collect()
    }

    /// Jobs that were told long ago and have not answered: their actors may have died over it.
    pub fn unanswered(&mut self, now: Timestamp) -> Vec<JobId> {
        let mut again = Vec::new();
        for (job, since) in &mut self.told {
            if now.since_ms(*since) >= ASK_AGAIN_MS || *since > now {
                *since = now;
                again.push(*job);
            }
        }
        again
    }

    /// When the next turn is, if nothing happens before.
    #[must_use]
    pub fn wake(&self, now: Timestamp) -> Timestamp {
        let latest = now.plus_ms(LONGEST_SLEEP_MS);
        self.agenda.first().map_or(latest, |first| first.min(latest))
    }

    /// How many jobs come or are being told.
    #[must_use]
    pub fn len(&self) -> usize {
        self.agenda.len() + self.told.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// When a job that comes at `at` is told for the first time: not more than [`AHEAD_MS`] before.
fn ahead_of(at: Timestamp) -> Timestamp {
    let latest = at.plus_ms(TOGETHER_MS - 1 - AHEAD_MS);
    latest.plus_ms(-latest.0.rem_euclid(TOGETHER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_told_together_and_not_too_early() {
        let told: Vec<i64> = (10_000..10_100).map(|at| at - ahead_of(Timestamp(at)).0).collect();
        assert_eq!((told.iter().min(), told.iter().max()), (Some(&(AHEAD_MS - TOGETHER_MS + 1)), Some(&AHEAD_MS)));
        let together: std::collections::BTreeSet<_> = (10_000..10_100).map(|at| ahead_of(Timestamp(at))).collect();
        assert!(together.len() <= 5, "{together:?}");
    }

    #[test]
    fn a_step_back_is_seen_and_what_is_revised_is_told_at_once() {
        let (mut ticker, job) = (Ticker::default(), JobId::random());
        ticker.planned(job, Some(Timestamp(9_000_000)), false);
        assert_eq!(ticker.turn(Timestamp(5_000_000)), Turn::default());
        assert_eq!(ticker.turn(Timestamp(5_000_250)), Turn::default());
        assert_eq!(ticker.turn(Timestamp(1_000_000)), Turn { went_back_ms: Some(4_000_250), ..Turn::default() });
        ticker.revise([job]);
        assert_eq!(ticker.turn(Timestamp(1_000_001)), Turn { tell: vec![job], ..Turn::default() });
        assert_eq!(Ticker::starting(Timestamp(9)).turn(Timestamp(8)).went_back_ms, Some(1), "while the jobs were read");
        assert_eq!(ticker.unanswered(Timestamp(1_000_002)), []);
        assert_eq!(ticker.unanswered(Timestamp(1_010_001)), [job]);
        assert_eq!(ticker.unanswered(Timestamp(2)), [job], "the clock went back meanwhile");
        ticker.planned(job, None, false);
        assert!(ticker.is_empty());
    }
}
