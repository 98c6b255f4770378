//! The whole agent against a broker that the test controls.

use super::blocks::{block, requests};
use super::broker::{Broker, Running, Say, Shared};
use super::site::{Gate, Site, answer};
use super::until;
use crate::agent::run;
use crate::config::agent::{AgentConfig, AgentLayer};
use crate::domain::ids::NodeId;
use crate::domain::settings::DownloadSettings;
use crate::domain::time::Timestamp;
use crate::protocol::node::{Block, ToNode};
use crate::protocol::{frame, pack, sign::sign_at};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

fn of(settings: DownloadSettings, urls: Vec<String>) -> Block {
    block(settings, &requests(urls))
}

fn as_text(block: &Block) -> Say {
    Say::Text(frame::text(&ToNode::Block(Box::new(block.clone()))))
}

pub fn as_binary(block: &Block) -> Say {
    let bulk = zstd::bulk::compress(block.requests.as_ref().expect("requests").get().as_bytes(), 1).expect("memory");
    Say::Binary(frame::binary(&ToNode::Block(Box::new(Block { requests: None, ..block.clone() })), &bulk))
}

#[actix_rt::test]
async fn it_says_who_it_is_and_how_it_is() {
    let broker = Broker::start();
    let node = NodeId::random();
    let written = AgentLayer { token: Some("admin:0000,agent:1234".to_owned()), ..AgentLayer::default() };
    let token = written.validate().expect("settings");
    let running = Running::start(AgentConfig {
        token: Some(token.token.expect("a token")),
        node_id: Some(node),
        group: "vps é".to_owned(),
        max_process_count: 3,
        ip: Some("10.0.0.7".parse().expect("an address")),
        ..broker.config()
    });
    until("it beat three times", || broker.seen().heartbeats.len() >= 3 && broker.seen().pings >= 3).await;
    {
        let seen = broker.seen();
        let query = &seen.queries[0];
        let expected = [
            ("nodeid", node.to_string()),
            ("operationsystem", std::env::consts::OS.to_owned()),
            ("nodetype", "Console".to_owned()),
            ("group", "vps é".to_owned()),
            ("maxprocesscount", "3".to_owned()),
            ("maxsites", "512".to_owned()),
            ("ip", "10.0.0.7".to_owned()),
            ("encoding", "zstd".to_owned()),
        ];
        let at = Timestamp(query["signtime"].parse().expect("milliseconds"));
        assert!((Timestamp::now().0 - at.0).abs() < 60_000);
        assert_eq!(query["sign"], sign_at("1234", node, at), "the role is not a part of the token");
        for (key, value) in expected {
            assert_eq!(query.get(key), Some(&value), "{key}");
        }
        for key in ["proccessorcount", "memory"] {
            assert!(query[key].parse::<u64>().is_ok_and(|n| n > 0), "{key}");
        }
        let heartbeat = &seen.heartbeats[2];
        assert_eq!((heartbeat.process_count, heartbeat.holding.as_deref()), (0, Some(&[][..])));
        assert!(heartbeat.free_memory > 0 && heartbeat.cpu <= 100);
    }
    running.stop().await.expect("a clean end");
    until("it said good-bye", || broker.seen().closed == 1).await;
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn blocks_in_all_forms_come_back_as_packs() {
    let broker = Broker::start();
    let site = Site::new(|_| answer(200, "", "fine"));
    let running = Running::start(AgentConfig { token: Some("t".to_owned()), ..broker.config() });
    let session = broker.session(0).await;
    let blocks: Vec<_> = (0..3).map(|_| of(DownloadSettings::default(), vec![site.url("/1"), site.url("/2")])).collect();
    session.do_send(as_text(&blocks[0]));
    session.do_send(Say::Text(r#"{"t":"something new","v":{}}"#.to_owned()));
    session.do_send(as_binary(&blocks[1]));
    let Say::Text(text) = as_text(&blocks[2]) else { panic!("a text") };
    session.do_send(Say::Pieces(text.as_bytes().chunks(100).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()));
    until("all are reported", || broker.seen().packs.len() == 3).await;
    until("nothing is held", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;
    for (index, token) in &broker.seen().packs {
        assert!(blocks.iter().any(|block| block.block_id == index.block_id));
        assert_eq!((index.attempt, index.epoch, index.results.len()), (Some(2), Some(3), 2));
        assert!(index.results.iter().all(pack::Entry::is_success));
        assert_eq!(token.as_deref(), Some("t"));
    }
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_held_block_is_listed_and_taken_once() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        assert!(held.wait(Duration::from_secs(20)));
        answer(200, "", "")
    });
    let running = Running::start(broker.config());
    let session = broker.session(0).await;
    let block = of(DownloadSettings::default(), vec![site.url("/")]);
    session.do_send(as_binary(&block));
    until("it is listed", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 1)).await;
    session.do_send(as_binary(&block));
    let beats = broker.seen().heartbeats.len();
    until("it beat again", || broker.seen().heartbeats.len() > beats + 2).await;
    {
        let seen = broker.seen();
        let holding = seen.heartbeats.last().and_then(|beat| beat.holding.clone()).expect("a list");
        assert_eq!(holding.len(), 1);
        let held = &holding[0];
        assert_eq!((held.identity, held.block_id, held.attempt, held.epoch), (block.identity, block.block_id, 2, 3));
    }
    gate.open();
    until("it is reported", || broker.seen().packs.len() == 1).await;
    until("it is let go", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;
    assert_eq!((site.hits().len(), broker.seen().packs.len()), (1, 1));
    assert_eq!(broker.seen().heartbeats.last().and_then(|beat| beat.received), Some(2), "both copies are counted");
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_dropped_block_is_forgotten_and_a_later_hand_out_replaces() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |hit| {
        assert!(hit.nth > 1 || held.wait(Duration::from_secs(20)));
        answer(200, "", "")
    });
    let running = Running::start(broker.config());
    let session = broker.session(0).await;
    let dropped = of(DownloadSettings::default(), vec![site.url("/")]);
    session.do_send(as_text(&dropped));
    until("it is asked for", || site.hits().len() == 1).await;
    session.do_send(Say::Text(frame::text(&ToNode::Drop { block_id: dropped.block_id, attempt: 2 })));
    until("it is not listed", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;

    let first = of(DownloadSettings::default(), vec![site.url("/")]);
    session.do_send(as_text(&first));
    until("it is asked for", || site.hits().len() == 2).await;
    session.do_send(as_text(&Block { attempt: 3, ..first.clone() }));
    until("the later one is reported", || broker.seen().packs.len() == 1).await;
    gate.open();
    let beats = broker.seen().heartbeats.len();
    until("it beat again", || broker.seen().heartbeats.len() > beats + 2).await;
    let reported: Vec<_> = broker.seen().packs.iter().map(|(index, _)| (index.block_id, index.attempt)).collect();
    assert_eq!(reported, [(first.block_id, Some(3))]);
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn no_more_blocks_are_at_work_than_the_settings_say() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        assert!(held.wait(Duration::from_secs(20)));
        answer(200, "", "")
    });
    let running = Running::start(AgentConfig { max_process_count: 2, ..broker.config() });
    let session = broker.session(0).await;
    for _ in 0..3 {
        session.do_send(as_text(&of(DownloadSettings::default(), vec![site.url("/")])));
    }
    until("all are held", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 3)).await;
    until("two are at work", || site.hits().len() == 2).await;
    let beats = broker.seen().heartbeats.len();
    until("it beat again", || broker.seen().heartbeats.len() > beats + 3).await;
    assert_eq!(site.hits().len(), 2);
    gate.open();
    until("all are reported", || broker.seen().packs.len() == 3).await;
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_report_is_sent_until_it_is_accepted_or_refused_for_good() {
    let broker = Broker::start();
    broker.seen().answers.extend([503, 500, 401, 200, 409, 200]);
    let site = Site::new(|_| answer(200, "", ""));
    let running = Running::start(broker.config());
    let session = broker.session(0).await;
    let (first, late, last) = (
        of(DownloadSettings::default(), vec![site.url("/")]),
        of(DownloadSettings::default(), vec![]),
        of(DownloadSettings::default(), vec![]),
    );
    session.do_send(as_text(&first));
    until("it is accepted at the fourth try", || broker.seen().packs.len() == 4).await;
    session.do_send(as_text(&late));
    until("it is refused", || broker.seen().packs.len() == 5).await;
    until("it is let go", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;
    session.do_send(as_text(&last));
    until("the next is reported", || broker.seen().packs.len() == 6).await;
    let ids: Vec<_> = broker.seen().packs.iter().map(|(index, _)| index.block_id).collect();
    let first = first.block_id;
    assert_eq!(ids, [first, first, first, first, late.block_id, last.block_id]);
    assert_eq!(site.hits().len(), 1, "downloaded once, however often it is reported");
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_broker_that_was_gone_gets_the_results() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        assert!(held.wait(Duration::from_secs(20)));
        answer(200, "", "")
    });
    let running = Running::start(broker.config());
    let block = of(DownloadSettings::default(), vec![site.url("/")]);
    broker.session(0).await.do_send(as_text(&block));
    until("it is asked for", || site.hits().len() == 1).await;
    broker.session(0).await.do_send(Say::Hang);
    broker.server.stop(false).await;
    gate.open();
    let back = Broker::on(rebind(broker.port), Shared::default());
    until("the results are there", || back.seen().packs.len() == 1).await;
    back.session(0).await;
    assert_eq!(back.seen().packs[0].0.block_id, block.block_id);
    assert_eq!(site.hits().len(), 1);
    running.stop().await.expect("a clean end");
    back.server.stop(false).await;
}

