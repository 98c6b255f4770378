//! A fake broker with a worker's socket, which the test controls and which records what it receives.

use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::protocol::frame;
use crate::protocol::task::{SettledTask, TaskOrder, TaskRef, TaskReport, TaskState};
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::sdk::{Error, Worker};
use actix::{Actor, AsyncContext, StreamHandler};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use actix_web_actors::ws;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

/// The messages received on one connection, in order.
pub(super) type Heard = Vec<FromWorker>;

pub(super) struct State {
    pub(super) connections: Vec<Heard>,
    sessions: Vec<actix::Addr<Session>>,
    /// Number of closed connections.
    pub(super) closed: usize,
    /// Milliseconds between heartbeats.
    pub(super) heartbeat: u64,
    /// Whether last reports are acknowledged.
    pub(super) settles: bool,
    /// Whether heartbeats get replies.
    pub(super) pongs: bool,
    /// Whether connections are accepted.
    pub(super) is_there: bool,
}

impl State {
    pub(super) fn heard(&self) -> impl Iterator<Item = &FromWorker> {
        self.connections.iter().flatten()
    }

    pub(super) fn reports(&self) -> Vec<TaskReport> {
        reports(self.heard())
    }

    pub(super) fn last_of(&self, order: &TaskOrder) -> Option<TaskReport> {
        self.reports().into_iter().rfind(|report| report.task() == order.task() && report.state.is_final())
    }

    pub(super) fn states(&self, order: &TaskOrder) -> Vec<TaskState> {
        self.reports().iter().filter(|report| report.task() == order.task()).map(|report| report.state).collect()
    }
}

pub(super) fn reports<'a>(heard: impl IntoIterator<Item = &'a FromWorker>) -> Vec<TaskReport> {
    let reports = |message: &FromWorker| match message {
        FromWorker::Reports(reports) => reports.clone(),
        _ => Vec::new(),
    };
    heard.into_iter().flat_map(reports).collect()
}

#[derive(Clone)]
pub(super) struct Broker {
    state: Arc<Mutex<State>>,
    pub(super) address: String,
}

struct Session {
    state: Arc<Mutex<State>>,
    number: usize,
}

#[derive(actix::Message)]
#[rtype(result = "()")]
enum Say {
    Text(String),
    Cut,
}

impl Actor for Session {
    type Context = ws::WebsocketContext<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        let mut state = self.state.lock().expect("unpoisoned");
        ctx.text(frame::text(&ToWorker::Welcome {
            worker_id: WorkerId::random(),
            heartbeat: state.heartbeat,
            offline: 3_000,
            separate_reports: true,
        }));
        self.number = state.connections.len();
        state.connections.push(Vec::new());
        state.sessions.push(ctx.address());
    }
    fn stopped(&mut self, _: &mut Self::Context) {
        self.state.lock().expect("unpoisoned").closed += 1;
    }
}

impl actix::Handler<Say> for Session {
    type Result = ();
    fn handle(&mut self, say: Say, ctx: &mut Self::Context) {
        match say {
            Say::Text(text) => ctx.text(text),
            Say::Cut => ctx.close(None),
        }
    }
}

impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for Session {
    fn handle(&mut self, message: Result<ws::Message, ws::ProtocolError>, ctx: &mut Self::Context) {
        let mut state = self.state.lock().expect("unpoisoned");
        match message {
            Ok(ws::Message::Text(text)) => {
                let message = frame::read::<FromWorker>(text.as_bytes()).expect("a message of a worker");
                match &message {
                    FromWorker::Watch { class_names, .. } => {
                        ctx.text(frame::text(&ToWorker::Watching { class_names: class_names.clone() }));
                    }
                    FromWorker::Reports(reports) if state.settles => {
                        let is_last = |report: &&TaskReport| report.state.is_final();
                        let settled: Vec<_> = reports.iter().filter(is_last).map(|report| settled(report.task())).collect();
                        if !settled.is_empty() {
                            ctx.text(frame::text(&ToWorker::Settled(settled)));
                        }
                    }
                    _ => {}
                }
                state.connections[self.number].push(message);
            }
            Ok(ws::Message::Ping(payload)) if state.pongs => ctx.pong(&payload),
            Ok(ws::Message::Close(reason)) => ctx.close(reason),
            _ => {}
        }
    }
}

