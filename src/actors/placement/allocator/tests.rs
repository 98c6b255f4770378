//! The answers of an allocator that replaces a crashed one.

use super::{Allocator, FindWorker, WorkerJoined};
use crate::actors::run_shell::RunLink;
use crate::actors::supervision::{ChildKey, ExitGuard, Recording, Stats};
use crate::domain::ids::{Identity, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::worker_pool::{WorkerCapacity, WorkerRequest};
use actix::Actor;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_run_that_asks_before_its_worker_is_there_gets_one_answer() {
    actix_rt::System::new().block_on(async {
        let recording = Recording::default();
        let (kind, name) = ChildKey::Allocator.names();
        let guard = ExitGuard::new(Stats::new(kind, name, None), ChildKey::Allocator, 1, |_| {});
        let allocator = Allocator::new(guard, Arc::default(), true).start();
        let identity = Identity::random();
        let request = WorkerRequest {
            requester: (identity, 0),
            handler: "a.B".into(),
            settings: Arc::default(),
            needs_slot: false,
            key: 0,
            priority: 0,
            excluded: Vec::new(),
            only: None,
            chance: 0,
        };
        let run = RunLink(recording.link(ChildKey::Run(JobKind::Block, identity)));
        allocator.send(FindWorker { request: Box::new(request), run }).await.expect("handled");
        assert_eq!(recording.count(), 0, "the worker may still come");
        let capacity = WorkerCapacity { handlers: vec!["a.B".to_owned()], ..WorkerCapacity::default() };
        let here = WorkerJoined { worker: WorkerId::random(), capacity: Box::new(capacity), is_reachable: true, disabled: None };
        allocator.send(here).await.expect("handled");
        let answered = async {
            while recording.count() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), answered).await.expect("it is answered");
        // A second answer would come with what the workers bring.
        let capacity = WorkerCapacity { handlers: vec!["a.B".to_owned()], ..WorkerCapacity::default() };
        let here = WorkerJoined { worker: WorkerId::random(), capacity: Box::new(capacity), is_reachable: true, disabled: None };
        allocator.send(here).await.expect("handled");
        assert_eq!(recording.names(), ["Found"]);
    });
}
