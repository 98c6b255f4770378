//! A broker with its store in PostgreSQL: the server ends and comes back, TLS, and what is refused. Other journeys run on PostgreSQL too, if
//! `WEBLOOM_TEST_POSTGRES` names a server.

use crate::support::api::{Api, requests};
use crate::support::certificates::Certificates;
use crate::support::postgres::Cluster;
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::shell::webloom;
use crate::support::{journey, until};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// A broker whose database is this.
pub(crate) fn broker(folder: &Path, url: &str, args: &[&str]) -> Broker {
    std::fs::write(folder.join("b.url"), url).expect("written");
    Broker::start_in(folder, "127.0.0.1:0", args, "")
}

pub(crate) fn verify(url: &str) {
    let proof = Command::new(WEBLOOM).args(["verify-history", "--database", url]).output().expect("it runs");
    assert!(proof.status.success(), "{}{}", String::from_utf8_lossy(&proof.stdout), String::from_utf8_lossy(&proof.stderr));
}

#[test]
fn a_server_that_ends_and_comes_back_loses_nothing() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let (folder, url) = (tempfile::tempdir().expect("a folder"), cluster.url("webloom", ""));
        let mut broker = broker(folder.path(), &url, &["--lease-ms", "1500"]);
        let api = Api::new(&broker.url);
        let often = json!({ "name": "often", "jobType": "block", "properties": { "FullClassName": "it.None" },
            "schedule": { "triggers": [{ "every": 500 }] }, "policies": { "overlap": "allow" } });
        assert_eq!(api.post("/api/v1/jobs", &often).await.0, 201);
        let (run, _) = api.run("it.Pg", &json!({ "BlockSize": "10" })).await;
        let mut pushed = 0;
        for mode in ["fast", "immediate", "fast"] {
            // Pushes go on meanwhile: each until it is accepted.
            let mut refused = 0;
            let mut is_away = false;
            for step in 0..60 {
                if step == 20 {
                    cluster.stop(mode);
                    is_away = true;
                }
                let page = requests([pushed]);
                let (status, answer) = api.post(&format!("/requestqueue/{run}"), &page).await;
                match status {
                    200 => pushed += 1,
                    503 => {
                        assert!(is_away, "{answer}");
                        refused += 1;
                        if refused == 5 {
                            let (status, ready) = api.get("/readyz").await;
                            assert_eq!((status, ready["type"].as_str()), (503, Some("/problems/busy")), "{ready}");
                            cluster.begin();
                        }
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                    other => panic!("{other}: {answer}"),
                }
            }
            assert!(refused >= 5, "it was away");
            assert!(broker.process.0.try_wait().expect("asked").is_none(), "it goes on");
            until("the broker works again", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
        }
        // Each page that was accepted is there once: the broker knows them all.
        let again = requests(0..pushed);
        let (status, answer) = api.post(&format!("/requestqueue/{run}"), &again).await;
        assert_eq!((status, &answer["accepted"]), (200, &json!(0)), "{answer}");
        let (status, answer) = api.post(&format!("/requestqueue/{run}"), &requests([pushed])).await;
        assert_eq!((status, &answer["accepted"]), (200, &json!(1)), "{answer}");
        drop(broker);
        verify(&url);
    });
}

#[test]
fn a_standby_takes_over_although_the_server_has_restarted() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let url = cluster.url("webloom", "");
        let homes = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let mut leader = broker(homes[0].path(), &url, &["--lease-ms", "1500"]);
        let standby = broker(homes[1].path(), &url, &["--lease-ms", "1500"]);
        let (first, second) = (Api::new(&leader.url), Api::new(&standby.url));
        assert_eq!(first.get("/readyz").await.0, 200);
        cluster.stop("immediate");
        until("the server to be missed", || async { (first.get("/readyz").await.0 == 503).then_some(()) }).await;
        cluster.begin();
        // The leader goes on: that its lock was free for a moment is no evidence.
        until("the leader", || async { (first.get("/readyz").await.0 == 200).then_some(()) }).await;
        assert!(leader.process.0.try_wait().expect("asked").is_none());
        assert_eq!(second.get("/readyz").await.0, 503);
        leader.process.kill();
        until("the standby", || async { (second.get("/readyz").await.0 == 200).then_some(()) }).await;
    });
}

