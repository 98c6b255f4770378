//! A node: its facts, its connection state, the blocks it holds. The actor survives a reconnect of the session.
//!
//! Promises: a node receives no more blocks than it accepts, unless its slots change while blocks are on their way. When it is lost,
//! each run whose blocks it held is notified once.
//! The actor stores only what operators look at: the record of the node and its statuses.

mod blocks;
mod heartbeat;
mod message;
mod owners;
mod programs;

pub use message::{
    BlockDone, Command, DescribeNode, Disconnect, ExpectPrograms, Holds, ListBlocks, NodeDescription, NodeHandle, NodeHeartbeat,
    OutputReceived, ProgramsReported, PullWithHeartbeat, Reannounce, SendBlock, SessionClosed, SessionOpened, SetWork,
};

pub use blocks::with_requests;
pub use owners::NodeOwners;

use super::context::BrokerContext;
use super::liveness::ms_left;
use super::placement::dispatcher::NodeChanged;
use super::session_sender::{Frame, SessionSender};
use super::supervision::{ExitGuard, Link};
use crate::domain::ids::{BlockId, Identity, NodeId};
use crate::domain::node::{NodeFacts, NodeLoad, NodeRecord, NodeWork, SlotKind};
use crate::domain::time::Timestamp;
use crate::protocol::application::ProgramRef;
use crate::protocol::frame;
use crate::protocol::node::{Block, ToNode};
use crate::store::NodeDisconnected;
use actix::{Actor, ActorContext, AsyncContext, Context, Handler, SpawnHandle};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a node that has just connected may take to report the blocks it holds before it receives more.
const FIRST_HEARTBEAT: Duration = Duration::from_millis(500);

/// How soon the actor checks again whether the node is lost while this broker is in doubt.
const RECHECK_IN_DOUBT: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub struct NodeActor {
    guard: ExitGuard,
    context: BrokerContext,
    facts: Arc<NodeFacts>,
    /// The node may receive work.
    enabled: bool,
    /// What else an operator requested (drain or leave) and the reason.
    requested_work: Option<(NodeWork, String)>,
    sender: Option<SessionSender>,
    binary: bool,
    load: Option<NodeLoad>,
    /// The last load that was stored, and when.
    stored: Option<(NodeLoad, Timestamp)>,
    last_message: Timestamp,
    /// When its last message came, by the wall clock.
    last_seen: Timestamp,
    /// Time at which the session closed.
    closed_at: Option<Timestamp>,
    /// The node reported the blocks it holds, or the time for that report has passed.
    has_listed_blocks: bool,
    held: HashMap<BlockId, Held>,
    /// Number of blocks that were sent in the current session.
    sent: u64,
    /// Programs that runs expect on this node.
    expected: HashMap<Identity, Vec<ProgramRef>>,
    /// For a node in polling mode: a block that it has not fetched yet.
    undelivered: Option<Block>,
    /// The timer of the next [`NodeActor::check_liveness`].
    next_check: SpawnHandle,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    identity: Identity,
    attempt: u32,
    slot_kind: SlotKind,
    /// It only waits for slow answers, and takes no slot.
    waits: bool,
    /// Its place among the blocks that were sent in the current session, from 1; 0: it was sent before.
    sent_as: u64,
}

