//! The brokers that own runs, at the leader: gives them the right to, passes messages on to their runs, and takes the runs of a broker back that
//! is not heard any more.
//!
//! The database decides who may write a run: it refuses the writes of a broker whose right has ended. So runs may be taken back at any time, also
//! from a broker that still lives; then an attempt is repeated, as after a crash.

mod block_runs;
mod message;

pub use message::{AskOwners, ControlElsewhere, DrainOwner, OwnerDisconnected, OwnerSent, PassToRun, RunOwnersHandle, StartElsewhere};

use super::context::BrokerContext;
use super::reply::{problem_of, reply};
use super::run_shell::Control;
use super::session_sender::{Frame, SessionSender};
use super::supervision::ExitGuard;
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::frame;
use crate::protocol::ownership::{ALIVE_IN_PATIENCE, RunOrder, ToLeader, ToOwner};
use crate::protocol::problem::Problem;
use crate::store::{FreeRun, GrantOwnership, KeepRobots, ListOwnerships, RevokeOwnership, StoreError};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use block_runs::{BlockRuns, Call};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Between two looks for owners that are not heard any more.
const LOOK: Duration = Duration::from_millis(100);
/// An owner whose connection is lost has this long for another one, in milliseconds.
const RECONNECT_MS: i64 = 1_000;

/// See the module documentation.
#[derive(Debug)]
pub struct RunOwners {
    guard: ExitGuard,
    context: BrokerContext,
    sessions: HashMap<BrokerId, SessionSender>,
    /// Connections of brokers whose right is being granted, by their number.
    joining: HashSet<u64>,
    calls: HashMap<u64, (BrokerId, Call)>,
    last_call: u64,
    /// Owners whose runs are being taken back.
    revoking: HashSet<BrokerId>,
    /// It has read which brokers owned runs before.
    is_ready: bool,
    blocks: BlockRuns,
    /// The connected owners that answer questions.
    answering: HashSet<BrokerId>,
}

/// A broker that wants to own runs.
struct Joins {
    is_draining: bool,
    block_runs: bool,
    answers: bool,
    sender: SessionSender,
}

/// Takes all runs of a broker back. What the store has freed is started even if the actor that wanted it has crashed meanwhile.
async fn take_back(context: BrokerContext, broker: BrokerId) -> Result<usize, StoreError> {
    let done = actix::spawn(async move {
        let runs = context.store.write_unbounded(RevokeOwnership { broker }).await?;
        let count = runs.len();
        block_runs::return_sites(&context, broker);
        context.registry().take_all_runs_back(broker, runs);
        Ok(count)
    });
    done.await.unwrap_or_else(|_| Err(StoreError::Unknown("the task has ended".into())))
}

