//! Blocks whose site has a pace.

use super::blocks::{block, requests, worked};
use super::broker::{Broker, Running, Say};
use super::run::as_binary;
use super::site::{Gate, Site, answer};
use super::{config, until};
use crate::agent::download::Downloader;
use crate::config::agent::AgentConfig;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::NodeId;
use crate::domain::settings::DownloadSettings;
use crate::protocol::frame;
use crate::protocol::node::{Block, FetchErrorKind, Pace, ToNode};
use crate::protocol::pack::{Entry, Index, Opened};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PACE: Pace = Pace { site: String::new(), delay: 20, jitter: 0, connections: 1, not_before: 0, right: 60_000 };

fn of(pace: Pace, urls: impl IntoIterator<Item = String>) -> Block {
    // The pace counts, not the run's time between two requests.
    let settings = DownloadSettings { sleep_time: 3_600_000, thread_num: 50, ..DownloadSettings::default() };
    Block { parts: true, pace: Some(pace), ..block(settings, &requests(urls)) }
}

fn urls(site: &Site, paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| site.url(path)).collect()
}

async fn one(block: &Block) -> (Index, Vec<Opened>) {
    let mut reports = worked(&Downloader::new(&config()), NodeId::random(), block, None).await;
    assert_eq!(reports.len(), 1);
    reports.pop().expect("one")
}

fn status_of(results: &[Opened], url: &str) -> u16 {
    let id = Fingerprint::of_key(url);
    results.iter().find(|result| result.entry.request_id == id).map_or(0, |result| result.entry.status)
}

#[actix_rt::test]
async fn tries_and_redirects_keep_the_delay() {
    const DELAY: u64 = 50;
    let site = Site::new(|hit| match (hit.path.as_str(), hit.nth) {
        ("/0", 0) => answer(500, "", ""),
        ("/1", _) => answer(302, "Location: /end\r\n", ""),
        _ => answer(200, "", ""),
    });
    let urls = urls(&site, &["/0", "/1", "/2", "/3"]);
    let (index, results) = one(&of(Pace { delay: DELAY, connections: 4, ..PACE }, urls.clone())).await;
    let hits = site.hits();
    assert_eq!(hits.iter().map(|hit| hit.path.as_str()).filter(|path| ["/0", "/end"].contains(path)).count(), 3);
    assert_eq!((hits.len(), results.len(), index.back.len(), index.part), (6, 4, 0, false));
    assert!(results.iter().all(|result| result.entry.status == 200), "{results:?}");
    // The first may have come a little late.
    let all = hits[5].at - hits[0].at;
    assert!(all >= Duration::from_millis(5 * DELAY - 20), "{all:?}");
    assert!(index.site.is_some_and(|site| site.retry_after.is_none() && site.last_began.is_some_and(|ms| ms < 10_000)));
    assert_eq!(results.iter().map(|result| result.entry.tries).sum::<u32>(), 5);
}

/// A site that responds to its first requests only when this number of them has arrived, and waits a little for one more. Also returns
/// the maximum number of concurrent requests.
fn crowded(size: usize) -> (Site, Arc<AtomicUsize>) {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let most_at_site = most.clone();
    let (full, too_many) = (Gate::default(), Gate::default());
    let site = Site::new(move |hit| {
        let count = now.fetch_add(1, Ordering::SeqCst) + 1;
        most_at_site.fetch_max(count, Ordering::SeqCst);
        if count >= size {
            full.open();
        }
        if count > size {
            too_many.open();
        }
        assert!(full.wait(Duration::from_secs(20)), "{size} never met");
        if hit.nth < size {
            too_many.wait(Duration::from_millis(150));
        }
        now.fetch_sub(1, Ordering::SeqCst);
        answer(200, "", "")
    });
    (site, most)
}

#[actix_rt::test]
async fn no_more_connections_than_allowed_and_not_before_its_time() {
    let (site, most) = crowded(3);
    let begin = std::time::Instant::now();
    let pace = Pace { delay: 0, connections: 3, not_before: 200, ..PACE };
    let (_, results) = one(&of(pace, (0..7).map(|n| site.url(&format!("/{n}"))))).await;
    assert_eq!((results.len(), most.load(Ordering::SeqCst)), (7, 3));
    assert!(site.hits()[0].at - begin >= Duration::from_millis(200));
}

#[actix_rt::test]
async fn a_site_that_wants_to_be_left_alone_is() {
    for (status, header) in [(429, "Retry-After: 7\r\n"), (503, "Retry-After: 7\r\n"), (429, "")] {
        let site = Site::new(move |hit| if hit.nth == 1 { answer(status, header, "") } else { answer(200, "", "") });
        let urls = urls(&site, &["/0", "/1", "/2", "/3"]);
        let (index, results) = one(&of(PACE, urls.clone())).await;
        assert_eq!((site.hits().len(), results.len()), (2, 1), "nothing is asked after it");
        let back: Vec<_> = index.back.iter().map(|back| (back.request_id, back.tries)).collect();
        assert_eq!(back, [(&urls[1], 1), (&urls[2], 0), (&urls[3], 0)].map(|(url, tries)| (Fingerprint::of_key(url), tries)));
        let error = index.back[0].error.clone().expect("why");
        assert!(error.message.contains(&status.to_string()), "{error:?}");
        let wait = index.site.expect("its news").retry_after;
        let expected = if header.is_empty() { 0..=0 } else { 5_000..=7_000 };
        assert!(wait.is_some_and(|ms| expected.contains(&ms)), "{wait:?}");
    }
}

