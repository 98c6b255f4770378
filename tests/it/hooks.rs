//! Hooks: other systems trigger a job by an address with a secret of its own.

use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::{Broker, WEBLOOM};
use crate::support::{journey, until};
use crate::tasks::{self, Raw};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Method;
use serde_json::{Value, json};

fn signature(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(body.as_bytes());
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

async fn task(api: &Api, name: &str) -> String {
    let job = json!({ "name": name, "jobType": "task", "task": { "handler": "it.nobody" } });
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_secret_or_a_signature_triggers_the_job_once_for_a_key() {
    journey(async {
        let mut broker = Broker::start(&["--token", "boss-token"], "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let job = task(&boss, "hooked").await;
        let hooks = format!("/api/v1/jobs/{job}/hooks");
        let (status, hook) = boss.post(&hooks, &json!({ "name": "github" })).await;
        assert_eq!(status, 201, "{hook}");
        assert_eq!(boss.post(&hooks, &json!({ "name": "github" })).await.0, 409);
        assert_eq!(boss.post(&hooks, &json!({ "name": "a b" })).await.0, 422);
        let (path, secret) = (hook["path"].as_str().expect("a path"), hook["secret"].as_str().expect("a secret"));
        let (_, list) = boss.get(&hooks).await;
        assert!(list["items"][0]["name"] == "github" && !list.to_string().contains(secret), "{list}");
        broker.kill_and_restart();
        let boss = Api::new(&broker.url).with_token("boss-token");
        let other = Api::new(&broker.url);
        let mut worker = Raw::watch(&boss, &format!("{}&token=boss-token", id()), &["it.nobody"], json!({}), json!([])).await;

        let body = json!({ "ref": "main" }).to_string();
        let send = |headers: Vec<(&'static str, String)>, path: String| {
            let request = other.request(Method::POST, &path).body(body.clone());
            let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            let other = other.clone();
            async move { other.send(request).await }
        };
        let secret_header = || vec![("Webloom-Secret", secret.to_owned())];
        let signed = || vec![("X-Hub-Signature-256", signature(secret, &body)), ("X-GitHub-Delivery", "one".to_owned())];
        let (status, by_secret) = send(secret_header(), path.to_owned()).await;
        assert_eq!(status, 202, "{by_secret}");
        let first = by_secret["identity"].as_str().expect("an id");
        let run = boss.state(first).await;
        assert_eq!((&run["createBy"], &run["jobName"]), (&json!("webhook:github"), &json!("hooked")), "{run}");
        let order = worker.order().await;
        assert_eq!(order["arguments"], json!({ "ref": "main" }), "{order}");
        worker.report(&order, "success", json!({}));
        tasks::over(&boss, first).await;
        let (status, by_sign) = send(signed(), path.to_owned()).await;
        assert_eq!(status, 202, "{by_sign}");
        // Sent again, it is the same run.
        assert_eq!(send(signed(), path.to_owned()).await, (202, by_sign.clone()));
        assert_ne!(by_secret["identity"], by_sign["identity"]);

        // Everything else is rejected in the same way.
        let unknown = format!("/hooks/{}", id());
        for (headers, path) in [
            (vec![], path.to_owned()),
            (vec![("Webloom-Secret", "wrong".to_owned())], path.to_owned()),
            (vec![("X-Hub-Signature-256", signature("wrong", &body))], path.to_owned()),
            (vec![("X-Hub-Signature-256", signature(secret, "another body"))], path.to_owned()),
            (vec![("Token", "boss-token".to_owned())], path.to_owned()),
            (vec![("Webloom-Secret", secret.to_owned()), ("X-Hub-Signature-256", signature("wrong", &body))], path.to_owned()),
            (secret_header(), "/hooks/%00".to_owned()),
            (secret_header(), unknown),
        ] {
            let (status, problem) = send(headers, path).await;
            assert_eq!((status, &problem["type"]), (401, &json!("/problems/unauthorized")), "{problem}");
        }
        let large = other.request(Method::POST, path).header("Webloom-Secret", secret).body("x".repeat(300 << 10));
        assert_eq!(other.send(large).await.0, 413);
        let (_, runs) = boss.get(&format!("/api/v1/runs?jobId={job}")).await;
        assert_eq!(runs["items"].as_array().map(Vec::len), Some(2), "{runs}");

        assert_eq!(boss.delete(&format!("{hooks}/{}", hook["id"].as_str().expect("an id"))).await.0, 204);
        assert_eq!(send(secret_header(), path.to_owned()).await.0, 401);
        let (_, audited) = boss.get("/api/v1/audit?kind=hook").await;
        let objects: Vec<&Value> = audited["items"].as_array().expect("items").iter().map(|call| &call["object"]).collect();
        assert_eq!(objects[0], &hook["id"], "it is deleted: {audited}");
        assert_eq!(objects.last(), Some(&&hook["id"]), "it was created: {audited}");
    });
}

#[test]
fn guessed_secrets_are_throttled() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token"], "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let job = task(&boss, "guessed").await;
        let (_, hook) = boss.post(&format!("/api/v1/jobs/{job}/hooks"), &json!({ "name": "h" })).await;
        let path = hook["path"].as_str().expect("a path");
        let guess = |i: usize| {
            let request = boss.request(Method::POST, path).header("Webloom-Secret", format!("guess-{i}")).body("x");
            boss.send(request)
        };
        let answers = futures_util::future::join_all((0..200).map(guess)).await;
        assert!(answers.iter().all(|(status, _)| matches!(status, 401 | 429)), "{answers:?}");
        assert!(answers.iter().any(|(status, _)| *status == 429));
    });
}

