//! Programs on nodes, from the broker's side: the nodes are sockets that say what the page about the wire lets them say.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::socket::Socket;
use crate::support::{journey, tar_gz, until};
use serde_json::{Value, json};

/// A node that has programs only in words.
struct Fake {
    id: String,
    socket: Socket,
    api: Api,
    query: String,
    /// What its heartbeats list.
    programs: Vec<Value>,
}

impl Fake {
    async fn connect(api: &Api, more: &str) -> Self {
        let id = id();
        let query = format!("/?nodeid={id}&operationsystem=linux&proccessorcount=4&memory=8000&nodetype=Console&sign=5df3fc02{more}");
        let socket = Socket::open(&api.url, &query, None).await;
        let mut node = Self { id, socket, api: api.clone(), query, programs: Vec::new() };
        node.welcome().await;
        node
    }

    async fn welcome(&mut self) {
        self.socket.first("welcome").await;
        self.beat();
        let (api, id) = (&self.api, &self.id);
        let is_there = || async { Some(api.get(&format!("/api/v1/nodes/{id}")).await.1).filter(|node| node["load"].is_object()) };
        until("the node to be there", is_there).await;
    }

    async fn reconnect(&mut self) {
        self.socket = Socket::open(&self.api.url, &self.query, None).await;
        self.welcome().await;
    }

    fn beat(&self) {
        let v = json!({ "processCount": self.programs.len(), "cpu": 7, "freeMemory": 2_000, "holding": [], "programs": self.programs });
        self.socket.say("heartbeat", &v);
    }

    /// The next order to start, which it lists from now on.
    async fn start(&mut self) -> Value {
        let order = self.socket.find("start").await;
        if !self.programs.contains(&order["program"]) {
            self.programs.push(order["program"].clone());
        }
        order
    }

    fn say(&self, program: &Value, state: &str, more: &Value) {
        let mut report = json!({ "program": program, "state": state, "at": "2026-01-01T00:00:00Z" });
        for (key, value) in more.as_object().expect("an object") {
            report[key] = value.clone();
        }
        self.socket.say("programs", &json!([report]));
    }

    /// Its program ended with this code; it may forget it when that is stored.
    async fn exited(&mut self, program: &Value, code: i32) {
        self.say(program, "exited", &json!({ "exit": { "code": code, "wallMs": 5, "lines": 0 } }));
        self.settled(program).await;
    }

    async fn settled(&mut self, program: &Value) {
        loop {
            let settled = self.socket.find("programsSettled").await;
            if settled.as_array().is_some_and(|all| all.contains(program)) {
                self.programs.retain(|own| own != program);
                return;
            }
        }
    }
}

