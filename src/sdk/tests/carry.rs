//! Runs against a fake broker: what is called how often, and what happens when calls fail.

use crate::domain::ids::{BlockId, Identity, JobId, NodeId, WorkerId};
use crate::domain::run::RunState;
use crate::protocol::problem::Problem;
use crate::protocol::push::{Pushed, read_ack, read_push};
use crate::protocol::worker::StartRun;
use crate::protocol::{RUN_STATE_HEADER, delivery, pack};
use crate::sdk::carry::{Over, carry};
use crate::sdk::client::Client;
use crate::sdk::run::RunContext;
use crate::sdk::{Abort, Error, Failed, Follow, Page, Request, Result, Spider};
use actix_web::{App, HttpResponse, HttpServer, web};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// What the fake broker does with the next acknowledgement.
#[derive(Clone, Copy)]
enum Deed {
    Busy,
    TakeAndFail,
    Over,
}

#[derive(Default)]
struct Broker {
    pushed: Vec<String>,
    /// Blocks in bulk form, and whether they are acknowledged.
    blocks: Vec<(BlockId, Vec<u8>, bool)>,
    given: usize,
    acks: Vec<(Vec<BlockId>, Vec<String>)>,
    deeds: VecDeque<Deed>,
    returned: Vec<String>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Broker>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().expect("no test panics with the lock")
    }
}

fn urls(batch: &crate::domain::request::RequestBatch) -> Vec<String> {
    let requests: Vec<Request> = batch.requests.iter().map(|r| serde_json::from_slice(batch.json(r)).expect("a request")).collect();
    requests.into_iter().map(|r| format!("{} {}", r.depth, r.url)).collect()
}

async fn push(broker: web::Data<Shared>, body: web::Bytes) -> HttpResponse {
    let batch = read_push(body).expect("a push that is allowed");
    broker.lock().pushed.extend(urls(&batch));
    HttpResponse::Ok().json(Pushed { accepted: batch.requests.len() as u64, ..Pushed::default() })
}

async fn poll(broker: web::Data<Shared>) -> HttpResponse {
    let mut broker = broker.lock();
    let given = broker.given;
    broker.given += 1;
    match broker.blocks.get(given) {
        Some((_, bulk, _)) => HttpResponse::Ok().insert_header((RUN_STATE_HEADER, "running")).body(bulk.clone()),
        None => {
            let state = if broker.blocks.iter().all(|(_, _, done)| *done) { "success" } else { "running" };
            HttpResponse::NoContent().insert_header((RUN_STATE_HEADER, state)).finish()
        }
    }
}

async fn ack(broker: web::Data<Shared>, body: web::Bytes) -> HttpResponse {
    let (blocks, batch) = read_ack(body).expect("an acknowledgement");
    let mut broker = broker.lock();
    let deed = broker.deeds.pop_front();
    match deed {
        Some(Deed::Busy) => return HttpResponse::ServiceUnavailable().json(Problem::busy("later")),
        Some(Deed::Over) => {
            broker.blocks.iter_mut().for_each(|b| b.2 = true);
            return HttpResponse::Conflict().json(Problem::conflict("run-over", "it ended"));
        }
        Some(Deed::TakeAndFail) | None => {}
    }
    for (id, _, done) in &mut broker.blocks {
        *done |= blocks.contains(id);
    }
    broker.acks.push((blocks, urls(&batch)));
    match deed {
        Some(_) => HttpResponse::InternalServerError().finish(),
        None => HttpResponse::Ok().json(Pushed::default()),
    }
}

async fn returned(broker: web::Data<Shared>, body: String) -> HttpResponse {
    broker.lock().returned.push(body);
    HttpResponse::NoContent().finish()
}