impl RunOwners {
    /// Without connections: owners that are connected connect again.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext) -> Self {
        Self {
            guard,
            context,
            sessions: HashMap::new(),
            joining: HashSet::new(),
            calls: HashMap::new(),
            last_call: block_runs::first_number(),
            revoking: HashSet::new(),
            is_ready: false,
            blocks: BlockRuns::new(),
            answering: HashSet::new(),
        }
    }

    /// Until when an owner must be heard again.
    fn patience(&self) -> Timestamp {
        Timestamp::steady().plus_ms(self.context.lease_ms as i64)
    }

    /// Until when an owner must connect again.
    fn reconnection(&self) -> Timestamp {
        Timestamp::steady().plus_ms(RECONNECT_MS)
    }

    /// Without a connection the message is lost. Returns whether there is one.
    fn send(&self, owner: BrokerId, message: &ToOwner) -> bool {
        let session = self.sessions.get(&owner);
        session.into_iter().for_each(|session| session.send(Frame::Text(frame::text(message))));
        session.is_some()
    }

    /// Reads which brokers a previous leader let own runs.
    fn read_owners(&mut self, ctx: &mut Context<Self>) {
        let read = self.context.store.read(ListOwnerships);
        ctx.spawn(wrap_future(read).map(|rights, this: &mut Self, ctx: &mut Context<Self>| match rights {
            Ok(rights) => {
                this.is_ready = true;
                for right in rights {
                    if right.broker == this.context.brokers.me.id {
                        // It owned runs before it led.
                        this.revoke(right.broker, ctx);
                    } else {
                        this.context.run_owners.table().expect(right.broker, right.term, this.patience());
                    }
                }
            }
            Err(error) => {
                log::error!("failed to read which brokers own runs, trying again error={error}");
                ctx.run_later(Duration::from_secs(1), Self::read_owners);
            }
        }));
    }

    fn joined(&mut self, broker: BrokerId, term: Option<i64>, joins: Joins, ctx: &mut Context<Self>) {
        if !self.is_ready {
            return joins.sender.send(Frame::Close("the leader is starting: connect again".to_owned()));
        }
        let known = self.context.run_owners.table().term(broker);
        if known.is_some() && known == term {
            return self.welcome(broker, term, joins, ctx);
        }
        self.forget_session(broker, "replaced by another connection");
        self.joining.insert(joins.sender.number);
        self.blocks.forget(broker);
        let (context, is_draining) = (self.context.clone(), joins.is_draining);
        let granted = async move {
            // A broker that has lost its state, but not its right.
            take_back(context.clone(), broker).await?;
            Ok(if is_draining { None } else { Some(context.store.write_unbounded(GrantOwnership { broker }).await?) })
        };
        ctx.spawn(wrap_future(granted).map(move |granted: Result<_, StoreError>, this: &mut Self, ctx: &mut Context<Self>| {
            let is_connected = this.joining.remove(&joins.sender.number);
            match granted.map(|right| right.map(|right| right.term)) {
                Ok(term) if is_connected => this.welcome(broker, term, joins, ctx),
                // Its connection is lost already: it is as one that must connect again.
                Ok(Some(term)) => this.context.run_owners.table().expect(broker, term, this.reconnection()),
                Ok(None) | Err(StoreError::NotLeading | StoreError::Closed) => {}
                Err(error) => {
                    log::error!("failed to let a broker own runs broker_id={broker} error={error}");
                    joins.sender.send(Frame::Close(problem_of(&error).detail));
                }
            }
        }));
    }

    /// The broker is connected, and owns runs under this term, if any.
    fn welcome(&mut self, broker: BrokerId, term: Option<i64>, joins: Joins, ctx: &mut Context<Self>) {
        let Joins { is_draining, block_runs, answers, sender } = joins;
        self.forget_session(broker, "replaced by another connection");
        self.context.run_owners.table().join(broker, term, block_runs, self.patience());
        self.context.run_owners.right_ended();
        self.sessions.insert(broker, sender);
        // One without runs has nothing to list.
        if answers && term.is_some() {
            self.answering.insert(broker);
        }
        match term {
            Some(term) => log::info!("broker connected to execute runs broker_id={broker} term={term}"),
            None => log::info!("broker connected, it was drained and executes no runs broker_id={broker}"),
        }
        let alive_every_ms = self.context.lease_ms / ALIVE_IN_PATIENCE as u64;
        self.send(broker, &ToOwner::Welcome { term, alive_every_ms, block_runs: true, counts: true });
        if block_runs {
            self.block_runs_connected(broker, ctx);
        }
        // The order, or its goodbye, may have been lost.
        if term.is_some() && (is_draining || self.context.run_owners.table().is_draining(broker)) {
            self.drain(broker);
        }
    }

    /// Orders an owner to give its runs up. Returns whether it is known.
    fn drain(&self, broker: BrokerId) -> bool {
        let is_known = self.context.run_owners.table().drain(broker);
        // Without a connection it gets the order when it connects.
        self.send(broker, &ToOwner::Drain);
        is_known
    }

    /// Takes the runs of an owner back.
    fn revoke(&mut self, broker: BrokerId, ctx: &mut Context<Self>) {
        let until = self.patience();
        self.context.run_owners.table().end(broker, until);
        self.context.run_owners.right_ended();
        self.forget_session(broker, "the runs of this broker were taken back");
        self.blocks.forget(broker);
        if !self.revoking.insert(broker) {
            return;
        }
        ctx.spawn(wrap_future(take_back(self.context.clone(), broker)).map(move |revoked, this: &mut Self, ctx: &mut Context<Self>| {
            this.revoking.remove(&broker);
            match revoked {
                Ok(count) => log::info!("broker owns no runs any more broker_id={broker} taken_back={count}"),
                Err(StoreError::NotLeading | StoreError::Closed) => {}
                Err(error) => {
                    log::error!("failed to take the runs of a broker back, trying again broker_id={broker} error={error}");
                    ctx.run_later(Duration::from_secs(1), move |this, ctx| {
                        // If it has joined again, that has taken them back.
                        if this.context.run_owners.table().term(broker).is_none() {
                            this.revoke(broker, ctx);
                        }
                    });
                }
            }
        }));
    }

    /// An owner does not execute this run any more.
    fn free(&mut self, broker: BrokerId, identity: Identity) {
        self.block_run_given_up(identity);
        let context = self.context.clone();
        actix::spawn(async move {
            match context.store.write_unbounded(FreeRun { identity, owner: broker }).await {
                Ok(true) => context.registry().take_runs_back(vec![identity]),
                // It has ended, or was withdrawn.
                Ok(false) => context.addresses.elsewhere.remove(identity),
                Err(StoreError::NotLeading | StoreError::Closed) => {}
                // It comes back with all others when the owner has given up the last one.
                Err(error) => log::warn!("failed to take a run back run_id={identity} error={error}"),
            }
        });
    }

    fn forget_session(&mut self, broker: BrokerId, why: &str) {
        if let Some(session) = self.sessions.remove(&broker) {
            session.send(Frame::Close(why.to_owned()));
        }
        for (_, (_, call)) in self.calls.extract_if(|_, (owner, _)| *owner == broker) {
            call.fail(Problem::owner_unreachable());
        }
        self.answering.remove(&broker);
        self.context.counts_elsewhere.left(broker);
        self.block_runs_disconnected(broker);
    }

    /// The number of the answer that a caller waits for. `None`: the owner is not connected, and the caller knows it.
    fn call(&mut self, owner: BrokerId, call: Call) -> Option<u64> {
        if !self.sessions.contains_key(&owner) {
            call.fail(Problem::owner_unreachable());
            return None;
        }
        self.last_call += 1;
        self.calls.insert(self.last_call, (owner, call));
        Some(self.last_call)
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        if !self.sessions.is_empty() {
            self.send_changed_peers();
            self.send_new_delays();
            self.lend();
        }
        // The database cannot be reached, so no owner can show that it can write. `overdue` adds this time to their limits afterwards.
        if self.context.store.check_reachable().is_err() {
            return;
        }
        let overdue = self.context.run_owners.table().overdue(Timestamp::steady());
        for (broker, owns_runs) in overdue {
            if owns_runs {
                log::warn!("broker that owns runs is lost, taking its runs back broker_id={broker}");
            }
            self.revoke(broker, ctx);
        }
    }

    fn owner_of(&self, session: u64) -> Option<BrokerId> {
        self.sessions.iter().find(|(_, sender)| sender.number == session).map(|(broker, _)| *broker)
    }
}