async fn job(api: &Api, name: &str, properties: &Value, policies: &Value) -> String {
    let mut all = json!({ "Application": "bin/x" });
    for (key, value) in properties.as_object().expect("an object") {
        all[key] = value.clone();
    }
    let (status, job) =
        api.post("/api/v1/jobs", &json!({ "name": name, "jobType": "application", "properties": all, "policies": policies })).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

async fn over(api: &Api, run: &str) -> Value {
    until("the run's end", || async { Some(api.state(run).await).filter(|run| !run["finishTime"].is_null()) }).await
}

async fn in_state(api: &Api, run: &str, state: &str) -> Value {
    until(state, || async { Some(api.state(run).await).filter(|run| run["state"] == state) }).await
}

async fn instances(api: &Api, run: &str) -> Vec<Value> {
    let (status, page) = api.get(&format!("/api/v1/runs/{run}/instances")).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("items").clone()
}

#[test]
fn a_program_runs_on_the_nodes_that_there_are() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (mut one, mut two) = (Fake::connect(&api, "&group=Vps").await, Fake::connect(&api, "&group=vps").await);
        let _other = Fake::connect(&api, "&group=other").await;
        let properties = json!({ "NODE_COUNT": "3", "NodeGroup": "VPS", "Os": "Linux", "Pacakge": "https://x.test/a.zip", "Grace": "1000",
            "Arguments": "-n {nodeIndex}/{nodeCount} 'two words' {runId} {arguments}", "Environment": "{\"A\":\"1\"}", "MemoryLimit": "100000000" });
        let job = job(&api, "three", &properties, &json!({})).await;
        let (status, run) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({ "arguments": "x $y" })).await;
        assert_eq!(status, 202, "{run}");
        let run = run["identity"].as_str().expect("an identity").to_owned();
        let (first, second) = (one.start().await, two.start().await);
        let mut indexes = [&first, &second].map(|order| order["program"]["instance"].as_u64().expect("a number"));
        for order in [&first, &second] {
            let index = &order["program"]["instance"];
            assert_eq!(order["arguments"], json!(["-n", format!("{index}/2"), "two words", run, "x $y"]));
            assert_eq!((&order["application"], &order["package"]["url"]), (&json!("bin/x"), &json!("https://x.test/a.zip")));
            assert_eq!((&order["instances"], &order["grace"], &order["environment"]["A"]), (&json!(2), &json!(1000), &json!("1")));
            assert_eq!((&order["limits"]["memory"], &order["program"]["attempt"]), (&json!(100_000_000), &json!(1)));
        }
        indexes.sort_unstable();
        assert_eq!(indexes, [0, 1]);
        assert_eq!(in_state(&api, &run, "scheduled").await["reason"], "on 2 of 3 nodes: 1 of another group");
        one.say(&first["program"], "accepted", &json!({}));
        one.say(&first["program"], "running", &json!({ "pid": 7 }));
        in_state(&api, &run, "running").await;
        assert_eq!(api.get(&format!("/api/v1/nodes/{}", one.id)).await.1["programs"], 1);
        // Lines: what was taken is not taken again, and what is between them is not left out.
        let program = &first["program"];
        one.socket.say(
            "output",
            &json!({ "program": program, "first": 0, "lines": [{ "text": "a", "source": "stdout" }, { "text": "b", "source": "stderr" }] }),
        );
        assert_eq!(one.socket.find("outputTaken").await, json!({ "program": program, "next": 2 }));
        one.socket.say("output", &json!({ "program": program, "first": 1, "lines": [{ "text": "b" }, { "text": "c" }] }));
        assert_eq!(one.socket.find("outputTaken").await["next"], 3);
        one.socket.say("output", &json!({ "program": program, "first": 5, "lines": [{ "text": "f" }] }));
        assert_eq!(one.socket.find("outputTaken").await["next"], 3, "there is a gap");
        one.exited(&first["program"], 0).await;
        two.exited(&second["program"], 0).await;
        let end = over(&api, &run).await;
        assert_eq!((&end["state"], &end["reason"]), (&json!("success"), &json!("on 2 of 3 nodes: 1 of another group")), "{end}");
        assert_eq!((&end["result"]["success"], &end["result"]["partial"]), (&json!(2), &end["reason"]));
        let rows = instances(&api, &run).await;
        let row = rows.iter().find(|row| row["instance"] == program["instance"]).expect("a row");
        assert_eq!(
            (&row["peer"], &row["state"], &row["result"]["code"], &row["lines"]),
            (&json!(one.id), &json!("success"), &json!(0), &json!(3))
        );
        let (_, log) = api.get(&format!("/api/v1/runs/{run}/logs")).await;
        let index = program["instance"].as_u64().expect("a number");
        let said: Vec<_> = log["items"].as_array().expect("lines").iter().filter(|line| line["source"] != "broker").cloned().collect();
        let said: Vec<_> = said.iter().map(|line| (line["source"].as_str().unwrap_or(""), line["text"].as_str().unwrap_or(""))).collect();
        let (out, err) = (format!("{index}:stdout"), format!("{index}:stderr"));
        assert_eq!(said, [(out.as_str(), "a"), (err.as_str(), "b"), (out.as_str(), "c")]);
        assert_eq!(api.get(&format!("/api/v1/nodes/{}", one.id)).await.1["programs"], 0, "its place is free");
    });
}

