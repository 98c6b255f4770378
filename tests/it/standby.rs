//! Two brokers on one database: one leads, the other stands by, and takes over when the first is killed, ends or hangs.

use crate::support::api::{Api, id};
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, Process, WEBLOOM, agent, server};
use crate::support::site::Site;
use crate::support::{journey, until};
use crate::tasks::{crew, job, over};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use webloom::sdk::{TaskContext, TaskResult, Worker};

/// The lease of the leader where it is to be waited for.
const BRIEF: [&str; 2] = ["--lease-ms", "1000"];
/// … and where a test that waited for it would not end.
const LONG: [&str; 2] = ["--lease-ms", "600000"];

/// Two brokers of one database; the first leads.
struct Pair {
    leader: Broker,
    standby: Broker,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn start(args: &[&str]) -> Self {
        Self::start_with(args, "")
    }

    fn start_with(args: &[&str], faults: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let leader = Broker::start_in(folder.path(), "127.0.0.1:0", args, faults);
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", args, "");
        Self { leader, standby, _folder: folder }
    }

    fn apis(&self) -> (Api, Api) {
        (Api::new(&self.leader.url), Api::new(&self.standby.url))
    }

    fn both(&self) -> String {
        format!("{},{}", self.standby.url, self.leader.url)
    }

    /// They have changed their parts.
    fn swap(&mut self) {
        std::mem::swap(&mut self.leader, &mut self.standby);
    }
}

fn signal(process: &Process, name: &str) {
    let status = Command::new("kill").arg(name).arg(process.0.id().to_string()).status().expect("kill runs");
    assert!(status.success());
}

/// Whether it is stopped, as the system has it.
fn hangs(process: &Process) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.0.id())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

