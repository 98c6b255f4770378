//! Helpers for all tests of the store.

mod alerts;
mod backup;
mod copy;
mod failures;
mod groups;
mod hot;
mod leader;
mod ownership;
mod retention;
mod segment_terms;
mod segments;
mod series;
mod shared_segments;
mod sites;
mod tables;
mod writing;

use super::fires::RecordSkip;
use super::*;
use crate::domain::alert::{ChannelKind, Filter};
use crate::domain::block::Phase;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{ChannelId, Identity, JobId, NodeId, WorkerId};
use crate::domain::job::{Job, JobKind, Properties};
use crate::domain::node::{NodeFacts, NodeLoad, NodeWork};
use crate::domain::run::{Counters, Run, RunState};
use crate::domain::schedule::{Kind, PlanState, Schedule};
use crate::domain::time::Timestamp;
use bytes::Bytes;
use diesel::connection::SimpleConnection;
use std::future::Future;
use std::sync::Arc;

const T: Timestamp = Timestamp(1_000);

/// A database for a test: a file, or one of its own at the server that `WEBLOOM_TEST_POSTGRES` names.
fn config(folder: &tempfile::TempDir) -> StoreConfig {
    match server() {
        None => StoreConfig::new(folder.path().join("sub").join("test.db")),
        Some(base) => {
            let name = format!("t_{}", uuid::Uuid::new_v4().simple());
            let admin = DatabaseAddress::parse(Path::new(&format!("{base}/postgres"))).expect("a URL");
            let mut conn = dialect::writer(&admin).expect("a server");
            conn.batch_execute(&format!("CREATE DATABASE {name}")).expect("a database");
            let mut config = StoreConfig::new("unused");
            config.database = DatabaseAddress::parse(Path::new(&format!("{base}/{name}"))).expect("a URL");
            config
        }
    }
}

fn server() -> Option<String> {
    std::env::var("WEBLOOM_TEST_POSTGRES").ok()
}

fn path_of(config: &StoreConfig) -> &Path {
    config.database.file().expect("a file")
}

/// As [`with_store`], for what only files have.
fn with_file<F: Future<Output = ()>>(test: impl FnOnce(Store, StoreConfig) -> F) {
    if server().is_none() {
        with_store(test);
    }
}

fn with_file_segments<F: Future<Output = ()>>(roll: u64, test: impl FnOnce(Store, StoreConfig) -> F) {
    if server().is_none() {
        with_segments(roll, test);
    }
}

/// Runs a test in its own actix system and folder.
fn with_store<F: Future<Output = ()>>(test: impl FnOnce(Store, StoreConfig) -> F) {
    with_segments(64 << 20, test);
}

fn with_segments<F: Future<Output = ()>>(roll: u64, test: impl FnOnce(Store, StoreConfig) -> F) {
    let _only = crate::fault::only_test_with_a_store();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder);
    actix::System::new().block_on(async {
        let store = Store::open_with(&config, |segments| segments.roll_at(roll)).expect("a store");
        test(store, config).await;
    });
}

fn job(name: &str) -> Job {
    Job {
        id: JobId::random(),
        name: name.into(),
        job_type: JobKind::Block,
        description: Some("d".into()),
        group: None,
        is_enabled: true,
        disabled_reason: None,
        is_deleted: false,
        priority: -3,
        properties: Properties([("FullClassName".to_owned(), "a.B".to_owned())].into()),
        schedule: None,
        policies: None,
        callback: None,
        task: None,
        successors: Vec::new(),
        version: 1,
        create_by: Some("me".into()),
        update_by: None,
        creation_time: T,
        update_time: T,
    }
}

fn new_channel(name: &str, filter: Filter) -> Channel {
    Channel {
        id: ChannelId::random(),
        name: name.to_owned(),
        kind: ChannelKind::Webhook,
        target: "http://localhost/".to_owned(),
        secret: None,
        filter,
        is_enabled: true,
        version: 1,
        create_by: None,
        update_by: None,
        creation_time: T,
        update_time: T,
    }
}

fn new_run(job_id: JobId) -> Run {
    Run {
        identity: Identity::random(),
        job_name: "j".into(),
        class_name: "a.B".into(),
        arguments: Some("x".into()),
        priority: 5,
        trace_id: Some("0af7651916cd43dd8448eb211c80319c".into()),
        ..Run::new(job_id, JobKind::Block, T)
    }
}

fn by_hand(run: Run) -> InsertRun {
    InsertRun { run, marks: None, version: 1, fire: None, key: None }
}

/// A run with an owner, and its epoch.
async fn run(store: &Store) -> (Run, i64) {
    let run = store.write(by_hand(new_run(JobId::random()))).await.expect("inserted").run;
    store.write(AdoptRun { identity: run.identity }).await.expect("adopted")
}

fn prints(seq: u32) -> Arc<[Fingerprint]> {
    (0..3).map(|i| Fingerprint::of_key(&format!("{seq}/{i}"))).collect()
}

fn block(seq: u32) -> NewBlock {
    NewBlock {
        seq,
        site: None,
        priority: 0,
        attempts: 0,
        requests: 3,
        raw_length: 99,
        payload: Bytes::from(format!("payload {seq}")),
        prints: prints(seq),
    }
}

fn push((run, epoch): &(Run, i64), seqs: std::ops::Range<u32>) -> PushBlocks {
    PushBlocks { no: run.no, epoch: *epoch, blocks: seqs.map(block).collect(), now: T }
}

fn result((run, epoch): &(Run, i64), seq: u32, pack: &str) -> StoreResult {
    StoreResult {
        no: run.no,
        epoch: *epoch,
        seq,
        node: None,
        attempt: 1,
        success: 2,
        error: 1,
        bytes: 7,
        exception: None,
        failed: false,
        failures: None,
        targets: Vec::new(),
        pack: Bytes::from(pack.to_owned()),
        now: T,
    }
}

fn ack((run, epoch): &(Run, i64), seqs: &[u32]) -> Ack {
    Ack { no: run.no, epoch: *epoch, seqs: seqs.to_vec(), push: Vec::new(), now: T }
}

/// The end of a run that is stopped.
fn stopped((run, epoch): &(Run, i64), now: Timestamp) -> FinishRun {
    FinishRun {
        no: run.no,
        epoch: *epoch,
        state: RunState::Stopped,
        reason: None,
        counters: Counters::default(),
        block_times: 0,
        start_time: None,
        start_returned: false,
        result: None,
        follow: false,
        by: None,
        now,
    }
}

fn segment_files(config: &StoreConfig) -> Vec<String> {
    let mut names: Vec<String> = match config.database.file() {
        Some(path) => {
            let folder = std::fs::read_dir(beside(path, "-results")).expect("the folder of segments");
            folder.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect()
        }
        None => {
            let mut conn = dialect::writer(&config.database).expect("a connection");
            let tables = segment_tables::numbers(&mut conn).expect("the tables of segments");
            tables.into_iter().map(|number| format!("{number}.seg")).collect()
        }
    };
    names.sort();
    names
}

async fn reopened(store: Store, config: &StoreConfig) -> Store {
    store.close().await;
    Store::open(config).expect("opened again")
}