/// Binds the same port again; the old listener may take a moment to close.
fn rebind(port: u16) -> TcpListener {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return listener,
            Err(e) => assert!(std::time::Instant::now() < deadline, "{e}"),
        }
        std::thread::yield_now();
    }
}

#[actix_rt::test]
async fn a_refused_token_ends_it_at_once_and_a_busy_broker_does_not() {
    let broker = Broker::start();
    for (status, token, word) in [(401, None, "needs a token"), (403, Some("x"), "this token is not one of role agent")] {
        broker.seen().upgrade = Some(status);
        let config = AgentConfig { token: token.map(str::to_owned), ..broker.config() };
        let ended = tokio::time::timeout(Duration::from_secs(20), run(config, None, std::future::pending())).await.expect("it ends");
        let text = ended.expect_err("refused").to_string();
        assert!(text.contains(word) && text.contains(&status.to_string()), "{text}");
    }
    broker.seen().upgrade = Some(503);
    let tries = broker.seen().queries.len();
    let running = Running::start(broker.config());
    until("it tried three times", || broker.seen().queries.len() >= tries + 3).await;
    broker.seen().upgrade = None;
    broker.session(0).await;
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn when_it_is_stopped_it_reports_what_it_holds_and_takes_nothing_more() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        assert!(held.wait(Duration::from_secs(20)));
        answer(200, "", "")
    });
    let running = Running::start(broker.config());
    let session = broker.session(0).await;
    session.do_send(as_text(&of(DownloadSettings::default(), vec![site.url("/")])));
    until("it is asked for", || site.hits().len() == 1).await;
    let Running { stop, ended } = running;
    stop.send(()).expect("it runs");
    let beats = broker.seen().heartbeats.len();
    until("it beat again", || broker.seen().heartbeats.len() > beats + 1).await;
    session.do_send(as_text(&of(DownloadSettings::default(), vec![site.url("/")])));
    let beats = broker.seen().heartbeats.len();
    until("it beat again", || broker.seen().heartbeats.len() > beats + 1).await;
    gate.open();
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends").expect("no panic").expect("a clean end");
    assert_eq!((broker.seen().packs.len(), site.hits().len()), (1, 1));
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_site_that_never_answers_does_not_keep_it_from_stopping() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        held.wait(Duration::from_secs(20));
        answer(200, "", "")
    });
    let mut config = broker.config();
    config.waits.drain = Duration::from_millis(50);
    let running = Running::start(config);
    broker.session(0).await.do_send(as_text(&of(DownloadSettings::default(), vec![site.url("/")])));
    until("it is asked for", || site.hits().len() == 1).await;
    running.stop().await.expect("a clean end");
    gate.open();
    assert!(broker.seen().packs.is_empty());
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn results_are_reported_although_the_socket_is_lost_while_it_stops() {
    let broker = Broker::start();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        assert!(held.wait(Duration::from_secs(20)));
        answer(200, "", "")
    });
    let mut config = broker.config();
    config.waits.drain = Duration::from_secs(20);
    let Running { stop, ended } = Running::start(config);
    let session = broker.session(0).await;
    session.do_send(as_text(&of(DownloadSettings::default(), vec![site.url("/")])));
    until("it is asked for", || site.hits().len() == 1).await;
    stop.send(()).expect("it runs");
    let beats = broker.seen().heartbeats.len();
    until("it beat again", || broker.seen().heartbeats.len() > beats + 1).await;
    session.do_send(Say::Hang);
    until("the socket is gone", || !session.connected()).await;
    gate.open();
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends").expect("no panic").expect("a clean end");
    assert_eq!(broker.seen().packs.len(), 1);
    assert_eq!(broker.seen().sessions.len(), 1, "it does not come back");
    broker.server.stop(false).await;
}
