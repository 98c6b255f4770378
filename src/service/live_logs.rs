//! Streams the log of a run: a subscriber receives the existing lines, then new lines, until the run ends.
//!
//! Each subscriber has a task that reads a page, sends it, and continues when it was received. So a slow subscriber delays no
//! other task and uses at most two pages of memory. The task ends with its run, its subscriber, or the broker.

use super::Service;
use super::logs::{BEGUN_ID, LogFilter, level_number, told_by_row};
use crate::actors::supervision::Stats;
use crate::domain::ids::Identity;
use crate::domain::run::{Run, RunState};
use crate::protocol::management::LogLine;
use crate::protocol::problem::Problem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Number of lines of a page. It limits the memory that a subscriber which does not read can hold.
const PAGE: usize = 16;
/// Maximum number of subscribers of all runs.
const MOST_STREAMS: usize = 1_000;
/// An idle stream sends a keep-alive after this time, so that proxies do not close the connection.
const ALIVE: Duration = Duration::from_secs(15);
/// Interval between two checks without a notification, because not every change of a run sends one.
const LOOK: Duration = Duration::from_secs(2);

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// An event for a subscriber.
#[derive(Debug, Clone)]
pub enum LogEvent {
    /// Lines, in order.
    Lines(Vec<LogLine>),
    /// The state of the run: at first, and after each change.
    State(RunState),
    /// The run has ended, and all its lines were sent.
    End(RunState, Option<String>),
    /// Keep-alive.
    Alive,
    /// The stream failed.
    Failed(Problem),
}

/// The registration of a subscriber; dropping it removes the subscriber.
struct Place {
    service: Service,
    stats: Arc<Stats>,
}

impl Place {
    fn take(service: &Service, identity: Identity) -> Result<Self, Problem> {
        let followers = &service.context.followers;
        if !followers.enter(MOST_STREAMS) {
            return Err(Problem::busy("too many log subscribers, or the broker is shutting down; retry later"));
        }
        let stats = service.enter_session(format!("log of {identity} #{}", NUMBER.fetch_add(1, Relaxed)));
        Ok(Self { service: service.clone(), stats })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.service.leave_session(&self.stats);
        self.service.context.followers.leave();
    }
}

/// The state of one stream.
struct Stream {
    service: Service,
    identity: Identity,
    level: i16,
    filter: LogFilter,
    /// Number of lines from the run's row that were sent, also before a reconnect. `None` before the first check.
    told: Option<usize>,
    state: Option<RunState>,
    out: mpsc::Sender<LogEvent>,
}

/// The subscriber has disconnected.
struct Gone;

impl Service {
    /// Streams the log of a run from the line after `filter.after`, for at most the time `most`; `None`: until the end.
    ///
    /// # Errors
    /// The run does not exist, the filter is invalid, or there are too many subscribers.
    pub async fn follow_logs(
        &self,
        identity: Identity,
        filter: LogFilter,
        most: Option<Duration>,
    ) -> Result<mpsc::Receiver<LogEvent>, Problem> {
        let level = level_number(filter.level.as_deref())?;
        self.run_row(identity).await?;
        let place = Place::take(self, identity)?;
        let (out, events) = mpsc::channel(1);
        // A subscriber that reconnects has received the line of the creation, and, with a later id, that of the begin.
        let told = filter.after.map(|id| if id < BEGUN_ID { 1 } else { usize::MAX });
        let filter = LogFilter { after: Some(filter.after.unwrap_or(BEGUN_ID).max(BEGUN_ID)), limit: PAGE, ..filter };
        let stream = Stream { service: self.clone(), identity, level, filter, told, state: None, out };
        actix::spawn(async move {
            stream.run(most.map(|most| Instant::now() + most)).await;
            drop(place);
        });
        Ok(events)
    }
}

impl Stream {
    async fn run(mut self, until: Option<Instant>) {
        let followers = Arc::clone(&self.service.context.followers);
        let waiting = followers.wait_for(self.identity);
        let mut last_word = Instant::now();
        loop {
            // Notifications from here on are not missed.
            let ring = waiting.ring();
            match self.send_new(&mut last_word).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) | Err(Gone) => return,
                Ok(Err(problem)) => return drop(self.out.send(LogEvent::Failed(problem)).await),
            }
            let look = Instant::now() + LOOK;
            tokio::select! {
                () = ring => {}
                () = tokio::time::sleep_until(until.map_or(look, |until| until.min(look))) => {}
                () = self.out.closed() => return,
            }
            if followers.is_closed() || until.is_some_and(|until| until <= Instant::now()) {
                return;
            }
            if last_word.elapsed() >= ALIVE && self.say(LogEvent::Alive, &mut last_word).await.is_err() {
                return;
            }
        }
    }

    async fn say(&self, event: LogEvent, last_word: &mut Instant) -> Result<(), Gone> {
        self.out.send(event).await.map_err(|_| Gone)?;
        *last_word = Instant::now();
        Ok(())
    }

    /// Sends everything new. Returns true if the log is complete.
    async fn send_new(&mut self, last_word: &mut Instant) -> Result<Result<bool, Problem>, Gone> {
        loop {
            let run = match self.service.run_row(self.identity).await {
                Ok(run) => run,
                Err(problem) => return Ok(Err(problem)),
            };
            let page = match self.service.page_of(&run, self.level, &self.filter).await {
                Ok(page) => page,
                Err(problem) => return Ok(Err(problem)),
            };
            let mut lines = self.told_anew(&run);
            lines.extend(page.items);
            self.filter.after = Some(page.next);
            // The final state is sent after the last line.
            if self.state != Some(run.state) && !run.state.is_final() {
                self.state = Some(run.state);
                self.say(LogEvent::State(run.state), last_word).await?;
            }
            if !lines.is_empty() {
                self.say(LogEvent::Lines(lines), last_word).await?;
            }
            if page.more {
                if self.service.context.followers.is_closed() {
                    return Err(Gone);
                }
                continue;
            }
            if run.state.is_final() {
                self.say(LogEvent::State(run.state), last_word).await?;
                self.say(LogEvent::End(run.state, run.reason), last_word).await?;
                return Ok(Ok(true));
            }
            return Ok(Ok(false));
        }
    }

    /// New lines derived from the run's row since the last check: the creation and the begin of the run.
    fn told_anew(&mut self, run: &Run) -> Vec<LogLine> {
        let all: Vec<_> = told_by_row(run).into_iter().filter(|(_, line)| line.id <= BEGUN_ID).collect();
        let told = self.told.unwrap_or(0).min(all.len());
        self.told = Some(all.len());
        all.into_iter().skip(told).filter(|line| self.filter.fits(self.level, line)).map(|(_, line)| line).collect()
    }
}
