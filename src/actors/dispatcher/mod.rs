//! Matches nodes that have room with runs that have blocks, at once when either appears.
//!
//! Owns nothing that is stored: if it dies, a new one is told everything again by the nodes and the runs.

mod message;

pub use message::{Credit, DispatcherHandle, NodeGone, NodeOpen, PullBlock, Room, RunGone, RunReady};

use super::node::NodeHandle;
use super::run::RunHandle;
use super::supervision::{Link, Notice};
use crate::domain::ids::{Identity, NodeId};
use crate::domain::matchmaker::Matchmaker;
use actix::{Actor, AsyncContext, Context, Handler};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug)]
pub struct Dispatcher {
    notice: Notice,
    matchmaker: Matchmaker,
    runs: HashMap<Identity, RunHandle>,
    nodes: HashMap<NodeId, NodeHandle>,
}

impl Dispatcher {
    /// One that knows nobody yet.
    #[must_use]
    pub fn new(notice: Notice) -> Self {
        Self { notice, matchmaker: Matchmaker::default(), runs: HashMap::new(), nodes: HashMap::new() }
    }

    fn dispatch(&mut self, ctx: &Context<Self>) {
        while let Some(grant) = self.matchmaker.next_grant() {
            match (self.runs.get(&grant.run), self.nodes.get(&grant.node)) {
                (Some(run), Some(node)) => {
                    let this = DispatcherHandle(Link::new(ctx.address(), Arc::clone(self.notice.stats())));
                    run.grant(node.clone(), Room::new(grant.node, this));
                }
                // Runs and nodes enter the matchmaker together with their handles.
                _ => log::error!("a grant without a handle run={} node={}", grant.run, grant.node),
            }
        }
    }
}

impl Actor for Dispatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 16);
    }
}

impl Handler<RunReady> for Dispatcher {
    type Result = ();
    fn handle(&mut self, m: RunReady, ctx: &mut Self::Context) {
        self.notice.message("dispatcher.run_ready");
        self.matchmaker.run_ready(m.identity, m.priority, m.ready, m.node_group.as_deref(), m.os.as_deref());
        self.runs.insert(m.identity, m.run);
        self.dispatch(ctx);
    }
}

impl Handler<RunGone> for Dispatcher {
    type Result = ();
    fn handle(&mut self, RunGone(identity): RunGone, _: &mut Self::Context) {
        self.notice.message("dispatcher.run_gone");
        self.matchmaker.run_gone(identity);
        self.runs.remove(&identity);
    }
}

impl Handler<NodeOpen> for Dispatcher {
    type Result = ();
    fn handle(&mut self, m: NodeOpen, ctx: &mut Self::Context) {
        self.notice.message("dispatcher.node_open");
        self.nodes.insert(m.facts.node_id, m.node);
        self.matchmaker.node_changed(m.facts, m.free, m.open);
        self.dispatch(ctx);
    }
}

impl Handler<Credit> for Dispatcher {
    type Result = ();
    fn handle(&mut self, Credit(node): Credit, ctx: &mut Self::Context) {
        self.notice.message("dispatcher.credit");
        self.matchmaker.credit(node);
        self.dispatch(ctx);
    }
}

impl Handler<NodeGone> for Dispatcher {
    type Result = ();
    fn handle(&mut self, NodeGone(node): NodeGone, _: &mut Self::Context) {
        self.notice.message("dispatcher.node_gone");
        self.matchmaker.node_gone(node);
        self.nodes.remove(&node);
    }
}

impl Handler<PullBlock> for Dispatcher {
    type Result = ();
    fn handle(&mut self, m: PullBlock, _: &mut Self::Context) {
        self.notice.message("dispatcher.pull");
        match self.matchmaker.pull(&m.facts, &m.without).and_then(|identity| self.runs.get(&identity)) {
            Some(run) => run.pull(m.facts.node_id, m.node, m.reply),
            None => m.reply.send(Ok(None)),
        }
    }
}