#[test]
fn a_job_without_sense_is_refused() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        for (properties, field) in [
            (json!({}), "properties.Application"),
            (json!({ "Application": "x", "Package": "ftp://x/y" }), "properties.Package"),
            (json!({ "Application": "x", "Pacakge": "nothing" }), "properties.Pacakge"),
            (json!({ "Application": "x", "NODE_COUNT": "0" }), "properties.NODE_COUNT"),
            (json!({ "Application": "x", "Arguments": "'a" }), "properties.Arguments"),
        ] {
            let (status, problem) = api.post("/api/v1/jobs", &json!({ "name": "bad", "jobType": 1, "properties": properties })).await;
            assert_eq!((status, problem["field"].as_str()), (422, Some(field)), "{problem}");
        }
        assert_eq!(api.get("/api/v1/jobs").await.1["items"], json!([]));
        let job = job(&api, "good", &json!({}), &json!({})).await;
        // By the long way and, once the job is known, by the short one.
        for _ in 0..2 {
            let (status, problem) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({ "arguments": "\"a" })).await;
            assert_eq!((status, &problem["field"]), (422, &json!("arguments")));
        }
    });
}

#[test]
fn without_a_node_a_run_fails_for_all_to_see_and_is_tried_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut node = Fake::connect(&api, "&group=a").await;
        let alone = job(&api, "alone", &json!({ "NodeGroup": "b" }), &json!({})).await;
        let end = over(&api, &api.trigger(&alone).await).await;
        assert_eq!((&end["state"], &end["reason"]), (&json!("failed"), &json!("no node for the program: 1 of another group")));
        // Disabled nodes get nothing; enabled again, the next attempt finds it.
        assert_eq!(api.post(&format!("/api/v1/nodes/{}/disable", node.id), &json!({ "reason": "moving" })).await.1["reason"], "moving");
        let again = job(&api, "again", &json!({}), &json!({ "retry": { "limit": 3, "delay": 300, "jitter": 0.0 } })).await;
        let run = api.trigger(&again).await;
        let waits = until("the second attempt", || async { Some(api.state(&run).await).filter(|run| run["attempt"] == 2) }).await;
        assert_eq!(waits["reason"], "attempt 1 failed: no node for the program: 1 disabled or drained");
        assert_eq!(api.post(&format!("/api/v1/nodes/{}/enable", node.id), &json!({})).await.0, 200);
        let order = node.start().await;
        assert!(order["program"]["attempt"].as_u64() >= Some(2), "{order}");
        node.exited(&order["program"], 0).await;
        assert_eq!(over(&api, &run).await["state"], "success");
    });
}

#[test]
fn a_run_is_the_sum_of_its_instances() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut nodes = [Fake::connect(&api, "").await, Fake::connect(&api, "").await, Fake::connect(&api, "").await];
        let job = job(&api, "sum", &json!({ "Choice": "all" }), &json!({})).await;
        let run = api.trigger(&job).await;
        for (nth, node) in nodes.iter_mut().enumerate() {
            let program = node.start().await["program"].clone();
            match nth {
                0 => node.exited(&program, 0).await,
                1 => node.exited(&program, 3).await,
                _ => {
                    node.say(&program, "refused", &json!({ "error": { "kind": "package-not-found", "message": "404" } }));
                    node.settled(&program).await;
                }
            }
        }
        let end = over(&api, &run).await;
        assert_eq!(end["state"], "failed");
        assert!(end["reason"].as_str().is_some_and(|why| why.starts_with("2 of 3 instances failed; instance ")), "{end}");
        let mut reasons: Vec<_> =
            instances(&api, &run).await.iter().map(|row| row["reason"].as_str().unwrap_or("none").to_owned()).collect();
        reasons.sort();
        assert_eq!(reasons, ["exit code 3", "none", "package-not-found: 404"]);
    });
}