impl Actor for RunOwners {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.context.store.is_remote() {
            self.read_owners(ctx);
            ctx.run_interval(LOOK, Self::look);
        }
    }
}

impl Handler<OwnerSent> for RunOwners {
    type Result = ();
    fn handle(&mut self, OwnerSent { sender, message, bulk }: OwnerSent, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.sent");
        if let ToLeader::Join { broker_id, term, is_draining, block_runs, answers } = message {
            return self.joined(broker_id, term, Joins { is_draining, block_runs, answers, sender }, ctx);
        }
        if self.joining.contains(&sender.number) {
            return;
        }
        let Some(broker) = self.owner_of(sender.number) else {
            // This actor was rebuilt, or has given the broker up.
            return sender.send(Frame::Close("connect again".to_owned()));
        };
        self.context.run_owners.table().hear(broker, self.patience());
        match message {
            ToLeader::Join { .. } => {}
            ToLeader::Alive => drop(self.send(broker, &ToOwner::Alive)),
            ToLeader::Ended { run_id, job_id, state, follow } => {
                // A broker of an earlier version does not send its counts.
                if !self.answering.contains(&broker) {
                    self.context.counters.counts.ended(state);
                }
                if state == RunState::Failed {
                    self.context.alarm();
                }
                self.block_run_ended(run_id);
                self.context.registry().run_ended(run_id, job_id, state, follow);
            }
            ToLeader::Counted { sums, waiting } => self.context.counts_elsewhere.counted(broker, sums, waiting),
            ToLeader::Retries { run_id } => self.context.followers.ring(run_id),
            ToLeader::GivenUp { run_id } => self.free(broker, run_id),
            ToLeader::Answer { call, answer } => {
                let is_its = self.calls.get(&call).is_some_and(|(of, _)| *of == broker);
                if let Some((_, waiting)) = if is_its { self.calls.remove(&call) } else { None } {
                    waiting.answer(answer);
                }
            }
            ToLeader::Leave => self.revoke(broker, ctx),
            ToLeader::OfRun { run_id, message } => self.of_run(broker, run_id, message),
            ToLeader::Peer(message) => self.send_to_peer(broker, message, bulk),
            ToLeader::Sites(message) => self.borrower_sent(broker, message),
            ToLeader::Delays(delays) => {
                self.context.sites.note_delays(delays);
                self.send_new_delays();
            }
            ToLeader::KeepRobots { origin, agent, rules, until } => {
                drop(self.context.store.write(KeepRobots { origin, agent, rules, until }));
            }
        }
    }
}

