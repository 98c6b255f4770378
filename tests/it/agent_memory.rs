//! The memory of an agent that downloads more than it may hold.

use crate::support::process::{Process, WEBLOOM};
use crate::support::{journey, until};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use actix_web_actors::ws;
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use webloom::for_tests::fingerprint::Fingerprint;
use webloom::for_tests::ids::{BlockId, Identity, NodeId};
use webloom::for_tests::node::{Block, FromNode, ToNode};
use webloom::for_tests::pack::Index;
use webloom::for_tests::settings::DownloadSettings;
use webloom::for_tests::{MAX_FRAME, frame};

const FILES: usize = 40;
const BLOCKS: usize = 5;
const SIZE: usize = 15 << 20;
const BUDGET_MB: u64 = 64;
/// What docs/operations.md promises beside the budget: two bodies of MaxBody, 1 MB for each request under way, and 96 MB.
const BESIDE_MB: u64 = 2 * 16 + FILES as u64 + 96;

/// The most bytes of a process that were ever in memory; none if it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024)
}

/// Files of a crawl, as many as once took 2.7 GB, and what docs/operations.md promises for them.
const CRAWLED: usize = 60;
const CRAWL_MB: u64 = 768;

/// A site of large files that no compression makes smaller, with links to [`CRAWLED`] of them on its first page.
fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut z = 1_u64;
    let noise = std::iter::repeat_with(|| {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        z.to_le_bytes()
    });
    let body: Arc<[u8]> = noise.take(SIZE / 8).flatten().collect();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let body = Arc::clone(&body);
            std::thread::spawn(move || {
                let mut piece = [0; 4_096];
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    let links = || (0..CRAWLED).map(|i| format!("<a href=/{i}>{i}</a>")).collect::<String>().into_bytes();
                    let (kind, body) = if piece[..read].starts_with(b"GET / ") { ("text/html", &*links()) } else { ("image/png", &*body) };
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
                    if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[derive(Default)]
struct Seen {
    blocks: VecDeque<String>,
    reports: Vec<Index>,
}

type Shared = web::Data<Mutex<Seen>>;

/// A broker that gives what it has to the first node, and takes results in its own time. The first block comes alone: an allocator
/// may treat large buffers in another way when it has freed one.
struct Session(Shared);

impl actix::Actor for Session {
    type Context = ws::WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.text(frame::text(&ToNode::Welcome { node_id: NodeId::random(), heartbeat: 1_000, offline: 60_000, max_frame: MAX_FRAME }));
        if let Some(first) = self.0.lock().expect("unpoisoned").blocks.pop_front() {
            ctx.text(first);
        }
    }
}

impl actix::StreamHandler<Result<ws::Message, ws::ProtocolError>> for Session {
    fn handle(&mut self, message: Result<ws::Message, ws::ProtocolError>, ctx: &mut Self::Context) {
        match message {
            Ok(ws::Message::Ping(payload)) => ctx.pong(&payload),
            Ok(ws::Message::Text(text)) => {
                let Ok(FromNode::Heartbeat(heartbeat)) = frame::read(text.as_bytes()) else { return };
                let mut seen = self.0.lock().expect("unpoisoned");
                if !seen.reports.is_empty() && heartbeat.holding.is_some_and(|holding| holding.is_empty()) {
                    seen.blocks.drain(..).for_each(|block| ctx.text(block));
                }
            }
            _ => {}
        }
    }
}

async fn upgrade(request: HttpRequest, body: web::Payload, shared: Shared) -> actix_web::Result<HttpResponse> {
    ws::WsResponseBuilder::new(Session(shared), &request, body).start()
}

async fn report(mut body: web::Payload, shared: Shared) -> HttpResponse {
    let mut head = Vec::new();
    while let Some(Ok(piece)) = body.next().await {
        if head.len() < 64 << 10 {
            head.extend_from_slice(&piece);
        }
    }
    // Long enough for the downloads to fill whatever they may fill.
    tokio::time::sleep(Duration::from_millis(100)).await;
    shared.lock().expect("unpoisoned").reports.push(webloom::for_tests::pack::read_index(&head).expect("a pack"));
    HttpResponse::Ok().body("{}")
}

/// All files at once would take 600 MB.
fn stays_within(are_parts: bool, budget_mb: u64, beside_mb: u64) {
    journey(async move {
        let site = site();
        let settings = DownloadSettings { thread_num: 16, timeout: 120_000, ..DownloadSettings::default() };
        let block = |n: usize, files: usize| {
            let urls = (0..files).map(|i| format!("{site}/{n}/{i}"));
            let requests: Vec<_> = urls.map(|url| serde_json::json!({ "requestId": Fingerprint::of_key(&url), "url": url })).collect();
            let requests = serde_json::value::to_raw_value(&requests).expect("JSON");
            let identity = Identity::random();
            let (block_id, settings) = (BlockId::new(identity, 1), settings.clone());
            let block = Block {
                block_id,
                identity,
                epoch: 1,
                attempt: 1,
                lost: None,
                elsewhere: false,
                holds: false,
                parts: are_parts,
                pace: None,
                traceparent: None,
                settings,
                requests: Some(requests),
            };
            frame::text(&ToNode::Block(Box::new(block)))
        };
        let blocks = std::iter::once(block(BLOCKS, 1)).chain((0..BLOCKS).map(|n| block(n, FILES / BLOCKS))).collect();
        let shared: Shared = web::Data::new(Mutex::new(Seen { blocks, ..Seen::default() }));
        let data = shared.clone();
        let server = HttpServer::new(move || {
            App::new().app_data(data.clone()).route("/", web::get().to(upgrade)).route("/node/block", web::post().to(report))
        });
        let server = server.workers(1).disable_signals().shutdown_timeout(0).bind("127.0.0.1:0").expect("a port");
        let broker = format!("http://{}/", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        actix_rt::spawn(server);
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(WEBLOOM);
        command.args(["agent", "--broker", &broker, "--memory-mb", &budget_mb.to_string(), "--data-dir"]).arg(folder.path());
        let agent = Process(command.env_remove("WEBLOOM_TOKEN").env("RUST_LOG", "error").spawn().expect("the agent starts"));
        until("all is reported", || async {
            let seen = shared.lock().expect("unpoisoned");
            let results = seen.reports.iter().flat_map(|index| &index.results);
            let done = results.filter(|entry| entry.is_success()).count();
            (done == FILES + 1 && seen.reports.iter().filter(|index| !index.part).count() == BLOCKS + 1).then_some(())
        })
        .await;
        let peak = peak(agent.0.id()).expect("it runs");
        assert!(peak <= (budget_mb + beside_mb) << 20, "{} MB", peak >> 20);
        handle.stop(false).await;
    });
}

#[test]
fn many_large_files_at_once_stay_within_the_budget() {
    stays_within(true, BUDGET_MB, BESIDE_MB);
}

/// Then a block keeps its results, 120 MB, until all of them are there; but the others wait.
#[test]
fn a_broker_without_parts_costs_one_block_more() {
    stays_within(false, BUDGET_MB, BESIDE_MB + 2 * (SIZE * FILES / BLOCKS) as u64 / (1 << 20));
}

/// Broker, agent and worker in one process.
#[test]
fn a_crawl_of_large_files_stays_within_its_bound() {
    let site = site();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(WEBLOOM);
    command.args(["crawl", &format!("{site}/"), "--robots", "ignore", "--output", "pages.jsonl"]).current_dir(&folder);
    let mut crawl = Process(command.env("RUST_LOG", "error").spawn().expect("the crawl starts"));
    let mut most = 0;
    let status = loop {
        if let Some(status) = crawl.0.try_wait().expect("a child") {
            break status;
        }
        most = most.max(peak(crawl.0.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    let pages = std::fs::read_to_string(folder.path().join("pages.jsonl")).expect("the pages");
    assert_eq!(pages.lines().count(), 1 + CRAWLED);
    assert!(most <= CRAWL_MB << 20, "{} MB", most >> 20);
}
