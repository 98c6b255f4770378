//! Whole blocks: order, parallelism, invalid requests and settings.

use super::site::{Gate, Site, answer};
use super::{config, until};
use crate::agent::block::{Ports, guarded, work};
use crate::agent::download::{Downloader, Outcome};
use crate::agent::holdings::Holdings;
use crate::agent::parcel::Parcel;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, NodeId};
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::{Block, FetchErrorKind, Holding, ToNode};
use crate::protocol::pack::{Index, Opened, open};
use actix_http::body::MessageBody;
use futures_util::FutureExt;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub fn block(settings: DownloadSettings, requests: &str) -> Block {
    let identity = Identity::random();
    let requests = Some(serde_json::from_str(requests).expect("JSON"));
    Block {
        block_id: BlockId::new(identity, 7),
        identity,
        epoch: 3,
        attempt: 2,
        lost: None,
        parts: false,
        elsewhere: false,
        holds: false,
        pace: None,
        traceparent: None,
        settings,
        requests,
    }
}

pub fn requests(urls: impl IntoIterator<Item = String>) -> String {
    let list: Vec<_> = urls
        .into_iter()
        .map(|url| serde_json::json!({ "requestId": Fingerprint::of_key(&url), "url": url, "meta": { "any": [1] }, "unknown": true }))
        .collect();
    serde_json::to_string(&list).expect("JSON")
}

/// The reports of a block.
pub async fn worked(downloader: &Downloader, node: NodeId, block: &Block, bulk: Option<&[u8]>) -> Vec<(Index, Vec<Opened>)> {
    let reports = RefCell::new(Vec::new());
    let post = |parcel: Parcel| {
        reports.borrow_mut().push(bytes(&parcel));
        std::future::ready(true).boxed_local()
    };
    work(downloader, node, block, bulk, Ports { post: &post, leave: &|| false }).await;
    let opened = |pack: &Vec<u8>| {
        let (mut index, results) = open(pack, 1 << 30).expect("a pack");
        index.results = results.iter().map(|result| result.entry.clone()).collect();
        (index, results)
    };
    reports.into_inner().iter().map(opened).collect()
}

fn bytes(parcel: &Parcel) -> Vec<u8> {
    let (mut body, mut all) = (std::pin::pin!(parcel.body()), Vec::new());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while let std::task::Poll::Ready(Some(Ok(piece))) = body.as_mut().poll_next(&mut context) {
        all.extend_from_slice(&piece);
    }
    all
}

async fn done(block: &Block, bulk: Option<&[u8]>) -> (Index, Vec<Opened>) {
    let node = NodeId::random();
    let (index, results) = worked(&Downloader::new(&config()), node, block, bulk).await.pop().expect("a report");
    assert_eq!((index.block_id, index.identity, index.node_id), (block.block_id, block.identity, node));
    assert_eq!((index.epoch, index.attempt), (Some(3), Some(2)));
    (index, results)
}

#[actix_rt::test]
async fn results_stand_in_the_order_of_the_requests() {
    let last = Arc::new(Gate::default());
    let gate = last.clone();
    let site = Site::new(move |hit| {
        match hit.path.as_str() {
            "/0" => assert!(gate.wait(Duration::from_secs(20)), "the last one never came"),
            "/9" => gate.open(),
            _ => {}
        }
        answer(200, "", format!("page {}", hit.path))
    });
    let urls: Vec<_> = (0..10).map(|i| site.url(&format!("/{i}"))).collect();
    let settings = DownloadSettings { thread_num: 2, ..DownloadSettings::default() };
    let (index, results) = done(&block(settings, &requests(urls.clone())), None).await;
    assert_eq!(index.exception, None);
    for (i, (result, url)) in results.iter().zip(&urls).enumerate() {
        assert_eq!(result.entry.request_id, Fingerprint::of_key(url));
        assert_eq!(result.body, format!("page /{i}"));
        assert!(result.entry.is_success());
    }
    assert_eq!(results.len(), 10);
}

#[actix_rt::test]
async fn thread_num_is_kept_and_used() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now_by_site, most_by_site) = (now.clone(), most.clone());
    let (full, too_many) = (Gate::default(), Gate::default());
    let site = Site::new(move |hit| {
        let count = now_by_site.fetch_add(1, Ordering::SeqCst) + 1;
        most_by_site.fetch_max(count, Ordering::SeqCst);
        match count {
            3 => full.open(),
            4.. => too_many.open(),
            _ => {}
        }
        // No request returns before three have met, and these wait a while for a fourth to appear.
        assert!(full.wait(Duration::from_secs(20)), "three never met");
        if hit.nth < 3 {
            too_many.wait(Duration::from_millis(200));
        }
        now_by_site.fetch_sub(1, Ordering::SeqCst);
        answer(200, "", "")
    });
    let urls = (0..30).map(|i| site.url(&format!("/{i}")));
    let settings = DownloadSettings { thread_num: 3, ..DownloadSettings::default() };
    let (_, results) = done(&block(settings, &requests(urls)), None).await;
    assert_eq!((results.len(), most.load(Ordering::SeqCst)), (30, 3));
}