#[test]
fn an_order_that_is_lost_is_told_again_and_a_report_counts_once() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut node = Fake::connect(&api, "").await;
        let job = job(&api, "lost", &json!({}), &json!({})).await;
        let run = api.trigger(&job).await;
        // The wire loses the first order: the node knows nothing of it.
        let lost = node.socket.find("start").await;
        let order = node.start().await;
        assert_eq!(order, lost, "the same attempt");
        for _ in 0..2 {
            node.say(&order["program"], "accepted", &json!({}));
            node.say(&order["program"], "running", &json!({}));
        }
        in_state(&api, &run, "running").await;
        // The order to end it is lost too, and told again.
        let (status, stopping) = api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await;
        assert_eq!((status, &stopping["state"]), (200, &json!("running")), "it takes its time of grace");
        let exit = node.socket.find("exit").await;
        assert_eq!((&exit["program"], &exit["grace"]), (&order["program"], &json!(30_000)));
        assert_eq!(node.socket.find("exit").await, exit);
        assert_eq!(instances(&api, &run).await[0]["exitReason"], "stopped by hand");
        let ended = json!({ "exit": { "signal": 15, "endedBy": "exit", "wallMs": 5, "lines": 0 } });
        node.say(&order["program"], "exited", &ended);
        node.settled(&order["program"]).await;
        let end = over(&api, &run).await;
        assert_eq!((&end["state"], &end["reason"]), (&json!("stopped"), &json!("stopped by hand")));
        // Late, and again: it is settled, and changes nothing.
        node.say(&order["program"], "exited", &json!({ "exit": { "code": 0, "wallMs": 5, "lines": 0 } }));
        node.settled(&order["program"]).await;
        assert_eq!(api.state(&run).await, end);
        let row = &instances(&api, &run).await[0];
        assert_eq!((&row["state"], &row["result"]["signal"]), (&json!("stopped"), &json!(15)));
        // One that still runs of a run that is over is to end; what it writes is nobody's.
        node.say(&order["program"], "running", &json!({}));
        assert_eq!(node.socket.find("exit").await["reason"], "its run has ended");
        node.socket.say("output", &json!({ "program": order["program"], "first": 7, "lines": [{ "text": "x" }] }));
        assert_eq!(node.socket.find("outputTaken").await["next"], 8);
    });
}

#[test]
fn a_node_that_stays_away_has_lost_its_program() {
    journey(async {
        let broker = Broker::start(&["--node-heartbeat", "200", "--node-offline", "6000"], "");
        let api = Api::new(&broker.url);
        let mut node = Fake::connect(&api, "").await;
        let job = job(&api, "away", &json!({}), &json!({})).await;
        let run = api.trigger(&job).await;
        let program = node.start().await["program"].clone();
        node.say(&program, "running", &json!({}));
        in_state(&api, &run, "running").await;
        // Away, but back in time: nothing is lost, and a report that was lost is asked for.
        node.reconnect().await;
        assert_eq!(api.state(&run).await["state"], "running");
        node.socket.leave();
        let end = over(&api, &run).await;
        assert_eq!((&end["state"], &end["reason"]), (&json!("failed"), &json!("its node did not report for 6000 ms")));
        // It comes back and still runs it.
        node.reconnect().await;
        let exit = node.socket.find("exit").await;
        assert_eq!(exit["program"], program);
        node.say(&program, "exited", &json!({ "exit": { "code": 0, "wallMs": 5, "lines": 0 } }));
        node.settled(&program).await;
        assert_eq!(api.state(&run).await, end);
    });
}

#[test]
fn a_broker_that_dies_starts_nothing_twice() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = Broker::start_in(folder.path(), "127.0.0.1:0", &["--node-heartbeat", "200", "--node-offline", "20000"], "");
        let api = Api::new(&broker.url);
        let (mut one, mut two) = (Fake::connect(&api, "").await, Fake::connect(&api, "").await);
        let job = job(&api, "dies", &json!({ "Choice": "all" }), &json!({})).await;
        let run = api.trigger(&job).await;
        let (first, second) = (one.start().await["program"].clone(), two.start().await["program"].clone());
        one.say(&first, "running", &json!({}));
        two.say(&second, "running", &json!({}));
        until("both to run", || async { instances(&api, &run).await.iter().all(|row| row["state"] == "running").then_some(()) }).await;
        one.socket.say("output", &json!({ "program": first, "first": 0, "lines": [{ "text": "a" }] }));
        assert_eq!(one.socket.find("outputTaken").await["next"], 1);
        broker.kill_and_restart();
        one.reconnect().await;
        two.reconnect().await;
        // What one of them said while nobody listened, it says again.
        two.exited(&second, 0).await;
        one.socket.say("output", &json!({ "program": first, "first": 0, "lines": [{ "text": "a" }, { "text": "b" }] }));
        assert_eq!(one.socket.find("outputTaken").await["next"], 2);
        one.beat();
        one.exited(&first, 0).await;
        let end = over(&api, &run).await;
        assert_eq!((&end["state"], &end["attempt"]), (&json!("success"), &json!(1)), "{end}");
        assert_eq!(instances(&api, &run).await.iter().map(|row| row["lines"].as_u64().unwrap_or(9)).max(), Some(2));

        // Killed between storing where it will be and telling: the node is told by the next broker.
        broker.process.kill();
        broker.restart("application.placed=die");
        one.reconnect().await;
        two.reconnect().await;
        let (_, answer) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({ "idempotencyKey": "k" })).await;
        drop(answer);
        until("its death", || async { (api.get("/api/v1/jobs").await.0 == 0).then_some(()) }).await;
        broker.restart("");
        one.reconnect().await;
        two.reconnect().await;
        let (_, told) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({ "idempotencyKey": "k" })).await;
        let run = told["identity"].as_str().expect("an identity").to_owned();
        for node in [&mut one, &mut two] {
            let order = node.start().await;
            assert_eq!((&order["program"]["identity"], &order["program"]["attempt"]), (&json!(run), &json!(1)));
            node.exited(&order["program"], 0).await;
        }
        assert_eq!(over(&api, &run).await["state"], "success");
    });
}

