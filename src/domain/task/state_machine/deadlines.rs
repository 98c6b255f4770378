//! The time limits of attempts: the timeout of the job, or else a limit from the average of earlier runs.

use super::{Effect, Instance, Phase, StateMachine, Then};
use crate::domain::time::Timestamp;

/// Number of earlier runs that the average is over.
pub const AVERAGE_OF: i64 = 100;
/// A task without a timeout is compared with earlier runs after this many milliseconds, and never earlier.
const LEAST_MS: i64 = 5 * 60 * 1_000;
/// Its time limit if there are no earlier runs, in milliseconds.
const NO_AVERAGE_MS: i64 = 2 * 60 * 60 * 1_000;
/// The time limit is this multiple of the average.
const TIMES_AVERAGE: i64 = 3;

/// The time limit of an attempt.
#[derive(Debug, Clone, Default)]
pub struct Limit {
    /// Its end, and the reason for which the attempt has to end then.
    end: Option<(Timestamp, String)>,
    /// A limit from the average of earlier runs was requested.
    is_average_requested: bool,
}

impl StateMachine {
    /// The order of an attempt is sent: its timeout begins, unless the same order was sent before.
    pub fn sent(&mut self, i: usize, now: Timestamp) {
        let timeout = self.rules.timeout;
        let Some(limit) = self.instances.get_mut(i).map(|instance| &mut instance.limit) else { return };
        limit.is_average_requested = false;
        if let Some(timeout) = timeout {
            limit.end.get_or_insert_with(|| (now.plus_ms(timeout as i64), format!("it took longer than {timeout} ms")));
        }
    }

    /// An attempt has been running for this many milliseconds. Without a timeout its limit comes from earlier runs.
    pub fn still_running(&mut self, i: usize, attempt: u32, since_ms: i64) -> Vec<Effect> {
        let has_limit = self.rules.timeout.is_some() || since_ms < LEAST_MS;
        let Some(instance) = self.instance_at_worker(i, attempt).filter(|instance| !has_limit && !instance.limit.is_average_requested)
        else {
            return Vec::new();
        };
        instance.limit.is_average_requested = true;
        vec![Effect::ReadAverage(i, attempt, since_ms)]
    }

    /// The average milliseconds of earlier runs, if there are any: the answer to [`Effect::ReadAverage`].
    pub fn average(&mut self, i: usize, attempt: u32, since_ms: i64, average: Option<u64>, now: Timestamp) {
        let most = average.map_or(NO_AVERAGE_MS, |average| (average as i64).saturating_mul(TIMES_AVERAGE).max(LEAST_MS));
        if let Some(instance) = self.instances.get_mut(i).filter(|instance| instance.attempt == attempt) {
            let at = now.plus_ms((most - since_ms).max(0));
            instance.limit.end.get_or_insert_with(|| (at, format!("it took longer than {most} ms, far longer than earlier runs")));
        }
    }

    fn instance_at_worker(&mut self, i: usize, attempt: u32) -> Option<&mut Instance> {
        self.instances.get_mut(i).filter(|instance| instance.attempt == attempt && matches!(instance.phase, Phase::AtWorker(_)))
    }

    /// The time of the next tick, if nothing happens before.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        let of = |instance: &Instance| match instance.phase {
            Phase::Pausing(at) | Phase::Unclear(at) | Phase::Ending(_, at, _) => Some(at),
            Phase::AtWorker(_) => instance.limit.end.as_ref().map(|(at, _)| *at),
            _ => None,
        };
        self.instances.iter().filter_map(of).min()
    }

    /// Ends an attempt whose time limit has come.
    pub(super) fn check_limit(&mut self, i: usize, now: Timestamp, effects: &mut Vec<Effect>) {
        let instance = &mut self.instances[i];
        if let Some((_, reason)) = instance.limit.end.take_if(|(at, _)| *at <= now) {
            let attempt = instance.attempt;
            effects.extend(self.too_long(i, attempt, reason, now));
        }
    }

    /// An attempt exceeds its time limit: it has to end, and counts as failed.
    pub(super) fn too_long(&mut self, i: usize, attempt: u32, reason: String, now: Timestamp) -> Vec<Effect> {
        let until = now.plus_ms(self.grace().max(self.lease()));
        let Some(instance) = self.instance_at_worker(i, attempt) else { return Vec::new() };
        let Phase::AtWorker(worker) = instance.phase else { return Vec::new() };
        // Its worker stops it on order, or at the end of its lease, which is no longer renewed.
        instance.phase = Phase::Ending(worker, until, Then::Fail(reason.clone()));
        vec![Effect::Cancel(i, worker, attempt, reason)]
    }
}