pub(super) fn settled(task: TaskRef) -> SettledTask {
    let TaskRef { identity, instance, attempt } = task;
    SettledTask { identity, instance, attempt, refused: None }
}

async fn upgrade(request: HttpRequest, body: web::Payload, state: web::Data<Mutex<State>>) -> actix_web::Result<HttpResponse> {
    if !state.lock().expect("unpoisoned").is_there {
        return Ok(HttpResponse::ServiceUnavailable().finish());
    }
    ws::WsResponseBuilder::new(Session { state: state.into_inner(), number: 0 }, &request, body).frame_size(1 << 20).start()
}

impl Broker {
    /// Call it within an actix runtime.
    pub(super) fn start() -> Self {
        let (connections, sessions) = (Vec::new(), Vec::new());
        let state = State { connections, sessions, closed: 0, heartbeat: 50, settles: true, pongs: true, is_there: true };
        let state = Arc::new(Mutex::new(state));
        let data = web::Data::from(Arc::clone(&state));
        let app = move || App::new().app_data(data.clone()).route("/worker", web::get().to(upgrade));
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", server.addrs()[0]);
        actix_rt::spawn(server.run());
        Self { state, address }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("unpoisoned")
    }

    fn send(&self, say: Say) {
        self.state().sessions.last().expect("a connection").do_send(say);
    }

    pub(super) fn say(&self, message: &ToWorker) {
        self.send(Say::Text(frame::text(message)));
    }

    pub(super) fn order(&self, order: &TaskOrder) {
        self.say(&ToWorker::Tasks(vec![order.clone()]));
    }

    pub(super) fn cut(&self) {
        self.send(Say::Cut);
    }

    /// Waits until the condition holds, at most ten seconds.
    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        until(what, || is_so(&self.state())).await;
    }

    /// Runs a worker until it is stopped.
    pub(super) async fn employ(&self, worker: impl FnOnce(Worker) -> Worker) -> Employed {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, told) = oneshot::channel();
        let worker = worker(Worker::new(&self.address).ready(ready));
        let ends = actix_rt::spawn(worker.run(async move { drop(stopped.await) }));
        told.await.expect("it watches");
        Employed { stop, ends }
    }
}

pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(super) struct Employed {
    stop: oneshot::Sender<()>,
    ends: actix_rt::task::JoinHandle<Result<(), Error>>,
}

impl Employed {
    pub(super) async fn stop(self) -> Result<(), Error> {
        drop(self.stop);
        tokio::time::timeout(Duration::from_secs(10), self.ends).await.expect("it stops").expect("it does not panic")
    }

    pub(super) async fn end(self) -> Result<(), Error> {
        tokio::time::timeout(Duration::from_secs(10), self.ends).await.expect("it ends").expect("it does not panic")
    }
}

/// An order with a lease of ten seconds.
pub(super) fn order(handler: &str) -> TaskOrder {
    TaskOrder {
        identity: Identity::random(),
        instance: 0,
        attempt: 1,
        instances: 1,
        job_id: JobId::random(),
        handler: handler.to_owned(),
        arguments: None,
        data: None,
        lease: 10_000,
        timeout: None,
        planned_at: None,
        trace_id: None,
        span_id: None,
    }
}

pub(super) fn with_arguments(handler: &str, json: &str) -> TaskOrder {
    let arguments = serde_json::value::RawValue::from_string(json.to_owned()).expect("JSON");
    TaskOrder { arguments: Some(arguments.into()), ..order(handler) }
}

pub(super) fn block_on(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(test);
}
