//! The session of a worker.

use super::session::{self, Ends, Peer};
use crate::actors::session_sender::Frame;
use crate::actors::supervision::Stats;
use crate::actors::worker::{ValidatedReports, read_reports, validate_reports};
use crate::domain::ids::WorkerId;
use crate::edge::Edge;
use crate::edge::auth::Caller;
use crate::edge::error::Failure;
use crate::protocol::frame;
use crate::protocol::problem::Problem;
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::service::Service;
use actix::{Actor, ActorFutureExt, AsyncContext, Handler, StreamHandler, fut::wrap_future};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws::{CloseCode, Message, ProtocolError, WebsocketContext};
use std::sync::Arc;

struct WorkerSession {
    service: Service,
    id: WorkerId,
    /// The role of its token.
    by: Option<String>,
    number: u64,
    ends: Ends,
    /// Whether the worker closed the connection itself with a normal close.
    has_left: bool,
    stats: Option<Arc<Stats>>,
}

/// Performs the WebSocket upgrade.
pub(super) fn open(
    edge: &Edge,
    id: WorkerId,
    caller: Caller,
    request: &HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    let ends = Ends::of(edge, &caller, format!("worker_id={id}"), request, stream).while_leading(edge);
    let session = WorkerSession { service: edge.service.clone(), id, by: caller.name, number: 0, ends, has_left: false, stats: None };
    session::open(session, request)
}

/// The reports to process. Answers the invalid ones.
fn accepted(validated: ValidatedReports, ctx: &mut WebsocketContext<WorkerSession>) -> FromWorker {
    if let Some(problem) = validated.problem {
        ctx.text(frame::text(&ToWorker::Error(problem)));
    }
    FromWorker::Reports(validated.reports)
}

impl Peer for WorkerSession {
    fn ends(&mut self) -> &mut Ends {
        &mut self.ends
    }

    fn take(&mut self, text: &[u8], ctx: &mut WebsocketContext<Self>) {
        if let Some(stats) = &self.stats {
            stats.told();
            stats.handled("session.frame");
        }
        let message = match frame::read::<FromWorker>(text) {
            Ok(FromWorker::Reports(reports)) => accepted(validate_reports(reports), ctx),
            Ok(message) => message,
            Err(problem) => match read_reports(text) {
                Some(validated) => accepted(validated, ctx),
                None => return ctx.text(frame::text(&ToWorker::Error(problem))),
            },
        };
        let Some(worker) = self.service.worker_handle(self.id) else {
            return ctx.text(frame::text(&ToWorker::Error(Problem::busy("the worker's actor is restarting; retry later"))));
        };
        let has_lines = matches!(&message, FromWorker::Reports(reports) if reports.iter().any(|report| !report.logs.is_empty()));
        let handled = worker.message(message);
        if has_lines {
            // Back-pressure: read nothing more from this worker until its log lines are stored.
            ctx.wait(wrap_future(handled.wait()).map(|handled, _: &mut Self, ctx: &mut WebsocketContext<Self>| {
                if let Err(problem) = handled {
                    ctx.text(frame::text(&ToWorker::Error(problem)));
                }
            }));
            return;
        }
        // Not with `ctx.spawn`: the context polls all its futures at every wake-up, and a thousand runs may be ending at once.
        let Some(sender) = self.ends.sender() else { return };
        actix_rt::spawn(async move {
            if let Err(problem) = handled.wait().await {
                sender.send(Frame::Text(frame::text(&ToWorker::Error(problem))));
            }
        });
    }
}

impl Actor for WorkerSession {
    type Context = WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let sender = self.ends.begin(ctx);
        self.number = sender.number;
        self.stats = Some(self.service.enter_session(format!("worker {} #{}", self.id, self.number)));
        let (service, id, by) = (self.service.clone(), self.id, self.by.take());
        // Messages that arrive before its actor exists wait in the socket.
        ctx.wait(wrap_future(async move { service.worker_connected(id, sender, by).await }).map(
            |connected, _: &mut Self, ctx: &mut Self::Context| {
                if let Err(problem) = connected {
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
        if let Some(worker) = self.service.worker_handle(self.id) {
            worker.session_closed(self.number, self.has_left);
        }
    }
}

impl Handler<Frame> for WorkerSession {
    type Result = ();
    fn handle(&mut self, frame: Frame, ctx: &mut Self::Context) {
        self.ends.write(frame, ctx);
    }
}

impl StreamHandler<Result<Message, ProtocolError>> for WorkerSession {
    fn handle(&mut self, message: Result<Message, ProtocolError>, ctx: &mut Self::Context) {
        self.has_left = matches!(&message, Ok(Message::Close(Some(reason))) if reason.code == CloseCode::Normal);
        session::receive(self, message, ctx);
    }
}
