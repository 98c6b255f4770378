//! Backups: nothing that the copy of the database points to is missing, whatever the broker deletes meanwhile.

use super::*;
use crate::domain::backup::{FileName, Manifest};
use crate::store::backup::{Moment, check, make, make_with, restore};
use diesel_migrations::MigrationHarness as _;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Makes a backup in another thread, and does something at each of its moments.
async fn make_while(config: &StoreConfig, to: &Path, mut act: impl AsyncFnMut(Moment)) -> Result<Manifest, StoreError> {
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let (go, wait) = std::sync::mpsc::channel();
    let (database, to) = (path_of(config).to_owned(), to.to_owned());
    let maker = std::thread::spawn(move || {
        make_with(&database, &to, |moment| {
            said.send(moment).expect("the test listens");
            wait.recv().expect("the test answers");
        })
    });
    while let Some(moment) = heard.recv().await {
        act(moment).await;
        go.send(()).expect("it waits");
    }
    maker.join().expect("no panic")
}

fn names(manifest: &Manifest) -> Vec<String> {
    manifest.files.iter().map(|entry| String::from(entry.name.clone())).collect()
}

async fn upload(store: &Store, config: &StoreConfig, bytes: &[u8]) -> String {
    let mut upload = PackageFiles::of(&config.database).begin().expect("begun");
    upload.write(bytes).expect("written");
    let (sha256, size) = upload.finish().expect("finished");
    let row = PackageRow {
        sha256: sha256.clone(),
        size: size as i64,
        name: None,
        media_type: "application/zip".into(),
        create_by: None,
        creation_time: Timestamp(0),
    };
    store.write(InsertPackage(row)).await.expect("inserted");
    sha256
}

/// The results of a run in the store of a file; the store is closed again.
async fn results(database: &Path, no: i64, seqs: std::ops::Range<u32>) -> Vec<(u32, String)> {
    let store = Store::open(&StoreConfig::new(database)).expect("a store");
    let found = store.read(ReadResults { no, seqs: seqs.collect() }).await.expect("results");
    assert_eq!(found.damaged, []);
    store.close().await;
    found.results.iter().map(|result| (result.seq, String::from_utf8_lossy(&result.pack).into_owned())).collect()
}

fn elsewhere() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let (to, database) = (folder.path().join("backup"), folder.path().join("restored").join("r.db"));
    (folder, to, database)
}

#[test]
fn what_is_deleted_while_a_backup_is_made_is_in_it() {
    with_file_segments(4, |store, config| async move {
        let (_folder, to, database) = elsewhere();
        let owned = run(&store).await;
        store.write(push(&owned, 0..5)).await.expect("pushed");
        for seq in 0..3 {
            store.write(result(&owned, seq, "pack")).await.expect("stored");
        }
        let package = upload(&store, &config, b"PK").await;
        let manifest = make_while(&config, &to, async |moment| match moment {
            // The copy has it, although it came after the files were opened.
            Moment::Opened => store.write(result(&owned, 3, "late")).await.expect("stored"),
            Moment::Copied => {
                store.write(result(&owned, 4, "none")).await.expect("stored");
                store.write(ack(&owned, &[0, 1, 2])).await.expect("acknowledged");
                store.write(DeletePackage(package.clone())).await.expect("deleted");
                PackageFiles::of(&config.database).remove(&package).expect("removed");
                assert_eq!(segment_files(&config), ["4.seg", "5.seg"]);
            }
        });
        let manifest = manifest.await.expect("a backup");
        let listed = ["webloom.db", "webloom.db-results/1.seg", "webloom.db-results/2.seg", "webloom.db-results/3.seg"];
        let listed = listed.into_iter().map(ToOwned::to_owned);
        let more = ["webloom.db-results/4.seg".to_owned(), format!("webloom.db-packages/{package}")];
        assert_eq!(names(&manifest), listed.chain(more).collect::<Vec<_>>());
        assert_eq!(manifest.warnings, [""; 0]);
        let counts = manifest.counts;
        assert_eq!((counts.runs, counts.open_runs, counts.results, counts.packages), (1, 1, 4, 1));

        assert_eq!(check(&to).expect("whole"), manifest);
        assert_eq!(restore(&to, &database).expect("restored"), manifest);
        let wanted = [(0, "pack"), (1, "pack"), (2, "pack"), (3, "late")].map(|(seq, pack)| (seq, pack.to_owned()));
        assert_eq!(results(&database, owned.0.no, 0..5).await, wanted);
        let mut bytes = Vec::new();
        PackageFiles::of(&database.clone().into()).open(&package).expect("there").read_to_end(&mut bytes).expect("read");
        assert_eq!(bytes, b"PK");
        for path in [to.clone(), to.join("webloom.db-results"), database.parent().expect("a folder").to_owned()] {
            for entry in std::fs::read_dir(&path).expect("a folder") {
                let mode = entry.expect("an entry").metadata().expect("there").permissions().mode();
                assert_eq!(mode & 0o077, 0, "{} is for its owner alone", path.display());
            }
        }
    });
}

