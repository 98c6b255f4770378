//! Reports in parts, and the memory that they release.

use super::blocks::{block, requests, worked};
use super::broker::{Broker, Running};
use super::run::as_binary;
use super::site::{Gate, Site, answer};
use super::{config, until};
use crate::agent::download::Downloader;
use crate::config::agent::AgentConfig;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::NodeId;
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::Block;
use crate::protocol::pack::Index;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const MB: usize = 1 << 20;

fn of(threads: u32, urls: &[String]) -> Block {
    let settings = DownloadSettings { thread_num: threads, ..DownloadSettings::default() };
    Block { parts: true, ..block(settings, &requests(urls.iter().cloned())) }
}

fn urls(site: &Site, count: usize) -> Vec<String> {
    (0..count).map(|n| site.url(&format!("/{n}"))).collect()
}

/// Each request is in exactly one of them; all but the last are parts.
fn covers<'a>(indexes: impl IntoIterator<Item = &'a Index>, urls: &[String]) {
    let indexes: Vec<&Index> = indexes.into_iter().collect();
    let last = indexes.len() - 1;
    assert!(indexes.iter().enumerate().all(|(n, index)| index.part == (n < last)), "{indexes:?}");
    let all: Vec<Fingerprint> = indexes.iter().flat_map(|index| &index.results).map(|entry| entry.request_id).collect();
    let expected: BTreeSet<Fingerprint> = urls.iter().map(|url| Fingerprint::of_key(url)).collect();
    assert_eq!((all.len(), all.into_iter().collect::<BTreeSet<_>>()), (urls.len(), expected));
}

#[actix_rt::test]
async fn a_block_is_reported_in_parts_of_some_megabytes() {
    let site = Site::new(|hit| answer(200, "", vec![hit.path.len() as u8; 3 * MB / 2]));
    let urls = urls(&site, 12);
    let node = NodeId::random();
    let reports = worked(&Downloader::new(&config()), node, &of(2, &urls), None).await;
    covers(reports.iter().map(|(index, _)| index), &urls);
    for (index, results) in &reports[..reports.len() - 1] {
        let bytes: usize = results.iter().map(|result| result.body.len()).sum();
        assert!((4 * MB..6 * MB).contains(&bytes), "{bytes}");
        assert_eq!((index.node_id, index.attempt, index.epoch), (node, Some(2), Some(3)));
    }
    // A small block is reported as a whole.
    let small = Site::new(|_| answer(200, "", "small"));
    let urls: Vec<String> = (0..50).map(|n| small.url(&format!("/{n}"))).collect();
    let reports = worked(&Downloader::new(&config()), node, &of(2, &urls), None).await;
    assert_eq!(reports.len(), 1);
    covers([&reports[0].0], &urls);
    // A broker that does not ask for parts gets none.
    let urls = self::urls(&site, 4);
    assert_eq!(worked(&Downloader::new(&config()), node, &Block { parts: false, ..of(2, &urls) }, None).await.len(), 1);
}

