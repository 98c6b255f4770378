//! Results on disk: they exist exactly as long as they are needed.

use super::*;

#[test]
fn a_segment_goes_when_all_in_it_is_acknowledged() {
    // Each pack fills a segment.
    with_segments(4, |store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..4)).await.expect("pushed");
        for seq in 0..3 {
            store.write(result(&owned, seq, "pack")).await.expect("stored");
        }
        assert_eq!(segment_files(&config), ["1.seg", "2.seg", "3.seg"]);
        store.write(ack(&owned, &[1, 1])).await.expect("acknowledged");
        assert_eq!(segment_files(&config), ["1.seg", "3.seg"]);
        // The current segment stays until the next one begins.
        store.write(ack(&owned, &[1, 2])).await.expect("acknowledged");
        assert_eq!(segment_files(&config), ["1.seg", "3.seg"]);
        let results = store.read(ReadResults { no: owned.0.no, seqs: vec![0, 1, 2, 3] }).await.expect("results").results;
        assert_eq!(results.iter().map(|r| (r.seq, &r.pack[..])).collect::<Vec<_>>(), [(0, &b"pack"[..])]);

        let store = reopened(store, &config).await;
        // Tables go with the first transaction.
        store.write(Barrier).await.expect("written");
        assert_eq!(segment_files(&config), ["1.seg"], "what nobody waits for goes at the start");
        store.write(result(&owned, 3, "last")).await.expect("stored");
        assert_eq!(segment_files(&config), ["1.seg", "4.seg"], "no number comes twice");
        store.write(ack(&owned, &[0, 3])).await.expect("acknowledged");
        let store = reopened(store, &config).await;
        store.write(Barrier).await.expect("written");
        assert!(segment_files(&config).is_empty());
        // Only the database still has the number.
        let store = reopened(store, &config).await;
        store.write(push(&owned, 4..5)).await.expect("pushed");
        store.write(result(&owned, 4, "new")).await.expect("stored");
        assert_eq!(segment_files(&config), ["5.seg"], "not even when all are gone");
    });
}

/// A dump of the database locks every table while it reads.
#[test]
fn a_table_of_results_that_is_read_is_dropped_later() {
    if server().is_none() {
        return;
    }
    with_segments(4, |store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..2)).await.expect("pushed");
        for seq in 0..2 {
            store.write(result(&owned, seq, "pack")).await.expect("stored");
        }
        assert_eq!(segment_files(&config), ["1.seg", "2.seg"]);
        let mut dump = dialect::writer(&config.database).expect("a connection");
        dump.batch_execute("BEGIN; LOCK TABLE result_1 IN ACCESS SHARE MODE").expect("locked");
        store.write(ack(&owned, &[0])).await.expect("it does not wait for the dump");
        assert_eq!(segment_files(&config), ["1.seg", "2.seg"]);
        dump.batch_execute("COMMIT").expect("it ends");
        let store = reopened(store, &config).await;
        store.write(push(&owned, 2..3)).await.expect("it works");
        assert_eq!(segment_files(&config), ["2.seg"]);
    });
}

#[test]
fn a_run_that_is_stopped_gives_its_results_up() {
    with_segments(4, |store, config| async move {
        let (owned, other) = (run(&store).await, run(&store).await);
        for (run, seqs) in [(&owned, 0..2), (&other, 0..1)] {
            store.write(push(run, seqs.clone())).await.expect("pushed");
            for seq in seqs {
                store.write(result(run, seq, "pack")).await.expect("stored");
            }
        }
        assert_eq!(segment_files(&config), ["1.seg", "2.seg", "3.seg"]);
        let counters = Counters { left: 0, success: 4, error: 2, total: 6 };
        let finish = FinishRun { reason: Some("enough".into()), counters, block_times: 2, ..stopped(&owned, T) };
        store.write(finish).await.expect("finished");
        assert_eq!(segment_files(&config), ["3.seg"]);
        let stored = store.read(GetRun(owned.0.identity)).await.expect("read").expect("the run");
        assert_eq!((stored.counters, stored.state, stored.finish_time), (counters, RunState::Stopped, Some(T)));
        assert_eq!(store.read(OpenRuns).await, Ok(vec![other.0.identity]));
        let store = reopened(store, &config).await;
        assert_eq!(segment_files(&config), ["3.seg"], "an open run's results stay");
        let results = store.read(ReadResults { no: other.0.no, seqs: vec![0] }).await.expect("results").results;
        assert_eq!(results.len(), 1);
    });
}

#[test]
fn results_that_do_not_get_onto_disk_are_refused_alone() {
    with_file(|store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..1)).await.expect("pushed");
        let folder = beside(path_of(&config), "-results");
        std::fs::remove_dir(&folder).expect("an empty folder");
        std::fs::write(&folder, "in its way").expect("a file");
        let (stored, pushed) = (store.write(result(&owned, 0, "pack")), store.write(push(&owned, 1..2)));
        assert!(matches!(stored.await, Err(StoreError::Failed(_))));
        assert_eq!(pushed.await, Ok(()));
        std::fs::remove_file(&folder).expect("removed");
        store.write(result(&owned, 0, "pack")).await.expect("stored");
        assert_eq!(store.read(ReadResults { no: owned.0.no, seqs: vec![0] }).await.expect("results").results.len(), 1);
    });
}