/// A standby passes the address of its peers on, and nobody else can name another address.
#[test]
fn guesses_by_way_of_a_standby_are_throttled_by_their_own_address() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = ["--lease-ms", "600000", "--token", "boss-token"];
        let leader = Broker::start_in(folder.path(), "127.0.0.1:0", &flags, "");
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", &flags, "");
        let boss = Api::new(&leader.url).with_token("boss-token");
        until("a standby", || async {
            let (_, brokers) = boss.get("/api/v1/brokers").await;
            brokers.as_array()?.iter().any(|broker| broker["role"] == "standby").then_some(())
        })
        .await;
        let job = task(&boss, "guessed").await;
        let (_, hook) = boss.post(&format!("/api/v1/jobs/{job}/hooks"), &json!({ "name": "h" })).await;
        let (path, secret) = (hook["path"].as_str().expect("a path"), hook["secret"].as_str().expect("a secret"));
        let client = |last: u8| {
            let own = std::net::IpAddr::from([127, 0, 0, last]);
            reqwest::Client::builder().local_address(own).build().expect("a client")
        };
        let call = async |client: &reqwest::Client, broker: &Broker, secret: &str, named: Option<String>| {
            let request = client.post(format!("{}{path}", broker.url)).header("Webloom-Secret", secret).body("x");
            let request = match named {
                Some(named) => request.header("webloom-forwarded", "1").header("X-Forwarded-For", named),
                None => request,
            };
            request.send().await.expect("an answer").status().as_u16()
        };
        let guesser = client(2);
        let guesses = futures_util::future::join_all((0..60).map(|_| call(&guesser, &standby, "wrong", None))).await;
        assert!(guesses.iter().all(|status| matches!(status, 401 | 429)) && guesses.contains(&429), "{guesses:?}");
        let other = client(3);
        assert_eq!(call(&other, &standby, "wrong", None).await, 401, "another peer of the standby");
        assert_eq!(call(&other, &standby, secret, None).await, 202);
        let named = (0..60).map(|i| call(&guesser, &leader, "wrong", Some(format!("10.0.0.{i}"))));
        assert!(futures_util::future::join_all(named).await.contains(&429), "the peer is no standby");
    });
}

#[test]
fn the_command_line_and_the_page_make_and_delete_them() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = task(&api, "paged").await;
        let call = |args: &[&str]| {
            let output = std::process::Command::new(WEBLOOM).args(["job", "hook"]).args(args).args(["--broker", &broker.url]).output();
            let output = output.expect("the command line");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let made: Value = serde_json::from_str(&call(&["create", "paged", "shell", "--json"])).expect("JSON");
        assert!(call(&["list", "paged"]).contains("shell"));
        assert_eq!(made["name"], "shell");
        call(&["delete", "paged", "shell"]);
        assert!(call(&["list", "paged"]).contains("no hooks"));

        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/{job}", broker.url)).await;
        browser.sees("No hook yet").await;
        browser.click("New hook …").await;
        browser.fill("Name of the hook", "page").await;
        browser.click("Create").await;
        browser.sees("It is shown only now").await;
        let secret = browser.run("return document.getElementById('new-secret').textContent;", json!([])).await;
        let (_, hooks) = api.get(&format!("/api/v1/jobs/{job}/hooks")).await;
        let path = hooks["items"][0]["path"].as_str().expect("a path");
        let sent = api.request(Method::POST, path).header("Webloom-Secret", secret.as_str().expect("a text"));
        assert_eq!(api.send(sent).await.0, 202);
        browser.click("Hide").await;
        // The job itself has a button with the same text.
        let delete = "const row = [...document.querySelectorAll('tr')].find(row => row.textContent.includes('/hooks/')); row?.querySelector('button').click(); return Boolean(row);";
        browser.gives("the hook", delete, json!([])).await;
        browser.click("Delete").await;
        browser.sees("No hook yet").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
