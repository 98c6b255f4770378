//! A broker that the test controls.

use super::{config, until};
use crate::agent::{AgentError, run};
use crate::config::agent::AgentConfig;
use crate::domain::ids::NodeId;
use crate::protocol::application::{ProgramOutput, ProgramReport, ProgramState};
use crate::protocol::node::{FromNode, Heartbeat, ToNode};
use crate::protocol::{MAX_FRAME, frame, pack};
use actix::{Actor, AsyncContext, StreamHandler};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use actix_web_actors::ws;
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

/// What the broker has received, and how it should respond.
#[derive(Default)]
pub struct Seen {
    pub queries: Vec<BTreeMap<String, String>>,
    pub heartbeats: Vec<Heartbeat>,
    pub pings: usize,
    pub closed: usize,
    pub packs: Vec<(pack::Index, Option<String>)>,
    pub sessions: Vec<actix::Addr<Session>>,
    /// Statuses for the next reports; 200 when this is empty.
    pub answers: VecDeque<u16>,
    pub upgrade: Option<u16>,
    /// The broker that executes all runs.
    pub executor: Option<String>,
    pub programs: Vec<ProgramReport>,
    pub outputs: Vec<ProgramOutput>,
    /// Whether lines and ends are left unacknowledged.
    pub is_silent: bool,
}

pub type Shared = Arc<Mutex<Seen>>;

pub struct Session(Shared);

#[derive(actix::Message)]
#[rtype(result = "()")]
pub enum Say {
    Text(String),
    Binary(Vec<u8>),
    /// A text in pieces.
    Pieces(Vec<String>),
    Hang,
}

impl Actor for Session {
    type Context = ws::WebsocketContext<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.text(frame::text(&ToNode::Welcome { node_id: NodeId::random(), heartbeat: 20, offline: 1_000, max_frame: MAX_FRAME }));
        lock(&self.0).sessions.push(ctx.address());
    }
}

impl actix::Handler<Say> for Session {
    type Result = ();
    fn handle(&mut self, say: Say, ctx: &mut Self::Context) {
        use actix_http::ws::{Item, Message};
        match say {
            Say::Text(text) => ctx.text(text),
            Say::Binary(bytes) => ctx.binary(bytes),
            Say::Pieces(mut pieces) => {
                let last = pieces.pop().expect("at least two pieces");
                for (i, piece) in pieces.into_iter().enumerate() {
                    let item = if i == 0 { Item::FirstText(piece.into()) } else { Item::Continue(piece.into()) };
                    ctx.write_raw(Message::Continuation(item));
                }
                ctx.write_raw(Message::Continuation(Item::Last(last.into())));
            }
            Say::Hang => ctx.close(None),
        }
    }
}

impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for Session {
    fn handle(&mut self, message: Result<ws::Message, ws::ProtocolError>, ctx: &mut Self::Context) {
        let mut seen = lock(&self.0);
        match message {
            Ok(ws::Message::Text(text)) => {
                let answer = match frame::read(text.as_bytes()).expect("a message of a node") {
                    FromNode::Heartbeat(heartbeat) => {
                        seen.heartbeats.push(heartbeat);
                        return;
                    }
                    FromNode::Programs(reports) => {
                        let is_over = |r: &&ProgramReport| !matches!(r.state, ProgramState::Accepted | ProgramState::Running);
                        let over = reports.iter().filter(is_over).map(|report| report.program).collect();
                        seen.programs.extend(reports);
                        ToNode::ProgramsSettled(over)
                    }
                    FromNode::Output(output) => {
                        let (program, next) = (output.program, output.first + output.lines.len() as u64);
                        seen.outputs.push(output);
                        ToNode::OutputTaken { program, next }
                    }
                };
                if !seen.is_silent {
                    ctx.text(frame::text(&answer));
                }
            }
            Ok(ws::Message::Ping(payload)) => {
                seen.pings += 1;
                ctx.pong(&payload);
            }
            Ok(ws::Message::Close(reason)) => {
                seen.closed += 1;
                ctx.close(reason);
            }
            _ => {}
        }
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Seen> {
    shared.lock().expect("unpoisoned")
}

async fn upgrade(request: HttpRequest, body: web::Payload, shared: web::Data<Shared>) -> actix_web::Result<HttpResponse> {
    let query = web::Query::<BTreeMap<String, String>>::from_query(request.query_string())?.into_inner();
    let refused = {
        let mut seen = lock(&shared);
        seen.queries.push(query);
        seen.upgrade
    };
    if let Some(status) = refused {
        return Ok(HttpResponse::build(actix_web::http::StatusCode::from_u16(status).expect("a status")).finish());
    }
    ws::WsResponseBuilder::new(Session(shared.get_ref().clone()), &request, body).frame_size(MAX_FRAME).start()
}

async fn report(request: HttpRequest, body: web::Bytes, shared: web::Data<Shared>) -> HttpResponse {
    let mut seen = lock(&shared);
    let token = request.headers().get("Token").and_then(|value| value.to_str().ok()).map(str::to_owned);
    seen.packs.push((pack::read_index(&body).expect("a pack"), token));
    assert_eq!(actix_web::HttpMessage::content_type(&request), crate::protocol::BULK);
    let status = seen.answers.pop_front().unwrap_or(200);
    let mut answer = HttpResponse::build(actix_web::http::StatusCode::from_u16(status).expect("a status"));
    if let Some(url) = &seen.executor {
        answer.insert_header((crate::protocol::EXECUTOR_HEADER, url.as_str()));
    }
    answer.body("{}")
}

pub struct Broker {
    pub shared: Shared,
    pub port: u16,
    pub server: actix_web::dev::ServerHandle,
}

impl Broker {
    pub fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a port"), Shared::default())
    }

    pub fn on(listener: TcpListener, shared: Shared) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let data = web::Data::new(shared.clone());
        let server = HttpServer::new(move || {
            let routes = App::new().app_data(data.clone()).app_data(web::PayloadConfig::new(64 << 20));
            routes
                .route("/", web::get().to(upgrade))
                .route("/node/block", web::post().to(report))
                .route("/healthz", web::get().to(HttpResponse::Ok))
        });
        let server = server.workers(1).disable_signals().shutdown_timeout(1).listen(listener).expect("listening").run();
        let handle = server.handle();
        actix_rt::spawn(server);
        Self { shared, port, server: handle }
    }

    pub fn config(&self) -> AgentConfig {
        let broker = format!("http://127.0.0.1:{}/", self.port).parse().expect("a URL");
        AgentConfig { broker, node_id: Some(NodeId::random()), ..config() }
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.shared)
    }

    /// Waits for session number `n`, from 0.
    pub async fn session(&self, n: usize) -> actix::Addr<Session> {
        until("there is a session", || self.seen().sessions.len() > n).await;
        self.seen().sessions[n].clone()
    }
}

/// A running agent; `stop` ends it.
pub struct Running {
    pub stop: oneshot::Sender<()>,
    pub ended: actix_rt::task::JoinHandle<Result<(), AgentError>>,
}

impl Running {
    pub fn start(config: AgentConfig) -> Self {
        let (stop, stopped) = oneshot::channel();
        let stopped = async move {
            let _ = stopped.await;
        };
        Self { stop, ended: actix_rt::spawn(run(config, None, stopped)) }
    }

    pub async fn stop(self) -> Result<(), AgentError> {
        self.stop.send(()).expect("it runs");
        tokio::time::timeout(Duration::from_secs(20), self.ended).await.expect("it ends").expect("it does not panic")
    }
}