impl Handler<OwnerDisconnected> for RunOwners {
    type Result = ();
    fn handle(&mut self, OwnerDisconnected(session): OwnerDisconnected, _: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.disconnected");
        self.joining.remove(&session);
        if let Some(broker) = self.owner_of(session) {
            self.forget_session(broker, "");
            self.context.run_owners.table().lose(broker, self.reconnection());
        }
    }
}

impl Handler<StartElsewhere> for RunOwners {
    type Result = ();
    fn handle(&mut self, StartElsewhere { owner, identity }: StartElsewhere, _: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.start");
        // An owner without a connection reads from the database which runs it has, when it connects again.
        self.send(owner, &ToOwner::Start { run_id: identity });
    }
}

impl Handler<ControlElsewhere> for RunOwners {
    type Result = ();
    fn handle(&mut self, ControlElsewhere { owner, identity, control }: ControlElsewhere, _: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.control");
        let (order, call) = match control {
            Control::Stop { reason, by, reply } => (RunOrder::Stop { reason, by }, Call::Run(reply)),
            Control::Describe { reply, .. } => (RunOrder::Describe, Call::Run(reply)),
            Control::Withdraw(reply) => (RunOrder::Withdraw, Call::Withdraw(reply)),
            // None is queued, and the owner itself lets its runs give up.
            Control::CheckQueue | Control::GiveUp { .. } => return,
        };
        if let Some(call) = self.call(owner, call) {
            self.send(owner, &ToOwner::Order { call, run_id: identity, order });
        }
    }
}

impl Handler<AskOwners> for RunOwners {
    type Result = ();
    fn handle(&mut self, AskOwners { question, reply: asked }: AskOwners, _: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.ask");
        let owners: Vec<BrokerId> = self.answering.iter().copied().collect();
        let mut answers = Vec::new();
        for owner in owners {
            let (reply, answer) = reply();
            if let Some(call) = self.call(owner, Call::Question(reply)) {
                self.send(owner, &ToOwner::Ask { call, question: question.clone() });
                answers.push((owner, answer));
            }
        }
        asked.send(Ok(answers));
    }
}

impl Handler<DrainOwner> for RunOwners {
    type Result = ();
    fn handle(&mut self, DrainOwner { broker, reply }: DrainOwner, _: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.drain");
        let detail = || match self.context.store.is_remote() {
            true => format!("the broker {broker} is not connected to the leader, so it executes no runs"),
            false => "with SQLite only the leader executes runs, so a standby can be stopped at any time".to_owned(),
        };
        reply.send(if self.drain(broker) { Ok(()) } else { Err(Problem::conflict("not-connected", detail())) });
    }
}
