//! Drives a whole crawl against a running broker: creates the job and the run, works until it ends, returns the summary.

use super::depths::Depths;
use super::error::CrawlError;
use super::options::{CrawlOptions, job};
use super::outputs::Outputs;
use super::progress::{Progress, say};
use super::state::State;
use super::summary::{Counts, Outcome, Summary, Tally};
use super::worker::CrawlWorker;
use crate::domain::ids::Identity;
use crate::domain::run::{Counters, RunState};
use crate::protocol::api::{Page, RunOutput};
use crate::protocol::token::own;
use crate::sdk::{Client, Error, Worker};
use awc::http::Method;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Interval between checks of the run.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Concurrent blocks: enough that processing never waits for the network.
const IN_FLIGHT: usize = 8;

/// Crawls until everything is done or `stop` resolves; prints progress and summary to standard error. Call it within an actix runtime,
/// while a broker and an agent run. An interrupted crawl can be resumed: the broker's database under [`State::database`] and the files of
/// `options` hold all finished work.
///
/// # Errors
/// A file cannot be written, or the broker rejects a call.
pub async fn drive(
    broker: &str,
    token: Option<&str>,
    options: &CrawlOptions,
    state: &mut State,
    stop: impl Future<Output = ()>,
) -> Result<Summary, CrawlError> {
    let began = Instant::now();
    let tally = Rc::new(Tally::default());
    let outputs = Outputs::open(options)?;
    let before = outputs.before().cloned();
    let links = state.links();
    let depths = options.depth.map(|limit| Depths::open(&links, limit, options.resume)).transpose().map_err(CrawlError::file(&links))?;
    // The pages of a sitemap become known only when the sitemap has arrived.
    let starts = options.begins_at().count() + options.sitemap.len();
    let depths = depths.map(|depths| depths.with_starts(starts));
    let spider = CrawlWorker::new(options, state.job_id(), outputs, Rc::clone(&tally)).with_depths(depths);
    let client = Client::new(broker, token.map(|text| own(text, &["admin"]).1))?;
    let (ready, is_ready) = oneshot::channel();
    let (halt, halted) = oneshot::channel::<()>();
    let worker = Worker::new(broker).client(client.clone()).name("crawl").in_flight(IN_FLIGHT).ready(ready).watch(spider);
    let mut progress = Progress::new(options);
    let mut last = Counters::default();
    let outcome = {
        let work = worker.run(async { drop(halted.await) });
        let watch = async {
            tokio::select! {
                () = stop => Ok(Outcome::Interrupted),
                ended = watch(&client, options, state, &tally, is_ready, |counters| { progress.show(counters); last = *counters; }) => ended,
            }
        };
        let (mut work, watch) = (std::pin::pin!(work), std::pin::pin!(watch));
        let outcome = tokio::select! {
            // The worker ends by itself only when it cannot continue.
            worked = &mut work => worked.map(|()| Outcome::Interrupted).map_err(CrawlError::from),
            outcome = watch => {
                drop(halt);
                // The worker finishes its current blocks.
                work.await.map_err(CrawlError::from).and(outcome)
            }
        };
        outcome
    };
    progress.clear();
    let outcome = outcome?;
    if outcome != Outcome::Interrupted {
        state.finish()?;
    }
    let summary = summary(outcome, before, tally.now.take(), &last, began.elapsed());
    say(&summary.to_string());
    Ok(summary)
}

/// Sums up the whole crawl: the earlier content of the file of lines, and what was written now. Without a file, the run's own counters
/// are used.
fn summary(outcome: Outcome, before: Option<Counts>, now: Counts, run: &Counters, elapsed: Duration) -> Summary {
    let written = now.pages + now.failed;
    let (pages, failed) = match &before {
        Some(before) => (before.pages + now.pages, before.failed + now.failed),
        // When a crawl is interrupted, the last reports may not be written yet.
        None if outcome == Outcome::Finished => (run.success.max(now.pages), run.error.max(now.failed)),
        None => (now.pages, now.failed),
    };
    let before = before.unwrap_or_default();
    Summary {
        outcome,
        pages,
        failed,
        left: run.left,
        bytes: before.bytes + now.bytes,
        now: written,
        seconds: elapsed.as_secs_f64(),
        first_failure: before.first_failure.or(now.first_failure),
    }
}

/// Begins or finds the run, and checks it until it ends.
async fn watch(
    client: &Client,
    options: &CrawlOptions,
    state: &State,
    tally: &Tally,
    is_ready: oneshot::Receiver<()>,
    mut show: impl FnMut(&Counters),
) -> Result<Outcome, CrawlError> {
    // A run fails if no worker watches its class when it begins.
    if is_ready.await.is_err() {
        return Ok(Outcome::Interrupted);
    }
    let identity = begin(client, options, state).await?;
    loop {
        let run: RunOutput = client.json(Method::GET, &format!("/api/v1/runs/{identity}"), None).await?;
        show(&run.counters);
        match run.state {
            RunState::Success => return Ok(Outcome::Finished),
            state if state.is_final() => {
                return Ok(Outcome::Failed(run.reason.unwrap_or_else(|| format!("the run ended in state {}", state.name()))));
            }
            _ => tokio::select! {
                () = tally.ended.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            },
        }
    }
}

/// Each step may have been done before a crash; none takes effect twice.
async fn begin(client: &Client, options: &CrawlOptions, state: &State) -> Result<Identity, Error> {
    let id = state.job_id();
    let runs: Page<RunOutput> = client.json(Method::GET, &format!("/api/v1/runs?jobId={id}"), None).await?;
    if let Some(run) = runs.items.first() {
        return Ok(run.identity);
    }
    match client.json::<Value>(Method::GET, &format!("/api/v1/jobs/{id}"), None).await {
        Ok(_) => {}
        Err(Error::Refused(problem)) if problem.status == 404 => {
            client.json::<Value>(Method::POST, "/api/v1/jobs", Some(&job(options, id))).await?;
        }
        Err(error) => return Err(error),
    }
    let trigger = json!({ "fireTime": state.fire_time() });
    let run: RunOutput = client.json(Method::POST, &format!("/api/v1/jobs/{id}/trigger"), Some(&trigger)).await?;
    Ok(run.identity)
}
