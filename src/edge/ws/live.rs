//! The session of a window that watches answers of the API.

use super::session::{self, Ends, Peer};
use crate::actors::session_sender::{Frame, SessionSender};
use crate::domain::live::{Change, Message as Said};
use crate::edge::Edge;
use crate::edge::auth::Caller;
use crate::edge::error::Failure;
use crate::edge::live::{State, Viewer, Window};
use crate::protocol::frame;
use crate::protocol::live::{FromWindow, PROTOCOL, ToWindow};
use crate::protocol::problem::Problem;
use actix::{Actor, AsyncContext, Handler, StreamHandler};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws::{Message, ProtocolError, WebsocketContext};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval between two looks whether something is to be sent.
const LOOK: Duration = Duration::from_millis(250);
/// How often an idle connection shows that it is alive.
const BEAT: Duration = Duration::from_secs(10);
/// Paths that one window may watch.
const MOST_PATHS: usize = 64;
/// While more bytes wait for a window, it gets no further answer. It later gets the newest one, not those in between.
const MOST_UNSENT: usize = 64 << 10;
/// A window that takes nothing for so long while more waits is cut off.
const PATIENCE: Duration = Duration::from_secs(30);

struct Watched {
    state: watch::Receiver<State>,
    /// The version that was sent.
    version: u64,
}

struct LiveSession {
    edge: Edge,
    viewer: Viewer,
    ends: Ends,
    watched: BTreeMap<u32, Watched>,
    last_sent: Instant,
    /// What waited at the last look, and when the window last took some of it, or had little to take.
    unsent: usize,
    last_taken: Instant,
    _window: Window,
}

/// Performs the WebSocket upgrade.
pub(super) fn open(
    edge: &Edge,
    viewer: Viewer,
    caller: &Caller,
    request: &HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    let ends = Ends::of(edge, caller, "window=live".to_owned(), request, stream);
    let (edge, window) = (edge.clone(), edge.live.open());
    let now = Instant::now();
    let watched = BTreeMap::new();
    session::open(LiveSession { edge, viewer, ends, watched, last_sent: now, unsent: 0, last_taken: now, _window: window }, request)
}

/// The message for a window that has this version of an answer; `None`: nothing is new.
fn message(id: u32, change: &Change, version: u64) -> Option<String> {
    let raw = |text| serde_json::from_str::<&RawValue>(text);
    let message = match change.since(version) {
        Said::Nothing => return None,
        Said::Value(text) => raw(text).map(|value| ToWindow::Value { id, value }),
        Said::Patch(text) => raw(text).map(|patch| ToWindow::Patch { id, patch }),
    };
    Some(frame::text(&message.expect("it was read as JSON before")))
}

impl LiveSession {
    fn watch(&mut self, id: u32, path: String) -> Result<(), Problem> {
        self.watched.remove(&id);
        if self.watched.len() >= MOST_PATHS {
            return Err(Problem::too_many(format!("a window may watch {MOST_PATHS} paths; end one with `unwatch`")));
        }
        let state = self.edge.live.watch(&self.edge, &self.viewer, path)?;
        self.watched.insert(id, Watched { state, version: 0 });
        Ok(())
    }

    /// Sends what is new, as long as the window takes it.
    fn look(&mut self, sender: &SessionSender) {
        if self.edge.traffic.is_ending() || self.edge.service.makes_way() {
            return sender.send(Frame::Close("the broker ends".to_owned()));
        }
        let unsent = sender.backlog.unsent();
        if unsent <= MOST_UNSENT || unsent < self.unsent {
            self.last_taken = Instant::now();
        } else if self.last_taken.elapsed() > PATIENCE {
            return sender.cut();
        }
        self.unsent = unsent;
        let mut over = Vec::new();
        for (id, watched) in &mut self.watched {
            if sender.backlog.unsent() > MOST_UNSENT {
                break;
            }
            let text = match &*watched.state.borrow() {
                State::Unknown if watched.state.has_changed().is_ok() => None,
                State::Answer(change) if watched.state.has_changed().is_ok() => {
                    let text = message(*id, change, watched.version);
                    watched.version = change.version;
                    text
                }
                State::Over(problem) => {
                    over.push(*id);
                    Some(frame::text(&ToWindow::Problem { id: *id, problem }))
                }
                // Its task has ended without a last message.
                State::Unknown | State::Answer(_) => {
                    over.push(*id);
                    Some(frame::text(&ToWindow::Problem {
                        id: *id,
                        problem: &Problem::busy("the path is watched no more; watch it again"),
                    }))
                }
            };
            if let Some(text) = text {
                self.last_sent = Instant::now();
                sender.send(Frame::Text(text));
            }
        }
        over.into_iter().for_each(|id| drop(self.watched.remove(&id)));
        if self.last_sent.elapsed() > BEAT && sender.backlog.unsent() <= MOST_UNSENT {
            self.last_sent = Instant::now();
            sender.send(Frame::Text(frame::text(&ToWindow::Beat)));
        }
    }
}

impl Peer for LiveSession {
    const PROTOCOLS: &'static [&'static str] = &[PROTOCOL];

    fn ends(&mut self) -> &mut Ends {
        &mut self.ends
    }

    fn take(&mut self, text: &[u8], ctx: &mut WebsocketContext<Self>) {
        let answer = match frame::read::<FromWindow>(text) {
            Ok(FromWindow::Watch { id, path }) => {
                self.watch(id, path).map_err(|problem| frame::text(&ToWindow::Problem { id, problem: &problem }))
            }
            Ok(FromWindow::Unwatch { id }) => {
                self.watched.remove(&id);
                Ok(())
            }
            Err(problem) => Err(frame::text(&ToWindow::Error(problem))),
        };
        if let Err(text) = answer {
            match self.ends.sender() {
                Some(sender) => sender.send(Frame::Text(text)),
                None => ctx.text(text),
            }
        }
    }
}

impl Actor for LiveSession {
    type Context = WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let sender = self.ends.begin(ctx);
        ctx.run_interval(LOOK, move |this, _| this.look(&sender));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.ends.end();
    }
}

impl Handler<Frame> for LiveSession {
    type Result = ();
    fn handle(&mut self, frame: Frame, ctx: &mut Self::Context) {
        self.ends.write(frame, ctx);
    }
}

impl StreamHandler<Result<Message, ProtocolError>> for LiveSession {
    fn handle(&mut self, message: Result<Message, ProtocolError>, ctx: &mut Self::Context) {
        session::receive(self, message, ctx);
    }
}