impl NodeActor {
    /// A node that has connected or called. `session` is `None` for a node without a socket.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, record: NodeRecord, session: Option<(SessionSender, bool)>) -> Self {
        let (enabled, requested_work) = (record.is_open(), requested_work(&record));
        let facts = record.facts.into();
        let (sender, binary) = session.map_or((None, false), |(sender, binary)| (Some(sender), binary));
        Self {
            guard,
            context,
            facts,
            enabled,
            requested_work,
            sender,
            binary,
            load: None,
            stored: None,
            last_message: Timestamp::steady(),
            last_seen: Timestamp::now(),
            closed_at: None,
            has_listed_blocks: false,
            held: HashMap::new(),
            sent: 0,
            expected: HashMap::new(),
            undelivered: None,
            next_check: SpawnHandle::default(),
        }
    }

    fn id(&self) -> NodeId {
        self.facts.node_id
    }

    fn link(&self, ctx: &Context<Self>) -> NodeHandle {
        use actix::AsyncContext as _;
        NodeHandle(Link::new(ctx.address(), Arc::clone(self.guard.stats())))
    }

    /// Number of slots of this kind that blocks use.
    fn used(&self, slot_kind: SlotKind) -> u32 {
        // A node that does not report a site limit has one pool of slots for both kinds.
        let is_one = self.facts.max_sites.is_none();
        self.held.values().filter(|held| !held.waits && (is_one || held.slot_kind == slot_kind)).count() as u32
    }

    /// Number of further blocks of this kind that the node can accept.
    fn free(&self, slot_kind: SlotKind) -> u32 {
        self.facts.slots(slot_kind).saturating_sub(self.used(slot_kind))
    }

    /// Sends the dispatcher the free slots of the node.
    fn announce(&self, ctx: &Context<Self>) {
        let (free, free_sites) = (self.free(SlotKind::Block), self.free(SlotKind::Site));
        let accepts_blocks = self.enabled && self.has_listed_blocks && self.sender.is_some();
        self.publish();
        self.context.dispatcher.node_changed(NodeChanged {
            facts: Arc::clone(&self.facts),
            node: self.link(ctx),
            free,
            free_sites,
            accepts_blocks,
        });
    }

    fn send(&self, message: &ToNode) {
        if let Some(sender) = &self.sender {
            sender.send(Frame::Text(frame::text(message)));
        }
    }

    fn welcome(&mut self, ctx: &mut Context<Self>) {
        let times = self.context.times;
        self.sent = 0;
        self.held.values_mut().for_each(|held| held.sent_as = 0);
        self.send(&ToNode::Welcome {
            node_id: self.id(),
            heartbeat: times.node_heartbeat,
            offline: times.node_offline,
            max_frame: crate::protocol::MAX_FRAME,
        });
        self.send_requested_work();
        self.has_listed_blocks = false;
        self.announce(ctx);
        let session = |this: &Self| this.sender.as_ref().map(|sender| sender.number);
        let welcomed = session(self);
        ctx.run_later(FIRST_HEARTBEAT, move |this, ctx| {
            if !this.has_listed_blocks && session(this) == welcomed {
                this.has_listed_blocks = true;
                this.announce(ctx);
            }
        });
    }

    fn silent_since(&self) -> Timestamp {
        self.context.brokers.without_doubts(self.last_message)
    }

    /// Checks whether the node is lost. If not, it sets a timer for the earliest time at which the node can be lost: a check at regular
    /// intervals would wake thousands of idle nodes more often than their heartbeats do.
    fn check_liveness(&mut self, ctx: &mut Context<Self>) {
        let (brokers, times) = (&self.context.brokers, self.context.times);
        let wait = if brokers.is_doubtful() {
            RECHECK_IN_DOUBT
        } else {
            let closed_since = self.closed_at.map(|at| brokers.without_doubts(at));
            match ms_left(Timestamp::steady(), self.silent_since(), closed_since, times.node_offline, times.grace) {
                Ok(ms) => Duration::from_millis(ms + 1),
                Err(why) => return self.lost(why, ctx),
            }
        };
        self.next_check = ctx.run_later(wait, Self::check_liveness);
    }

    fn lost(&mut self, why: &str, ctx: &mut Context<Self>) {
        log::warn!("node lost node_id={} node={} held_blocks={} reason={why}", self.id(), self.facts.shown_name(), self.held.len());
        for (block_id, held) in std::mem::take(&mut self.held) {
            if let Some(run) = self.context.addresses.block_run(held.identity) {
                run.node_lost(self.id(), block_id, held.attempt);
            }
        }
        self.programs_lost();
        if let Some(sender) = self.sender.take() {
            sender.send(message::close(why));
        }
        self.context.dispatcher.node_gone(self.id());
        self.context.registry().node_left(self.id());
        // Nothing waits for this write; a broker that starts ends all connections.
        let gone = NodeDisconnected { node: self.id(), reason: why.to_owned(), last_seen: self.last_seen, now: Timestamp::now() };
        drop(self.context.store.write_unbounded(gone));
        self.guard.finish();
        ctx.stop();
    }
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 12);
        if self.sender.is_some() {
            log::info!("node connected node_id={} node={}", self.id(), self.facts.shown_name());
            self.welcome(ctx);
        }
        self.check_liveness(ctx);
    }
}

