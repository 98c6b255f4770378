//! The settings that are in force.

use super::Service;
use crate::domain::time::span_text;
use crate::protocol::settings::SettingOutput;

/// Without a value.
const NONE: &str = "none";

impl Service {
    /// The settings of this broker that decide how it works, without secrets and paths.
    #[must_use]
    pub fn settings(&self) -> Vec<SettingOutput> {
        let context = &self.context;
        let (times, keep) = (context.times, context.keep);
        let of = |name: &str, value: String, text: &str| SettingOutput { name: name.to_owned(), value, description: text.to_owned() };
        let ms = |name, ms: u64, text| of(name, span_text(ms), text);
        let rules = context.sites.rules.len();
        vec![
            ms("--node-heartbeat", times.node_heartbeat, "Interval between two heartbeats of a node."),
            ms("--node-offline", times.node_offline, "A node that is silent for this long is lost."),
            ms("--worker-offline", times.worker_offline, "A worker that is silent for this long is lost."),
            ms("--grace", times.grace, "A peer whose connection broke may connect again within this time and keep its work."),
            ms("--lease-ms", context.lease_ms, "If the leader gives no sign of life for this long, another broker takes over."),
            of("--keep-runs", keep.runs.to_string(), "Ended runs that are kept of each job, unless the job has its own number."),
            ms("--keep-days", keep.age_ms, "Ended runs, the ledger, changes and alerts are deleted after this time."),
            of("--keep-logs-mb", (keep.log_bytes >> 20).to_string(), "MB of logs of all runs together."),
            ms("--clean-every", keep.every_ms, "Interval between two cleanings."),
            ms("--alert-gather", context.alerts.gather_ms, "Further events about a job are gathered into one message for this long."),
            of("--smtp-url", if context.alerts.mail.is_some() { "set" } else { NONE }.to_owned(), "The mail server for alerts."),
            of("--site", if rules == 0 { NONE.to_owned() } else { format!("{rules} rules") }, "Limits for sites, for all jobs."),
        ]
    }
}
