//! The session of a broker that owns runs.

use super::session::{self, Ends, Peer};
use crate::actors::session_sender::Frame;
use crate::edge::Edge;
use crate::edge::auth::Caller;
use crate::edge::error::Failure;
use crate::protocol::ownership::ToLeader;
use crate::protocol::{MAX_FRAME, frame};
use crate::service::Service;
use actix::{Actor, Handler, StreamHandler};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws::{Message, ProtocolError, WebsocketContext};
use bytes::Bytes;

struct OwnerSession {
    service: Service,
    number: u64,
    ends: Ends,
    /// A message whose bulk data is the next frame.
    waits: Option<ToLeader>,
}

/// Performs the WebSocket upgrade.
pub(super) fn open(edge: &Edge, caller: &Caller, request: &HttpRequest, stream: web::Payload) -> Result<HttpResponse, Failure> {
    let ends = Ends::of(edge, caller, "peer=broker".to_owned(), request, stream).up_to(MAX_FRAME);
    session::open(OwnerSession { service: edge.service.clone(), number: 0, ends, waits: None }, request)
}

impl Peer for OwnerSession {
    fn ends(&mut self) -> &mut Ends {
        &mut self.ends
    }

    fn take(&mut self, text: &[u8], _: &mut WebsocketContext<Self>) {
        let Some(sender) = self.ends.sender() else { return };
        if let Some(message) = self.waits.take() {
            return self.service.owners().sent(sender, message, Bytes::copy_from_slice(text));
        }
        match frame::read::<ToLeader>(text) {
            Ok(message) if message.has_bulk() => self.waits = Some(message),
            Ok(message) => self.service.owners().sent(sender, message, Bytes::new()),
            // A later version has messages that this one does not know.
            Err(problem) => log::warn!("message of a broker that owns runs ignored reason={}", problem.detail),
        }
    }
}

impl Actor for OwnerSession {
    type Context = WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.number = self.ends.begin(ctx).number;
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.ends.end();
        self.service.owners().disconnected(self.number);
    }
}

impl Handler<Frame> for OwnerSession {
    type Result = ();
    fn handle(&mut self, frame: Frame, ctx: &mut Self::Context) {
        self.ends.write(frame, ctx);
    }
}

impl StreamHandler<Result<Message, ProtocolError>> for OwnerSession {
    fn handle(&mut self, message: Result<Message, ProtocolError>, ctx: &mut Self::Context) {
        session::receive(self, message, ctx);
    }
}
