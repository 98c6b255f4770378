//! Matches nodes that have free slots with runs that have blocks, as soon as either appears.
//!
//! It stores nothing. After a restart, the nodes and the runs send their state again.

mod message;

pub use message::{Credit, DispatcherHandle, GrantElsewhere, NodeChanged, NodeGone, PauseChanged, PullBlock, RunGone, RunReady};

use super::{NodeSlot, Permit};
use crate::actors::node::NodeHandle;
use crate::actors::run::RunHandle;
use crate::actors::supervision::{ExitGuard, Link};
use crate::domain::ids::{Identity, NodeId};
use crate::domain::matchmaker::{Grant, Matchmaker};
use crate::domain::node::SlotKind;
use actix::{Actor, AsyncContext, Context, Handler};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug)]
struct KnownNode {
    handle: NodeHandle,
    keeps_pace: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Dispatcher {
    guard: ExitGuard,
    blocks: Matchmaker,
    sites: Matchmaker,
    runs: HashMap<Identity, RunHandle>,
    nodes: HashMap<NodeId, KnownNode>,
    /// Set while it is not known whether this broker still leads. It outlives this actor.
    is_paused: Arc<AtomicBool>,
}

impl Dispatcher {
    /// A dispatcher without nodes or runs.
    #[must_use]
    pub fn new(guard: ExitGuard, is_paused: Arc<AtomicBool>) -> Self {
        Self {
            guard,
            blocks: Matchmaker::new(SlotKind::Block),
            sites: Matchmaker::new(SlotKind::Site),
            runs: HashMap::new(),
            nodes: HashMap::new(),
            is_paused,
        }
    }

    fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    fn dispatch(&mut self, ctx: &Context<Self>) {
        if self.is_paused() {
            return;
        }
        let grants = |slot_kind, matchmaker: &mut Matchmaker| matchmaker.next_grant().map(|grant| (slot_kind, grant));
        while let Some((slot_kind, grant)) = grants(SlotKind::Block, &mut self.blocks).or_else(|| grants(SlotKind::Site, &mut self.sites)) {
            self.carry_out(slot_kind, grant, ctx);
        }
    }

    fn carry_out(&mut self, slot_kind: SlotKind, grant: Grant, ctx: &Context<Self>) {
        match (self.runs.get(&grant.run), self.nodes.get(&grant.node)) {
            (Some(run), Some(node)) => {
                if !node.keeps_pace {
                    // This node has one pool of slots for both kinds.
                    let other = if slot_kind == SlotKind::Block { &mut self.sites } else { &mut self.blocks };
                    other.debit(grant.node);
                }
                let this = Link::new(ctx.address(), Arc::clone(self.guard.stats()));
                let slot = NodeSlot { node: grant.node, kind: slot_kind, keeps_pace: node.keeps_pace };
                run.grant(node.handle.clone(), Permit::new(slot, move || this.tell(Credit(slot.node, slot.kind))));
            }
            // This cannot happen: runs and nodes enter the matchmaker together with their handles.
            _ => log::error!("grant for an unknown run or node run_id={} node={}", grant.run, grant.node),
        }
    }

