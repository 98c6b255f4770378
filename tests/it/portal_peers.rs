//! The pages of nodes and workers: all at a glance, and each one with its load, its work and its connections.

use crate::portal_refresh::{outline, refreshes};
use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

const EVIL: &str = "<img src=x onerror=\"document.title='harm'\">";

#[test]
fn nodes_are_seen_at_a_glance_and_each_has_a_page() {
    journey(async {
        let mut broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/nodes", broker.url)).await;
        browser.sees("No node has connected yet.").await;
        let (first, second) = (id(), id());
        for (node, name) in [(&first, EVIL), (&second, "oslo")] {
            let beat = json!({ "nodeId": node, "name": name, "group": EVIL, "cpu": 40, "freeMemory": 1000, "memory": 4000, "processorCount": 2, "maxProcessCount": 4 });
            assert_eq!(api.post("/node/heartbeat", &beat).await.0, 204);
        }
        assert_eq!(api.post(&format!("/api/v1/nodes/{second}/disable"), &json!({ "reason": EVIL })).await.0, 200);
        let cells = "const cells = [...document.querySelectorAll('.cells .cell')].map(cell => `${cell.className} ${cell.textContent}`).sort(); \
            return cells.length === 2 && cells[0].includes('disabled') ? cells : null;";
        assert_eq!(browser.gives("two cells", cells, json!([])).await, json!(["cell disabled ‖", "cell idle □"]));
        browser.sees("online, idle 1").await;
        browser.fill_in("State", "disabled").await;
        browser.gives("one row", "return document.querySelectorAll('table[aria-label=Nodes] tbody tr').length === 1;", json!([])).await;

        // Its load is averaged in steps; its connections are kept over a restart of the broker.
        let path = format!("/api/v1/nodes/{first}");
        let steps = format!("{path}/statuses?from=2026-01-01T00:00:00Z&step=86400000");
        let (status, loads) = api.get(&steps).await;
        assert_eq!((status, &loads["items"][0]["cpu"], &loads["items"][0]["freeMemory"]), (200, &json!(40), &json!(1000)), "{loads}");
        for bad in ["step=60000", "from=2026-01-01T00:00:00Z&step=999", "from=2026-01-01T00:00:00Z&step=1000"] {
            assert_eq!(api.get(&format!("{path}/statuses?{bad}")).await.0, 422, "{bad}");
        }
        // A page of a broker that is away complains of refused connections.
        browser.open("about:blank").await;
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": first })).await.0, 204);
        let connections = until("two connections", || async {
            let (_, page) = api.get(&format!("{path}/connections")).await;
            page["items"].as_array().filter(|items| items.len() == 2).cloned()
        })
        .await;
        assert_eq!(
            (connections[0].get("disconnectTime"), &connections[1]["reason"]),
            (None, &json!("the broker ended")),
            "{connections:?}"
        );

        browser.open(&format!("{}/#/nodes/{first}", broker.url)).await;
        browser.sees("the broker ended").await;
        browser.sees("It has nothing now.").await;
        browser.sees(EVIL).await;
        browser.gives("the plots", "return document.querySelectorAll('.plots canvas').length === 3;", json!([])).await;
        let harm =
            browser.run("return [document.querySelectorAll('main img').length, document.title.startsWith('harm')];", json!([])).await;
        assert_eq!(harm, json!([0, false]));
        let before = outline(&browser).await;
        refreshes(&browser).await;
        assert_eq!(outline(&browser).await, before);
        browser.click("24 hours").await;
        browser.gives("the period", "return document.querySelector('[aria-current=true]')?.textContent === '24 hours';", json!([])).await;
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}

#[test]
fn a_worker_has_a_page_with_its_work() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "sum", "jobType": "task", "task": { "handler": "it.sum" } });
        let (_, job) = api.post("/api/v1/jobs", &job).await;
        let (_, worker) = api.post("/api/v1/workers", &json!({ "classNames": ["it.sum"], "worker": { "name": EVIL } })).await;
        let worker = worker["workerId"].as_str().expect("an id");
        api.worker("it.other").await;
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        let order = api.heard(worker, "tasks").await.expect("an order")[0].clone();
        let report = json!([{ "identity": run, "attempt": order["attempt"], "state": "success" }]);
        assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &report).await.0, 200);
        let (status, work) = api.get(&format!("/api/v1/workers/{worker}/work")).await;
        let sum = |name: &str| work[name].as_array().expect("numbers").iter().filter_map(Value::as_u64).sum::<u64>();
        assert_eq!((status, sum("success"), sum("failed"), &work["step"]), (200, 1, 0, &json!(60_000)), "{work}");
        assert!(sum("running") >= 1, "{work}");
        assert_eq!(api.get(&format!("/api/v1/workers/{}/work", id())).await.0, 404);
        let (_, watches) = api.get(&format!("/api/v1/workers/watches?worker={worker}")).await;
        assert_eq!((watches["items"].as_array().map(Vec::len), &watches["items"][0]["fullClassName"]), (Some(1), &json!("it.sum")));

        let browser = Browser::start().await;
        browser.open(&format!("{}/#/workers/{worker}", broker.url)).await;
        browser.sees(EVIL).await;
        browser.sees("It has no task now.").await;
        browser.gives("the plots", "return document.querySelectorAll('.plots canvas').length === 2;", json!([])).await;
        browser.sees("success 1").await;
        assert_eq!(browser.run("return document.querySelectorAll('main img').length;", json!([])).await, 0);
        let before = outline(&browser).await;
        refreshes(&browser).await;
        assert_eq!(outline(&browser).await, before);
        browser.click("Disable …").await;
        browser.click("Disable").await;
        until("a disabled worker", || async {
            (api.get(&format!("/api/v1/workers/{worker}")).await.1["state"] == "disabled").then_some(())
        })
        .await;
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}
