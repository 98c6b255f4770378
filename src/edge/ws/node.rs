//! The session of a node.

use super::session::{self, Joined, MAX_MESSAGE, Peer};
use crate::actors::desk::Desk;
use crate::actors::outlet::Frame;
use crate::actors::supervision::Stats;
use crate::domain::ids::NodeId;
use crate::domain::node::NodeFacts;
use crate::edge::Edge;
use crate::edge::error::Failure;
use crate::protocol::frame;
use crate::protocol::node::{FromNode, ToNode};
use crate::protocol::problem::Problem;
use actix::{Actor, ActorFutureExt, AsyncContext, Handler, StreamHandler, fut::wrap_future};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws::{CloseCode, Message, ProtocolError, WebsocketContext, WsResponseBuilder};
use std::sync::Arc;

struct NodeSession {
    desk: Desk,
    id: NodeId,
    /// Until it has told who it is, and the role of its token.
    facts: Option<(NodeFacts, bool, Option<String>)>,
    number: u64,
    joined: Joined,
    stats: Option<Arc<Stats>>,
}

/// Answers the upgrade.
pub(super) fn open(
    edge: &Edge,
    facts: NodeFacts,
    binary: bool,
    by: Option<String>,
    request: &HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    let id = facts.node_id;
    let session =
        NodeSession { desk: edge.desk.clone(), id, facts: Some((facts, binary, by)), number: 0, joined: Joined::default(), stats: None };
    let started = WsResponseBuilder::new(session, request, stream).frame_size(MAX_MESSAGE).start();
    started.map_err(|e| Failure(Problem::malformed(format!("not a WebSocket: {e}"))))
}

impl Peer for NodeSession {
    fn joined(&mut self) -> &mut Joined {
        &mut self.joined
    }

    fn take(&mut self, text: &[u8], ctx: &mut WebsocketContext<Self>) {
        if let Some(stats) = &self.stats {
            stats.told();
            stats.handled();
        }
        match frame::read::<FromNode>(text) {
            Ok(FromNode::Heartbeat(heartbeat)) => {
                // Its actor may be being rebuilt: then the next heartbeat finds it.
                if let Some(node) = self.desk.node_handle(self.id) {
                    node.beat(heartbeat);
                }
            }
            // Said again, like a heartbeat, should its actor be being rebuilt.
            Ok(FromNode::Programs(reports)) => {
                if let Some(node) = self.desk.node_handle(self.id) {
                    node.programs(reports);
                }
            }
            Ok(FromNode::Output(output)) => {
                if let Some(node) = self.desk.node_handle(self.id) {
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
        let outlet = session::outlet(ctx);
        self.number = outlet.number;
        self.stats = Some(self.desk.enter_session(format!("node {} #{}", self.id, self.number)));
        let Some((facts, binary, by)) = self.facts.take() else { return };
        let desk = self.desk.clone();
        // What it says before its actor is there waits in the socket, and so does its end.
        ctx.wait(wrap_future(async move { desk.node_connected(facts, outlet, binary, by).await }).map(
            |connected, this: &mut Self, ctx: &mut Self::Context| {
                if let Err(problem) = connected {
                    log::warn!("a node could not be taken in node={}: {problem}", this.id);
                    session::refuse(CloseCode::Again, &problem.detail, ctx);
                }
            },
        ));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(stats) = self.stats.take() {
            self.desk.leave_session(&stats);
        }
        if let Some(node) = self.desk.node_handle(self.id) {
            node.session_closed(self.number);
        }
    }
}

impl Handler<Frame> for NodeSession {
    type Result = ();
    fn handle(&mut self, frame: Frame, ctx: &mut Self::Context) {
        session::write(frame, ctx);
    }
}

impl StreamHandler<Result<Message, ProtocolError>> for NodeSession {
    fn handle(&mut self, message: Result<Message, ProtocolError>, ctx: &mut Self::Context) {
        session::receive(self, message, ctx);
    }
}