#[test]
fn a_copy_that_needs_a_file_that_came_and_went_is_repeated() {
    with_file_segments(4, |store, config| async move {
        let (_folder, to, database) = elsewhere();
        let owned = run(&store).await;
        store.write(push(&owned, 0..3)).await.expect("pushed");
        let mut attempts = 0;
        let manifest = make_while(&config, &to, async |moment| match (moment, attempts) {
            (Moment::Opened, 0) => {
                attempts += 1;
                store.write(result(&owned, 0, "gone")).await.expect("stored");
                store.write(result(&owned, 1, "stays")).await.expect("stored");
            }
            (Moment::Copied, 1) => store.write(ack(&owned, &[0])).await.expect("acknowledged"),
            (Moment::Opened, _) => attempts += 1,
            (Moment::Copied, _) => {}
        });
        let manifest = manifest.await.expect("a backup");
        assert_eq!(
            (names(&manifest), manifest.warnings, attempts),
            (vec!["webloom.db".into(), "webloom.db-results/2.seg".into()], vec![], 2)
        );
        restore(&to, &database).expect("restored");
        assert_eq!(results(&database, owned.0.no, 0..3).await, [(1, "stays".to_owned())]);
    });
}

#[test]
fn what_a_store_has_lost_is_told_and_the_rest_is_backed_up() {
    with_file_segments(4, |store, config| async move {
        let (_folder, to, database) = elsewhere();
        let owned = run(&store).await;
        store.write(push(&owned, 0..2)).await.expect("pushed");
        for seq in 0..2 {
            store.write(result(&owned, seq, "pack")).await.expect("stored");
        }
        let package = upload(&store, &config, b"PK").await;
        std::fs::remove_file(beside(path_of(&config), "-results").join("1.seg")).expect("removed");
        std::fs::write(beside(path_of(&config), "-packages").join(&package), "other").expect("changed");
        let manifest = make(path_of(&config), &to).expect("a backup");
        let lost = ["test.db-results/1.seg is missing", "is damaged: its checksum is not its name"];
        assert!(lost.iter().zip(&manifest.warnings).all(|(why, warning)| warning.ends_with(why)), "{:?}", manifest.warnings);
        assert_eq!(names(&manifest), ["webloom.db", "webloom.db-results/2.seg"]);
        restore(&to, &database).expect("restored");
        let restored = Store::open(&StoreConfig::new(&database)).expect("a store");
        let found = restored.read(ReadResults { no: owned.0.no, seqs: vec![0, 1] }).await.expect("read");
        assert_eq!((found.results.len(), found.damaged), (1, vec![(0, "segment 1 is missing".to_owned())]));
        restored.close().await;
    });
}

/// What a refusal says.
fn why(refused: Result<Manifest, StoreError>) -> String {
    refused.map_or_else(|e| e.to_string(), |_| "not refused".to_owned())
}

#[test]
fn a_backup_replaces_nothing() {
    with_file(|store, config| async move {
        let (folder, to, _) = elsewhere();
        let file = folder.path().join("notes.txt");
        std::fs::write(&file, "x").expect("a file");
        assert!(why(make(path_of(&config), folder.path())).contains("the folder is not empty"));
        assert!(why(make(path_of(&config), &file)).starts_with("Cannot back up to "));
        assert!(why(make(&folder.path().join("none.db"), &to)).ends_with("none.db: no such file."));
        assert!(!to.exists(), "a store that is not there leaves no folder");
        let manifest = make_while(&config, &to, async |moment| {
            let second = why(make(path_of(&config), &to));
            assert!(second.contains("another backup is being made there"), "{second}");
            assert!(why(check(&to)).contains("it is incomplete"), "at {moment:?}");
        });
        manifest.await.expect("a backup");
        assert!(why(make(path_of(&config), &to)).contains("it holds a backup already"));
        store.close().await;
        make(path_of(&config), &folder.path().join("no broker runs")).expect("another backup");
    });
}

