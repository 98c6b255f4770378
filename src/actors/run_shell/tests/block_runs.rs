//! Runs of block jobs: their search for a worker, their sites, and what they do while they wait.

use super::*;
use crate::actors::leader_link::LeaderLink;
use crate::domain::schedule::AHEAD_MS;
use crate::protocol::block_runs::FromBlockRun;
use crate::protocol::ownership::ToLeader;
use std::cell::Cell;
use std::rc::Rc;

/// A stage for a run of a block job, with an allocator and a worker.
async fn block_run(stage: &Stage, planned: Option<Timestamp>) -> (Started<Blocks>, WorkerId) {
    let worker = WorkerId::random();
    stage.context.allocator.0.set(stage.recording.link(ChildKey::Allocator));
    stage.context.addresses.workers.put(worker, WorkerHandle(stage.recording.link(ChildKey::Worker(worker))));
    let properties = Arc::new([("NoWorker".to_owned(), "wait".to_owned())].into());
    let stored = StoredBlocks::new(&stage.stored().await, properties);
    (stage.start_as::<Blocks>(stored, |run| run.planned_at = planned).await, worker)
}

/// An answer of the allocator.
fn found(actor: &Started<Blocks>, worker: Result<WorkerId, NotEligible>) {
    actor.link.worker_found(Choice { watches: 0, worker });
}

#[test]
fn a_block_run_searches_again_when_a_worker_may_be_eligible() {
    on_stage(
        JobKind::Block,
        |_| {},
        async |stage: Stage| {
            let (actor, worker) = block_run(&stage, None).await;
            found(&actor, Err(NotEligible::Unwatched));
            actor.link.workers_changed();
            actor.link.workers_changed();
            // The answer is lost with the allocator.
            actor.link.allocator_restarted();
            found(&actor, Ok(worker));
            actor.link.workers_changed();
            actor.stop("by hand").wait().await.expect("it stops");
            let search = ["FindWorker"; 3];
            assert_eq!(stage.recording.names(), [&search[..], &["SendToWorker", "SendToWorker", "RunEnded"]].concat(), "start and end");
        },
    );
}

#[test]
fn a_block_run_that_ends_without_a_worker_leaves_the_allocator() {
    on_stage(
        JobKind::Block,
        |_| {},
        async |stage: Stage| {
            let (actor, _) = block_run(&stage, None).await;
            found(&actor, Err(NotEligible::Unsuitable));
            actor.stop("by hand").wait().await.expect("it stops");
            assert_eq!(stage.recording.names(), ["FindWorker", "WithdrawRequest", "RunEnded"]);
        },
    );
}

#[test]
fn a_block_run_finds_its_worker_before_its_scheduled_time() {
    for changes in [0, 1] {
        // On a busy machine the time may come before the test is ready.
        assert!((0..5).any(|_| finds_its_worker_before(changes)), "the test was never ready in time");
    }
}

