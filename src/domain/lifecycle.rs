//! The life cycle of a run in one actor, the same for every kind of job: it waits, works, and ends once or is retried.

use super::run::{Pause, Run, RunState};
use super::time::Timestamp;

/// See the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifeCycle(Phase);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is queued, or waits for its scheduled time or its next attempt.
    Waiting,
    Working,
    /// The end is decided and is being stored.
    Ending,
    /// The end of the attempt is decided and is being stored; another attempt follows.
    Retrying,
}

/// What the actor of a run does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Nothing: the run is queued, and its job notifies it.
    Queue,
    /// It waits this many milliseconds.
    Wait(u64),
    /// It begins.
    Begin,
}

/// Why a run cannot be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStop {
    /// It has ended or is ending.
    Over,
    /// Its next attempt is being stored: the caller should repeat the call.
    Retrying,
}

/// What follows the end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The run is over, with this reason.
    Over(Option<String>),
    /// Another attempt.
    Retry {
        /// Its number.
        attempt: u32,
        /// Its earliest time.
        not_before: Timestamp,
        /// Milliseconds until then.
        pause: i64,
        /// Why the last attempt failed.
        reason: String,
    },
}

impl LifeCycle {
    /// A run that has not begun in this actor.
    #[must_use]
    pub fn new() -> Self {
        Self(Phase::Waiting)
    }

    /// What the actor does first. After a pause that is too long the clock was set back, and the run begins.
    #[must_use]
    pub fn first(run: &Run, now: Timestamp) -> First {
        match run.pause(now) {
            _ if run.queued => First::Queue,
            Pause::For(ms) => First::Wait(ms),
            Pause::None | Pause::FromLater => First::Begin,
        }
    }

    /// The attempt begins, unless the run is ending.
    pub fn begin(&mut self) -> bool {
        let begins = !self.is_ending();
        if begins {
            self.0 = Phase::Working;
        }
        begins
    }

    /// The end of the run or of its attempt is decided.
    #[must_use]
    pub fn is_ending(self) -> bool {
        matches!(self.0, Phase::Ending | Phase::Retrying)
    }

    /// Whether a stop comes too late.
    ///
    /// # Errors
    /// It does, and why.
    pub fn check_stop(self) -> Result<(), NoStop> {
        match self.0 {
            Phase::Waiting | Phase::Working => Ok(()),
            Phase::Ending => Err(NoStop::Over),
            Phase::Retrying => Err(NoStop::Retrying),
        }
    }

    /// The run ends without a retry. Only the first call returns true.
    pub fn close(&mut self) -> bool {
        let closes = !self.is_ending();
        if closes {
            self.0 = Phase::Ending;
        }
        closes
    }

    /// Withdraws a run that was created ahead of its scheduled time and that nothing has touched.
    pub fn withdraw(&mut self, run: &Run, is_untouched: bool) -> bool {
        is_untouched && run.is_ahead() && self.close()
    }

    /// The attempt is over: a failed one is retried as the rules of the run say. `None`: the end was decided before. `chance` is
    /// between 0 and 1.
    pub fn end(&mut self, run: &Run, state: RunState, reason: Option<String>, now: Timestamp, chance: f64) -> Option<End> {
        if self.is_ending() {
            return None;
        }
        let pause = run.rules.next_attempt(run.attempt, chance).filter(|_| state == RunState::Failed);
        Some(match pause {
            None => {
                self.0 = Phase::Ending;
                End::Over(reason)
            }
            Some(pause) => {
                self.0 = Phase::Retrying;
                let reason = format!("attempt {} failed: {}", run.attempt, reason.unwrap_or_default());
                End::Retry { attempt: run.attempt + 1, not_before: now.plus_ms(pause), pause, reason }
            }
        })
    }
}

impl Default for LifeCycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::JobKind;
    use super::super::run::RunRules;
    use super::super::schedule::Retry;
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn run(retries: u32) -> Run {
        let retry = Some(Retry { limit: retries, delay: 500, ..Retry::default() });
        let rules = RunRules { retry, ..RunRules::default() };
        Run { rules, ..Run::sample(JobKind::Callback, NOW) }
    }

    #[test]
    fn a_run_begins_when_its_time_has_come() {
        let (mut queued, mut later) = (run(0), run(0));
        queued.queued = true;
        (later.attempt, later.not_before) = (2, Some(NOW.plus_ms(300)));
        assert_eq!(LifeCycle::first(&run(0), NOW), First::Begin);
        assert_eq!(LifeCycle::first(&queued, NOW), First::Queue);
        assert_eq!(LifeCycle::first(&later, NOW), First::Wait(300));
        assert_eq!(LifeCycle::first(&later, Timestamp(0)), First::Begin, "the clock was set back");
        later.queued = true;
        assert_eq!(LifeCycle::first(&later, NOW), First::Queue);
    }

    #[test]
    fn a_failed_attempt_is_retried_as_often_as_the_rules_say() {
        let mut run = run(1);
        let mut life = LifeCycle::new();
        assert!(life.0 == Phase::Waiting && life.begin() && life.0 == Phase::Working);
        let Some(End::Retry { attempt: 2, not_before, pause, reason }) = life.end(&run, RunState::Failed, Some("x".into()), NOW, 0.5)
        else {
            panic!("the first failure is retried");
        };
        assert_eq!((not_before, reason.as_str()), (NOW.plus_ms(pause), "attempt 1 failed: x"));
        assert_eq!(life.check_stop(), Err(NoStop::Retrying));
        assert_eq!(life.end(&run, RunState::Stopped, None, NOW, 0.5), None, "the end is decided once");
        assert!(!life.begin() && !life.close());

        run.attempt = 2;
        let mut life = LifeCycle::new();
        assert_eq!(life.end(&run, RunState::Failed, Some("x".into()), NOW, 0.5), Some(End::Over(Some("x".into()))));
        assert_eq!((life.check_stop(), life.is_ending()), (Err(NoStop::Over), true));
    }

    #[test]
    fn only_failures_are_retried() {
        for state in [RunState::Success, RunState::Stopped] {
            assert_eq!(LifeCycle::new().end(&run(5), state, None, NOW, 0.5), Some(End::Over(None)), "{state:?}");
        }
    }

    #[test]
    fn only_a_run_that_is_ahead_and_untouched_is_withdrawn() {
        let mut ahead = run(0);
        (ahead.planned_at, ahead.not_before) = (Some(NOW.plus_ms(200)), Some(NOW.plus_ms(200)));
        assert!(!LifeCycle::new().withdraw(&ahead, false) && !LifeCycle::new().withdraw(&run(0), true));
        let mut life = LifeCycle::new();
        assert!(life.withdraw(&ahead, true));
        assert!(!life.begin() && !life.withdraw(&ahead, true), "it is gone");
        let mut life = LifeCycle::new();
        assert!(life.end(&ahead, RunState::Stopped, None, NOW, 0.5).is_some() && !life.withdraw(&ahead, true), "it was stopped first");
    }
}
