//! Decides when each job is notified: the deciding part of the scheduler. It uses no store and no actor; the scheduler and the
//! simulation drive it with a clock, and execute its results.
//!
//! It contains no unstored state. A job that is notified twice decides once, so a notification that may be lost is repeated.

use super::AHEAD_MS;
use super::agenda::Agenda;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use std::collections::HashMap;

/// The longest sleep: a clock change or a suspended machine is detected after this time at most.
pub const LONGEST_SLEEP_MS: i64 = 250;
/// A notified job that has not answered is notified again after this time.
const ASK_AGAIN_MS: i64 = 10_000;
/// Jobs are loaded this long before they are due, so that nothing has to be read at their time.
const READ_MS: i64 = 3_000;
/// Maximum number of jobs that are loaded at once.
const MOST_READ: usize = 20_000;
/// Maximum number of jobs that are notified at once.
const TOLD_AT_ONCE: usize = 64;
/// Jobs due within this many milliseconds are notified together: their writes share a commit, and none is urgent yet.
const TOGETHER_MS: i64 = 25;

/// What the caller has to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Jobs to notify.
    pub tell: Vec<JobId>,
    /// More jobs are due: call again at once.
    pub more: bool,
    /// The clock went back by this many milliseconds since the last turn: the caller must find all jobs whose plans contain a later time,
    /// and pass them to [`Ticker::revise`].
    pub went_back_ms: Option<i64>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Ticker {
    agenda: Agenda,
    /// Notified jobs, and when; they return to the agenda when they answer.
    told: HashMap<JobId, Timestamp>,
    /// Jobs due until then were already returned for loading.
    read_until: Timestamp,
    /// The time of the latest turn, or of a later look at the clock.
    last_turn: Timestamp,
}

impl Ticker {
    /// A ticker without jobs. Stored jobs are read after `now`: if the clock goes back meanwhile, that is detected.
    #[must_use]
    pub fn starting(now: Timestamp) -> Self {
        Self { last_turn: now, ..Self::default() }
    }

    /// Sets the next time of a job: it is notified a little earlier, or, with `at_its_time`, not before that time.
    pub fn planned(&mut self, job: JobId, at: Option<Timestamp>, at_its_time: bool) {
        self.told.remove(&job);
        self.agenda.set(job, at.map(|at| if at_its_time { at } else { ahead_of(at) }));
    }

    /// Schedules jobs whose plans contain a future time for the next turn, so that they decide again.
    pub fn revise(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        for job in jobs {
            self.agenda.set(job, Some(Timestamp::default()));
        }
    }

    /// Records the clock between two turns, so that a step back from this time is detected.
    pub fn see(&mut self, now: Timestamp) {
        self.last_turn = self.last_turn.max(now);
    }

    /// Returns the actions for `now`.
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

    /// Jobs that are due soon and were not returned before.
    pub fn read_ahead(&mut self, now: Timestamp) -> Vec<JobId> {
        let until = now.plus_ms(READ_MS);
        // After a clock change the loaded jobs are not the next ones.
        let from = if self.read_until > until { now } else { self.read_until.max(now) };
        let near: Vec<(Timestamp, JobId)> = self.agenda.between(from, until).take(MOST_READ).collect();
        self.read_until = if near.len() == MOST_READ { near.last().map_or(until, |(at, _)| *at) } else { until };
        near.into_iter().map(|(_, job)| job).collect()
    }

    /// Jobs that were notified long ago and have not answered: their actors may have died.
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

    /// Number of jobs in the agenda or notified.
    #[must_use]
    pub fn len(&self) -> usize {
        self.agenda.len() + self.told.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// When a job with the time `at` is first notified: at most [`AHEAD_MS`] before.
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
