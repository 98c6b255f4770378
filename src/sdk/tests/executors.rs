//! Which broker a client calls about a run: the one that answers name, while it answers.

use crate::domain::ids::{Identity, WorkerId};
use crate::protocol::EXECUTOR_HEADER;
use crate::protocol::problem::Problem;
use crate::protocol::push::Pushed;
use crate::sdk::client::Client;
use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A broker that counts the pushes that it takes.
#[derive(Default)]
struct Fake {
    pushes: AtomicUsize,
    /// The broker that it names.
    names: Mutex<Option<String>>,
    refuses_token: AtomicBool,
    /// It has refused a token.
    has_refused: Notify,
    hangs: AtomicBool,
    /// It has got a poll, which it does not answer.
    polled: Notify,
    /// Somebody has tried whether it can be reached.
    was_tried: Notify,
}

async fn push(broker: web::Data<Fake>) -> HttpResponse {
    if broker.refuses_token.load(Relaxed) {
        broker.has_refused.notify_one();
        return HttpResponse::Unauthorized().json(Problem::unauthorized());
    }
    broker.pushes.fetch_add(1, Relaxed);
    let mut answer = HttpResponse::Ok();
    if let Some(url) = &*broker.names.lock().expect("no panic") {
        answer.insert_header((EXECUTOR_HEADER, url.as_str()));
    }
    answer.json(Pushed::default())
}

async fn healthz(broker: web::Data<Fake>) -> HttpResponse {
    broker.was_tried.notify_one();
    if broker.hangs.load(Relaxed) { HttpResponse::InternalServerError().finish() } else { HttpResponse::Ok().finish() }
}

async fn poll(broker: web::Data<Fake>) -> HttpResponse {
    broker.polled.notify_one();
    std::future::pending().await
}

fn start(broker: &Arc<Fake>) -> (SocketAddr, ServerHandle) {
    let data = web::Data::from(Arc::clone(broker));
    let routes = move || {
        let app = App::new().app_data(data.clone()).route("/requestqueue/{run}", web::post().to(push));
        app.route("/requestqueue/{run}", web::get().to(poll)).route("/healthz", web::get().to(healthz))
    };
    let server = HttpServer::new(routes).workers(1).disable_signals().shutdown_timeout(0).bind("127.0.0.1:0").expect("a port");
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_rt::spawn(server);
    (address, handle)
}

struct Pair {
    leader: Arc<Fake>,
    executor: Arc<Fake>,
    ends: ServerHandle,
    client: Client,
    run: Identity,
}

impl Pair {
    /// A client that has been told that the second broker executes the run, and has reached it.
    async fn start() -> Self {
        let [leader, executor] = [Arc::<Fake>::default(), Arc::default()];
        let ((first, _), (second, ends)) = (start(&leader), start(&executor));
        for broker in [&leader, &executor] {
            *broker.names.lock().expect("no panic") = Some(format!("http://{second}"));
        }
        let client = Client::new(&format!("http://{first}"), None).expect("an address");
        let this = Self { leader, executor, ends, client, run: Identity::random() };
        this.push().await;
        this.executor.was_tried.notified().await;
        // The answer to that is on its way.
        let begun = Instant::now();
        while this.counts().1 == 0 {
            this.push().await;
            assert!(begun.elapsed() < Duration::from_secs(60), "the second broker was never called");
        }
        this
    }

    async fn push(&self) {
        self.client.push(self.run, Bytes::from_static(b"[]")).await.expect("taken");
    }

    /// Pushes at the leader, and at the other one.
    fn counts(&self) -> (usize, usize) {
        (self.leader.pushes.load(Relaxed), self.executor.pushes.load(Relaxed))
    }
}

fn with_pair<F: Future<Output = ()>>(test: impl FnOnce(Pair) -> F) {
    actix_rt::System::new().block_on(async { test(Pair::start().await).await });
}

#[test]
fn calls_go_to_the_broker_that_executes_the_run_and_back_when_it_ends() {
    with_pair(|pair| async move {
        let (at_leader, _) = pair.counts();
        pair.push().await;
        assert_eq!(pair.counts(), (at_leader, 2), "it stays there");
        pair.ends.stop(false).await;
        pair.push().await;
        pair.push().await;
        assert_eq!(pair.counts(), (at_leader + 2, 2), "it is not tried again at once, although it is still named");
    });
}

#[test]
fn a_run_that_has_moved_is_called_where_it_is() {
    with_pair(|pair| async move {
        let (at_leader, _) = pair.counts();
        // As a standby that has passed the call on to a leader that executes the run itself.
        *pair.executor.names.lock().expect("no panic") = None;
        pair.push().await;
        pair.push().await;
        assert_eq!(pair.counts(), (at_leader + 1, 2));
    });
}

#[test]
fn a_token_that_only_the_leader_knows_is_tried_there() {
    with_pair(|pair| async move {
        let (at_leader, _) = pair.counts();
        pair.executor.refuses_token.store(true, Relaxed);
        pair.push().await;
        assert_eq!(pair.counts(), (at_leader + 1, 1));
    });
}

#[test]
fn a_token_that_was_right_before_is_tried_again() {
    with_pair(|pair| async move {
        for broker in [&pair.leader, &pair.executor] {
            broker.refuses_token.store(true, Relaxed);
        }
        let comes_back = async {
            pair.leader.has_refused.notified().await;
            pair.leader.refuses_token.store(false, Relaxed);
        };
        futures_util::future::join(pair.push(), comes_back).await;
    });
}

#[test]
fn a_poll_does_not_wait_for_a_broker_that_hangs() {
    with_pair(|pair| async move {
        let (client, run) = (pair.client.clone(), pair.run);
        let poll = actix_rt::spawn(async move { drop(client.poll(run, WorkerId::random(), 1, &[]).await) });
        pair.executor.polled.notified().await;
        pair.executor.hangs.store(true, Relaxed);
        pair.leader.polled.notified().await;
        poll.abort();
    });
}
