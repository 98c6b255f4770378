//! The state of a broker while it owns runs: their actors, and the state that the leader has sent.

use super::LAST_WRITES;
use crate::actors::at_leader::{self, Missing};
use crate::actors::context::BrokerContext;
use crate::actors::leader_link::{LeaderLink, Outgoing};
use crate::actors::registry::{Registry, RegistryHandle};
use crate::actors::reply::Answer;
use crate::actors::run_shell::AtWork;
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::ownership::{Question, RunAnswer, RunOrder, ToLeader, ToOwner};
use crate::service::Service;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

/// See the module documentation.
pub(super) struct Work {
    /// The term under which it owns runs.
    pub(super) term: i64,
    pub(super) context: BrokerContext,
    pub(super) registry: RegistryHandle,
    leader: LeaderLink,
    /// Messages of the runs to the leader.
    pub(super) messages: UnboundedReceiver<Outgoing>,
    /// Nodes and workers of the last leader.
    missing: Missing,
    /// The number of the last delay of a domain that the leader knows.
    delays: u64,
    /// The leader knows block runs. One of an earlier version does not.
    block_runs: bool,
}

impl Work {
    pub(super) fn begin(term: i64, context: BrokerContext) -> Self {
        let (leader, messages) = LeaderLink::new();
        let context = context.with_leader(leader.clone());
        let registry = Registry::start_of_owner(&context);
        Self { term, context, registry, leader, messages, missing: Missing::default(), delays: 0, block_runs: false }
    }

    /// Ends all actors. Returns the messages that were not sent.
    pub(super) async fn end(mut self) -> Vec<ToLeader> {
        // A registry that crashed would have ended the process.
        let _ = self.registry.abandon_runs().wait().await;
        if timeout(LAST_WRITES, self.context.store.clone().close()).await.is_err() {
            log::warn!("the last writes of runs take too long, going on without them");
        }
        self.unsent()
    }

    /// The messages that were not sent, as far as they are of use on another connection.
    fn unsent(&mut self) -> Vec<ToLeader> {
        let unsent = std::iter::from_fn(|| self.messages.try_recv().ok());
        unsent.map(|outgoing| outgoing.message).filter(ToLeader::outlives_connection).collect()
    }

    /// There is a new connection to the leader, which gets the state of the runs again.
    pub(super) fn announce(&mut self, block_runs: bool) {
        let unsent = self.unsent();
        (self.delays, self.block_runs) = (0, block_runs);
        self.context.connected_at.store(Timestamp::steady().0, Relaxed);
        let board = self.context.sites.board().lender_connected(Timestamp::steady());
        board.into_iter().filter(|_| block_runs).for_each(|message| self.leader.send(ToLeader::Sites(message)));
        unsent.into_iter().for_each(|message| self.leader.send(message));
        if block_runs {
            at_leader::announce_all(&self.context);
        }
    }

    /// Sends what the board of sites has for the leader. To be called every few hundredths of a second.
    pub(super) fn lend(&mut self) {
        self.missing.look(&self.context);
        if !self.block_runs {
            return;
        }
        let messages = self.context.sites.board().for_lender(Timestamp::steady());
        messages.into_iter().for_each(|message| self.leader.send(ToLeader::Sites(message)));
        let (delays, last) = self.context.sites.delays_after(self.delays);
        self.delays = last;
        if !delays.is_empty() {
            self.leader.send(ToLeader::Delays(delays));
        }
    }

    fn answer(&self, call: u64, question: Question) {
        let (service, leader) = (Service::new(self.context.clone()), self.leader.clone());
        let answer = match question {
            Question::Sites(filter) => RunAnswer::Sites(service.own_sites(&filter)),
            Question::Actors(filter) => RunAnswer::Actors(service.own_actors(&filter)),
            Question::ActorKinds => RunAnswer::ActorKinds(service.own_actor_kinds()),
            Question::Actor { kind, name } => RunAnswer::Actor(service.own_actor(&kind, &name).map(Box::new)),
        };
        leader.send(ToLeader::Answer { call, answer });
    }

    /// A message from the leader.
    pub(super) fn take(&mut self, message: ToOwner) {
        match message {
            // A run that has an actor already is not started again.
            ToOwner::Start { run_id } => drop(self.registry.start_run(run_id)),
            ToOwner::Order { call, run_id, order } => {
                let (context, leader) = (self.context.clone(), self.leader.clone());
                drop(actix::spawn(async move {
                    leader.send(ToLeader::Answer { call, answer: carry_out(&context, run_id, order).await });
                }));
            }
            ToOwner::Drain => self.registry.give_runs_up(),
            ToOwner::Peers(peers) => self.missing.take(&self.context, peers),
            ToOwner::Run { run_id, message } => self.missing.pass_to_run(&self.context, run_id, message),
            ToOwner::Sites(message) => {
                at_leader::take_sites(&self.context, message);
            }
            ToOwner::Ask { call, question } => self.answer(call, question),
            ToOwner::Delays(delays) => self.context.sites.note_delays(delays),
            ToOwner::Welcome { .. } | ToOwner::Alive => {}
        }
    }
}

async fn carry_out(context: &BrokerContext, identity: Identity, order: RunOrder) -> RunAnswer {
    let run = match context.at_work(identity).await {
        Ok(run) => run,
        Err(problem) => return RunAnswer::Problem(problem),
    };
    match order {
        RunOrder::Stop { reason, by } => output(run.stop(reason, by)).await,
        RunOrder::Describe => output(run.describe(false)).await,
        RunOrder::Withdraw => withdraw(context, identity, &run).await,
    }
}

async fn withdraw(context: &BrokerContext, identity: Identity, run: &AtWork) -> RunAnswer {
    match run.withdraw().wait().await {
        Ok(is_withdrawn) => {
            if is_withdrawn {
                context.registry().run_withdrawn(identity);
            }
            RunAnswer::Withdrawn(is_withdrawn)
        }
        Err(problem) => RunAnswer::Problem(problem),
    }
}

async fn output(answer: Answer<RunOutput>) -> RunAnswer {
    answer.wait().await.map_or_else(RunAnswer::Problem, |run| RunAnswer::Run(Box::new(run)))
}
