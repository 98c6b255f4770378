//! Alerts: turns stored events into messages to channels, and sends each message until it is delivered or given up. It also
//! detects missing activity: runs that do not begin, and jobs without a successful run.
//!
//! All its state is in the store. A message that was being sent during a crash is sent again; a receiver recognizes it by its id.

mod mail;
mod message;
mod webhook;

pub use mail::check_address;
pub use message::{AlertsHandle, TestChannel};
pub use webhook::target_of;

use super::context::BrokerContext;
use super::reply::{Reply, problem_of};
use super::supervision::ExitGuard;
use crate::domain::alert::MOST_ATTEMPTS;
use crate::domain::ids::ChannelId;
use crate::domain::time::Timestamp;
use crate::protocol::alerts::AlertTestOutput;
use crate::protocol::problem::Problem;
use crate::store::{
    ClaimAlerts, Claimed, Detail, ExpandEvents, GetChannel, InsertTest, LateRuns, LookForAlerts, NoteLate, NoteSilent, ResumeAlerts,
    SettleAlert, SilentJobs, Store, StoreError, StoredEvent,
};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, fut::wrap_future};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum number of concurrent deliveries, in total and per channel.
const MOST_AT_ONCE: usize = 8;
const MOST_PER_CHANNEL: usize = 4;
/// Interval between two checks without a notification.
const LOOK: Duration = Duration::from_secs(1);
/// The actor spends at most this fraction of its time on detecting missing activity.
const WATCH_PART: u32 = 20;
/// The longest pause of it: a look that took long because the machine was busy must not delay the next one by minutes.
const MOST_WATCH_PAUSE: Duration = Duration::from_secs(30);
/// Maximum number of late runs and silent jobs per write.
const NOTED_AT_ONCE: usize = 100;

/// Sends messages to channels.
#[derive(Debug)]
struct Senders {
    outbound: std::sync::Arc<crate::actors::callback::Outbound>,
    mail: mail::Mail,
}

impl Senders {
    async fn send(&self, claimed: &Claimed) -> Result<(), String> {
        match claimed.channel.kind {
            crate::domain::alert::ChannelKind::Webhook => webhook::send(&self.outbound.targets, claimed).await,
            crate::domain::alert::ChannelKind::Mail => self.mail.send(claimed).await,
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct AlertActor {
    guard: ExitGuard,
    context: BrokerContext,
    senders: Rc<Senders>,
    /// Number of deliveries in progress, by channel.
    busy: HashMap<ChannelId, usize>,
    is_looking: bool,
    /// A notification arrived during a check.
    rang: bool,
    watch_after: Instant,
    /// The last error that was logged, until a check succeeds.
    logged: Option<String>,
}

/// To itself: check for work after a notification, after a second, or after a delivery.
struct Look;

impl Message for Look {
    type Result = ();
}

impl AlertActor {
    /// An actor that has not checked anything yet.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext) -> Self {
        let senders =
            Rc::new(Senders { outbound: std::sync::Arc::clone(&context.outbound), mail: mail::Mail::new(context.alerts.mail.as_ref()) });
        Self { guard, context, senders, busy: HashMap::new(), is_looking: false, rang: false, watch_after: Instant::now(), logged: None }
    }

    /// Creates messages for new events, and sends those that are due.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if self.is_looking {
            self.rang = true;
            return;
        }
        self.is_looking = true;
        let watch = Instant::now() >= self.watch_after;
        let free = MOST_AT_ONCE - self.busy.values().sum::<usize>().min(MOST_AT_ONCE);
        let look = find_messages(self.context.clone(), watch, free, self.busy.clone());
        ctx.spawn(wrap_future(look).map(|(found, watched), this: &mut Self, ctx: &mut Context<Self>| {
            this.is_looking = false;
            if let Some(took) = watched {
                this.watch_after = Instant::now() + (took * WATCH_PART).min(MOST_WATCH_PAUSE);
            }
            match found {
                Ok(messages) => {
                    this.logged = None;
                    messages.into_iter().for_each(|message| this.send(message, ctx));
                }
                // The next check retries, each second.
                Err(error) => {
                    let error = error.to_string();
                    if this.logged.as_ref() != Some(&error) {
                        log::warn!("failed to look for alerts, trying again error={error}");
                    }
                    this.guard.stats().set_error(error.clone());
                    this.logged = Some(error);
                }
            }
            if std::mem::take(&mut this.rang) {
                this.look(ctx);
            }
        }));
    }

    fn send(&mut self, message: Claimed, ctx: &mut Context<Self>) {
        let channel = message.channel.id;
        *self.busy.entry(channel).or_default() += 1;
        let (senders, store) = (Rc::clone(&self.senders), self.context.store.clone());
        let sent = async move {
            let error = senders.send(&message).await.err();
            if let Some(error) = &error {
                log::warn!("alert delivery failed event={} channel={channel} attempt={}: {error}", message.event.id, message.attempt);
            }
            settle(&store, &message, error).await;
        };
        ctx.spawn(wrap_future(sent).map(move |(), this: &mut Self, ctx: &mut Context<Self>| {
            if let Some(busy) = this.busy.get_mut(&channel) {
                *busy -= 1;
            }
            this.busy.retain(|_, busy| *busy > 0);
            ctx.notify(Look);
        }));
    }
}