#[test]
fn many_packs_of_any_size_come_back_as_they_were() {
    with_segments(1 << 20, |store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..700)).await.expect("pushed");
        let pack = |seq: u32| seq.to_string().repeat((seq as usize * 37) % 5_000);
        let stored: Vec<_> = (0..700).map(|seq| store.write(result(&owned, seq, &pack(seq)))).collect();
        for stored in stored {
            stored.await.expect("stored");
        }
        assert!(segment_files(&config).len() > 2);
        let results = store.read(ReadResults { no: owned.0.no, seqs: (0..700).collect() }).await.expect("results").results;
        assert_eq!(results.len(), 700);
        assert!(results.iter().all(|r| r.pack == pack(r.seq)));
    });
}

#[test]
fn a_lost_or_damaged_segment_is_told_apart_and_its_blocks_wait_for_a_node_again() {
    if server().is_some() {
        return;
    }
    with_segments(4, |store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..6)).await.expect("pushed");
        for seq in 0..6 {
            store.write(result(&owned, seq, "pack")).await.expect("stored");
        }
        let folder = beside(path_of(&config), "-results");
        let file = |n: u32| folder.join(format!("{n}.seg"));
        std::fs::remove_file(file(1)).expect("removed");
        std::fs::write(file(2), "pac").expect("cut");
        std::fs::write(file(3), "pAck").expect("changed");
        std::fs::write(file(4), "").expect("emptied");
        let found = store.read(ReadResults { no: owned.0.no, seqs: (0..6).collect() }).await.expect("read");
        assert_eq!(found.results.iter().map(|result| (result.seq, result.is_checked)).collect::<Vec<_>>(), [(4, true), (5, true)]);
        let why: Vec<&str> = found.damaged.iter().map(|(_, why)| why.as_str()).collect();
        let changed = "segment 3 was changed: a checksum does not match";
        assert_eq!(why, ["segment 1 is missing", "segment 2 is cut short", changed, "segment 4 is cut short"]);

        let discard = |seq| DiscardResults { no: owned.0.no, epoch: owned.1, seq, exception: "lost".into() };
        let had = store.write(discard(2)).await.expect("discarded");
        assert_eq!((had.success, had.error), (2, 1), "what it had counted for");
        assert_eq!(store.write(discard(2)).await, Err(StoreError::Conflict("state".into())), "once");
        assert!(!file(3).exists(), "nobody waits for what is in it");
        let counts = store.read(CountBlocks { no: owned.0.no }).await.expect("counts");
        assert_eq!((counts.blocks, counts.ready, counts.answered), (6, 1, 5));
        store.write(result(&owned, 2, "again")).await.expect("stored again");
        let found = store.read(ReadResults { no: owned.0.no, seqs: vec![2] }).await.expect("read");
        assert_eq!(found.results[0].pack, "again");
    });
}

#[test]
fn results_go_on_into_a_folder_that_was_deleted_under_the_writer() {
    with_file(|store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..2)).await.expect("pushed");
        store.write(result(&owned, 0, "pack")).await.expect("stored");
        std::fs::remove_dir_all(beside(path_of(&config), "-results")).expect("removed");
        store.write(result(&owned, 1, "pack")).await.expect("stored in a new folder");
        let found = store.read(ReadResults { no: owned.0.no, seqs: vec![0, 1] }).await.expect("read");
        assert_eq!((found.results.len(), found.damaged.len()), (1, 1));
        assert_eq!(segment_files(&config), ["2.seg"]);
    });
}

/// Such a file stays if the folder cannot be synced after the file was created.
#[test]
fn the_next_segment_is_used_if_a_file_has_the_name_already() {
    with_file(|store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..1)).await.expect("pushed");
        std::fs::write(beside(path_of(&config), "-results").join("1.seg"), "").expect("a file");
        store.write(result(&owned, 0, "pack")).await.expect("stored");
        assert_eq!(segment_files(&config), ["1.seg", "2.seg"]);
        let store = reopened(store, &config).await;
        assert_eq!(segment_files(&config), ["2.seg"]);
        assert_eq!(store.read(ReadResults { no: owned.0.no, seqs: vec![0] }).await.expect("results").results.len(), 1);
    });
}

#[test]
fn results_of_before_there_were_checksums_can_be_read() {
    with_store(|store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..1)).await.expect("pushed");
        store.write(result(&owned, 0, "pack")).await.expect("stored");
        let store = {
            store.close().await;
            let mut conn = dialect::writer(&config.database).expect("opened");
            diesel::connection::SimpleConnection::batch_execute(&mut conn, "UPDATE block SET seg_check = NULL").expect("as of before");
            drop(conn);
            Store::open(&config).expect("a store")
        };
        let found = store.read(ReadResults { no: owned.0.no, seqs: vec![0] }).await.expect("read");
        assert_eq!(found.results.iter().map(|r| (r.is_checked, &r.pack[..])).collect::<Vec<_>>(), [(false, &b"pack"[..])]);
    });
}