#[actix_rt::test]
async fn a_slow_request_keeps_only_itself() {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |hit| {
        assert!(hit.path != "/0" || held.wait(Duration::from_secs(60)));
        answer(200, "", vec![7; MB])
    });
    let broker = Broker::start();
    // The third request happens twice: the broker has not sent its final response.
    broker.seen().answers.extend([200, 503]);
    let running = Running::start(broker.config());
    let urls = urls(&site, 13);
    broker.session(0).await.do_send(as_binary(&of(2, &urls)));
    until("the others are reported", || {
        let seen = broker.seen();
        let sent: BTreeSet<Fingerprint> = seen.packs.iter().flat_map(|(index, _)| &index.results).map(|entry| entry.request_id).collect();
        sent.len() == 12
    })
    .await;
    assert!(broker.seen().packs.iter().all(|(index, _)| index.part));
    gate.open();
    until("all is reported", || broker.seen().packs.iter().any(|(index, _)| !index.part)).await;
    until("nothing is held", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;
    {
        let seen = broker.seen();
        let packs: Vec<&Index> = seen.packs.iter().map(|(index, _)| index).collect();
        assert_eq!(packs[1], packs[2], "what was not accepted is posted again before anything else");
        covers(packs.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, index)| *index), &urls);
    }
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_part_that_is_refused_for_good_ends_the_block() {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |hit| {
        assert!(hit.path != "/9" || held.wait(Duration::from_secs(60)));
        answer(200, "", vec![7; 5 * MB])
    });
    let broker = Broker::start();
    broker.seen().answers.extend([200, 409]);
    let running = Running::start(broker.config());
    broker.session(0).await.do_send(as_binary(&of(1, &urls(&site, 200))));
    until("it is refused", || broker.seen().packs.len() == 2).await;
    until("nothing is held", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;
    assert!(site.hits().len() < 10, "nothing more is downloaded: {}", site.hits().len());
    assert_eq!(broker.seen().packs.len(), 2);
    gate.open();
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn many_large_bodies_share_a_small_memory() {
    let site = Site::new(|hit| {
        let size = if hit.path == "/3" { 5 * MB } else { 900 << 10 };
        // Some do not declare their length.
        if hit.nth % 2 == 0 {
            return answer(200, "", vec![7; size]);
        }
        let mut bytes = b"HTTP/1.1 200 Fine\r\nConnection: close\r\n\r\n".to_vec();
        bytes.resize(bytes.len() + size, 7);
        super::site::raw(bytes)
    });
    let broker = Broker::start();
    let running = Running::start(AgentConfig { memory_mb: 2, ..broker.config() });
    let session = broker.session(0).await;
    let blocks: Vec<Vec<String>> = (0..4).map(|b| (0..20).map(|n| site.url(&format!("/{n}?{b}"))).collect()).collect();
    for (n, urls) in blocks.iter().enumerate() {
        // One of them cannot be reported in parts.
        session.do_send(as_binary(&Block { parts: n != 2, ..of(8, urls) }));
    }
    until("all are reported", || broker.seen().packs.iter().filter(|(index, _)| !index.part).count() == 4).await;
    until("nothing is held", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 0)).await;
    {
        let seen = broker.seen();
        let results = seen.packs.iter().flat_map(|(index, _)| &index.results);
        assert_eq!(results.filter(|entry| entry.is_success()).count(), 80);
    }
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_request_that_waits_leaves_its_slot_and_its_block_its_place() {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |hit| {
        assert!(hit.path != "/hang" || held.wait(Duration::from_secs(60)));
        answer(200, "", "page")
    });
    let broker = Broker::start();
    let running = Running::start(AgentConfig { max_process_count: 1, ..broker.config() });
    let session = broker.session(0).await;
    // The first one is at another host.
    let mut urls = vec![format!("http://localhost:{}/hang", site.address.port())];
    urls.extend(self::urls(&site, 3));
    let (slow, next) = (of(1, &urls), of(1, &[site.url("/next")]));
    session.do_send(as_binary(&slow));
    session.do_send(as_binary(&next));
    until("the next block is reported", || broker.seen().packs.iter().any(|(index, _)| index.block_id == next.block_id)).await;
    until("the fast requests of the first one are reported", || {
        let seen = broker.seen();
        seen.packs.iter().any(|(index, _)| index.part && index.block_id == slow.block_id && index.results.len() == 3)
    })
    .await;
    until("the broker knows that it takes no place", || {
        let holding = broker.seen().heartbeats.last().and_then(|beat| beat.holding.clone());
        holding.is_some_and(|holding| holding.len() == 1 && holding[0].waits && holding[0].block_id == slow.block_id)
    })
    .await;
    gate.open();
    until("all is reported", || broker.seen().packs.iter().any(|(index, _)| !index.part && index.block_id == slow.block_id)).await;
    {
        let seen = broker.seen();
        covers(seen.packs.iter().map(|(index, _)| index).filter(|index| index.block_id == slow.block_id), &urls);
    }
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn all_blocks_of_an_agent_learn_of_a_pause_from_its_first_answer() {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/busy" => answer(429, "Retry-After: 7\r\n", ""),
        "/slow" => {
            assert!(held.wait(Duration::from_secs(60)));
            answer(200, "", "")
        }
        _ => answer(200, "", ""),
    });
    let downloader = Downloader::new(&config());
    let holding = |paths: &[&str]| Block { holds: true, ..of(1, &paths.iter().map(|path| site.url(path)).collect::<Vec<_>>()) };
    let (busy, other) = (holding(&["/busy"]), holding(&["/slow", "/1", "/2"]));
    let asks = async {
        until("the other block has begun", || !site.hits().is_empty()).await;
        let reports = worked(&downloader, NodeId::random(), &busy, None).await;
        gate.open();
        reports
    };
    let (asked, reports) = futures_util::join!(asks, worked(&downloader, NodeId::random(), &other, None));
    let paused = asked[0].0.site.as_ref().map(|site| site.paused.len());
    assert_eq!((asked.len(), paused), (1, Some(1)), "{asked:?}");
    let last = &reports.last().expect("a report").0;
    let back: Vec<_> = last.back.iter().map(|back| (back.request_id, back.tries)).collect();
    assert_eq!(back, ["/1", "/2"].map(|path| (Fingerprint::of_key(&site.url(path)), 0)), "{last:?}");
    assert_eq!(site.hits().iter().map(|hit| hit.path.as_str()).collect::<Vec<_>>(), ["/slow", "/busy"], "nothing begins after it");
    assert!(downloader.crowd.paused_since(tokio::time::Instant::now()).is_empty(), "a later block is the broker's business");
}
