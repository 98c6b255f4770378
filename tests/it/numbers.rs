//! Numbers of 64 bits: what has an id is found by its number wherever an address names it.

use crate::support::api::Api;
use crate::support::journey;
use crate::support::process::{Broker, WEBLOOM};
use serde_json::{Value, json};

/// The number of a thing, which is a text of digits that fit 63 bits.
fn number(thing: &Value) -> String {
    let text = thing["number"].as_str().unwrap_or_else(|| panic!("a number in {thing}"));
    assert!(text.parse::<i64>().is_ok_and(|number| number > 0), "{text}");
    text.to_owned()
}

async fn ask(api: &Api, path: &str) -> Value {
    let (status, answer) = api.get(path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[test]
fn what_has_an_id_is_found_by_its_number() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (_, registered) = api.post("/api/v1/workers", &json!({ "classNames": ["it.Number"] })).await;
        let worker = ask(&api, &format!("/api/v1/workers/{}", number(&registered))).await;
        assert_eq!(worker["id"], registered["workerId"]);
        let (_, group) = api.post("/api/v1/groups", &json!({ "name": "numbered" })).await;
        assert_eq!(ask(&api, &format!("/api/v1/groups/{}", number(&group))).await["id"], group["id"]);
        let id = api.job("numbered", "it.Number", &json!({})).await;
        let job = ask(&api, &format!("/api/v1/jobs/{id}")).await;
        let path = format!("/api/v1/jobs/{}", number(&job));
        assert_eq!(ask(&api, &path).await["id"], id.as_str());

        // Triggered, looked at and ended by numbers alone; they rise with time.
        let mut last = number(&job).parse::<i64>().expect("digits");
        let mut runs = Vec::new();
        for _ in 0..3 {
            let (status, run) = api.post(&format!("{path}/trigger"), &json!({})).await;
            assert_eq!(status, 202, "{run}");
            let next = number(&run).parse().expect("digits");
            assert!(next > last, "{next} after {last}");
            last = next;
            runs.push(run);
        }
        let path = format!("/api/v1/runs/{}", number(&runs[1]));
        assert_eq!(ask(&api, &path).await["identity"], runs[1]["identity"]);
        assert_eq!(api.post(&format!("{path}/start-returned"), &json!({ "error": "no" })).await.0, 204);
        for part in ["logs", "why", "status", "blocks"] {
            ask(&api, &format!("{path}/{part}")).await;
        }
        let queue = format!("/requestqueue/{}", number(&runs[0]));
        assert_eq!(api.post(&queue, &json!([{ "url": "http://example.test/" }])).await.0, 200);

        // A number of nothing, of something else, and what is none.
        for (text, expected) in [(number(&group), 404), ("7".into(), 404), ("9999999999999999999".into(), 404), ("-7".into(), 400)] {
            assert_eq!(api.get(&format!("/api/v1/jobs/{text}")).await.0, expected, "{text}");
        }
        // A name of digits is a name first.
        let (_, digits) = api.post("/api/v1/groups", &json!({ "name": number(&group) })).await;
        assert_eq!(ask(&api, &format!("/api/v1/groups/{}", number(&group))).await["id"], digits["id"]);

        let shell = |args: &[&str]| {
            let done = std::process::Command::new(WEBLOOM).args(args).args(["--json", "--broker", &broker.url]).output().expect("it runs");
            let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
            (done.status.success(), text)
        };
        for (noun, thing, key) in [("run", &runs[2], "identity"), ("job", &job, "id"), ("worker", &worker, "id")] {
            let (done, text) = shell(&[noun, "show", &number(thing)]);
            assert!(done && text.contains(thing[key].as_str().expect("an id")), "{noun}: {text}");
        }
        assert!(!shell(&["run", "show", "7"]).0 && !shell(&["job", "show", "7"]).0);
    });
}

#[test]
fn ids_that_clients_chose_may_share_a_number() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        // The version is no part of the number, and neither are the last 64 bits.
        let ids = ["0199aaaaaaaa7123800000000000000a", "0199aaaaaaaa4123800000000000000b"];
        for (nth, id) in ids.into_iter().enumerate() {
            let job = json!({ "id": id, "name": format!("shared {nth}"), "properties": { "FullClassName": "it.Shared" } });
            assert_eq!(api.post("/api/v1/jobs", &job).await.0, 201);
        }
        let one = ask(&api, &format!("/api/v1/jobs/{}", ids[0])).await;
        let (status, problem) = api.get(&format!("/api/v1/jobs/{}", number(&one))).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/number-shared")), "{problem}");
        assert_eq!(api.post(&format!("/api/v1/jobs/{}/trigger", number(&one)), &json!({})).await.0, 409);
        assert_eq!(ask(&api, "/api/v1/runs").await["items"], json!([]));
    });
}