#[test]
fn a_run_that_is_stopped_is_stopped_after_a_crash_too() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = Broker::start_in(folder.path(), "127.0.0.1:0", crate::audit::TOKENS, "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let mut node = Fake::connect(&api, "&token=node-token").await;
        let job = job(&api, "stop", &json!({ "Grace": "100" }), &json!({})).await;
        let run = api.trigger(&job).await;
        let program = node.start().await["program"].clone();
        node.say(&program, "running", &json!({}));
        in_state(&api, &run, "running").await;
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.1["updateBy"], "admin");
        broker.kill_and_restart();
        node.reconnect().await;
        assert_eq!(node.socket.find("exit").await["program"], program);
        // It never says that it is over: after the time of grace and some more the run does not wait for it.
        let end = over(&api, &run).await;
        assert_eq!((&end["state"], &end["reason"], &end["updateBy"]), (&json!("stopped"), &json!("stopped by admin"), &json!("admin")));
        assert_eq!(instances(&api, &run).await[0]["reason"], "its node did not report its end");
    });
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut node = Fake::connect(&api, "").await;
        let job = job(&api, "long", &json!({}), &json!({ "timeout": 300 })).await;
        let run = api.trigger(&job).await;
        let order = node.start().await;
        assert_eq!(order["timeout"], 300);
        node.say(&order["program"], "running", &json!({}));
        assert_eq!(node.socket.find("exit").await["reason"], "it took longer than 300 ms");
        node.exited(&order["program"], 0).await;
        let end = over(&api, &run).await;
        assert_eq!((&end["state"], &end["reason"]), (&json!("failed"), &json!("it took longer than 300 ms")));
    });
}

#[test]
fn a_log_that_is_full_holds_nothing_up() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut node = Fake::connect(&api, "").await;
        let job = job(&api, "talks", &json!({}), &json!({})).await;
        let run = api.trigger(&job).await;
        let program = node.start().await["program"].clone();
        node.say(&program, "running", &json!({}));
        let lines: Vec<Value> = (0..6_000).map(|n| json!({ "text": format!("line {n}") })).collect();
        for part in 0..3 {
            node.socket.say("output", &json!({ "program": program, "first": part * 6_000, "lines": lines }));
            assert_eq!(node.socket.find("outputTaken").await["next"], (part + 1) * 6_000);
        }
        node.exited(&program, 0).await;
        assert_eq!(over(&api, &run).await["state"], "success");
        assert_eq!(instances(&api, &run).await[0]["lines"], 18_000);
        let (_, log) = api.get(&format!("/api/v1/runs/{run}/logs?after=9990&limit=1000")).await;
        let texts: Vec<_> = log["items"].as_array().expect("lines").iter().map(|line| line["text"].as_str().unwrap_or("")).collect();
        assert!(texts.iter().any(|text| text.starts_with("the log is full")) && texts.len() < 20, "{texts:?}");
    });
}

