//! `webloom migrate`: what is pending in a store of an older version is listed and applied, but not while a broker leads it.

use crate::support::api::Api;
use crate::support::postgres::Cluster;
use crate::support::process::Broker;
use crate::support::shell::{Ended, webloom};
use crate::support::{journey, until};
use std::path::Path;
use std::process::Command;

/// The newest migration of a kind of database, and what takes it back.
fn newest(kind: &str) -> (String, String) {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(kind);
    let names = std::fs::read_dir(&all).expect("a folder").map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let name = names.max().expect("a migration");
    let undo = std::fs::read_to_string(all.join(&name).join("down.sql")).expect("what takes it back");
    let version = name.split_once('_').expect("a version and a name").0.replace('-', "");
    let forget = format!("{undo}; DELETE FROM __diesel_schema_migrations WHERE version = '{version}';");
    (name, forget)
}

fn migrate(database: &str, more: &[&str]) -> Ended {
    webloom("", &[&["migrate", "--database", database], more].concat())
}

fn edit(file: &Path, sql: &str) {
    let script = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1], timeout=20) as store:\n    store.executescript(sys.argv[2])";
    let status = Command::new("python3").args(["-c", script]).arg(file).arg(sql).status().expect("python3 runs");
    assert!(status.success(), "{sql}");
}

async fn journey_of(database: &str, home: &Path, (last, undo): (String, String), edit: impl Fn(&str)) {
    std::fs::write(home.join("b.url"), database).expect("written");
    let applied = migrate(database, &[]).ok();
    assert!(applied.starts_with("applied 2026-11-2") && applied.trim_end().ends_with(&format!("applied {last}")), "{applied}");
    for more in [&[][..], &["--check"]] {
        assert_eq!(migrate(database, more).ok(), format!("nothing is pending in {database}\n"));
    }
    // A broker leads it at once, and nothing is pending while it does.
    let mut broker = Broker::start_in(home, "127.0.0.1:0", &[], "");
    let api = Api::new(&broker.url);
    assert_eq!(api.get("/readyz").await.0, 200);
    api.job("j", "a.B", &serde_json::json!({})).await;
    for more in [&[][..], &["--check"]] {
        assert_eq!(migrate(database, more).ok(), format!("nothing is pending in {database}\n"));
    }
    // The store of an older version, whose broker leads it.
    edit(&undo);
    for _ in 0..2 {
        let checked = migrate(database, &["--check"]);
        assert_eq!((checked.code, checked.out, checked.err), (Some(1), format!("pending {last}\n"), String::new()));
    }
    migrate(database, &[]).refused(1, &format!("the broker at {} (process ", broker.url));
    assert_eq!(api.get("/readyz").await.0, 200, "it leads as before");
    assert_eq!(migrate(database, &["--check"]).code, Some(1));
    broker.process.kill();
    assert_eq!(migrate(database, &[]).ok(), format!("applied {last}\n"));
    assert_eq!(migrate(database, &["--check"]).code, Some(0));
    // The lease is free: a broker leads at once, under a later term.
    broker.restart("");
    until("it leads", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
    let (_, brokers) = api.get("/api/v1/brokers").await;
    let leader = brokers.as_array().expect("a list").iter().find(|broker| broker["role"] == "leader").expect("a leader");
    assert_eq!(leader["term"], 4, "migrate, broker, migrate, broker: {brokers}");
    assert_eq!(api.get("/api/v1/series").await.0, 200);
    // The next version adds to the tables while this one leads: this one goes on, stands by and takes over.
    edit("ALTER TABLE job ADD COLUMN later BIGINT; CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY);");
    edit("INSERT INTO __diesel_schema_migrations (version) VALUES ('29991231000000')");
    api.job("k", "a.B", &serde_json::json!({})).await;
    let second = Broker::start_in(home, "127.0.0.1:0", &[], "");
    let other = Api::new(&second.url);
    until("it stands by and reads", || async { (other.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
    broker.process.kill();
    until("the other leads", || async { (other.get("/readyz").await.0 == 200).then_some(()) }).await;
    other.job("l", "a.B", &serde_json::json!({})).await;
    assert_eq!(other.get("/api/v1/jobs").await.1["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(migrate(database, &["--check"]).code, Some(0));
    drop((broker, second));
    let target = home.join("copy.db");
    let copy = webloom("", &["store", "copy", "--from", database, "--to", target.to_str().expect("a path")]);
    copy.refused(1, "a later version of webloom has added to its tables");
    // A later version has taken something away.
    edit("UPDATE meta SET value = '29991231000000' WHERE key = 'compatible_since'");
    for more in [&[][..], &["--check"]] {
        migrate(database, more).refused(1, "a later version of webloom has changed its tables");
    }
}

#[test]
fn a_file_is_migrated_unless_a_broker_leads_it() {
    journey(async {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("new").join("w.db");
        let name = file.to_str().expect("a path");
        migrate(name, &["--check"]).refused(1, "no such file");
        assert!(!file.exists(), "a check changes nothing");
        journey_of(name, home.path(), newest("sqlite"), |sql| edit(&file, sql)).await;
    });
}

#[test]
fn a_database_of_a_server_is_migrated_unless_a_broker_leads_it() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let (home, url) = (tempfile::tempdir().expect("a folder"), cluster.url("webloom", ""));
        let checked = migrate(&url, &["--check"]);
        assert!(checked.code == Some(1) && checked.out.contains(&format!("pending {}", newest("postgres").0)), "{checked:?}");
        let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
        assert_eq!(cluster.sql("webloom", tables), "0", "a check changes nothing");
        journey_of(&url, home.path(), newest("postgres"), |sql| drop(cluster.sql("webloom", sql))).await;
    });
}