#[test]
fn a_damaged_backup_is_refused_and_nothing_is_restored() {
    with_file_segments(4, |store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..1)).await.expect("pushed");
        store.write(result(&owned, 0, "pack")).await.expect("stored");
        let package = upload(&store, &config, b"PK").await;
        let package = FileName::Package(package).beside("webloom.db");
        let change = |path: &Path, at: usize| {
            let mut bytes = std::fs::read(path).expect("read");
            bytes[at] ^= 1;
            std::fs::write(path, bytes).expect("written");
        };
        let cut = |path: &Path, less: u64| {
            let file = std::fs::File::options().write(true).open(path).expect("opened");
            file.set_len(path.metadata().expect("there").len() - less).expect("cut");
        };
        type Damage<'a> = Box<dyn Fn(&Path) + 'a>;
        let damages: [(Damage<'_>, &str); 9] = [
            (Box::new(|to| cut(&to.join("webloom.db-results/1.seg"), 1)), "1.seg is damaged: it has 3 bytes, and 4 are expected."),
            (Box::new(|to| change(&to.join("webloom.db-results/1.seg"), 2)), "1.seg was changed: its checksum does not match."),
            (Box::new(|to| change(&to.join("webloom.db"), 9_000)), "webloom.db was changed"),
            (Box::new(|to| cut(&to.join("webloom.db"), 8192)), "webloom.db is damaged"),
            (Box::new(|to| std::fs::remove_file(to.join(&package)).expect("removed")), " is missing."),
            (Box::new(|to| cut(&to.join("manifest.json"), 20)), "manifest.json is damaged"),
            (Box::new(|to| change(&to.join("manifest.json"), 14)), "it has the format 0"),
            (Box::new(|to| std::fs::remove_file(to.join("manifest.json")).expect("removed")), "manifest.json is missing."),
            (Box::new(|to| std::fs::remove_dir_all(to).expect("removed")), "no such folder."),
        ];
        for (damage, says) in &damages {
            let (_folder, to, database) = elsewhere();
            make(path_of(&config), &to).expect("a backup");
            check(&to).expect("whole");
            damage(&to);
            for refused in [why(check(&to)), why(restore(&to, &database))] {
                assert!(refused.contains(says), "`{says}` in {refused}");
            }
            assert!(!database.parent().expect("a folder").exists(), "nothing was made");
        }
    });
}

#[test]
fn a_restore_replaces_nothing_but_what_an_interrupted_one_left() {
    with_file_segments(4, |store, config| async move {
        let owned = run(&store).await;
        store.write(push(&owned, 0..1)).await.expect("pushed");
        store.write(result(&owned, 0, "pack")).await.expect("stored");
        let (_folder, to, database) = elsewhere();
        make(path_of(&config), &to).expect("a backup");
        assert!(why(restore(&to, path_of(&config))).contains("a broker or another restore uses it"));
        let (folder, kept) = (beside(&database, "-results"), beside(&database, "-results").join("7.seg"));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(&kept, "somebody's").expect("a file");
        let refused = why(restore(&to, &database));
        assert!(refused.contains("a restore replaces nothing, and these exist: ") && refused.contains("r.db-results"), "{refused}");
        assert_eq!(std::fs::read(&kept).expect("there"), b"somebody's");
        std::fs::write(beside(&database, ".restoring"), "left").expect("a marker");
        restore(&to, &database).expect("restored");
        assert!(!kept.exists(), "it was of the interrupted restore");
        assert_eq!(results(&database, owned.0.no, 0..1).await, [(0, "pack".to_owned())]);
        assert!(why(restore(&to, &database)).contains("a restore replaces nothing"));
    });
}

#[test]
fn older_tables_are_restored_and_newer_ones_are_refused() {
    with_file(|store, config| async move {
        store.write(by_hand(new_run(JobId::random()))).await.expect("inserted");
        store.close().await;
        let sql = |path: &Path, text: &str| {
            let mut conn = dialect::sqlite::copy(path).expect("opened");
            diesel::connection::SimpleConnection::batch_execute(&mut conn, text).expect("done");
        };
        let before = {
            let mut conn = dialect::sqlite::copy(path_of(&config)).expect("opened");
            conn.revert_last_migration(dialect::sqlite::MIGRATIONS).expect("the last change of the tables is undone");
            conn.applied_migrations().expect("read")[0].to_string()
        };
        let (folder, to, database) = elsewhere();
        let manifest = make(path_of(&config), &to).expect("a backup");
        assert_eq!((manifest.schema.as_str(), manifest.counts.runs), (before.as_str(), 1));
        restore(&to, &database).expect("restored");
        let restored = Store::open(&StoreConfig::new(&database)).expect("a broker migrates it");
        assert_eq!(restored.read(OpenRuns).await.expect("read").len(), 1);
        let brokers = restored.read(ListBrokers).await.expect("read");
        assert_eq!(brokers.len(), 1, "those of the original are not here: {brokers:?}");
        restored.close().await;

        // A later version has added to the tables. The other database also lacks a migration, so this version cannot use it.
        let later = "INSERT INTO __diesel_schema_migrations (version) VALUES ('20990101000000')";
        sql(&database, later);
        make(&database, &folder.path().join("extended")).expect("a backup");
        sql(path_of(&config), later);
        let newer = "a later version of webloom has changed its tables";
        assert!(why(make(path_of(&config), &folder.path().join("newer"))).contains(newer));
        // A backup that a later version made in this format.
        let mut manifest = manifest;
        std::fs::copy(path_of(&config), to.join("webloom.db")).expect("copied");
        let bytes = std::fs::read(to.join("webloom.db")).expect("read");
        manifest.files[0].bytes = bytes.len() as u64;
        manifest.files[0].sha256 = crate::domain::backup::hex(&<sha2::Sha256 as sha2::Digest>::digest(&bytes));
        std::fs::write(to.join("manifest.json"), manifest.seal()).expect("written");
        assert!(why(restore(&to, &folder.path().join("n.db"))).contains(newer));
    });
}
