//! Messages to the actor of the owners, and its handle.

use super::RunOwners;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::run::RunHandle;
use crate::actors::run_shell::{Control, RunLink};
use crate::actors::session_sender::SessionSender;
use crate::actors::supervision::{ChildKey, CurrentLink, Link, Passed};
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::job::JobKind;
use crate::domain::run_owners::OwnerTable;
use crate::protocol::ownership::{Question, RunAnswer, ToLeader};
use actix::Message;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// From a session: an owner has sent something.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OwnerSent {
    /// The session.
    pub sender: SessionSender,
    /// The message.
    pub message: ToLeader,
    /// Its bulk data.
    pub bulk: Bytes,
}

/// From a session: the connection has closed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OwnerDisconnected(pub u64);

/// From the registry: a run of this owner was stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StartElsewhere {
    /// The owner.
    pub owner: BrokerId,
    /// The run.
    pub identity: Identity,
}

/// From the handle of a run that another broker executes: pass this message on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ControlElsewhere {
    /// The owner.
    pub owner: BrokerId,
    /// The run.
    pub identity: Identity,
    /// The message.
    pub control: Control,
}

/// From the handle of a block run that another broker executes: pass this message on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PassToRun {
    /// The owner.
    pub owner: BrokerId,
    /// The run.
    pub identity: Identity,
    /// The message.
    pub message: Passed,
}

/// From the service: ask the owners for something that they have.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskOwners {
    /// What is asked for.
    pub question: Question,
    /// One answer for each owner that is connected.
    pub reply: Reply<Vec<(BrokerId, Answer<RunAnswer>)>>,
}

/// From the service: move the runs of this broker to others.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DrainOwner {
    /// The broker.
    pub broker: BrokerId,
    /// Answered at once: a broker without a connection gets the order when it connects. A problem: the leader does not know the broker.
    pub reply: Reply<()>,
}

/// Handle to the owners for other modules.
#[derive(Debug, Clone, Default)]
pub struct RunOwnersHandle {
    pub(in crate::actors) link: CurrentLink<RunOwners>,
    table: Arc<Mutex<OwnerTable>>,
    /// A right has ended.
    ended: Arc<Notify>,
}

impl RunOwnersHandle {
    pub(super) fn table(&self) -> MutexGuard<'_, OwnerTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the callers of [`Self::is_lost`]: a right has ended.
    pub(super) fn right_ended(&self) {
        self.ended.notify_waiters();
    }

    /// Completes when this broker does not own runs any more under its present right; at once, if it owns none.
    pub fn is_lost(&self, broker: BrokerId) -> impl Future<Output = ()> + use<> {
        let (this, term) = (self.clone(), self.table().term(broker));
        async move {
            loop {
                let ended = this.ended.notified();
                if term.is_none() || this.table().term(broker) != term {
                    return;
                }
                ended.await;
            }
        }
    }

    /// The broker that executes the next run of a job of this kind; `None`: the leader.
    #[must_use]
    pub fn choose(&self, kind: JobKind) -> Option<BrokerId> {
        self.table().choose(kind == JobKind::Block)
    }

    /// See [`OwnerSent`].
    pub fn sent(&self, sender: SessionSender, message: ToLeader, bulk: Bytes) {
        self.link.tell(OwnerSent { sender, message, bulk });
    }
    /// See [`OwnerDisconnected`].
    pub fn disconnected(&self, session: u64) {
        self.link.tell(OwnerDisconnected(session));
    }
    /// See [`StartElsewhere`].
    pub fn start_elsewhere(&self, owner: BrokerId, identity: Identity) {
        self.link.tell(StartElsewhere { owner, identity });
    }
    /// See [`ControlElsewhere`].
    pub fn control_elsewhere(&self, owner: BrokerId, identity: Identity, control: Control) {
        self.link.tell(ControlElsewhere { owner, identity, control });
    }
    /// The handle of a block run that another broker executes.
    #[must_use]
    pub fn block_run(&self, owner: BrokerId, identity: Identity) -> RunHandle {
        let link = self.link.clone();
        let pass_on = move |message| link.tell(PassToRun { owner, identity, message });
        RunLink(Link::elsewhere(ChildKey::Run(JobKind::Block, identity), pass_on))
    }
    /// See [`AskOwners`].
    #[must_use]
    pub fn ask(&self, question: Question) -> Answer<Vec<(BrokerId, Answer<RunAnswer>)>> {
        let (reply, answer) = reply();
        self.link.tell(AskOwners { question, reply });
        answer
    }
    /// See [`DrainOwner`].
    #[must_use]
    pub fn drain(&self, broker: BrokerId) -> Answer<()> {
        let (reply, answer) = reply();
        self.link.tell(DrainOwner { broker, reply });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use futures_util::FutureExt as _;

    #[test]
    fn a_call_to_an_owner_ends_with_its_right() {
        let (owners, [one, other]) = (RunOwnersHandle::default(), [BrokerId::random(), BrokerId::random()]);
        let (late, ended) = (Timestamp(1_000), || owners.right_ended());
        assert_eq!(owners.is_lost(one).now_or_never(), Some(()), "it owns nothing");
        owners.table().join(one, Some(1), true, late);
        owners.table().join(other, Some(2), true, late);
        let (mut first, mut second) = (Box::pin(owners.is_lost(one)), Box::pin(owners.is_lost(other)));
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (None, None));
        owners.table().end(one, late);
        ended();
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (Some(()), None));
        owners.table().join(other, Some(3), true, late);
        ended();
        assert_eq!(second.as_mut().now_or_never(), Some(()), "another right");
    }
}