/// The messages that may be sent now, and the time spent on detecting missing activity.
async fn find_messages(
    context: BrokerContext,
    watch: bool,
    free: usize,
    busy: HashMap<ChannelId, usize>,
) -> (Result<Vec<Claimed>, StoreError>, Option<Duration>) {
    let mut watched = None;
    if watch {
        let begin = Instant::now();
        if let Err(error) = look_for_silence(&context.store).await {
            return (Err(error), Some(begin.elapsed()));
        }
        watched = Some(begin.elapsed());
    }
    (claim(&context, free, busy).await, watched)
}

async fn claim(context: &BrokerContext, free: usize, busy: HashMap<ChannelId, usize>) -> Result<Vec<Claimed>, StoreError> {
    let store = &context.store;
    // Read before writing: an idle broker should not write to its disk.
    let due = store.read(LookForAlerts { now: Timestamp::now() }).await?;
    if due.events {
        while store.write(ExpandEvents { gather_ms: context.alerts.gather_ms, now: Timestamp::now() }).await? {}
    }
    if free == 0 || !(due.events || due.messages) {
        return Ok(Vec::new());
    }
    store.write(ClaimAlerts { now: Timestamp::now(), limit: free, busy, most_per_channel: MOST_PER_CHANNEL }).await
}

/// Writes events for runs that do not begin and for jobs without a successful run.
async fn look_for_silence(store: &Store) -> Result<(), StoreError> {
    let now = Timestamp::now();
    let runs = store.read(LateRuns { now, limit: NOTED_AT_ONCE }).await?;
    if !runs.is_empty() {
        store.write(NoteLate { runs, now }).await?;
    }
    let jobs = store.read(SilentJobs { now, limit: NOTED_AT_ONCE }).await?;
    if !jobs.is_empty() {
        store.write(NoteSilent { jobs, now }).await?;
    }
    Ok(())
}

/// Stores the result of a delivery, with retries, because otherwise the message would be sent again and again.
async fn settle(store: &Store, message: &Claimed, error: Option<String>) {
    loop {
        let (event, channel, attempt) = (message.event.id, message.channel.id, message.attempt);
        let settle = SettleAlert { event, channel, attempt, error: error.clone(), now: Timestamp::now() };
        match store.write(settle).await {
            Ok(()) => return,
            Err(failure) => log::warn!("failed to store the result of an alert event={event} channel={channel}: {failure}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends a test message to a channel at once and returns the result.
async fn test(context: BrokerContext, senders: Rc<Senders>, id: ChannelId) -> Result<AlertTestOutput, Problem> {
    let found = context.store.read(GetChannel(id)).await.map_err(|e| problem_of(&e))?;
    let channel = found.ok_or_else(|| Problem::not_found(format!("there is no channel {id}")))?;
    let (now, reason) = (Timestamp::now(), "a test of this channel".to_owned());
    let detail = serde_json::json!({ "reason": reason }).to_string();
    let event = context.store.write(InsertTest { channel: id, detail, now }).await.map_err(|e| problem_of(&e))?;
    let stored = StoredEvent {
        id: event,
        event: "test".to_owned(),
        job_id: None,
        identity: None,
        at: now,
        detail: Detail { reason: Some(reason), ..Detail::default() },
    };
    // Sent as the last attempt, so that it is not retried.
    let message = Claimed { event: stored, channel, events: 1, attempt: MOST_ATTEMPTS };
    let error = senders.send(&message).await.err();
    let time = Timestamp::now().since_ms(now);
    settle(&context.store, &message, error.clone()).await;
    Ok(AlertTestOutput { ok: error.is_none(), error, time, id: event })
}

impl Actor for AlertActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let resumed = self.context.store.write(ResumeAlerts);
        ctx.wait(wrap_future(resumed).map(|resumed, this: &mut Self, ctx: &mut Context<Self>| {
            if let Err(error) = resumed {
                this.guard.stats().set_error(error.to_string());
                return ctx.stop(); // the restarted actor tries again after a pause
            }
            let (bell, own) = (this.context.alarms.clone(), ctx.address());
            ctx.spawn(wrap_future(async move {
                loop {
                    // A notification and a timeout have the same effect here.
                    let _ = tokio::time::timeout(LOOK, bell.notified()).await;
                    own.do_send(Look);
                }
            }));
            this.look(ctx);
        }));
    }
}

impl Handler<Look> for AlertActor {
    type Result = ();
    fn handle(&mut self, _: Look, ctx: &mut Self::Context) {
        crate::fault::point("alerts.look");
        self.look(ctx);
    }
}

impl Handler<TestChannel> for AlertActor {
    type Result = ();
    fn handle(&mut self, TestChannel { id, reply }: TestChannel, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("alerts.test");
        let tested = test(self.context.clone(), Rc::clone(&self.senders), id);
        ctx.spawn(wrap_future(async move { reply_with(reply, tested.await) }));
    }
}

fn reply_with<T>(reply: Reply<T>, answer: Result<T, Problem>) {
    reply.send(answer);
}
