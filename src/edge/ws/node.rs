//! The session of a node.

use super::session::{self, Ends, Peer};
use crate::actors::session_sender::Frame;
use crate::actors::supervision::Stats;
use crate::domain::ids::NodeId;
use crate::domain::node::{Instance, NodeFacts};
use crate::edge::Edge;
use crate::edge::auth::Caller;
use crate::edge::error::Failure;
use crate::protocol::frame;
use crate::protocol::node::{FromNode, ToNode};
use crate::service::Service;
use actix::{Actor, ActorFutureExt, AsyncContext, Handler, StreamHandler, fut::wrap_future};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws::{CloseCode, Message, ProtocolError, WebsocketContext};
use std::sync::Arc;

struct NodeSession {
    service: Service,
    id: NodeId,
    /// The facts and the role of its token, until the node is announced.
    facts: Option<(NodeFacts, bool, Option<String>)>,
    /// The agent's instance, if it sent one.
    instance: Option<Instance>,
    number: u64,
    ends: Ends,
    stats: Option<Arc<Stats>>,
}

/// Performs the WebSocket upgrade.
pub(super) fn open(
    edge: &Edge,
    (facts, instance): (NodeFacts, Option<Instance>),
    binary: bool,
    caller: Caller,
    request: &HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    let id = facts.node_id;
    let (ends, by) = (Ends::of(edge, &caller, format!("node_id={id}"), request, stream).while_leading(edge), caller.name);
    let session =
        NodeSession { service: edge.service.clone(), id, facts: Some((facts, binary, by)), instance, number: 0, ends, stats: None };
    session::open(session, request)
}

impl Peer for NodeSession {
    fn ends(&mut self) -> &mut Ends {
        &mut self.ends
    }

    fn take(&mut self, text: &[u8], ctx: &mut WebsocketContext<Self>) {
        if let Some(stats) = &self.stats {
            stats.told();
            stats.handled("session.frame");
        }
        match frame::read::<FromNode>(text) {
            Ok(FromNode::Heartbeat(heartbeat)) => {
                // Its actor may be restarting: the next heartbeat will reach it.
                if let Some(node) = self.service.node_handle(self.id) {
                    node.heartbeat(heartbeat);
                }
            }
            // The node repeats this, like a heartbeat, if its actor is restarting.
            Ok(FromNode::Programs(reports)) => {
                if let Some(node) = self.service.node_handle(self.id) {
                    node.programs(reports);
                }
            }
            Ok(FromNode::Output(output)) => {
                if let Some(node) = self.service.node_handle(self.id) {
                    node.output(output);
                }
            }
            Err(problem) => ctx.text(frame::text(&ToNode::Error(problem))),
        }
    }
}

impl Actor for NodeSession {
    type Context = WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let sender = self.ends.begin(ctx);
        self.number = sender.number;
        self.stats = Some(self.service.enter_session(format!("node {} #{}", self.id, self.number)));
        let Some((facts, binary, by)) = self.facts.take() else { return };
        let (service, instance) = (self.service.clone(), self.instance);
        // Messages that arrive before its actor exists wait in the socket, and so does the close.
        ctx.wait(wrap_future(async move { service.node_connected(facts, instance, sender, binary, by).await }).map(
            |connected, this: &mut Self, ctx: &mut Self::Context| {
                if let Err(problem) = connected {
                    log::warn!("node rejected node_id={} reason={}", this.id, problem.detail);
                    session::refuse(CloseCode::Again, &problem.detail, ctx);
                }
            },
        ));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.ends.end();
        if let Some(stats) = self.stats.take() {
            self.service.leave_session(&stats);
        }
        self.service.node_disconnected(self.id, self.number);
    }
}

impl Handler<Frame> for NodeSession {
    type Result = ();
    fn handle(&mut self, frame: Frame, ctx: &mut Self::Context) {
        self.ends.write(frame, ctx);
    }
}

impl StreamHandler<Result<Message, ProtocolError>> for NodeSession {
    fn handle(&mut self, message: Result<Message, ProtocolError>, ctx: &mut Self::Context) {
        session::receive(self, message, ctx);
    }
}