/// `false`: the scheduled time came too early for this.
fn finds_its_worker_before(changes: usize) -> bool {
    // A run that seems to be made ahead for longer begins at once: the clock was set back.
    let ms = AHEAD_MS - 100;
    // `due` is the scheduled time by the clock that the system does not correct.
    let (planned, due) = (Rc::new(Cell::new(Timestamp(0))), Rc::new(Cell::new(Timestamp(0))));
    let times = (Rc::clone(&planned), Rc::clone(&due));
    let is_early = Rc::new(Cell::new(false));
    let found_early = Rc::clone(&is_early);
    on_stage(
        JobKind::Block,
        move |run| {
            due.set(Timestamp::steady().plus_ms(ms));
            planned.set(Timestamp::now().plus_ms(ms));
            run.not_before = Some(planned.get());
        },
        async move |stage: Stage| {
            let (planned, due) = (times.0.get(), times.1.get());
            let (actor, worker) = block_run(&stage, Some(planned)).await;
            found(&actor, Ok(worker));
            // A change of the workers makes the choice invalid.
            (0..changes).for_each(|_| stage.context.addresses.watches_changed());
            // It has the answer, and its time has not come.
            AtWork::Run(actor.link.clone()).describe(false).wait().await.expect("described");
            if Timestamp::steady() >= due {
                return;
            }
            found_early.set(true);
            let begun = async {
                while stage.recording.count() < 2 {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(20), begun).await.expect("it begins");
            assert_eq!(stage.recording.names(), ["FindWorker", ["SendToWorker", "FindWorker"][changes]]);
            // Both clocks were read as whole milliseconds.
            assert!(Timestamp::steady().plus_ms(2) >= due, "sent {} ms before its time", due.since_ms(Timestamp::steady()));
        },
    );
    is_early.get()
}

/// A node whose actor records.
fn node(stage: &Stage) -> (NodeId, NodeHandle) {
    let id = NodeId::random();
    (id, NodeHandle(stage.recording.link(ChildKey::Node(id))))
}

fn pushed(actor: &Started<Blocks>) -> Answer<Pushed> {
    let batch = read_push(Bytes::from_static(br#"[{"url":"http://example.org/"}]"#)).expect("a push");
    actor.link.push(Vec::new(), batch)
}

#[test]
fn a_site_stays_closed_after_the_last_attempt_of_a_block_is_lost() {
    let once = |run: &mut Run| (run.queue.block_attempts, run.queue.sites.robots) = (1, Some(false));
    on_stage(JobKind::Block, once, async |stage: Stage| {
        let (actor, worker) = block_run(&stage, None).await;
        found(&actor, Ok(worker));
        let block_id = pushed(&actor).wait().await.expect("stored").block_ids[0];
        let (id, to) = node(&stage);
        let slot = NodeSlot { node: id, kind: SlotKind::Site, keeps_pace: true };
        actor.link.grant(to, Permit::new(slot, || {}));
        actor.link.node_lost(id, block_id, 1);
        let wait = std::time::Duration::from_secs(20);
        let polled = actor.link.poll(PollOptions { worker: None, max: 1, wait, auto_ack: false, holds: None });
        assert_eq!(polled.wait().await.expect("given up").blocks.len(), 1);
        assert!(stage.recording.names().contains(&"SendBlock".to_owned()), "the node may work on it");
        let (now, right_ms) = (Timestamp::steady(), stage.context.sites.right_ms as i64);
        let taken = |at: Timestamp| {
            stage.context.sites.board().take("example.org", Pace::default(), Identity::random(), at.plus_ms(1_000), at).is_ok()
        };
        assert_eq!((taken(now), taken(now.plus_ms(right_ms - 1_000))), (false, false));
        assert!(
            stage.context.sites.board().view("example.org", now.plus_ms(2 * right_ms)).is_some_and(|view| view.run.is_none()),
            "it is over"
        );
    });
}

#[test]
fn the_number_of_ready_blocks_names_the_last_grant() {
    on_stage(
        JobKind::Block,
        |_| {},
        async |stage: Stage| {
            let (leader, mut sent) = LeaderLink::new();
            let stage = Stage { context: stage.context.clone().with_leader(leader), ..stage };
            let (actor, worker) = block_run(&stage, None).await;
            found(&actor, Ok(worker));
            assert_eq!(pushed(&actor).wait().await.map(|pushed| pushed.accepted), Ok(1));
            let (id, to) = node(&stage);
            actor.link.grant(to, Permit::of_leader(NodeSlot { node: id, kind: SlotKind::Block, keeps_pace: false }, 7, || {}));
            actor.link.reannounce();
            actor.link.set_paused(false).wait().await.expect("it lives");
            let sent = std::iter::from_fn(|| sent.try_recv().ok()).filter_map(|outgoing| match outgoing.message {
                ToLeader::OfRun { message: FromBlockRun::Ready { last_permit, .. }, .. } => last_permit,
                _ => None,
            });
            let sent: Vec<_> = sent.collect();
            assert_eq!((sent.first(), sent.last()), (Some(&0), Some(&7)), "{sent:?}");
        },
    );
}

#[test]
fn a_block_run_that_waits_dispatches_nothing() {
    let later = |run: &mut Run| run.not_before = Some(Timestamp::now().plus_ms(10_000));
    on_stage(JobKind::Block, later, async |stage: Stage| {
        stage.context.dispatcher.0.set(stage.recording.link(ChildKey::Dispatcher));
        let (actor, worker) = block_run(&stage, None).await;
        assert_eq!(pushed(&actor).wait().await.map(|pushed| pushed.accepted), Ok(1));
        actor.link.worker_continues(worker);
        actor.link.reannounce();
        let run = actor.link.set_paused(false).wait().await.expect("it lives");
        assert_eq!((run.state, run.worker_id, stage.stored().await.state), (RunState::Pending, None, RunState::Pending));
        assert_eq!(stage.recording.names(), ["RunReady"], "only the answer to the new dispatcher: no block");
    });
}

#[test]
fn a_heartbeat_reaches_a_run_whose_block_did_not_reach_the_actor_of_the_node() {
    on_stage(
        JobKind::Block,
        |_| {},
        async |stage: Stage| {
            let (key, identity) = (ChildKey::Run(JobKind::Block, stage.identity), stage.identity);
            stage.context.addresses.runs.put(identity, RunLink(stage.recording.link(key)));
            let id = NodeId::random();
            let facts = NodeFacts {
                node_id: id,
                name: None,
                node_type: "Console".into(),
                ip_address: "10.0.0.1".into(),
                processor_count: 1,
                group: String::new(),
                operating_system: "linux".into(),
                memory: 1,
                max_process_count: 1,
                max_sites: None,
                max_programs: None,
            };
            let mut involved = Involved::new(&stage.context.addresses, None, identity);
            involved.add_node(id);
            let record = stage.context.store.write(UpsertNode { facts, by: None, now: Timestamp::now() }).await.expect("stored");
            let (kind, name) = ChildKey::Node(id).names();
            let guard = ExitGuard::new(Stats::new(kind, name, None), ChildKey::Node(id), 1, |_| {});
            let actor = NodeActor::new(guard, stage.context.clone(), record, None).start();
            let heartbeat = Heartbeat { holding: Some(Vec::new()), ..Heartbeat::default() };
            actor.send(NodeHeartbeat(heartbeat)).await.expect("handled");
            assert_eq!(stage.recording.names(), ["NodeHolds"]);
        },
    );
}
