//! How the commands show things: short ids, tables that fit, formats, times, one screen of status.

use crate::support::api::Api;
use crate::support::process::{Broker, WEBLOOM};
use crate::support::receiver::{Receiver, Reply};
use crate::support::shell::{command, ended, webloom};
use crate::support::site::Site;
use crate::support::{journey, until};
use serde_json::json;
use std::process::Stdio;

#[test]
fn a_thing_goes_by_its_name_its_number_or_a_part_of_its_id() {
    journey(async {
        let broker = Broker::start(&[], "");
        let (api, run) = (Api::new(&broker.url), |args: &[&str]| webloom(&broker.url, args));
        let (one, other) = ("0123456789abcdef0123456789ab0001", "0123456789abcdef0123456789ab0002");
        for (id, name) in [(one, "first"), (other, "second")] {
            let job = json!({ "id": id, "name": name, "jobType": "block", "properties": { "FullClassName": "a.B" } });
            assert_eq!(api.post("/api/v1/jobs", &job).await.0, 201);
        }
        for text in ["first", one, "0001", "ab0001", "0123456789abcdef0123456789ab0001", "01234567-89ab-cdef-0123-456789ab0001"] {
            assert_eq!(run(&["job", "show", text, "-o", "name"]).ok(), "first\n", "{text}");
        }
        let refused = run(&["job", "show", "0123"]);
        refused.refused(1, "`0123` may be any of 2 jobs: give more digits of its id");
        assert!(refused.err.contains(&format!("{one}  first")) && refused.err.contains(&format!("{other}  second")), "{refused:?}");
        run(&["job", "show", "000"]).refused(1, "there is no job `000`");
        run(&["job", "delete", "0002"]).ok();
        run(&["job", "restore", "0002"]).ok();

        api.worker("a.B").await;
        let identity = run(&["job", "trigger", "0001", "-o", "name"]).ok().trim().to_owned();
        let table = run(&["run", "list"]).ok();
        let short = table.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("an id").to_owned();
        assert!(short.len() == 8 && identity.ends_with(&short), "{table}");
        for text in [&short, &identity[..12], &identity] {
            assert_eq!(run(&["run", "show", text, "-o", "name"]).ok().trim(), identity, "{text}");
        }
        assert!(run(&["run", "stop", &short]).ok().contains("stopped"));
        let node = "6f9619ff8b86d011b42d00c04fc964ff";
        api.beat(node, &json!({})).await;
        run(&["node", "disable", "6f9619ff"]).ok();
        run(&["node", "enable", "c964ff"]).ok();
        run(&["group", "create", "reports"]).ok();
        let id = run(&["group", "show", "reports", "--json"]).json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(run(&["group", "show", &id[24..], "-o", "name"]).ok(), "reports\n");
        run(&["alert", "create", "--name", "ops", "--webhook", "http://127.0.0.1:9/"]).ok();
        let id = run(&["alert", "show", "ops", "--json"]).json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(run(&["alert", "show", &id[24..], "-o", "name"]).ok(), "ops\n");
    });
}

#[test]
fn tables_fit_and_say_all_if_asked() {
    journey(async {
        let broker = Broker::start(&[], "");
        let run = |args: &[&str]| webloom(&broker.url, args);
        let (name, group) = ("n".repeat(50), "g".repeat(50));
        let cron = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27 0-6/2 29 2 *";
        run(&["job", "create", "--name", &name, "--class", &"a.B".repeat(20), "--cron", cron, "--group", &group]).ok();
        run(&["job", "trigger", &name]).ok();
        let table = run(&["job", "list"]).ok();
        assert!(table.lines().count() > 1 && table.lines().all(|line| line.chars().count() <= 100), "{table}");
        let made = run(&["run", "list", "--json"]).json()["items"][0]["creationTime"].as_str().expect("a time").to_owned();
        let wide = run(&["job", "list", "-o", "wide"]).ok();
        assert!([&name, &group, cron].iter().all(|text| wide.contains(*text)), "{wide}");

        let next = run(&["job", "show", &name, "--json"]).json()["nextFire"].as_str().expect("a time").to_owned();
        let relative = run(&["job", "list"]).ok();
        assert!(relative.contains("  in ") && !relative.contains(&next[..10]), "times are shown relative to now: {relative}");
        let exact = run(&["job", "list", "--utc"]).ok();
        assert!(exact.contains(&next.replace(".000Z", "Z")), "{next} in {exact}");
        assert!(exact.contains(&made.replace(".000Z", "Z")), "LAST shows a run by hand, made at {made}: {exact}");
        assert_eq!(run(&["job", "list", "--no-headers"]).ok().lines().count(), 1);
        assert_eq!(run(&["job", "list", "-o", "name"]).ok(), format!("{name}\n"));
        assert!(run(&["job", "list", "-o", "yaml"]).ok().contains(&format!("name: {name}")));
        assert_eq!(run(&["job", "list", "-o", "json"]).json(), run(&["job", "list", "--json", "--utc"]).json());
    });
}

