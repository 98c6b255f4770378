//! The scheduler of the simulated broker: the broker's own [`Ticker`], in a shell like `actors/scheduler`.

use super::super::*;
use super::World;

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

    /// As `Room::announce_next`.
    pub(super) fn announce(&mut self, at_its_time: bool) {
        let next_at = if self.disk.is_enabled() && self.disk.state.is_from_later(self.now) { Some(self.now) } else { self.disk.next_at() };
        self.ticker.planned(self.job, next_at, at_its_time);
        self.ticker.see(self.now);
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
                let Some(at_its_time) = self.told() else { return };
                self.announce(at_its_time);
            }
        }
        panic!("the scheduler does not come to rest at {}", self.now);
    }

    /// As `Room::due`: whether the job must not be notified again before its time; `None` if it crashed.
    fn told(&mut self) -> Option<bool> {
        let near = |world: &Self| world.disk.next_at().filter(|at| *at > world.now && at.since_ms(world.now) <= AHEAD_MS);
        let is_from_later = self.disk.state.is_from_later(self.now);
        if (near(self).is_none() || is_from_later) && !self.due(self.now) {
            return None;
        }
        if let Some(at) = near(self)
            && !self.decide_ahead(at)
        {
            return self.memory.map(|_| true);
        }
        self.memory.map(|_| !may_be_ahead(&self.disk.policies))
    }

    /// Checks that everything due was notified and decided.
    fn check_nothing_is_due(&self) {
        if !self.disk.is_enabled() {
            return;
        }
        let plan = self.disk.schedule().compile().expect("a schedule");
        let fired_ahead = self.disk.fired_ahead(&self.disk.state);
        let given = Circumstances { open: self.disk.open(), fired_ahead: &fired_ahead };
        let step = decide(&plan, &self.disk.policies, &self.disk.state, &given, self.now);
        // Fires that a requested time replaces are decided together with that time.
        let is_left = step.rewind.is_some() || step.passed || step.rows.iter().any(|row| row.rule != "asked");
        assert!(!is_left, "it is {}, and no job was told of this: {step:?}", self.now);
    }

    /// As `Room::settle_due`.
    pub(super) fn due(&mut self, now: Timestamp) -> bool {
        loop {
            let was = *self.memory.get_or_insert(self.disk.state);
            if !self.disk.is_enabled() && !was.is_from_later(now) {
                return true;
            }
            let plan = self.disk.schedule().compile().expect("a schedule");
            let fired_ahead = self.disk.fired_ahead(&was);
            let given = Circumstances { open: self.disk.open(), fired_ahead: &fired_ahead };
            let mut step = decide(&plan, &self.disk.policies, &was, &given, now);
            if let Some(after) = step.rewind
                && let Some((row, _, _)) = self.disk.rows.range(..=after).next_back().map(|(_, row)| row)
                && row.until > after
            {
                step.rewind_around(row.at);
            }
            if step.is_empty() {
                return true;
            }
            let more = step.more || step.rewind.is_some();
            if !self.write_step(was, step, now) {
                return false;
            }
            if !more {
                return true;
            }
        }
    }

    /// The time of the next fire is near.
    pub(super) fn due_soon(&mut self) {
        if let Some(at) = self.disk.next_at().filter(|at| *at > self.now) {
            self.now = self.now.max(at.plus_ms(-(1 + self.dice.roll(AHEAD_MS as u64) as i64)));
        }
        self.turn();
    }

    /// As the second half of `Room::settle_soon`: whether the fire is decided.
    fn decide_ahead(&mut self, at: Timestamp) -> bool {
        let was = *self.memory.get_or_insert(self.disk.state);
        let plan = self.disk.schedule().compile().expect("a schedule");
        let fired_ahead = self.disk.fired_ahead(&was);
        let given = Circumstances { open: self.disk.open(), fired_ahead: &fired_ahead };
        let Some(step) = decide_ahead(&plan, &self.disk.policies, &was, &given, at) else { return false };
        self.ahead += 1;
        self.write_step(was, step, self.now)
    }
}