#[test]
fn a_connection_is_protected_as_it_was_asked_for() {
    journey(async {
        let (files, others) = (Certificates::new(), Certificates::new());
        let cluster = Cluster::start(&[]);
        for (name, from) in [("own.pem", files.certificate()), ("key.pem", files.key())] {
            cluster.put(&cluster.data().join(name), &std::fs::read_to_string(from).expect("read"));
        }
        cluster.sql("postgres", "CREATE ROLE careful LOGIN PASSWORD 'sesame-open'; GRANT ALL ON DATABASE webloom TO careful");
        cluster.sql("webloom", "GRANT ALL ON SCHEMA public TO careful");
        let rules = "hostssl all careful 127.0.0.1/32 scram-sha-256\nhost all webloom 127.0.0.1/32 trust\n";
        cluster.put(&cluster.data().join("pg_hba.conf"), rules);
        for setting in ["ssl_cert_file = 'own.pem'", "ssl_key_file = 'key.pem'", "ssl = on"] {
            cluster.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
        }
        cluster.sql("postgres", "SELECT pg_reload_conf()");
        let at = |login: &str, query: &str| cluster.url(login, query);
        let start = |url: &str| webloom("", &["broker", "--listen", "127.0.0.1:0", "--database", url]);
        until("the server takes TLS", || async { (cluster.sql("postgres", "SHOW ssl") == "on").then_some(()) }).await;
        let own = format!("?sslmode=verify-full&sslrootcert={}", files.authority());
        let folder = tempfile::tempdir().expect("a folder");
        let running = broker(folder.path(), &at("careful:sesame-open", &own), &[]);
        assert_eq!(Api::new(&running.url).get("/readyz").await.0, 200);
        let protected = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'careful'";
        assert_eq!(cluster.sql("postgres", protected), "t");
        drop(running);

        let other = format!("?sslmode=verify-full&sslrootcert={}", others.authority());
        for (url, why) in [
            (at("careful:sesame-open", &other), "invalid peer certificate"),
            (at("careful:sesame-open", "?sslmode=verify-full"), "invalid peer certificate"),
            (at("careful:sesame-open", "?sslmode=disable"), "no pg_hba.conf entry"),
            (at("careful:wrong-password", &own), "password authentication failed"),
            (at("careful:sesame-open", "?sslmode=sometimes"), "sslmode must be"),
        ] {
            let ended = start(&url);
            assert!(ended.code == Some(1) && ended.err.contains(why), "{why}: {}", ended.err);
            assert!(!ended.err.contains("sesame-open") && !ended.err.contains("wrong-password"), "{}", ended.err);
        }
        let running = broker(folder.path(), &at("careful:sesame-open", "?sslmode=require"), &[]);
        assert_eq!(Api::new(&running.url).get("/readyz").await.0, 200);
    });
}

#[test]
fn results_and_packages_are_in_the_database_and_survive_the_machine() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let url = cluster.url("webloom", "");
        let homes = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let first = broker(homes[0].path(), &url, &[]);
        let api = Api::new(&first.url);
        let (run, worker) = api.run("it.Away", &json!({ "BlockSize": "2" })).await;
        api.heard(&worker, "start").await.expect("it begins");
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..4)).await.0, 200);
        let node = crate::support::api::id();
        for _ in 0..2 {
            let block = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
        let segments =
            cluster.sql("webloom", "SELECT string_agg(table_name, ' ') FROM information_schema.tables WHERE table_name ~ '^result_'");
        assert_eq!(cluster.sql("webloom", &format!("SELECT count(*) FROM {segments}")), "2");
        let package = crate::support::tar_gz("hello", &vec![7; 3 << 20], flate2::Compression::none());
        let sent = api.request(reqwest::Method::POST, "/api/v1/packages").body(package.clone());
        let (status, stored) = api.send(sent).await;
        assert_eq!(status, 200, "{stored}");
        // Its machine is lost with all its files; another broker takes over with nothing but the database.
        drop(first);
        let second = broker(homes[1].path(), &url, &[]);
        let api = Api::new(&second.url);
        let page = api.request(reqwest::Method::GET, stored["url"].as_str().expect("a URL")).send().await.expect("an answer");
        assert_eq!(page.bytes().await.expect("its bytes"), package);
        let got = until("the results", || async {
            let (status, blocks) = api.get(&format!("/requestqueue/{run}?wait=5")).await;
            (status == 200).then_some(blocks)
        })
        .await;
        assert_eq!((&got["results"][0]["status"], &got["results"][1]["status"]), (&json!(200), &json!(200)), "{got}");
        assert_ne!(got["results"][0]["content"], "", "{got}");
        let _agent = agent(&second.url, homes[0].path(), &[]);
        until("the agent", || async {
            let (_, nodes) = api.get("/api/v1/nodes").await;
            nodes["items"].as_array().is_some_and(|nodes| nodes.iter().any(|node| node["isOnline"] == true)).then_some(())
        })
        .await;
    });
}
