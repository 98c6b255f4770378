//! Drives a whole crawl against a running broker: creates the job and the run, works until it ends, returns the summary.

use super::depths::Depths;
use super::error::CrawlError;
use super::options::{CrawlOptions, changed_options, job};
use super::outputs::Outputs;
use super::progress::{Progress, say};
use super::reach::{Reach, RunSite, unreachable};
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
use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Interval between checks of the run.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval between looks at the sites of the run.
const LOOK_AT_SITES_EVERY: Duration = Duration::from_secs(1);
/// Number of sites that are looked at: the first ones, with those of the starts.
const MOST_SITES: usize = 100;
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
    let has_answers = before.as_ref().is_some_and(|before| before.answered > 0);
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
    let mut watch = Watch::new(&client, options, state, &tally, has_answers);
    let outcome = {
        let work = worker.run(async { drop(halted.await) });
        let watching = async {
            tokio::select! {
                () = stop => Ok(Outcome::Interrupted),
                ended = watch.run(is_ready) => ended,
            }
        };
        let (mut work, watching) = (std::pin::pin!(work), std::pin::pin!(watching));
        let outcome = tokio::select! {
            // The worker ends by itself only when it cannot continue.
            worked = &mut work => worked.map(|()| Outcome::Interrupted).map_err(CrawlError::from),
            outcome = watching => {
                drop(halt);
                // The worker finishes its current blocks.
                work.await.map_err(CrawlError::from).and(outcome)
            }
        };
        outcome
    };
    watch.progress.clear();
    let last = watch.last;
    let outcome = outcome?;
    if outcome != Outcome::Interrupted {
        state.finish()?;
    }
    state.forget_unless_begun();
    let mut summary = summary(outcome, before, tally.now.take(), &last, began.elapsed(), options.resume);
    summary.kept = if state.has_begun() { kept(options, state, &summary) } else { String::new() };
    say(&summary.to_string());
    Ok(summary)
}

/// Sums up the whole crawl: the earlier content of the file of lines, and what was written now. Without a file, the run's own counters
/// are used.
fn summary(outcome: Outcome, before: Option<Counts>, now: Counts, run: &Counters, elapsed: Duration, is_resumed: bool) -> Summary {
    let written = now.pages + now.failed;
    let (pages, failed) = match &before {
        Some(before) => (before.pages + now.pages, before.failed + now.failed),
        // Redirects are among the successes of the run, and are counted here: how many there were is not stored. When a crawl is interrupted, the last reports may not be written yet.
        None if outcome == Outcome::Finished && is_resumed => (run.success.max(now.pages), run.error.max(now.failed)),
        None => (now.pages, now.failed),
    };
    let before = before.unwrap_or_default();
    let first_failure = before.first_failure.clone().or_else(|| now.first_failure.clone());
    Summary {
        outcome,
        pages,
        failed,
        left: run.left,
        bytes: before.bytes + now.bytes,
        failures: before.failures_with(now),
        kept: String::new(),
        now: written,
        is_resumed,
        seconds: elapsed.as_secs_f64(),
        first_failure,
    }
}

/// What an interrupted crawl leaves, and where.
fn kept(options: &CrawlOptions, state: &State, summary: &Summary) -> String {
    let output = options.output.as_ref().map_or_else(|| "the standard output".into(), |path| path.to_string_lossy());
    let lines = format!("{} lines in {output}", summary.pages + summary.failed);
    let warc = options.warc.as_ref().map(|path| format!(", their pages in {}", path.display())).unwrap_or_default();
    match &options.broker {
        None => format!("{lines}{warc}, the queue in {}", state.dir().display()),
        Some(_) => format!("{lines}{warc}, the run at the broker, whose agents continue it"),
    }
}

/// Watches the run.
struct Watch<'a> {
    client: &'a Client,
    options: &'a CrawlOptions,
    state: &'a State,
    tally: &'a Tally,
    /// Whether a site has answered before a resume.
    has_answers: bool,
    progress: Progress,
    reach: Reach,
    /// Kinds of failures whose first example was shown.
    shown: HashSet<String>,
    last: Counters,
}

impl<'a> Watch<'a> {
    fn new(client: &'a Client, options: &'a CrawlOptions, state: &'a State, tally: &'a Tally, has_answers: bool) -> Self {
        let (progress, reach) = (Progress::new(options), Reach::default());
        Self { client, options, state, tally, has_answers, progress, reach, shown: HashSet::new(), last: Counters::default() }
    }

