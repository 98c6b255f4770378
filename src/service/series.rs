//! Time series, and what an operator should look at.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::attention::{FAILED_FOR_MS, LATE_FOR_MS, MOST_OF_A_KIND, WAITED_MS, is_lost, is_nearly_full};
use crate::domain::backup::size;
use crate::domain::series::{columns, ring_for};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::protocol::series::{SeriesOutput, WarningKind, WarningOutput};
use crate::store::{DiskSpace, EventsOf, FailedJobs, JobTrouble, ListNodes, OverdueRuns, ReadSeries, SilentNow};

/// The period without a start: up to the end.
const PERIOD_MS: i64 = 3_600_000;
/// Sums that are listed even if they are 0.
const ALWAYS: [&str; 10] = [
    "runs.success",
    "runs.failed",
    "runs.stopped",
    "fires.fired",
    "fires.skipped",
    "fires.missed",
    "fires.merged",
    "requests.success",
    "requests.failed",
    "bytes",
];

fn of_job(kind: WarningKind, job: JobTrouble) -> WarningOutput {
    let JobTrouble { job_id, job_name, identity, reason, at } = job;
    WarningOutput { kind, at: Some(at), name: job_name, reason, job_id: Some(job_id), run_id: identity, node_id: None }
}

impl Service {
    /// What the broker did in a period; by default in the last hour.
    ///
    /// # Errors
    /// The period ends before it begins, or the store fails.
    pub async fn series(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> Result<SeriesOutput, Problem> {
        let now = Timestamp::now();
        let to = to.unwrap_or(now).min(now);
        let from = from.unwrap_or(to.plus_ms(-PERIOD_MS));
        if from >= to {
            return Err(Problem::invalid("from", format!("{from} is not before the end of the period, {to}")));
        }
        let ring = ring_for(from, to, now);
        // No ring is older than this; its last step is the present one.
        let from = from.max(now.plus_ms(-ring.step_ms * (ring.rows - 1)));
        let to = to.max(from);
        let mut points = self.context.store.read(ReadSeries { ring, from, to }).await.map_err(|e| problem_of(&e))?;
        let start = ring.start_of(now);
        if start <= to && self.leadership().0 {
            points.entry(start).or_default().merge(&self.context.counters.minute.so_far(&self.context));
        }
        let columns = columns(ring, from, to, &points, &ALWAYS);
        let steps = columns.values.values().next().map_or(0, Vec::len) as i64;
        Ok(SeriesOutput { from: columns.from, to: columns.from.plus_ms(steps * ring.step_ms), step: ring.step_ms, values: columns.values })
    }

    /// What an operator should look at, the most urgent kind first.
    ///
    /// # Errors
    /// The store fails.
    pub async fn warnings(&self) -> Result<Vec<WarningOutput>, Problem> {
        let store = &self.context.store;
        let (now, limit) = (Timestamp::now(), MOST_OF_A_KIND);
        let ago = |ms: i64| now.plus_ms(-ms);
        let mut warnings: Vec<WarningOutput> = self.disk_warning().await?.into_iter().collect();
        let mut add = |kind, jobs: Vec<JobTrouble>| warnings.extend(jobs.into_iter().map(|job| of_job(kind, job)));
        let failed = FailedJobs { since: ago(FAILED_FOR_MS), limit };
        add(WarningKind::FailedJob, store.read(failed).await.map_err(|e| problem_of(&e))?);
        add(WarningKind::SilentJob, store.read(SilentNow { limit }).await.map_err(|e| problem_of(&e))?);
        let missed = EventsOf { event: "missed", since: ago(FAILED_FOR_MS), limit };
        add(WarningKind::MissedJob, store.read(missed).await.map_err(|e| problem_of(&e))?);
        let late = EventsOf { event: "late", since: ago(LATE_FOR_MS), limit };
        add(WarningKind::LateJob, store.read(late).await.map_err(|e| problem_of(&e))?);
        let overdue = OverdueRuns { before: ago(WAITED_MS), limit };
        add(WarningKind::WaitingRun, store.read(overdue).await.map_err(|e| problem_of(&e))?);
        warnings.extend(self.lost_nodes(now).await?);
        warnings.extend(self.held_sites());
        Ok(warnings)
    }

    async fn disk_warning(&self) -> Result<Option<WarningOutput>, Problem> {
        let space = self.context.store.read(DiskSpace).await.map_err(|e| problem_of(&e))?;
        Ok(space.filter(|(free, total)| is_nearly_full(*free, *total)).map(|(free, total)| WarningOutput {
            reason: Some(format!("{} of {} are free", size(free), size(total))),
            ..bare(WarningKind::Disk, "the disk of the database".to_owned())
        }))
    }

    async fn lost_nodes(&self, now: Timestamp) -> Result<Vec<WarningOutput>, Problem> {
        // Only the leader knows which nodes are connected.
        if !self.leadership().0 {
            return Ok(Vec::new());
        }
        let nodes = self.context.store.read(ListNodes).await.map_err(|e| problem_of(&e))?;
        let lost = nodes.into_iter().filter(|node| {
            let should_work = node.is_enabled && !node.is_draining && !node.is_leaving;
            self.context.addresses.nodes.get(node.facts.node_id).is_none() && is_lost(should_work, node.last_online_time, now)
        });
        let warning = |node: crate::domain::node::NodeRecord| WarningOutput {
            at: Some(node.last_online_time),
            node_id: Some(node.facts.node_id),
            reason: Some("it is offline".to_owned()),
            ..bare(WarningKind::LostNode, node.facts.shown_name())
        };
        Ok(lost.take(MOST_OF_A_KIND).map(warning).collect())
    }

    fn held_sites(&self) -> Vec<WarningOutput> {
        let now = Timestamp::steady();
        let held = self.context.sites.board().page("", Some(true), None, MOST_OF_A_KIND, now);
        let held = held.into_iter().map(|site| WarningOutput {
            reason: site.held.map(|(until, _)| format!("on hold until {}", until.on_the_wall())),
            ..bare(WarningKind::HeldSite, site.name.to_string())
        });
        held.collect()
    }
}

fn bare(kind: WarningKind, name: String) -> WarningOutput {
    WarningOutput { kind, at: None, name, reason: None, job_id: None, run_id: None, node_id: None }
}
