//! Metrics of the broker.

use super::Service;
use crate::actors::counts::ENDS;
use crate::actors::lateness::{BOUNDS_MS, Histogram};
use crate::actors::reply::problem_of;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use crate::protocol::actors::ActorFilter;
use crate::protocol::exposition::Exposition;
use crate::protocol::management::Lateness;
use crate::protocol::problem::Problem;
use crate::store::{BOUNDS_US, LatenessOf, OpenRunCounts, RecentLateness, TransactionTimes, WaitingAlerts};
use std::collections::{BTreeMap, HashMap};

/// Number of fires in the lateness of a job.
const FIRES: usize = 1_000;
/// Number of recent fires of all jobs in a page, and maximum number of jobs in it.
const RECENT_FIRES: usize = 5_000;
const MOST_JOBS: usize = 100;

impl Service {
    /// Lateness of the latest fires of a job, from the scheduled time to the order to a worker.
    ///
    /// # Errors
    /// The job does not exist.
    pub async fn lateness(&self, id: JobId) -> Result<Lateness, Problem> {
        self.stored_job(id, true).await?;
        let late = self.context.store.read(LatenessOf { job_id: id, limit: FIRES }).await.map_err(|e| problem_of(&e))?;
        Ok(summary(late))
    }

    /// The metrics of the actors, the store and the process. `of_runs`: at a broker that does not lead, the service
    /// of the runs that it executes for the leader, if there are any.
    ///
    /// # Errors
    /// The store fails.
    pub async fn metrics(&self, of_runs: Option<&Self>) -> Result<Exposition, Problem> {
        let store = &self.context.store;
        let open = store.read(OpenRunCounts).await.map_err(|e| problem_of(&e))?;
        let recent = store.read(RecentLateness { limit: RECENT_FIRES }).await.map_err(|e| problem_of(&e))?;
        let alerts = store.read(WaitingAlerts).await.map_err(|e| problem_of(&e))?;
        let mut page = Exposition::default();
        self.of_the_scheduler(&mut page, &open);
        self.of_downloads(&mut page);
        of_jobs(&mut page, recent);
        // A broker that executes runs for the leader also knows nodes and workers, but they are connected to the leader.
        let addresses = &self.context.addresses;
        page.single("webloom_nodes_online", "gauge", "Connected nodes.", addresses.nodes.all().len() as f64);
        page.single("webloom_workers_online", "gauge", "Connected workers.", addresses.workers.all().len() as f64);
        let (leads, term) = self.leadership();
        page.single("webloom_leader", "gauge", "1 if this broker is the leader, 0 if it is a standby.", f64::from(u8::from(leads)));
        page.single("webloom_leader_term", "gauge", "The leader's term, increased whenever a broker takes over.", term as f64);
        of_runs.unwrap_or(self).of_the_rest(&mut page, alerts);
        of_the_process(&mut page, self.context.since);
        Ok(page)
    }

    fn of_the_scheduler(&self, page: &mut Exposition, open: &[(String, u64)]) {
        let late = &self.context.counters.lateness;
        for (name, help, histogram) in [
            ("webloom_fire_to_ledger_seconds", "From the scheduled time of a fire to its row in the ledger.", &late.to_ledger),
            ("webloom_fire_to_sent_seconds", "From there to the order to a worker, or to the HTTP request.", &late.to_sent),
            ("webloom_fire_to_started_seconds", "From there to the first sign of work.", &late.to_started),
        ] {
            write_histogram(page, name, help, histogram);
        }
        page.single("webloom_agenda_jobs", "gauge", "Jobs that have a next fire.", self.context.counters.counts.agenda() as f64);
        page.metric("webloom_fires_total", "counter", "Scheduled times by outcome, since the start.");
        for (verdict, count) in self.context.counters.counts.fires() {
            page.sample("webloom_fires_total", &[("verdict", verdict)], count as f64);
        }
        page.metric("webloom_runs", "gauge", "Active runs; `queued` wait behind another run of their job.");
        for (state, count) in open {
            page.sample("webloom_runs", &[("state", state)], *count as f64);
        }
        page.metric("webloom_runs_ended_total", "counter", "Runs that ended, since the start.");
        for (state, count) in self.context.counters.counts.ends() {
            page.sample("webloom_runs_ended_total", &[("state", state.name())], count as f64);
        }
        let name = "webloom_tasks_ended_total";
        page.metric(name, "counter", "Runs of tasks that ended, by handler, since the start.");
        for (handler, counts) in self.context.counters.counts.tasks.all() {
            for (state, count) in ENDS.into_iter().zip(counts) {
                page.sample(name, &[("handler", &handler), ("state", state.name())], count as f64);
            }
        }
    }