#[actix_rt::test]
async fn two_connections_that_do_not_come_about_end_the_turn() {
    let urls: Vec<String> = (0..4).map(|n| format!("http://127.0.0.1:1/{n}")).collect();
    let (index, results) = one(&of(PACE, urls)).await;
    assert_eq!((results.len(), index.back.len()), (0, 4));
    let tried: Vec<_> = index.back.iter().filter_map(|back| Some((back.tries, back.error.as_ref()?.kind))).collect();
    assert_eq!(tried, [(1, FetchErrorKind::Connect); 2]);
    assert_eq!(index.site.and_then(|site| site.retry_after), None);
}

#[actix_rt::test]
async fn three_pages_that_fail_end_the_turn_and_are_given_back_last() {
    let site = Site::new(|hit| answer(if ["/0", "/5"].contains(&hit.path.as_str()) { 200 } else { 502 }, "", ""));
    let urls = urls(&site, &["/0", "/1", "/2", "/3", "/4", "/5"]);
    let (index, results) = one(&of(PACE, urls.clone())).await;
    assert_eq!((site.hits().len(), results.len()), (4, 1), "nothing is asked after the third");
    let back: Vec<_> = index.back.iter().map(|back| (back.request_id, back.tries, back.status, back.time.is_some())).collect();
    let of = |n: usize, tries, status| (Fingerprint::of_key(&urls[n]), tries, status, tries > 0);
    let failed = Some(502);
    // The third ended the turn; the others waited for another try.
    assert_eq!(back, [of(4, 0, None), of(5, 0, None), of(3, 1, failed), of(1, 1, failed), of(2, 1, failed)]);
    assert_eq!(index.site.and_then(|site| site.retry_after), None);
}

#[actix_rt::test]
async fn tries_of_earlier_nodes_count() {
    let site = Site::new(|hit| answer(if hit.path == "/busy" { 429 } else { 500 }, "", ""));
    let ids = ["/old", "/new", "/busy"].map(|path| (site.url(path), Fingerprint::of_key(path)));
    let list = serde_json::json!([
        { "requestId": ids[0].1, "url": ids[0].0, "tries": 3 },
        { "requestId": ids[1].1, "url": ids[1].0 },
        { "requestId": ids[2].1, "url": ids[2].0, "tries": 3 },
    ]);
    let (index, results) = one(&Block { requests: Some(serde_json::from_str(&list.to_string()).expect("JSON")), ..of(PACE, []) }).await;
    let tries: Vec<_> = results.iter().map(|result| (result.entry.status, result.entry.tries)).collect();
    assert_eq!(tries, [(500, 4), (429, 4)], "they are used up: {index:?}");
    let back: Vec<_> = index.back.iter().map(|back| (back.request_id, back.tries)).collect();
    assert_eq!(back, [(ids[1].1, 1)]);
}

#[actix_rt::test]
async fn a_redirect_to_another_site_is_the_answer() {
    let other = Site::new(|_| answer(200, "", ""));
    let location = format!("Location: http://localhost:{}/there\r\n", other.address.port());
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/away" => answer(301, &location, "gone"),
        "/near" => answer(302, "Location: /end\r\n", ""),
        _ => answer(200, "", ""),
    });
    let urls = urls(&site, &["/away", "/near"]);
    let (_, results) = one(&of(PACE, urls.clone())).await;
    assert_eq!((status_of(&results, &urls[0]), status_of(&results, &urls[1])), (301, 200));
    let away = results.iter().find(|result| result.entry.status == 301).expect("the redirect");
    assert!(away.entry.error.is_none() && away.head.target_url.is_none() && away.body == "gone", "{away:?}");
    assert!(away.head.headers.iter().any(|(name, value)| name == "location" && value.ends_with("/there")));
    assert_eq!(other.hits().len(), 0);
}

#[actix_rt::test]
async fn without_a_word_from_the_broker_nothing_begins() {
    let site = Site::new(|_| answer(200, "", ""));
    let downloader = Downloader::new(&config());
    let block = of(Pace { delay: 60, right: 100, ..PACE }, (0..4).map(|n| site.url(&format!("/{n}"))));
    downloader.hearing.hear(tokio::time::Instant::now());
    let work = worked(&downloader, NodeId::random(), &block, None);
    let watch = async {
        until("some began", || !site.hits().is_empty()).await;
        // Time enough for all of them.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let before = site.hits().len();
        assert!(before < 4, "{before}");
        until("the others begin", || {
            downloader.hearing.hear(tokio::time::Instant::now());
            site.hits().len() == 4
        })
        .await;
    };
    let (reports, ()) = futures_util::join!(work, watch);
    assert_eq!(reports[0].1.len(), 4);
}

