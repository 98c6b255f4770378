//! Policies for fires that are late or overlap with a run, and for failed runs.

use super::{InvalidSchedule, LONGEST, is_default};
use serde::{Deserialize, Serialize};

/// The policies of one job. Absent values mean the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policies {
    /// Fires that passed while the broker was not running.
    #[serde(skip_serializing_if = "is_default")]
    pub misfire: Misfire,
    /// A fire while another run of the job is not over. Default: `skip` for a job with triggers, `allow` for one without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Retries of a failed run.
    #[serde(skip_serializing_if = "is_default")]
    pub retry: Retry,
    /// Milliseconds after its start at which an attempt is ended as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Number of consecutive failed runs after which the job is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u32>,
    /// Milliseconds after its scheduled time at which a run that has not begun causes an alert.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_after: Option<u64>,
    /// Milliseconds without a successful run after which there is an alert.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_after: Option<u64>,
    /// How much of its history is kept.
    #[serde(skip_serializing_if = "is_default")]
    pub keep: Keep,
}

/// Fires that passed while the broker was not running or too busy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Misfire {
    /// What to do.
    pub policy: MisfirePolicy,
    /// Milliseconds that a fire may be late and still counts as on time.
    pub grace: u64,
    /// Milliseconds: older fires are missed under every policy.
    pub window: u64,
    /// For `all`: the maximum number of fires to make up for, the latest ones.
    pub limit: u32,
}

impl Default for Misfire {
    fn default() -> Self {
        // One day: after a longer outage an operator should look first. XXL-JOB also uses 5 s as the grace period.
        Self { policy: MisfirePolicy::Once, grace: 5_000, window: 86_400_000, limit: 10 }
    }
}

/// See [`Misfire`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MisfirePolicy {
    /// One run now for all late fires.
    #[default]
    Once,
    /// No run.
    Skip,
    /// A run for each late fire, up to the limit.
    All,
}

/// A fire while another run of its job is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    /// No run.
    Skip,
    /// One run is queued until the other is over; further fires are merged into it.
    QueueOne,
    /// Each run is queued.
    QueueAll,
    /// The other run is stopped.
    Replace,
    /// Both run at once.
    Allow,
}

/// Retries of a failed run, under the same identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Retry {
    /// Number of attempts after the first.
    pub limit: u32,
    /// Milliseconds before the second attempt.
    pub delay: u64,
    /// The growth factor of the delay from attempt to attempt.
    pub factor: f64,
    /// The maximum delay in milliseconds.
    pub max_delay: u64,
    /// The fraction of the delay, 0 to 1, that is randomly added or subtracted.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { limit: 0, delay: 1_000, factor: 2.0, max_delay: 300_000, jitter: 0.1 }
    }
}

impl Retry {
    /// Milliseconds before attempt number `attempt` (2 and up); `chance` is between 0 and 1.
    #[must_use]
    pub fn delay_before(&self, attempt: u32, chance: f64) -> i64 {
        let steps = attempt.saturating_sub(2).min(1_000) as i32;
        let delay = (self.delay as f64 * self.factor.powi(steps)).min(self.max_delay as f64);
        (delay * (1.0 + self.jitter * (2.0 * chance - 1.0))).max(0.0) as i64
    }
}

/// How much of a job's history is kept; if absent, the broker's setting applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Keep {
    /// Maximum number of ended runs to keep, the newest ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// Milliseconds to keep a run after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
}

impl Policies {
    /// Checks the values.
    ///
    /// # Errors
    /// A value is not allowed.
    pub fn check(&self) -> Result<(), InvalidSchedule> {
        let within = |field: &str, ms: u64, least: u64| {
            if (least..=LONGEST).contains(&ms) { Ok(()) } else { Err(InvalidSchedule::out_of_range(field, ms, least)) }
        };
        within("misfire.grace", self.misfire.grace, 0)?;
        within("misfire.window", self.misfire.window, 0)?;
        if !(1..=10_000).contains(&self.misfire.limit) {
            return Err(InvalidSchedule::new("misfire.limit", format!("must be 1 to 10000, not {}", self.misfire.limit)));
        }
        if self.retry.limit > 1_000 {
            return Err(InvalidSchedule::new("retry.limit", format!("must be 0 to 1000, not {}", self.retry.limit)));
        }
        within("retry.delay", self.retry.delay, 0)?;
        within("retry.maxDelay", self.retry.max_delay, 0)?;
        if !(1.0..=100.0).contains(&self.retry.factor) {
            return Err(InvalidSchedule::new("retry.factor", format!("must be 1 to 100, not {}", self.retry.factor)));
        }
        if !(0.0..=1.0).contains(&self.retry.jitter) {
            return Err(InvalidSchedule::new("retry.jitter", format!("must be 0 to 1, not {}", self.retry.jitter)));
        }
        for (field, ms) in
            [("timeout", self.timeout), ("lateAfter", self.late_after), ("silentAfter", self.silent_after), ("keep.age", self.keep.age)]
        {
            ms.map_or(Ok(()), |ms| within(field, ms, 1))?;
        }
        if self.max_failures == Some(0) {
            return Err(InvalidSchedule::new("maxFailures", "must be 1 or more: 0 would disable the job before its first run"));
        }
        Ok(())
    }
}
