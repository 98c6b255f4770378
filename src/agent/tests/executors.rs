//! Reports go to the broker that executes the run, while it answers.

use super::blocks::{block, requests};
use super::broker::{Broker, Running};
use super::run::as_binary;
use super::site::{Site, answer};
use super::until;
use crate::domain::ids::BlockId;
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::Block;

#[actix_rt::test]
async fn reports_go_to_the_broker_that_executes_the_run() {
    let (leader, executor) = (Broker::start(), Broker::start());
    for broker in [&leader, &executor] {
        broker.seen().executor = Some(format!("http://127.0.0.1:{}", executor.port));
    }
    let reports = || (leader.seen().packs.len(), executor.seen().packs.len());
    let site = Site::new(|_| answer(200, "", "fine"));
    let running = Running::start(leader.config());
    let session = leader.session(0).await;
    let first = block(DownloadSettings::default(), &requests([site.url("/")]));
    let mut seq = 0;
    // The agent tries the broker that the first answer names.
    while reports().1 == 0 {
        seq += 1;
        session.do_send(as_binary(&Block { block_id: BlockId::new(first.identity, seq), ..first.clone() }));
        until("it is reported", || reports().0 + reports().1 == seq as usize).await;
        assert!(seq < 10_000, "the second broker was never called");
    }
    let at_leader = reports().0;
    let next = |seq| as_binary(&Block { block_id: BlockId::new(first.identity, seq), ..first.clone() });
    session.do_send(next(seq + 1));
    until("it is reported", || reports() == (at_leader, 2)).await;
    // It does not know the token yet. Then its server ends.
    executor.seen().answers.push_back(401);
    session.do_send(next(seq + 2));
    until("it is reported to the leader", || reports() == (at_leader + 1, 3)).await;
    executor.server.stop(false).await;
    session.do_send(next(seq + 3));
    until("it is reported to the leader", || reports() == (at_leader + 2, 3)).await;
    running.stop().await.expect("a clean end");
    leader.server.stop(false).await;
}