#[actix_rt::test]
async fn what_lay_in_a_buffer_while_the_agent_stood_still_is_no_news() {
    let site = Site::new(|_| answer(200, "", ""));
    let downloader = Downloader::new(&config());
    // The block and a frame after it are read, long after the agent was last known to have read everything.
    let long_ago = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(50)).await;
    downloader.hearing.hear(long_ago);
    let block = of(Pace { right: 40, delay: 0, ..PACE }, [site.url("/")]);
    let work = worked(&downloader, NodeId::random(), &block, None);
    let watch = async {
        downloader.hearing.hear(long_ago);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(site.hits().len(), 0);
        downloader.hearing.hear(tokio::time::Instant::now());
        until("it begins", || {
            downloader.hearing.hear(tokio::time::Instant::now());
            site.hits().len() == 1
        })
        .await;
    };
    let (reports, ()) = futures_util::join!(work, watch);
    assert_eq!(reports[0].1.len(), 1);
}

/// Any request may have reached the site late.
#[actix_rt::test]
async fn the_delay_counts_from_the_answer() {
    const DELAY: u64 = 300;
    let site = Site::new(|_| answer(200, "", ""));
    let (index, _) = one(&of(Pace { delay: DELAY, ..PACE }, urls(&site, &["/0", "/1", "/2"]))).await;
    let reported = std::time::Instant::now();
    let hits = site.hits();
    assert!(hits.windows(2).all(|pair| pair[1].at - pair[0].at >= Duration::from_millis(DELAY)), "{hits:?}");
    let last = index.site.and_then(|site| site.last_began).map(Duration::from_millis);
    assert!(last.is_some_and(|ago| ago <= reported - hits[2].at), "{last:?}: the last answer came after its request");
}

#[actix_rt::test]
async fn a_site_with_a_pace_takes_no_place_and_reports_what_is_old() {
    let (gate, blocking) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (held, blocked) = (gate.clone(), blocking.clone());
    let site = Site::new(move |hit| {
        assert!(hit.path != "/1" || held.wait(Duration::from_secs(60)));
        assert!(hit.path != "/all" || blocked.wait(Duration::from_secs(60)));
        answer(200, "", "")
    });
    let broker = Broker::start();
    let running = Running::start(AgentConfig { max_process_count: 1, ..broker.config() });
    let session = broker.session(0).await;
    session.do_send(as_binary(&block(DownloadSettings::default(), &requests([site.url("/all")]))));
    until("the only place is taken", || site.hits().len() == 1).await;
    let paced = of(PACE, urls(&site, &["/0", "/1"]));
    session.do_send(as_binary(&paced));
    until("the first result is reported", || broker.seen().packs.len() == 1).await;
    {
        let seen = broker.seen();
        let (part, _) = &seen.packs[0];
        assert!(part.part && part.results.len() == 1 && part.block_id == paced.block_id, "{part:?}");
        // It waited some two seconds, and so did the request in progress.
        assert!(part.site.as_ref().and_then(|site| site.last_began).is_some_and(|ms| ms >= 1_000), "{part:?}");
        let holding = seen.heartbeats.last().and_then(|beat| beat.holding.clone()).expect("a list");
        assert_eq!(holding.len(), 2);
    }
    gate.open();
    until("the rest is reported", || broker.seen().packs.len() == 2).await;
    assert!(!broker.seen().packs[1].0.part);
    // A dropped block is stopped.
    let again = of(Pace { delay: 3_600_000, ..PACE }, urls(&site, &["/2", "/3"]));
    session.do_send(as_binary(&again));
    until("it began", || site.hits().iter().any(|hit| hit.path == "/2")).await;
    session.do_send(Say::Text(frame::text(&ToNode::Drop { block_id: again.block_id, attempt: 2 })));
    until("it is let go", || broker.seen().heartbeats.last().is_some_and(|beat| beat.process_count == 1)).await;
    blocking.open();
    until("the block is reported", || broker.seen().packs.iter().any(|(index, _)| index.site.is_none())).await;
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}

#[actix_rt::test]
async fn all_sites_share_the_connections_of_the_agent() {
    let (site, most) = crowded(2);
    let broker = Broker::start();
    let running = Running::start(AgentConfig { max_connections: 2, ..broker.config() });
    let session = broker.session(0).await;
    for n in 0..8 {
        session.do_send(as_binary(&of(PACE, [site.url(&format!("/{n}"))])));
    }
    until("all are reported", || broker.seen().packs.len() == 8).await;
    assert!(broker.seen().packs.iter().all(|(index, _)| index.results.iter().all(Entry::is_success)));
    assert_eq!(most.load(Ordering::SeqCst), 2);
    running.stop().await.expect("a clean end");
    broker.server.stop(false).await;
}