    fn of_downloads(&self, page: &mut Exposition) {
        let downloads = &self.context.counters.downloads;
        let (success, failed, bytes) = downloads.totals();
        page.metric("webloom_requests_total", "counter", "Requests of block jobs with a result, since the start.");
        for (result, count) in [("success", success), ("failed", failed)] {
            page.sample("webloom_requests_total", &[("result", result)], count as f64);
        }
        page.metric("webloom_request_errors_total", "counter", "Failed requests by kind, since the start.");
        for (kind, count) in downloads.errors() {
            page.sample("webloom_request_errors_total", &[("kind", kind)], count as f64);
        }
        page.single("webloom_downloaded_bytes_total", "counter", "Bytes of the bodies of responses, since the start.", bytes as f64);
        write_histogram(page, "webloom_answer_seconds", "Duration of the last try of answered requests.", &downloads.answer);
    }

    fn of_the_rest(&self, page: &mut Exposition, alerts: i64) {
        let waiting = self.context.addresses.actor_stats.waiting("run");
        page.single(
            "webloom_requests_waiting",
            "gauge",
            "Requests without a result, of active runs that this broker executes.",
            waiting as f64,
        );
        let stats = self.context.store.stats();
        page.single("webloom_store_queue_operations", "gauge", "Writes that wait or are in progress.", stats.depth as f64);
        page.single("webloom_store_queue_bytes", "gauge", "Bytes of these writes.", stats.depth_bytes as f64);
        page.single("webloom_store_written_total", "counter", "Completed writes, including rejected ones.", stats.written as f64);
        page.single("webloom_store_transactions_total", "counter", "Transactions committed.", stats.batches as f64);
        page.single("webloom_store_failures_total", "counter", "Transactions and reads that failed.", stats.failures as f64);
        let TransactionTimes { upto, count, sum } = stats.times;
        let seconds = |us: u64| us as f64 / 1e6;
        let upto = BOUNDS_US.into_iter().map(seconds).zip(upto);
        page.histogram(
            "webloom_store_transaction_seconds",
            "Duration of the committed transactions, with their commit.",
            upto,
            count,
            seconds(sum),
        );
        let lost = self.context.counters.counts.lost_results() as f64;
        page.single("webloom_results_lost_total", "counter", "Blocks whose stored results were found lost or damaged.", lost);
        let mut actors: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for actor in self.own_actors(&ActorFilter::default()) {
            let (count, restarts, depth) = actors.entry(actor.kind).or_default();
            *count += 1;
            *restarts += u64::from(actor.restarts);
            *depth += actor.queue_depth;
        }
        type Of = fn(&(u64, u64, u64)) -> u64;
        let columns: [(&str, &str, Of); 3] = [
            ("webloom_actors", "Live actors, by kind.", |actor| actor.0),
            ("webloom_actor_restarts", "Restarts of the live actors, by kind.", |actor| actor.1),
            ("webloom_actor_queue_messages", "Messages in the mailboxes of the live actors, by kind.", |actor| actor.2),
        ];
        for (name, help, of) in columns {
            page.metric(name, "gauge", help);
            for (kind, numbers) in &actors {
                page.sample(name, &[("kind", kind)], of(numbers) as f64);
            }
        }
        let (known, active, held) = self.context.sites.board().counts(Timestamp::steady());
        page.metric(
            "webloom_sites",
            "gauge",
            "Sites that the broker has state of, those that a node may request now, and those that are held.",
        );
        for (state, count) in [("known", known), ("active", active), ("held", held)] {
            page.sample("webloom_sites", &[("state", state)], count as f64);
        }
        let name = "webloom_site_requests_total";
        page.metric(name, "counter", "Requests to sites by outcome, since the start.");
        for (outcome, count) in self.context.sites.requests() {
            page.sample(name, &[("outcome", outcome)], count as f64);
        }
        page.single("webloom_alerts_waiting", "gauge", "Alert messages that are not delivered yet.", alerts as f64);
    }
}