/// A block with pages of these URLs, all answered with 200.
fn block(run: Identity, seq: u32, urls: &[&str]) -> (BlockId, Vec<u8>, bool) {
    let text: Vec<String> = urls.iter().map(|url| format!(r#"{{"url":"{url}","depth":1}}"#)).collect();
    let batch = read_push(format!("[{}]", text.join(",")).into_bytes().into()).expect("requests");
    let chosen: Vec<usize> = (0..urls.len()).collect();
    let raw = batch.pack(&chosen);
    let requests = zstd::bulk::compress(&raw, 1).expect("zstd");
    let block_id = BlockId::new(run, seq);
    let (node_id, results) = (NodeId::random(), Vec::new());
    let index = pack::Index { results, ..pack::Index::new(block_id, run, node_id) };
    let mut builder = pack::Builder::new(index);
    for request in &batch.requests {
        let entry = pack::Entry { request_id: request.id, status: 200, tries: 1, time: 1, error: None, location: None, head: 0, body: 0 };
        builder.push(entry, &pack::Head::default(), b"<a href=x>");
    }
    let pack = builder.finish();
    let (requests_len, requests_raw) = (requests.len() as u32, raw.len() as u32);
    let head = delivery::Head { block_id, requests: requests_len, requests_raw, pack: pack.len() as u32 };
    let mut bulk = Vec::new();
    delivery::write(&mut bulk, &head, &requests, &pack);
    (block_id, bulk, false)
}

/// Follows `/next` from every page; fails the set number of times on pages whose URL says so.
#[derive(Default)]
struct Test {
    fails_left: RefCell<u32>,
    told: Rc<RefCell<Vec<String>>>,
    seen: Rc<RefCell<Vec<String>>>,
}

impl Spider for Test {
    fn class_name(&self) -> &str {
        "a.Test"
    }
    async fn start(&self, run: &RunContext) -> Result<Vec<Request>> {
        match run.arguments() {
            Some(wrong) => Err(wrong.into()),
            None => Ok(vec![Request::get("http://a/")]),
        }
    }
    async fn page(&self, page: &Page, follow: &mut Follow<'_>) -> Result {
        self.seen.borrow_mut().push(page.url().to_owned());
        if page.url().ends_with("abort") {
            return Err(Abort("the disk is full".into()).into());
        }
        follow.push(Request::get("http://a/next"));
        if page.url().ends_with("bad") && *self.fails_left.borrow() > 0 {
            *self.fails_left.borrow_mut() -= 1;
            follow.push(Request::get("http://a/half-way"));
            assert!(*self.fails_left.borrow() != 1, "a panic is an error too");
            return Err("not today".into());
        }
        Ok(())
    }
    fn on_error(&self, failed: &Failed<'_>) {
        self.told.borrow_mut().push(format!("{}: {}", failed.page.map_or("block", Page::url), failed.error));
    }
}

struct Outcome {
    over: Result<Over, Error>,
    broker: Shared,
    errors: u64,
}

fn carried(spider: &Test, arguments: Option<&str>, blocks: &[&[&str]], deeds: &[Deed]) -> Outcome {
    let (identity, broker) = (Identity::random(), Shared::default());
    broker.lock().blocks = blocks.iter().enumerate().map(|(i, urls)| block(identity, i as u32, urls)).collect();
    broker.lock().deeds = deeds.iter().copied().collect();
    actix_rt::System::new().block_on(async {
        let data = web::Data::new(broker.clone());
        let app = move || {
            App::new()
                .app_data(data.clone())
                .route("/requestqueue/{run}", web::post().to(push))
                .route("/requestqueue/{run}", web::get().to(poll))
                .route("/requestqueue/{run}/ack", web::post().to(ack))
                .route("/api/v1/runs/{run}/start-returned", web::post().to(returned))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").expect("a port");
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        actix_rt::spawn(server);
        let client = Rc::new(Client::new(&format!("http://{address}"), None).expect("an address"));
        let arguments = arguments.map(str::to_owned);
        let (job_id, class_name) = (JobId::random(), "a.Test".to_owned());
        let order = StartRun {
            identity,
            job_id,
            class_name,
            arguments,
            properties: Default::default(),
            start_returned: false,
            planned_at: None,
            attempt: 1,
            trace_id: None,
        };
        let run = RunContext::new(order, client);
        let (_halt, halted) = watch::channel(None);
        let over = carry(&run, spider, WorkerId::random(), 1, halted).await;
        handle.stop(false).await;
        Outcome { over, broker, errors: run.errors() }
    })
}

#[test]
fn an_acknowledgement_is_repeated_until_it_is_taken() {
    let deeds = [Deed::Busy, Deed::TakeAndFail, Deed::Busy];
    let outcome = carried(&Test::default(), None, &[&["http://a/1", "http://a/2"], &["http://a/3"]], &deeds);
    assert!(matches!(outcome.over, Ok(Over::Ended(RunState::Success))));
    let broker = outcome.broker.lock();
    assert_eq!(broker.pushed, ["0 http://a/"]);
    assert_eq!(broker.returned, [r#"{"error":null}"#]);
    let ids: Vec<_> = broker.blocks.iter().map(|b| b.0).collect();
    let next = vec!["2 http://a/next".to_owned()];
    // The first call was accepted, but its response was lost: the same call is repeated. The next block's link is known by then.
    assert_eq!(broker.acks, [(vec![ids[0]], next.clone()), (vec![ids[0]], next), (vec![ids[1]], vec![])]);
}

#[test]
fn a_page_that_fails_is_tried_again_and_then_told() {
    let spider = Test { fails_left: RefCell::new(1), ..Test::default() };
    let outcome = carried(&spider, None, &[&["http://a/bad"]], &[]);
    assert_eq!((outcome.errors, spider.seen.borrow().len()), (0, 2));
    assert_eq!(outcome.broker.lock().acks[0].1, ["2 http://a/next"], "and nothing of the failed try");

    let spider = Test { fails_left: RefCell::new(9), ..Test::default() };
    let outcome = carried(&spider, None, &[&["http://a/bad", "http://a/good"]], &[]);
    assert!(matches!(outcome.over, Ok(Over::Ended(RunState::Success))));
    assert_eq!((outcome.errors, &**spider.told.borrow()), (1, &["http://a/bad: not today".to_owned()][..]));
    assert_eq!(*spider.seen.borrow(), ["http://a/bad", "http://a/bad", "http://a/bad", "http://a/good"]);
}

#[test]
fn a_panic_of_a_page_is_an_error_of_it() {
    let spider = Test { fails_left: RefCell::new(2), ..Test::default() };
    let outcome = carried(&spider, None, &[&["http://a/bad"]], &[]);
    assert_eq!((outcome.errors, spider.seen.borrow().len()), (0, 3), "a panic, an error, and then it goes");
    assert!(outcome.broker.lock().blocks[0].2);
}

#[test]
fn an_abort_leaves_the_block_unacknowledged() {
    let outcome = carried(&Test::default(), None, &[&["http://a/1", "http://a/abort"]], &[]);
    assert!(matches!(outcome.over, Err(Error::Aborted(text)) if text == "the disk is full"));
    assert!(outcome.broker.lock().acks.is_empty());
}

#[test]
fn a_run_that_is_over_is_let_go() {
    let outcome = carried(&Test::default(), None, &[&["http://a/1"]], &[Deed::Over]);
    assert!(matches!(outcome.over, Ok(Over::Ended(_))));
}

#[test]
fn a_start_that_fails_is_told_to_the_broker() {
    let outcome = carried(&Test::default(), Some("no such thing"), &[], &[]);
    assert_eq!(outcome.broker.lock().returned, [r#"{"error":"no such thing"}"#]);
    assert!(outcome.broker.lock().pushed.is_empty());
}
