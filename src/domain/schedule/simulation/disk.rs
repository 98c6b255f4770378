//! The ports of the simulated job: its disk, the actors of its runs, its scheduler.

use super::super::*;
use super::{Life, Run, World, follows};

impl World {
    /// The fire that was created ahead of its time: its time, kind and run.
    fn fire_ahead(&self, after: Timestamp) -> Option<(Timestamp, Kind, usize)> {
        self.disk.rows.iter().rev().find_map(|(at, (row, run, _))| {
            let run = run.filter(|run| self.disk.runs[*run].is_ahead && self.disk.runs[*run].life == Life::Open)?;
            (*at > after).then_some((*at, row.kind, run))
        })
    }
}

impl JobPorts for World {
    type Error = ();
    type Held = ();
    type Ending = Option<usize>;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn core(&mut self) -> Result<&mut JobCore, ()> {
        let disk = &self.disk;
        Ok(self.memory.get_or_insert_with(|| JobCore {
            rules: disk.policies.clone(),
            plan: disk.schedule().compile().expect("a schedule"),
            state: disk.state,
            next_at: disk.next_at(),
            is_on: disk.is_enabled(),
            changed_at: disk.changed_at(),
            may_be_ahead: may_be_ahead(&disk.policies),
            leaves_data: false,
        }))
    }

    fn forget_core(&mut self) {
        self.memory = None;
    }

    fn open(&self) -> Open {
        self.disk.open()
    }

    async fn look_again(&mut self) -> Result<(), ()> {
        Ok(())
    }

    async fn fired_after(&self, after: Timestamp) -> Result<Vec<Timestamp>, ()> {
        Ok(self.disk.fired_after(after))
    }

    async fn rewinds(&self, _: Timestamp, to: Timestamp) -> Result<Option<(Timestamp, Timestamp)>, ()> {
        Ok(self.disk.rows.range(..=to).next_back().map(|(_, (row, ..))| (row.at, row.until)))
    }

    async fn stop_open(&mut self) -> Result<(), ()> {
        for run in self.disk.runs.iter_mut().filter(|run| matches!(run.life, Life::Open | Life::Queued)) {
            run.life = Life::Over(crate::domain::run::RunState::Stopped, self.now);
        }
        Ok(())
    }

    async fn write_step(&mut self, step: Step, to: &Move) -> Result<(), ()> {
        let fired = step.rows.iter().filter(|row| matches!(row.fate, FireOutcome::Fire { .. }));
        self.ahead += fired.clone().filter(|row| row.at > to.now).count() as u64;
        self.fires += fired.count() as u64;
        let follows = follows(self.disk.schedule(), &self.disk.policies, &to.was);
        let version = self.disk.definitions.last().map_or(0, |definition| definition.version);
        self.write(to.was, |disk| {
            if let Some(after) = step.rewind {
                disk.rows.retain(|at, (_, run, _)| *at <= after || run.is_some());
                disk.set_back(after);
            }
            let mut queued_any = false;
            for row in step.rows {
                assert!(!disk.rows.contains_key(&row.at), "{} is decided twice", row.at);
                let run = if let FireOutcome::Fire { queued } = row.fate {
                    queued_any |= queued;
                    let life = if queued { Life::Queued } else { Life::Open };
                    disk.runs.push(Run { planned_at: row.at, life, is_ahead: row.at > to.now, follow: follows, asked: None });
                    Some(disk.runs.len() - 1)
                } else {
                    None
                };
                disk.rows.insert(row.at, (row, run, version));
            }
            if queued_any {
                disk.runs.iter_mut().filter(|run| matches!(run.life, Life::Open | Life::Queued)).for_each(|run| run.follow = true);
            }
            disk.state = to.state;
        })
    }

    fn ahead(&self, now: Timestamp) -> Option<Timestamp> {
        self.fire_ahead(now).map(|(at, ..)| at)
    }

    async fn hold_ahead(&mut self, _: Timestamp) -> Option<()> {
        (!self.dice.chance(4)).then_some(())
    }

    async fn read_ahead(&self, at: Timestamp) -> Result<Option<Ahead>, ()> {
        let before = || self.disk.rows.range(..at).rev();
        Ok(self.fire_ahead(at.plus_ms(-1)).map(|(at, kind, _)| Ahead {
            at,
            was_asked: kind == Kind::Asked,
            previous: before().find(|(_, (_, run, _))| run.is_some()).map(|(at, _)| *at),
            decided_until: before().next().map(|(_, (row, ..))| row.until).unwrap_or_default(),
        }))
    }

    async fn write_withdrawal(&mut self, at: Timestamp, to: &Move) -> Result<(), ()> {
        let (_, _, run) = self.fire_ahead(at.plus_ms(-1)).expect("it was read");
        self.write(to.was, |disk| {
            disk.state = to.state;
            disk.rows.remove(&at);
            // The run is gone: no other run refers to it by its index.
            disk.runs[run].life = Life::Withdrawn;
        })?;
        self.fires -= 1;
        self.withdrawn += 1;
        Ok(())
    }

    async fn write_end(&mut self, ended: Option<usize>, effects: &RunEndEffects, to: &Move) -> Result<(), ()> {
        self.write(to.was, |disk| {
            disk.state = to.state;
            if let Some(i) = ended {
                disk.runs[i].follow = false;
            }
            if effects.releases
                && let Some(run) = disk.runs.iter_mut().find(|run| run.life == Life::Queued)
            {
                run.life = Life::Open;
            }
        })
    }

    async fn write_move(&mut self, to: &Move) -> Result<(), ()> {
        self.write(to.was, |disk| disk.state = to.state)
    }

    fn announce(&mut self, at_its_time: bool) {
        let Some(core) = &self.memory else { return };
        assert_eq!(core.next_at, self.disk.next_at(), "what is announced is what is stored");
        self.ticker.planned(self.job, core.notify_at(self.now), at_its_time || !core.may_be_ahead);
        self.ticker.see(self.now);
    }
}