#[test]
fn a_trigger_is_watched_with_its_log_and_its_result() {
    journey(async {
        let (broker, receiver) =
            (Broker::start(&["--callback-allow", "127.0.0.1"], ""), Receiver::start([Reply::json(&json!({ "sum": 6 }))]));
        let run = |args: &[&str]| webloom(&broker.url, args);
        run(&["job", "create", "--name", "call", "--url", &receiver.url]).ok();
        // The receiver answers in this thread.
        let url = broker.url.clone();
        let watched = tokio::task::spawn_blocking(move || webloom(&url, &["job", "trigger", "call", "--watch"]).ok());
        let watched = watched.await.expect("it ends");
        assert!(
            watched
                .lines()
                .last()
                .is_some_and(|line| line.contains(" success ") && line.contains("sum") && line.contains("\"status\":200")),
            "{watched}"
        );

        let api = Api::new(&broker.url);
        api.job("logged", "a.B", &json!({})).await;
        api.worker("a.B").await;
        let watch = command(&broker.url, &["job", "trigger", "logged", "--watch"]).stdout(Stdio::piped()).spawn().expect("it starts");
        let identity = until("the run", || async {
            let (_, page) = api.get("/api/v1/runs?kind=block").await;
            page["items"][0]["identity"].as_str().map(str::to_owned)
        })
        .await;
        let path = format!("/api/v1/runs/{identity}");
        until("the start", || async { (api.state(&identity).await["state"] != "pending").then_some(()) }).await;
        assert_eq!(api.post(&format!("{path}/logs"), &json!([{ "text": "hello from the run", "level": "info" }])).await.0, 200);
        assert_eq!(api.post(&format!("{path}/start-returned"), &json!({})).await.0, 204);
        let output = watch.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("hello from the run"), "{text}");
        let why = run(&["run", "why", &identity]).ok();
        assert!(!why.lines().last().is_some_and(|line| line.starts_with("run ")), "{why}");
    });
}

#[test]
fn status_is_one_screen() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = [
            "--token",
            "admin:the-admin-token",
            "--token",
            "readonly:the-reader-token",
            "--node-offline",
            "1500",
            "--node-heartbeat",
            "500",
        ];
        let leader = Broker::start_in(folder.path(), "127.0.0.1:0", &flags, "");
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", &flags, "");
        let status = |broker: &str, more: &[&str]| {
            let mut command = command(broker, &[&["status"], more].concat());
            command.env("WEBLOOM_TOKEN", "readonly:the-reader-token");
            ended(command)
        };
        let well = status(&leader.url, &[]).ok();
        for part in [&format!("{} leads", leader.url), "stands by", "0 online, 0 in all", "0 in the last 24 h", "nothing needs attention"] {
            assert!(well.contains(part), "{part} in {well}");
        }
        let there = status(&standby.url, &["-o", "json"]);
        assert_eq!((there.code, &there.json()["healthy"], &there.json()["leads"]), (Some(0), &json!(true), &json!(false)), "{there:?}");
        let api = Api::new(&leader.url).with_token("the-admin-token");
        let node = "6f9619ff8b86d011b42d00c04fc964ff";
        api.beat(node, &json!({})).await;
        let lost = until("a lost node", || async { Some(status(&leader.url, &[])).filter(|status| status.code == Some(3)) }).await;
        assert!(lost.out.contains("needs attention:") && lost.out.contains(&format!("node {node}")), "{lost:?}");
        assert!(lost.out.lines().all(|line| line.chars().count() <= 100), "{lost:?}");
        status("http://127.0.0.1:1", &[]).refused(1, "no broker answers");
    });
}

#[test]
fn a_crawl_whose_reader_has_gone_ends_silently() {
    journey(async {
        let (site, folder) = (Site::serve(20), tempfile::tempdir().expect("a folder"));
        let mut crawl = tokio::process::Command::new(WEBLOOM);
        crawl.args(["crawl", &site.url]).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = crawl.spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().await.expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(141) && !text.contains("Broken pipe"), "{:?}: {text}", output.status);
        site.stop().await;
    });
}

#[test]
fn the_program_says_what_it_is() {
    let nowhere = "http://127.0.0.1:1";
    let text = webloom(nowhere, &["--version"]).ok();
    assert!(text.starts_with(&format!("webloom {} (", env!("CARGO_PKG_VERSION"))) && text.contains("SQLite 3."), "{text}");
    assert!(text.contains(std::env::consts::ARCH) && text.contains(std::env::consts::OS), "{text}");
    assert_eq!((webloom(nowhere, &["-V"]).ok(), webloom(nowhere, &["version"]).ok()), (text.clone(), text));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = webloom(nowhere, &["completions", shell]).ok();
        assert!(script.contains("webloom") && script.contains("redrive") && script.contains("no-headers"), "{shell}");
    }
    webloom(nowhere, &["completions", "cmd"]).refused(2, "[possible values: bash, elvish, fish, powershell, zsh]");
    let mut child = command(nowhere, &["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0), "a broken pipe is silent");
}
