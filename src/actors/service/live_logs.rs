//! The log of a run while it grows: one who follows is sent what there is, then what comes, until the run is over.
//!
//! A task for each follower reads a page, hands it over, and reads the next one when that was taken: one who reads slowly
//! holds up nobody and no more than two pages of memory. It ends with its run, with its follower, or with the broker.

use super::Service;
use super::logs::{LogFilter, level_number, told_by_row};
use crate::actors::followers::Followers;
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

/// Lines of one page: what a follower who does not read holds of memory is some of them.
const PAGE: usize = 16;
/// Followers of all runs together.
const MOST_STREAMS: usize = 1_000;
/// After so long without a word something is sent, so that nobody in between takes the line for dead.
const ALIVE: Duration = Duration::from_secs(15);
/// A look without a ring: not all that moves a run rings.
const LOOK: Duration = Duration::from_secs(2);

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// What a follower is sent.
#[derive(Debug, Clone)]
pub enum LogEvent {
    /// Lines, in their order.
    Lines(Vec<LogLine>),
    /// Where the run is: at first, and when it moves.
    State(RunState),
    /// The run is over, and all its lines were sent.
    End(RunState, Option<String>),
    /// Nothing to say.
    Alive,
    /// It cannot go on.
    Failed(Problem),
}

/// One follower among those that are there; dropped, it is one less.
struct Place {
    service: Service,
    stats: Arc<Stats>,
}

impl Place {
    fn take(service: &Service, identity: Identity) -> Result<Self, Problem> {
        let followers = &service.context.followers;
        if !followers.enter(MOST_STREAMS) {
            return Err(Problem::busy("too many follow logs, or the broker goes down"));
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

/// What is left to send.
struct Stream {
    service: Service,
    identity: Identity,
    level: i16,
    filter: LogFilter,
    /// Lines that the row tells and that were sent, or that one who comes again has had; none: not looked yet.
    told: Option<usize>,
    state: Option<RunState>,
    out: mpsc::Sender<LogEvent>,
}

/// Whoever listens has gone.
struct Gone;

impl Service {
    /// Follows the log of a run from the line after `filter.after`; `filter.wait` is how long at most, none: until the end.
    ///
    /// # Errors
    /// There is no such run, the filter is not understood, or too many follow already.
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
        // One who comes again has had what stands before all lines.
        let told = filter.after.map(|_| usize::MAX);
        let filter = LogFilter { after: Some(filter.after.unwrap_or(0)), limit: PAGE, ..filter };
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
            // From here on no ring is missed.
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

    /// Sends all that is new. True: that was all there will ever be.
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
            // A run that ends is said to after its last line.
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

    /// Lines that the row of the run tells since the last look: that it was made, that it began.
    fn told_anew(&mut self, run: &Run) -> Vec<LogLine> {
        let all: Vec<_> = told_by_row(run).into_iter().filter(|(_, line)| line.id == 0).collect();
        let told = self.told.unwrap_or(0).min(all.len());
        self.told = Some(all.len());
        all.into_iter().skip(told).filter(|line| self.filter.fits(self.level, line)).map(|(_, line)| line).collect()
    }
}

impl Followers {
    /// Whether a follower may come in, of at most so many.
    fn enter(&self, most: usize) -> bool {
        !self.is_closed() && self.streams.fetch_update(Relaxed, Relaxed, |now| (now < most).then_some(now + 1)).is_ok()
    }

    fn leave(&self) {
        self.streams.fetch_sub(1, Relaxed);
    }
}