    fn of(&mut self, slot_kind: SlotKind) -> &mut Matchmaker {
        match slot_kind {
            SlotKind::Block => &mut self.blocks,
            SlotKind::Site => &mut self.sites,
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
        let _timed = self.guard.timed("dispatcher.run_ready");
        let (group, os) = (m.node_group.as_deref(), m.os.as_deref());
        self.blocks.run_ready(m.identity, m.priority, m.ready, group, os);
        if m.sites > 0 || self.sites.has_run(m.identity) {
            self.sites.run_ready(m.identity, m.priority, m.sites, group, os);
        }
        self.runs.insert(m.identity, m.run);
        self.dispatch(ctx);
    }
}

impl Handler<RunGone> for Dispatcher {
    type Result = ();
    fn handle(&mut self, RunGone(identity): RunGone, _: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.run_gone");
        self.blocks.run_gone(identity);
        self.sites.run_gone(identity);
        self.runs.remove(&identity);
    }
}

impl Handler<NodeChanged> for Dispatcher {
    type Result = ();
    fn handle(&mut self, m: NodeChanged, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.node_open");
        let keeps_pace = m.facts.max_sites.is_some();
        self.nodes.insert(m.facts.node_id, KnownNode { handle: m.node, keeps_pace });
        self.sites.node_changed(Arc::clone(&m.facts), m.free_sites, m.accepts_blocks);
        self.blocks.node_changed(m.facts, m.free, m.accepts_blocks);
        self.dispatch(ctx);
    }
}

impl Handler<Credit> for Dispatcher {
    type Result = ();
    fn handle(&mut self, Credit(node, slot_kind): Credit, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.credit");
        self.of(slot_kind).credit(node);
        if self.nodes.get(&node).is_some_and(|node| !node.keeps_pace) {
            self.of(if slot_kind == SlotKind::Block { SlotKind::Site } else { SlotKind::Block }).credit(node);
        }
        self.dispatch(ctx);
    }
}

impl Handler<GrantElsewhere> for Dispatcher {
    type Result = ();
    fn handle(&mut self, m: GrantElsewhere, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.grant_elsewhere");
        if !self.is_paused()
            && let Some(grant) = self.of(m.slot_kind).grant_elsewhere(m.identity, m.not)
        {
            self.carry_out(m.slot_kind, grant, ctx);
        }
    }
}

impl Handler<NodeGone> for Dispatcher {
    type Result = ();
    fn handle(&mut self, NodeGone(node): NodeGone, _: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.node_gone");
        self.blocks.node_gone(node);
        self.sites.node_gone(node);
        self.nodes.remove(&node);
    }
}

impl Handler<PauseChanged> for Dispatcher {
    type Result = ();
    fn handle(&mut self, _: PauseChanged, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.set_paused");
        self.dispatch(ctx);
    }
}

impl Handler<PullBlock> for Dispatcher {
    type Result = ();
    fn handle(&mut self, m: PullBlock, _: &mut Self::Context) {
        let _timed = self.guard.timed("dispatcher.pull");
        if self.is_paused() {
            return m.reply.send(Ok(None));
        }
        let (blocks, sites) = (&mut self.blocks, &mut self.sites);
        let found = blocks.pull(&m.facts, &m.without).map(|run| (run, SlotKind::Block));
        let found = found.or_else(|| sites.pull(&m.facts, &m.without).map(|run| (run, SlotKind::Site)));
        match found.and_then(|(identity, slot_kind)| Some((self.runs.get(&identity)?, slot_kind))) {
            Some((run, slot_kind)) => run.answer_pull(m.facts.node_id, m.node, slot_kind, m.reply),
            None => m.reply.send(Ok(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::run_shell::RunLink;
    use crate::actors::supervision::{ChildKey, Recording, Stats};
    use crate::domain::job::JobKind;
    use crate::domain::node::NodeFacts;

    #[test]
    fn a_dispatcher_that_replaces_another_stays_paused() {
        actix_rt::System::new().block_on(async {
            let recording = Recording::default();
            let (kind, name) = ChildKey::Dispatcher.names();
            let guard = ExitGuard::new(Stats::new(kind, name, None), ChildKey::Dispatcher, 2, |_| {});
            let is_paused = Arc::new(AtomicBool::new(true));
            let dispatcher = Dispatcher::new(guard, Arc::clone(&is_paused)).start();
            let (identity, node_id) = (Identity::random(), NodeId::random());
            let facts = NodeFacts {
                node_id,
                name: None,
                node_type: "Console".into(),
                ip_address: "10.0.0.1".into(),
                processor_count: 1,
                group: String::new(),
                operating_system: "linux".into(),
                memory: 1,
                max_process_count: 1,
                max_sites: None,
                max_programs: None,
            };
            let node = NodeHandle(recording.link(ChildKey::Node(node_id)));
            let joined = NodeChanged { facts: facts.into(), node, free: 1, free_sites: 0, accepts_blocks: true };
            dispatcher.send(joined).await.expect("handled");
            let run = RunLink(recording.link(ChildKey::Run(JobKind::Block, identity)));
            let ready = RunReady { identity, run, priority: 0, ready: 1, sites: 0, last_permit: 0, node_group: None, os: None };
            dispatcher.send(ready).await.expect("handled");
            assert_eq!(recording.count(), 0, "nothing is granted while the leadership is uncertain");
            is_paused.store(false, Relaxed);
            dispatcher.send(PauseChanged).await.expect("handled");
            assert_eq!(recording.names(), ["Grant"]);
        });
    }
}