async fn leads(api: &Api) {
    until("it leads", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
}

/// It stands by, knows who leads, and can read.
async fn stands_by(api: &Api) {
    until("it stands by", || async { (api.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
    assert_eq!(api.get("/readyz").await.0, 503);
}

/// The role of each broker by its address, as one of them shows it.
async fn roles(api: &Api) -> HashMap<String, String> {
    let (status, brokers) = api.get("/api/v1/brokers").await;
    assert_eq!(status, 200, "{brokers}");
    let text = |broker: &Value, key: &str| broker[key].as_str().expect("a text").to_owned();
    // A broker that was started again has a newer row.
    brokers.as_array().expect("a list").iter().map(|broker| (text(broker, "url"), text(broker, "role"))).collect()
}

async fn names(api: &Api) -> Vec<String> {
    let (status, jobs) = api.get("/api/v1/jobs?limit=1000").await;
    assert_eq!(status, 200, "{jobs}");
    let mut names: Vec<String> =
        jobs["items"].as_array().expect("a list").iter().map(|job| job["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

fn new_job(name: &str) -> Value {
    json!({ "name": name, "jobType": "block", "properties": { "FullClassName": "a.B" } })
}

fn verify(folder: &Path) {
    let proof = Command::new(WEBLOOM)
        .arg("verify-history")
        .arg("--database")
        .arg(crate::support::process::database(folder))
        .output()
        .expect("it runs");
    assert!(proof.status.success(), "{}{}", String::from_utf8_lossy(&proof.stdout), String::from_utf8_lossy(&proof.stderr));
}

/// A call that a standby has passed on.
fn passed_on(api: &Api, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
    api.request(method, path).header("webloom-forwarded", "1")
}

#[test]
fn the_second_reads_and_names_the_first() {
    journey(async {
        let pair = Pair::start(&LONG);
        let (first, second) = pair.apis();
        stands_by(&second).await;
        // A task, because the standby may serve calls about a run of a block job itself: it may be the owner.
        let job = job(&first, "j", json!({ "handler": "a" }), json!({})).await;
        let run = first.trigger(&job).await;
        let other = id();
        let (_, document) = second.get("/api/v1/openapi.json").await;
        // `/live` is a WebSocket, which a standby has too.
        for (path, methods) in document["paths"].as_object().expect("paths").iter().filter(|(path, _)| *path != "/live") {
            let at = path.replace("/runs/{id}", &format!("/runs/{run}")).replace("/jobs/{id}", &format!("/jobs/{job}"));
            let at = at.replace("{id}", &other).replace("{sha256}", &"0".repeat(64)).replace("{identity}", &run);
            let at = if path.ends_with("/why") { format!("{at}?at=2026-01-01T00:00:00Z") } else { at };
            for method in methods.as_object().expect("methods").keys().filter(|key| *key != "parameters") {
                let method: reqwest::Method = method.to_uppercase().parse().expect("a method");
                let is_get = method == reqwest::Method::GET;
                // As if another standby had passed it on: this one does not do it again.
                let (status, answer) = second.send(passed_on(&second, method.clone(), &at).body("{}")).await;
                let is_standby = (status, &answer["type"]) == (503, &json!("/problems/standby"));
                assert!(is_standby || is_get && [200, 204, 404].contains(&status), "{method} {at}: {status} {answer}");
                if is_standby {
                    assert!(answer["detail"].as_str().is_some_and(|text| text.contains(&pair.leader.url)), "{answer}");
                }
            }
        }
        for path in ["/api/v1/jobs", &format!("/api/v1/jobs/{job}"), &format!("/api/v1/runs/{run}"), "/api/v1/groups"] {
            assert_eq!(second.get(path).await, first.get(path).await, "{path}");
        }
        // These are GETs, and yet not for who only reads.
        let worker = first.worker("c.D").await;
        for (path, at) in [("requestqueue", &run), ("api/v1/workers", &worker), ("api/v1/runs", &run), ("api/v1/jobs", &job)] {
            let ends: &[&str] = match path {
                "requestqueue" => &["?wait=0"],
                "api/v1/workers" => &["/messages?wait=0"],
                "api/v1/runs" => &["/why", "/logs/stream?wait=0"],
                _ => &["/trigger"],
            };
            for end in ends {
                let (status, answer) = second.send(passed_on(&second, reqwest::Method::GET, &format!("/{path}/{at}{end}"))).await;
                assert_eq!((status, &answer["type"]), (503, &json!("/problems/standby")), "{path} {end}: {answer}");
            }
        }
        let refused = passed_on(&second, reqwest::Method::POST, "/api/v1/jobs").send().await.expect("an answer");
        assert_eq!(refused.headers()["retry-after"], "1");
        let (status, page) = second.get("/").await;
        assert_eq!((status, page), (200, Value::Null), "the status page");
        assert_eq!(second.get("/healthz").await.0, 200);
        assert_eq!(names(&first).await, ["j"], "nothing was written by way of the second");
        let expected = HashMap::from([(pair.leader.url.clone(), "leader".to_owned()), (pair.standby.url.clone(), "standby".to_owned())]);
        assert_eq!((roles(&first).await, roles(&second).await), (expected.clone(), expected));
        for (api, leader) in [(&first, "webloom_leader 1"), (&second, "webloom_leader 0")] {
            let page = api.metrics().await;
            assert!(page.contains(leader) && page.contains("webloom_leader_term 1"), "{page}");
        }
    });
}

#[test]
fn the_command_line_finds_the_one_that_leads() {
    journey(async {
        let pair = Pair::start(&LONG);
        let (first, second) = pair.apis();
        stands_by(&second).await;
        let run = |broker: &str, args: &[&str]| {
            let mut command = Command::new(WEBLOOM);
            let output = command.args(args).env("WEBLOOM_BROKER", broker).env_remove("WEBLOOM_TOKEN").output().expect("it runs");
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stdout).into_owned(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let create = ["job", "create", "--name", "j", "--class", "a.B"];
        let (code, _, err) = run(&pair.standby.url, &["job", "create", "--name", "by-the-standby", "--class", "a.B"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "it passes the call on");
        let nobody = "http://127.0.0.1:1";
        let (code, out, err) = run(&format!("{nobody},{}", pair.both()), &create);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        assert_eq!(names(&first).await, ["by-the-standby", "j"]);
        let (code, out, _) = run(&format!("{nobody},{}", pair.standby.url), &["brokers"]);
        assert!(code == Some(0) && out.contains("leader") && out.contains("standby") && out.contains(&pair.leader.url), "{out}");
        let (code, _, err) = run(&format!("{nobody},{}", pair.standby.url), &create);
        assert!(code == Some(1) && err.contains("j"), "the name is taken: {err}");
        let (code, _, err) = run("http://a,ftp://b", &["brokers"]);
        assert!(code == Some(2) && err.contains("ftp://b"), "{err}");
    });
}

#[test]
fn leaders_are_killed_under_a_crawl_and_no_page_is_lost_or_doubled() {
    const PAGES: usize = 600;
    const ROUNDS: usize = 4;
    journey(async {
        let site = Site::serve(PAGES);
        let times = ["--grace", "200", "--node-heartbeat", "200", "--node-offline", "1500", "--worker-offline", "1500"];
        let mut pair = Pair::start(&[&times[..], &LONG].concat());
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("agent")).expect("a folder");
        let _agent = agent(&pair.both(), &home.path().join("agent"), &["--max-process-count", "3"]);
        let (mut first, mut second) = pair.apis();
        stands_by(&second).await;
        let mut crawl = Crawl::start(&site.url, home.path(), &["--broker", &pair.both(), "--threads", "8"]);
        for round in 1..=ROUNDS {
            until(&format!("the pages of round {round}"), || {
                let there = crawl.count() >= round * PAGES / (2 * ROUNDS);
                async move { there.then_some(()) }
            })
            .await;
            if round == 2 {
                assert!(pair.leader.process.terminate().success(), "one that is told to end does so well");
            } else {
                pair.leader.process.kill();
            }
            leads(&second).await;
            pair.leader.restart("");
            pair.swap();
            std::mem::swap(&mut first, &mut second);
            stands_by(&second).await;
        }
        crawl.succeeds().await;
        let lines = crawl.lines();
        assert_eq!(urls(&lines), site.all().into_iter().collect::<Vec<_>>(), "each page once");
        let (_, runs) = first.get("/api/v1/runs").await;
        let run = &runs["items"][0];
        let counts = ["left", "success", "error", "total"].map(|k| run[k].clone());
        assert_eq!(counts, [json!(0), json!(PAGES), json!(0), json!(PAGES)], "{run}");
        assert_eq!(roles(&second).await[&pair.leader.url], "leader");
        verify(&pair.leader.folder);
        site.stop().await;
    });
}

#[test]
fn leaders_are_killed_under_tasks_and_schedules() {
    journey(async {
        // With PostgreSQL, tasks that no worker reports wait for the lease of the last leader, which might live.
        let lease = if server().is_some() { ["--lease-ms", "3000"] } else { LONG };
        let mut pair = Pair::start(&lease);
        let (mut first, mut second) = pair.apis();
        stands_by(&second).await;
        let done: Rc<RefCell<HashMap<String, u32>>> = Rc::default();
        let works = {
            let done = Rc::clone(&done);
            move |task: TaskContext| {
                let done = Rc::clone(&done);
                async move {
                    let key = task.identity().to_string();
                    tokio::time::sleep(Duration::from_millis(u64::from(key.as_bytes()[31]) % 30)).await;
                    *done.borrow_mut().entry(key).or_default() += 1;
                    TaskResult::Ok(())
                }
            }
        };
        let worker = || Worker::new(pair.both()).slots(10).task("h", works.clone());
        let _crew = crew([worker(), worker()]).await;
        let task = json!({ "handler": "h", "lease": 3_000, "lostAttempts": 50, "noWorker": "wait" });
        let by_hand = job(&first, "by-hand", task.clone(), json!({})).await;
        let all = json!({ "overlap": "allow", "misfire": { "policy": "all", "limit": 1000 } });
        job(&first, "planned", task, json!({ "schedule": { "triggers": [{ "every": 100 }] }, "policies": all })).await;
        let mut made = Vec::new();
        for round in 0..4 {
            let trigger = |n: u32| json!({ "arguments": [round, n], "idempotencyKey": format!("{round}-{n}") });
            let triggers: Vec<Value> = (0..30).map(trigger).collect();
            let (status, runs) = first.post(&format!("/api/v1/jobs/{by_hand}/trigger/batch"), &json!(triggers)).await;
            assert_eq!(status, 202, "{runs}");
            made.extend(runs.as_array().expect("a list").iter().map(|run| run["identity"].as_str().expect("an id").to_owned()));
            until("some of them", || async { (done.borrow().len() > round * 30).then_some(()) }).await;
            pair.leader.process.kill();
            leads(&second).await;
            pair.leader.restart("");
            pair.swap();
            std::mem::swap(&mut first, &mut second);
            stands_by(&second).await;
        }
        for run in &made {
            assert_eq!(over(&first, run).await["state"], "success");
            assert!(done.borrow().contains_key(run), "it was carried out");
        }
        let (_, runs) = first.get(&format!("/api/v1/runs?jobId={by_hand}&limit=1000")).await;
        assert_eq!(runs["items"].as_array().map(Vec::len), Some(made.len()), "none is doubled");
        verify(&pair.leader.folder);
    });
}

#[test]
fn one_that_ends_hands_over_and_no_connection_is_refused() {
    journey(async {
        let mut pair = Pair::start(&LONG);
        let (first, second) = pair.apis();
        stands_by(&second).await;
        assert_eq!(first.post("/api/v1/jobs", &new_job("a")).await.0, 201);
        let over = RefCell::new(false);
        let asks = async {
            let mut asked = 0;
            while !*over.borrow() {
                let (status, _) = second.get("/api/v1/jobs").await;
                assert_eq!(status, 200, "after {asked} answers");
                asked += 1;
            }
            asked
        };
        let takes = async {
            signal(&pair.leader.process, "-TERM");
            leads(&second).await;
            // Every write from here on is the new leader's.
            until("a write", || async { (second.post("/api/v1/jobs", &new_job("b")).await.0 == 201).then_some(()) }).await;
            *over.borrow_mut() = true;
        };
        let (asked, ()) = tokio::join!(asks, takes);
        assert!(asked > 0);
        assert!(pair.leader.process.0.wait().expect("it ends").success());
        assert_eq!(names(&second).await, ["a", "b"]);
        assert_eq!(roles(&second).await, HashMap::from([(pair.standby.url.clone(), "leader".to_owned())]), "who went well is forgotten");
    });
}

#[test]
fn one_that_hangs_is_followed_and_writes_nothing_when_it_wakes_up() {
    journey(async {
        let mut pair = Pair::start(&BRIEF);
        while !hangs_and_wakes_up(&mut pair).await {
            pair = Pair::start(&BRIEF);
        }
        let (first, second) = pair.apis();
        assert_eq!(names(&second).await, ["a", "b"]);
        let (_, runs) = second.get("/api/v1/runs").await;
        assert_eq!(runs["items"], json!([]));
        pair.leader.restart("");
        stands_by(&first).await;
        assert_eq!(roles(&first).await[&pair.standby.url], "leader");
        verify(&pair.leader.folder);
    });
}

/// Suspends the leader until the other one leads. Returns false if that one killed it, because it was in the middle of a write.
async fn hangs_and_wakes_up(pair: &mut Pair) -> bool {
    let (first, second) = pair.apis();
    stands_by(&second).await;
    let job = first.job("a", "a.B", &json!({})).await;
    signal(&pair.leader.process, "-STOP");
    // It comes in, and waits for somebody who sleeps.
    let late = {
        let (first, job) = (first.clone(), job.clone());
        actix_rt::spawn(async move {
            let made = first.post("/api/v1/jobs", &new_job("late")).await;
            (made, first.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await)
        })
    };
    leads(&second).await;
    assert_eq!(second.post("/api/v1/jobs", &new_job("b")).await.0, 201);
    assert_eq!(roles(&second).await[&pair.leader.url], "gone");
    // A command does not wait for the one that hangs, though it comes first.
    let listed = tokio::process::Command::new(WEBLOOM).args(["job", "list", "--broker", &pair.both()]).output();
    let listed = tokio::time::timeout(Duration::from_secs(60), listed).await.expect("it asks the other one").expect("it runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    signal(&pair.leader.process, "-CONT");
    let status = pair.leader.process.0.wait().expect("it ends by itself");
    let ((made, _), (triggered, _)) = late.await.expect("it is answered or not");
    assert!(made != 201 && triggered != 202, "nothing was promised: {made} {triggered}");
    if status.signal() == Some(9) {
        return false;
    }
    assert_eq!(status.code(), Some(75), "its supervisor is to start it again: {status}");
    true
}

#[test]
fn agents_and_workers_leave_one_that_hangs() {
    const PAGES: usize = 300;
    journey(async {
        let site = Site::serve(PAGES);
        let times = ["--grace", "200", "--node-heartbeat", "200", "--node-offline", "1500", "--worker-offline", "1500"];
        let mut pair = Pair::start(&[&times[..], &BRIEF].concat());
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("agent")).expect("a folder");
        let _agent = agent(&pair.both(), &home.path().join("agent"), &["--max-process-count", "3", "--heartbeat", "1"]);
        let (_, second) = pair.apis();
        stands_by(&second).await;
        let mut crawl = Crawl::start(&site.url, home.path(), &["--broker", &pair.both(), "--threads", "8"]);
        until("some pages", || {
            let there = crawl.count() >= PAGES / 4;
            async move { there.then_some(()) }
        })
        .await;
        signal(&pair.leader.process, "-STOP");
        leads(&second).await;
        // The one that hangs never wakes up: whoever waits for its answers waits for ever.
        crawl.succeeds().await;
        assert_eq!(urls(&crawl.lines()), site.all().into_iter().collect::<Vec<_>>(), "each page once");
        pair.leader.process.kill();
        site.stop().await;
    });
}

#[test]
fn one_that_hangs_in_the_middle_of_a_write_is_killed() {
    if server().is_some() {
        // A server ends the transaction itself.
        return;
    }
    journey(async {
        let mut pair = Pair::start_with(&BRIEF, "store.batch=hang@40");
        let (first, second) = pair.apis();
        stands_by(&second).await;
        let mut made = Vec::new();
        loop {
            let name = format!("{:03}", made.len());
            let job = new_job(&name);
            tokio::select! {
                (status, answer) = first.post("/api/v1/jobs", &job) => {
                    // It is cut off if the process is killed.
                    if status == 0 {
                        break;
                    }
                    assert_eq!(status, 201, "{answer}");
                    made.push(name);
                }
                () = until("it hangs", || async { hangs(&pair.leader.process).then_some(()) }) => break,
            }
        }
        leads(&second).await;
        let found = names(&second).await;
        // The batch that hangs may be one of the lease: then the job before it is stored, and its answer was cut off.
        assert!(
            found.starts_with(&made) && found.len() <= made.len() + 1,
            "all that was answered: {made:?}, and not more than one besides: {found:?}"
        );
        assert_eq!(second.post("/api/v1/jobs", &new_job("z")).await.0, 201);
        let status = pair.leader.process.0.wait().expect("it ends");
        assert_eq!(status.code(), None, "it was killed: {status}");
    });
}

#[test]
fn one_that_is_alone_leads_at_once_whatever_its_lease() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = Broker::start_in(folder.path(), "127.0.0.1:0", &LONG, "");
        let api = Api::new(&broker.url);
        for term in 1..=3 {
            leads(&api).await;
            let (_, brokers) = api.get("/api/v1/brokers").await;
            let leader = brokers.as_array().expect("a list").iter().find(|broker| broker["role"] == "leader");
            assert_eq!(leader.map(|leader| leader["term"].clone()), Some(json!(term)), "{brokers}");
            broker.kill_and_restart();
        }
    });
}

#[test]
fn a_crawl_does_not_stand_by() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("broker");
    std::fs::create_dir_all(&home).expect("a folder");
    let lock = std::fs::File::create(home.join("webloom.db.lock")).expect("a file");
    lock.try_lock().expect("nobody else knows of it");
    let mut command = Command::new(WEBLOOM);
    command.args(["crawl", "http://127.0.0.1:1/", "--quiet", "--state"]).arg(folder.path());
    let ended = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("another broker has") && said.contains("webloom.db"), "{said}");
}