    /// Begins or finds the run, and checks it until it ends.
    async fn run(&mut self, is_ready: oneshot::Receiver<()>) -> Result<Outcome, CrawlError> {
        // A run fails if no worker watches its class when it begins.
        let patience = self.options.start_timeout_s;
        match tokio::time::timeout(Duration::from_secs(patience), is_ready).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(Outcome::Interrupted),
            Err(_) => {
                let broker = self.client.brokers().current().1;
                let why = format!("the broker {broker} cannot be reached within {patience} s (--start-timeout-s)");
                return Err(CrawlError::Unreachable(why));
            }
        }
        let (client, began) = (self.client, Instant::now());
        let identity = begin(client, self.options, self.state).await?;
        let mut looked = began;
        loop {
            let run: RunOutput = client.json(Method::GET, &format!("/api/v1/runs/{identity}"), None).await?;
            self.last = run.counters;
            self.progress.show(&run.counters, run.sites);
            self.show_failures();
            match run.state {
                RunState::Success => return Ok(Outcome::Finished),
                state if state.is_final() => {
                    return Ok(Outcome::Failed(run.reason.unwrap_or_else(|| format!("the run ended in state {}", state.name()))));
                }
                _ => {}
            }
            if looked.elapsed() >= LOOK_AT_SITES_EVERY {
                looked = Instant::now();
                if let Some(why) = self.look_at_sites(&run, began).await {
                    // The run may have ended in this moment; the reason is the same.
                    let _ = client.json::<Value>(Method::POST, &format!("/api/v1/runs/{identity}/stop"), Some(&json!({}))).await;
                    return Ok(Outcome::Failed(why));
                }
            }
            tokio::select! {
                () = self.tally.ended.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Shows the first failure of each kind. A status is an answer, and is shown in the summary only.
    fn show_failures(&mut self) {
        let now = self.tally.now.borrow();
        for (kind, (_, first)) in now.failures.iter().filter(|(kind, _)| !kind.starts_with("status ")) {
            if self.shown.insert(kind.clone()) {
                self.progress.tell(&format!("failed with {kind}: {first}"));
            }
        }
    }

    /// Shows new errors and holds of sites. Returns why the crawl must end: no start can be reached.
    async fn look_at_sites(&mut self, run: &RunOutput, began: Instant) -> Option<String> {
        // An older broker may not have this list.
        let path = format!("/api/v1/runs/{}/sites?limit={MOST_SITES}", run.identity);
        let mut sites: Page<RunSite> = self.client.json(Method::GET, &path, None).await.ok()?;
        sites.items.iter_mut().for_each(|site| site.drop_error_before(run.creation_time));
        for message in self.reach.news(&sites.items) {
            self.progress.tell(&message);
        }
        let has_answers = self.has_answers || self.tally.now.borrow().answered > 0 || self.last.success > 0;
        if has_answers || began.elapsed() < Duration::from_secs(self.options.start_timeout_s) {
            return None;
        }
        let why = unreachable(&sites.items, self.options.begins_at())?;
        Some(format!("no page came within {} s (--start-timeout-s): {why}", self.options.start_timeout_s))
    }
}

/// Each step may have been done before a crash; none takes effect twice.
async fn begin(client: &Client, options: &CrawlOptions, state: &State) -> Result<Identity, Error> {
    let id = state.job_id();
    let runs: Page<RunOutput> = client.json(Method::GET, &format!("/api/v1/runs?jobId={id}"), None).await?;
    if let Some(run) = runs.items.first() {
        // The values are only shown: the crawl goes on without them, too.
        let begun = client.json::<Value>(Method::GET, &format!("/api/v1/jobs/{id}"), None).await.unwrap_or_default();
        let changed = changed_options(&begun["properties"], &job(options, id)["properties"]);
        if begun.is_object() && !changed.is_empty() {
            let options = changed.join(", ");
            say(&format!(
                "the crawl began with other values of {options}, and its run keeps them. --fresh starts it again with the new ones"
            ));
        }
        return Ok(run.identity);
    }
    match client.json::<Value>(Method::GET, &format!("/api/v1/jobs/{id}"), None).await {
        Ok(_) => {}
        Err(Error::Refused(problem)) if problem.status == 404 => {
            state.note_begin();
            let made = client.json::<Value>(Method::POST, "/api/v1/jobs", Some(&job(options, id))).await;
            if matches!(made, Err(Error::Refused(_))) {
                state.note_refusal();
            }
            made?;
        }
        Err(error) => return Err(error),
    }
    let trigger = json!({ "fireTime": state.fire_time() });
    let run: RunOutput = client.json(Method::POST, &format!("/api/v1/jobs/{id}/trigger"), Some(&trigger)).await?;
    Ok(run.identity)
}
