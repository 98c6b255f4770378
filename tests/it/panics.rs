//! Supervision: each kind of actor panics in the middle of a crawl, is rebuilt, and the crawl still ends right.

use crate::support::api::Api;
use crate::support::crawl::{Crawl, urls};
use crate::support::journey;
use crate::support::process::{Broker, agent};
use crate::support::site::Site;

const PAGES: usize = 150;

/// Crawls with this fault planned in the broker; whose restarts must show.
async fn crawl_with(fault: &str, kind: &str) {
    let site = Site::serve(PAGES);
    let folder = tempfile::tempdir().expect("a folder");
    let times = ["--grace", "300", "--node-heartbeat", "100", "--node-offline", "2000", "--worker-offline", "2000"];
    let broker = Broker::start(&times, fault);
    let _agent = agent(&broker.url, folder.path(), &["--max-process-count", "3"]);
    let mut crawl = Crawl::start(&site.url, folder.path(), &["--broker", &broker.url, "--threads", "4"]);
    let api = Api::new(&broker.url);
    let mut most = 0;
    // Looked at until it ends, since a run's actor goes with its run.
    let mut ended = None;
    let start = std::time::Instant::now();
    while ended.is_none() {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "a crawl with {fault} does not end");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        ended = crawl.ended();
        let (status, actors) = api.get("/api/v1/actors").await;
        if status == 200 {
            let mine = actors.as_array().expect("actors").iter().filter(|a| a["kind"] == kind);
            most = most.max(mine.filter_map(|a| a["restarts"].as_u64()).max().unwrap_or(0));
        }
    }
    assert!(ended.is_some_and(|status| status.success()), "{fault}");
    assert_eq!(urls(&crawl.lines()), site.all().into_iter().collect::<Vec<_>>(), "{fault}");
    let (_, runs) = api.get("/api/v1/runs").await;
    let run = &runs["items"][0];
    assert_eq!(
        (run["state"].as_str(), run["total"].as_u64(), run["left"].as_u64()),
        (Some("success"), Some(PAGES as u64), Some(0)),
        "{fault}: {run}"
    );
    assert!(most >= 1, "{fault}: no {kind} was rebuilt");
    site.stop().await;
}

macro_rules! panics {
    ($($name:ident: $kind:literal at $($fault:literal),+;)+) => {$(
        #[test]
        fn $name() {
            $( journey(crawl_with($fault, $kind)); )+
        }
    )+};
}

panics! {
    a_run_panics: "run" at "run.push=panic@1", "run.ack=panic@3", "run.report=panic@4", "run.grant=panic@5", "run.poll=panic@6";
    a_node_panics: "node" at "node.send_block=panic@2", "node.block_done=panic@4", "node.heartbeat=panic@2";
    a_worker_panics: "worker" at "worker.message=panic@1", "worker.send=panic@1";
    the_dispatcher_panics: "dispatcher" at "dispatcher.credit=panic@3", "dispatcher.run_ready=panic@2";
    the_allocator_panics: "allocator" at "allocator.find_worker=panic@1", "allocator.worker_joined=panic@1";
    the_writer_panics: "persistence" at "store.batch=panic@20", "store.committed=panic@12";
}

/// A commit that fails is not a panic: the run's actor lets go of what it believed and loads what is true.
#[test]
fn a_commit_fails() {
    journey(async {
        crawl_with("store.commit=fail@14,run.report=panic@2", "run").await;
    });
}
