//! Two agents with one node id: the second is refused, and says why; the first goes on.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, Process, WEBLOOM, agent};
use crate::support::socket::Socket;
use crate::support::{journey, until};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};

async fn nodes(api: &Api) -> usize {
    let (_, nodes) = api.get("/api/v1/nodes").await;
    nodes["items"].as_array().into_iter().flatten().filter(|node| node["load"].is_object()).count()
}

#[test]
fn a_second_agent_in_the_same_folder_does_not_start() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        until("the first", || async { (nodes(&api).await == 1).then_some(()) }).await;
        let second = Command::new(WEBLOOM).args(["agent", "--broker", &broker.url, "--data-dir"]).arg(folder.path()).output();
        let second = second.expect("it ends");
        let said = String::from_utf8_lossy(&second.stderr).into_owned() + &String::from_utf8_lossy(&second.stdout);
        assert!(!second.status.success());
        assert!(said.contains(&format!("Another agent uses {}. Give each agent its own --data-dir.", folder.path().display())), "{said}");
        // One that was killed leaves no lock, and its successor is let in at once although the broker may take it for alive.
        first.kill();
        let _again = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        until("its successor", || async { (nodes(&api).await == 1).then_some(()) }).await;
    });
}

async fn open(api: &Api, node: &str, more: &str) -> Socket {
    let query = format!("/?nodeid={node}&operationsystem=linux&proccessorcount=4&memory=8000&sign=5df3fc02{more}");
    Socket::open(&api.url, &query, None).await
}

#[test]
fn the_broker_refuses_a_second_agent_with_the_same_id() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (node, first, second, third) = (id(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        let mut one = open(&api, &node, &format!("&instance={first}")).await;
        one.first("welcome").await;
        for _ in 0..3 {
            let mut two = open(&api, &node, &format!("&instance={second}")).await;
            assert_eq!(two.next().await, None, "it is refused");
        }
        one.say("heartbeat", &json!({ "processCount": 0, "cpu": 1, "freeMemory": 1, "holding": [] }));
        until("the first to be heard", || async { (nodes(&api).await == 1).then_some(()) }).await;
        // The same agent comes again over a connection that the broker takes for alive; then the one that was started after it.
        let mut again = open(&api, &node, &format!("&instance={first}")).await;
        again.first("welcome").await;
        assert_eq!(one.next().await, None, "its old session is closed");
        let mut after = open(&api, &node, &format!("&instance={third}&after={first}")).await;
        after.first("welcome").await;
        // Who says nothing is let in as ever.
        let mut plain = open(&api, &node, "").await;
        plain.first("welcome").await;
        drop(plain);
        until("the place to be free", || async {
            let mut two = open(&api, &node, &format!("&instance={second}")).await;
            two.next().await.filter(|message| message["t"] == "welcome").map(drop)
        })
        .await;
        let (status, problem) = api.get(&format!("/?nodeid={node}&instance=x")).await;
        assert_eq!(status, 200, "without an upgrade it is the portal: {problem}");
    });
}

/// An agent whose log lies in its folder.
fn logged(broker: &str, folder: &Path) -> Process {
    let log = std::fs::File::create(folder.join("log")).expect("a file");
    let mut command = Command::new(WEBLOOM);
    command.args(["agent", "--broker", broker, "--heartbeat", "1", "--data-dir"]).arg(folder);
    command.env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Process(command.spawn().expect("it starts"))
}

/// The folder of an agent is copied to another machine.
#[test]
fn an_agent_with_a_copied_id_says_so_once_and_backs_off() {
    journey(async {
        let broker = Broker::start(&[], "");
        let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let log = |folder: &Path| std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        let connected = |folder: &Path| log(folder).contains("connected broker=").then_some(());
        // Started before, so that both have the mark of that start.
        let mut before = logged(&broker.url, one.path());
        until("the agent", || async { connected(one.path()) }).await;
        before.kill();
        for file in ["node-id", "instance"] {
            std::fs::copy(one.path().join(file), two.path().join(file)).expect("copied");
        }
        // The broker knows the first by its new mark before the second comes.
        let mut first = logged(&broker.url, one.path());
        until("the first again", || async { connected(one.path()) }).await;
        let _second = logged(&broker.url, two.path());
        until("the second to be refused", || async { log(two.path()).contains("another agent, at").then_some(()) }).await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(log(two.path()).matches("another agent, at").count(), 1, "{}", log(two.path()));
        // When the first has gone, the other has the id.
        first.kill();
        until("the second", || async { connected(two.path()) }).await;
    });
}