impl Handler<SessionOpened> for NodeActor {
    type Result = ();
    fn handle(&mut self, m: SessionOpened, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.session_opened");
        self.facts = m.facts.into();
        let old = self.sender.replace(m.sender);
        let replaces = old.is_some();
        log::info!("node connected again node_id={} node={} replaces_open_connection={replaces}", self.id(), self.facts.shown_name());
        if let Some(old) = old {
            old.send(message::close("the node has opened a new connection"));
        }
        self.binary = m.binary;
        self.closed_at = None;
        (self.last_message, self.last_seen) = (Timestamp::steady(), Timestamp::now());
        self.welcome(ctx);
    }
}

impl Handler<SessionClosed> for NodeActor {
    type Result = ();
    fn handle(&mut self, SessionClosed(number): SessionClosed, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.session_closed");
        if self.sender.as_ref().is_some_and(|sender| sender.number == number) {
            self.sender = None;
            self.closed_at = Some(Timestamp::steady());
            self.announce(ctx);
            // Not at once: the node may have connected again, and that message may be waiting here.
            ctx.cancel_future(self.next_check);
            self.next_check = ctx.run_later(Duration::from_millis(self.context.times.grace + 1), Self::check_liveness);
        }
    }
}

impl Handler<SetWork> for NodeActor {
    type Result = ();
    fn handle(&mut self, SetWork(record): SetWork, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.set_work");
        (self.enabled, self.requested_work) = (record.is_open(), requested_work(&record));
        self.send_requested_work();
        self.announce(ctx);
    }
}

/// What an operator requested besides enabling or disabling the node.
fn requested_work(record: &NodeRecord) -> Option<(NodeWork, String)> {
    let work = if record.is_leaving { NodeWork::Leaving } else { NodeWork::Draining };
    let reason = || record.reason.clone().unwrap_or_else(|| "requested by an operator".to_owned());
    (record.is_leaving || record.is_draining).then(|| (work, reason()))
}

impl Handler<Reannounce> for NodeActor {
    type Result = ();
    fn handle(&mut self, _: Reannounce, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.reannounce");
        self.announce(ctx);
    }
}

impl Handler<Disconnect> for NodeActor {
    type Result = ();
    fn handle(&mut self, Disconnect(why): Disconnect, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.disconnect");
        self.context.fleet.remove_node(self.id());
        self.context.dispatcher.node_gone(self.id());
        if let Some(sender) = self.sender.take() {
            // The followers are closed only when the broker ends. An operator may have removed the node.
            let is_ending = self.context.followers.is_closed();
            sender.send(if is_ending { Frame::Restart(why) } else { message::close(&why) });
        }
        self.guard.finish();
        ctx.stop();
    }
}

impl Handler<DescribeNode> for NodeActor {
    type Result = ();
    fn handle(&mut self, DescribeNode(reply): DescribeNode, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.describe");
        let mut runs = HashMap::new();
        for held in self.held.values() {
            *runs.entry(held.identity).or_default() += 1;
        }
        reply.send(Ok(NodeDescription {
            load: self.load,
            last_seen: self.last_seen,
            holding: self.held.len() as u32,
            runs,
            programs: self.context.fleet.programs(self.id()),
            is_online: self.closed_at.is_none(),
        }));
    }
}
