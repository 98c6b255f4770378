//! The scheduler of the simulated broker: the broker's own [`Ticker`], in a shell like `actors/scheduler`.

use super::super::*;
use super::{World, at_once};

impl World {
    /// As `Scheduler::load`.
    pub(super) fn load(&mut self) {
        self.ticker = Ticker::starting(self.now);
        if let Some(at) = self.disk.next_at() {
            self.ticker.planned(self.job, Some(at), false);
        }
        self.revise();
    }

    /// As `Scheduler::revise`.
    fn revise(&mut self) {
        if self.disk.is_enabled() && self.disk.state.is_from_later(self.now) {
            self.ticker.revise([self.job]);
        }
    }

    /// As `Scheduler::turn`, until there is nothing more to do now.
    pub(super) fn turn(&mut self) {
        for _ in 0..20 {
            let turn = self.ticker.turn(self.now);
            if turn.went_back_ms.is_some() {
                self.revise();
            } else if turn.tell.is_empty() {
                return self.check_nothing_is_due();
            }
            for _ in turn.tell {
                let Ok(waits) = at_once(job_core::due(self, self.now)) else { return };
                self.announce(waits);
            }
        }
        panic!("the scheduler does not come to rest at {}", self.now);
    }

    /// Checks that everything due was notified and decided.
    fn check_nothing_is_due(&self) {
        if !self.disk.is_enabled() {
            return;
        }
        let plan = self.disk.schedule().compile().expect("a schedule");
        let state = &self.disk.state;
        let fired_ahead = if state.may_have_fired_ahead() { self.disk.fired_after(state.decided_until) } else { Vec::new() };
        let given = Circumstances { open: self.disk.open(), fired_ahead: &fired_ahead };
        let step = decide(&plan, &self.disk.policies, &self.disk.state, &given, self.now);
        // Fires that a requested time replaces are decided together with that time.
        let is_left = step.rewind.is_some() || step.passed || step.rows.iter().any(|row| row.rule != "asked");
        assert!(!is_left, "it is {}, and no job was told of this: {step:?}", self.now);
    }

    /// The time of the next fire is near.
    pub(super) fn due_soon(&mut self) {
        if let Some(at) = self.disk.next_at().filter(|at| *at > self.now) {
            self.now = self.now.max(at.plus_ms(-(1 + self.dice.roll(AHEAD_MS as u64) as i64)));
        }
        self.turn();
    }
}
