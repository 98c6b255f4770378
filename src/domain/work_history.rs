//! What a worker did in each of the last minutes: a ring of counts, in memory only.

use std::collections::VecDeque;

/// Minutes that are kept: six hours.
pub const KEPT: usize = 360;
/// Milliseconds of a step.
pub const STEP_MS: i64 = 60_000;

/// One minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Minute {
    /// The highest number of tasks at one moment.
    pub running: u16,
    /// Tasks that succeeded.
    pub success: u16,
    /// Tasks that failed or were stopped.
    pub failed: u16,
}

/// See the module documentation. Minutes are counted since 1970.
#[derive(Debug, Default)]
pub struct WorkHistory {
    last: i64,
    minutes: VecDeque<Minute>,
    running: u16,
}

impl WorkHistory {
    /// The minute of now; the ones without a message since then had the tasks that were there.
    fn advance(&mut self, now_ms: i64) -> &mut Minute {
        let minute = now_ms.div_euclid(STEP_MS);
        let missing = if self.minutes.is_empty() { 1 } else { (minute - self.last).clamp(0, KEPT as i64) };
        for _ in 0..missing {
            self.minutes.push_back(Minute { running: self.running, ..Minute::default() });
        }
        while self.minutes.len() > KEPT {
            self.minutes.pop_front();
        }
        // A clock that was set back goes on in the last minute.
        self.last = if missing > 0 { minute } else { self.last };
        self.minutes.back_mut().expect("there is at least one")
    }

    /// The worker has this many tasks now.
    pub fn holds(&mut self, tasks: usize, now_ms: i64) {
        let running = u16::try_from(tasks).unwrap_or(u16::MAX);
        let minute = self.advance(now_ms);
        minute.running = minute.running.max(running);
        self.running = running;
    }

    /// A task ended.
    pub fn ended(&mut self, success: bool, now_ms: i64) {
        let minute = self.advance(now_ms);
        let count = if success { &mut minute.success } else { &mut minute.failed };
        *count = count.saturating_add(1);
    }

    /// The start of the first minute, and the minutes up to now.
    pub fn minutes(&mut self, now_ms: i64) -> (i64, Vec<Minute>) {
        self.advance(now_ms);
        let first = self.last - self.minutes.len() as i64 + 1;
        (first * STEP_MS, self.minutes.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_counted_and_the_oldest_go() {
        let mut history = WorkHistory::default();
        history.holds(2, 60_000);
        history.ended(true, 61_000);
        history.holds(1, 61_000);
        history.ended(false, 3 * 60_000 + 1);
        let minute = |running, success, failed| Minute { running, success, failed };
        assert_eq!(history.minutes(3 * 60_000 + 2), (60_000, vec![minute(2, 1, 0), minute(1, 0, 0), minute(1, 0, 1)]));
        // A clock that is set back loses nothing and makes no minute.
        history.ended(true, 60_000);
        assert_eq!(history.minutes(60_000).1.last(), Some(&minute(1, 1, 1)));
        let (first, minutes) = history.minutes(60_000 * 1_000_000);
        assert_eq!((first, minutes.len()), (60_000 * (1_000_000 - KEPT as i64 + 1), KEPT));
        assert_eq!(minutes[0], minute(1, 0, 0));
    }
}