#[test]
fn nodes_do_what_an_operator_wants() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut node = Fake::connect(&api, "").await;
        let path = |what: &str| format!("/api/v1/nodes/{}{what}", node.id);
        let (drain, exit, enable, own, statuses) = (path("/drain"), path("/exit"), path("/enable"), path(""), path("/statuses?limit=5"));
        let (_, drained) = api.post(&drain, &json!({ "reason": "a new disk" })).await;
        assert_eq!((&drained["isDraining"], &drained["reason"]), (&json!(true), &json!("a new disk")));
        assert_eq!(node.socket.find("drain").await, json!({ "reason": "a new disk" }));
        // The wire may lose it: it is told again when the node is back, and with each heartbeat.
        node.reconnect().await;
        assert_eq!(node.socket.find("drain").await["reason"], "a new disk");
        node.beat();
        node.socket.find("drain").await;
        let job = job(&api, "none", &json!({}), &json!({})).await;
        assert_eq!(over(&api, &api.trigger(&job).await).await["reason"], "no node for the program: 1 disabled or drained");
        assert_eq!(api.post(&enable, &json!({})).await.1["isDraining"], false);
        assert_eq!(api.post(&exit, &json!({})).await.1["isLeaving"], true);
        assert_eq!(node.socket.find("leave").await["reason"], "requested by an operator");
        assert_eq!(api.delete(&own).await.0, 409, "it is there");
        let (status, rows) = api.get(&statuses).await;
        assert_eq!((status, &rows["items"][0]["freeMemory"]), (200, &json!(2_000)));
        assert_eq!(api.get(&format!("{}&from=2999-01-01T00:00:00Z", statuses)).await.1["items"], json!([]));
        assert_eq!(api.get(&format!("{}&from=2999-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", statuses)).await.0, 422);
        assert_eq!(api.delete(&format!("{own}?force=true")).await.0, 204);
        node.socket.find("leave").await;
        assert_eq!(api.get(&own).await.0, 404);
        assert_eq!(api.delete(&own).await.0, 404);
    });
}

#[test]
fn packages_are_kept_by_their_bytes() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = Broker::start_in(folder.path(), "127.0.0.1:0", &[], "");
        let api = Api::new(&broker.url);
        let push = |bytes: Vec<u8>| api.send(api.request(reqwest::Method::POST, "/api/v1/packages?name=a.zip").body(bytes));
        let noise: Vec<u8> = (0..60_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let bytes = tar_gz("noise", &noise, flate2::Compression::none());
        let (status, package) = push(bytes.clone()).await;
        assert_eq!((status, &package["size"], &package["name"]), (200, &json!(bytes.len()), &json!("a.zip")), "{package}");
        let url = package["url"].as_str().expect("an address").to_owned();
        assert_eq!(package["url"], format!("/api/v1/packages/{}", package["sha256"].as_str().expect("a hash")));
        assert_eq!(push(bytes.clone()).await, (200, package.clone()), "the same bytes, the same answer");
        broker.kill_and_restart();
        // Connections to the broker that died are still in the client's pool.
        let answer = until("an answer", || async { api.request(reqwest::Method::GET, &url).send().await.ok() }).await;
        assert_eq!(answer.content_length(), Some(bytes.len() as u64));
        assert!(answer.bytes().await.expect("bytes") == bytes);
        assert_eq!(api.get("/api/v1/packages").await.1["items"], json!([package]));
        assert_eq!(push(Vec::new()).await.0, 400);
        assert_eq!(api.get(&format!("/api/v1/packages/{}", "0".repeat(64))).await.0, 404);
        assert_eq!(api.get("/api/v1/packages/..%2fb.db").await.0, 404);
        let mut node = Fake::connect(&api, "").await;
        let job = job(&api, "uses", &json!({ "Package": url }), &json!({})).await;
        let run = api.trigger(&job).await;
        let order = node.start().await;
        assert_eq!(order["package"], json!({ "url": url, "sha256": package["sha256"] }));
        let (status, problem) = api.delete(&url).await;
        assert_eq!((status, problem["detail"].as_str()), (409, Some("the job `uses` uses it")));
        assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
        assert_eq!(api.delete(&url).await.0, 409, "a run that is not over uses it");
        node.exited(&order["program"], 0).await;
        over(&api, &run).await;
        assert_eq!(api.delete(&url).await.0, 204);
        assert_eq!((api.delete(&url).await.0, api.get(&url).await.0), (404, 404));
        assert_eq!(std::fs::read_dir(folder.path().join("b.db-packages")).map_or(0, Iterator::count), 0);
    });
}