#[actix_rt::test]
async fn every_request_is_reported_the_senseless_ones_too() {
    let site = Site::new(|_| answer(200, "", "fine"));
    let id = |key: &str| Fingerprint::of_key(key).to_string();
    let list = serde_json::json!([
        { "requestId": id("a"), "url": 5 },
        { "requestId": id("b"), "url": site.url("/") },
        { "requestId": id("c"), "url": "nothing" },
        { "requestId": id("d") },
    ]);
    let (index, results) = done(&block(DownloadSettings::default(), &list.to_string()), None).await;
    assert_eq!(index.exception, None);
    let kinds: Vec<_> = results.iter().map(|r| r.entry.error.as_ref().map(|e| e.kind)).collect();
    let invalid = Some(FetchErrorKind::Invalid);
    assert_eq!(kinds, [invalid, None, invalid, invalid]);
    assert_eq!(results[1].body, "fine");
}

#[actix_rt::test]
async fn a_block_that_cannot_be_downloaded_says_why() {
    let bad_pattern = DownloadSettings { change_ip_pattern: Some("(".to_owned()), ..DownloadSettings::default() };
    let (index, results) = done(&block(bad_pattern, &requests(["http://127.0.0.1:1/".to_owned()])), None).await;
    assert!(index.exception.is_some_and(|why| why.contains("ChangeIpPattern")));
    assert_eq!(results[0].entry.error.as_ref().map(|e| e.kind), Some(FetchErrorKind::Invalid));

    for bulk in [&b"garbage"[..], &zstd::bulk::compress(b"{", 1).expect("memory")] {
        let (index, results) = done(&block(DownloadSettings::default(), "null"), Some(bulk)).await;
        assert!(index.exception.is_some() && results.is_empty());
    }
    let empty = Block { requests: None, ..block(DownloadSettings::default(), "[]") };
    assert!(done(&empty, None).await.0.exception.is_some());
    let (index, results) = done(&block(DownloadSettings::default(), "[]"), None).await;
    assert!(index.exception.is_none() && results.is_empty());
}

#[actix_rt::test]
async fn site_settings_that_make_no_client_fail_the_requests_not_the_agent() {
    for (header, proxy) in [("a b", None), ("a", Some("no proxy at all"))] {
        let mut settings = DownloadSettings::default();
        settings.site.headers.insert(header.to_owned(), "v".to_owned());
        settings.site.proxy = proxy.map(str::to_owned);
        let (_, results) = done(&block(settings, &requests(["http://127.0.0.1:1/".to_owned()])), None).await;
        let error = results[0].entry.error.clone().expect("an error");
        assert_eq!(error.kind, FetchErrorKind::Invalid);
        assert!(error.message.contains("site."), "{}", error.message);
    }
}

#[actix_rt::test]
async fn a_proxy_is_asked_for_the_page() {
    let proxy = Site::new(|hit| answer(200, "", hit.path.clone()));
    let mut settings = DownloadSettings::default();
    settings.site.proxy = Some(proxy.url("/"));
    let mut config = config();
    config.targets.allow = vec!["127.0.0.1".parse().expect("a rule")];
    let block = block(settings, &requests(["http://far.example/page".to_owned()]));
    let reports = worked(&Downloader::new(&config), NodeId::random(), &block, None).await;
    assert_eq!(reports[0].1[0].body, "http://far.example/page");
}

#[actix_rt::test]
async fn a_panic_is_one_requests_outcome() {
    let outcome = guarded(async { panic!("on purpose") }).await;
    assert_eq!(outcome.answer.error.map(|e| e.kind), Some(FetchErrorKind::Other));
    assert_eq!(guarded(async { Outcome { tries: 5, ..Outcome::default() } }).await.tries, 5);
}

#[test]
fn a_block_is_read_from_a_text_message_with_its_requests() {
    let settings = DownloadSettings { thread_num: 9, sleep_time: 70, ..DownloadSettings::default() };
    let sent = ToNode::Block(Box::new(block(settings, r#"[{"url":"http://a/"}]"#)));
    let read: ToNode = crate::protocol::frame::read(crate::protocol::frame::text(&sent).as_bytes()).expect("a message");
    let ToNode::Block(read) = read else { panic!("another message") };
    assert_eq!((read.settings.thread_num, read.settings.sleep_time), (9, 70));
    assert_eq!(read.requests.expect("requests").get(), r#"[{"url":"http://a/"}]"#);
}

#[actix_rt::test]
async fn a_later_hand_out_replaces_an_earlier_one_and_nothing_else_does() {
    let identity = Identity::random();
    let hand_out = |epoch, attempt| Holding { identity, block_id: BlockId::new(identity, 1), epoch, attempt, waits: false };
    let holdings = Holdings::default();
    let task = || actix_rt::spawn(std::future::pending::<()>());
    let first = task();
    holdings.hold(hand_out(1, 2), false, first.abort_handle());
    assert!(!holdings.is_news(&hand_out(1, 2)) && !holdings.is_news(&hand_out(1, 1)));
    assert!(holdings.is_news(&hand_out(1, 3)) && holdings.is_news(&hand_out(2, 1)));
    holdings.hold(hand_out(1, 3), true, task().abort_handle());
    assert!(first.await.is_err_and(|e| e.is_cancelled()));
    holdings.release(&hand_out(1, 2));
    assert_eq!(holdings.list(), [hand_out(1, 3)], "the end of the earlier one is not the end of the later one");
    holdings.drop_block(hand_out(1, 2).block_id, 2);
    assert_eq!(holdings.len(), 1);
    holdings.drop_block(hand_out(1, 3).block_id, 3);
    until("it is empty", || holdings.len() == 0).await;
    holdings.emptied().await;
}