fn write_histogram(page: &mut Exposition, name: &str, help: &str, histogram: &Histogram) {
    let (upto, count, sum) = histogram.read();
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    page.histogram(name, help, BOUNDS_MS.iter().map(|ms| seconds(*ms)).zip(upto), count, seconds(sum));
}

/// Lateness of the jobs that fired last.
fn of_jobs(page: &mut Exposition, recent: Vec<(String, String, i64)>) {
    let mut jobs: Vec<(String, String, Vec<i64>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (id, name, late) in recent {
        match places.get(&id) {
            Some(place) => jobs[*place].2.push(late),
            None if jobs.len() < MOST_JOBS => {
                places.insert(id.clone(), jobs.len());
                jobs.push((id, name, vec![late]));
            }
            None => {}
        }
    }
    let name = "webloom_job_lateness_seconds";
    page.metric(name, "gauge", "From the scheduled time to the order, over the latest fires of the jobs that fired last.");
    for (id, job, late) in jobs {
        let Lateness { p50, p99, max, .. } = summary(late);
        for (quantile, ms) in [("0.5", p50), ("0.99", p99), ("1", max)] {
            page.sample(name, &[("job", &job), ("job_id", &id), ("quantile", quantile)], ms as f64 / 1_000.0);
        }
    }
}

fn summary(mut late: Vec<i64>) -> Lateness {
    late.sort_unstable();
    // The smallest value that this percentage of the values does not exceed.
    let quantile = |percent: usize| late.get((late.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0);
    Lateness { count: late.len() as u64, p50: quantile(50), p99: quantile(99), max: quantile(100) }
}

/// Memory and processor time, under the names that are common for all processes. Only on systems that report them.
fn of_the_process(page: &mut Exposition, since: Timestamp) {
    page.single("process_start_time_seconds", "gauge", "When the broker started.", since.0 as f64 / 1_000.0);
    let resident = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| resident_bytes(&text));
    if let Some(bytes) = resident {
        page.single("process_resident_memory_bytes", "gauge", "Memory in use.", bytes as f64);
    }
    let seconds = std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| cpu_seconds(&text));
    if let Some(seconds) = seconds {
        page.single("process_cpu_seconds_total", "counter", "Processor time.", seconds);
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}

/// Linux counts the times of processes in hundredths of a second on all supported machines.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name in brackets may contain anything; columns 14 and 15 of the line are the times in user mode and in the kernel.
    let mut columns = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, kernel): (u64, u64) = (columns.next()?.parse().ok()?, columns.next()?.parse().ok()?);
    Some((user + kernel) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        assert_eq!(summary(Vec::new()), Lateness::default());
        assert_eq!(summary(vec![7]), Lateness { count: 1, p50: 7, p99: 7, max: 7 });
        assert_eq!(summary((1..=200).rev().collect()), Lateness { count: 200, p50: 100, p99: 198, max: 200 });
    }

    #[test]
    fn the_system_s_words_are_read() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12 * 1_024));
        let stat = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 5";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!((resident_bytes(""), cpu_seconds("")), (None, None));
    }
}
