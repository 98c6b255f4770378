//! Three brokers on one PostgreSQL server, each behind proxies of the test. The leader, a standby, the server and the network between them fail in a
//! random order, under a crawl, tasks, callbacks, a schedule and pushes; at the end the server is lost for good and its replica takes its place.
//! Afterwards everything that was acknowledged is there, and nothing is there twice.

use crate::postgres::verify;
use crate::support::api::{Answer, Api, requests};
use crate::support::crawl::{Crawl, urls};
use crate::support::postgres::Cluster;
use crate::support::process::{Broker, Process, agent};
use crate::support::proxy::Proxy;
use crate::support::receiver::{Receiver, Reply};
use crate::support::site::Site;
use crate::support::{free_port, journey_within, pause, until};
use crate::tasks::{Crew, crew, job, over};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use webloom::sdk::{TaskContext, TaskResult, Worker};

const PAGES: usize = 1_500;
/// The only broker that the second agent knows.
const OF_SECOND_AGENT: usize = 2;
/// The exit code of a broker that must not lead any more.
const NO_LONGER_LEADS: i32 = 75;
const TIMES: [&str; 10] =
    ["--lease-ms", "1500", "--grace", "200", "--node-heartbeat", "200", "--node-offline", "1500", "--worker-offline", "1500"];

/// What fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    LeaderKilled,
    LeaderEnds,
    LeaderHangs,
    LeaderWithoutDatabase,
    LeaderWithoutPeers,
    StandbyKilled,
    StandbyHangs,
    StandbyWithoutDatabase,
    /// Its runs move to others, and then it is started again.
    StandbyDrained,
    /// The second agent loses the only broker that it knows.
    AgentCutOff,
    ServerCrashes,
    ServerHangs,
}

const ALL: [Failure; 12] = [
    Failure::LeaderKilled,
    Failure::LeaderEnds,
    Failure::LeaderHangs,
    Failure::LeaderWithoutDatabase,
    Failure::LeaderWithoutPeers,
    Failure::StandbyKilled,
    Failure::StandbyHangs,
    Failure::StandbyWithoutDatabase,
    Failure::StandbyDrained,
    Failure::AgentCutOff,
    Failure::ServerCrashes,
    Failure::ServerHangs,
];

/// A broker with its proxies: `database` before the server, `front` before the broker itself.
struct Place {
    broker: Broker,
    /// Past the front.
    api: Api,
    database: Proxy,
    front: Proxy,
    _home: tempfile::TempDir,
}

impl Place {
    fn start(cluster: &Cluster) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let (database, listen) = (Proxy::start(cluster.address()), format!("127.0.0.1:{}", free_port()));
        let front = Proxy::start(listen.clone());
        std::fs::write(home.path().join("b.url"), database.url("&answer_timeout=5")).expect("written");
        let advertise = front.http();
        let args = [&TIMES[..], &["--advertise", &advertise]].concat();
        let broker = Broker::start_in(home.path(), &listen, &args, "");
        Self { api: Api::new(&broker.url), broker, database, front, _home: home }
    }

    async fn is_ready(&self) -> bool {
        // One that hangs does not answer.
        let ready = tokio::time::timeout(Duration::from_millis(500), self.api.get("/readyz")).await;
        ready.is_ok_and(|(status, _)| status == 200)
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(name).arg(self.broker.process.0.id().to_string()).status().expect("kill runs");
        assert!(status.success());
    }

    /// Whether the broker has ended, because it does not lead any more: then it is started again.
    fn was_deposed(&mut self) -> bool {
        let Some(status) = self.broker.process.0.try_wait().expect("asked") else { return false };
        assert_eq!(status.code(), Some(NO_LONGER_LEADS), "{status}");
        self.broker.restart("");
        true
    }

    async fn is_deposed(&mut self) {
        until("the old leader ends", || std::future::ready(self.was_deposed().then_some(()))).await;
    }
}

struct Places {
    all: Vec<Place>,
    server: Cluster,
    replica: Cluster,
}

impl Places {
    fn start() -> Self {
        let (server, replica) = (Cluster::start(&[]), Cluster::empty());
        replica.follow(&server);
        let all = (0..3).map(|_| Place::start(&server)).collect();
        Self { all, server, replica }
    }

    /// The number of the broker that leads.
    async fn leader(&mut self) -> usize {
        self.leader_besides(usize::MAX).await
    }

    /// As [`Self::leader`], once another one than this leads. Who had to end because another one led for a moment is started again.
    async fn leader_besides(&mut self, other: usize) -> usize {
        let start = Instant::now();
        loop {
            let mut others: Vec<_> = self.all.iter_mut().enumerate().filter(|(n, _)| *n != other).collect();
            for (_, place) in &mut others {
                place.was_deposed();
            }
            for (n, place) in others {
                if place.is_ready().await {
                    return n;
                }
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no broker leads");
            pause(start).await;
        }
    }

    /// The addresses of all, as agents and workers know them.
    fn addresses(&self) -> String {
        self.all.iter().map(|place| place.front.http()).collect::<Vec<_>>().join(",")
    }

    async fn fail(&mut self, failure: Failure, done: &Done) {
        let leader = self.leader().await;
        let standby = (leader + 1) % self.all.len();
        match failure {
            Failure::LeaderKilled => {
                self.all[leader].broker.process.kill();
                self.leader_besides(leader).await;
                self.all[leader].broker.restart("");
            }
            Failure::LeaderEnds => {
                assert!(self.all[leader].broker.process.terminate().success());
                self.leader_besides(leader).await;
                self.all[leader].broker.restart("");
            }
            Failure::LeaderHangs => {
                self.all[leader].signal("-STOP");
                self.leader_besides(leader).await;
                self.all[leader].signal("-CONT");
                self.all[leader].is_deposed().await;
            }
            Failure::LeaderWithoutDatabase => {
                self.all[leader].database.cut();
                self.leader_besides(leader).await;
                self.all[leader].database.open();
                self.all[leader].is_deposed().await;
            }
            Failure::LeaderWithoutPeers | Failure::AgentCutOff => {
                let cut = if matches!(failure, Failure::AgentCutOff) { OF_SECOND_AGENT } else { leader };
                let front = &self.all[cut].front;
                front.cut();
                until("connections of peers are refused", || std::future::ready(front.has_refused(3).then_some(()))).await;
                front.open();
            }
            Failure::StandbyKilled => self.all[standby].broker.kill_and_restart(),
            Failure::StandbyHangs => {
                self.all[standby].signal("-STOP");
                // What came by way of it goes to the others.
                let pushes = done.pushes.get();
                until("pushes go past it", || std::future::ready((done.pushes.get() > pushes + 20).then_some(()))).await;
                self.all[standby].signal("-CONT");
            }
            Failure::StandbyWithoutDatabase => {
                self.all[standby].database.cut();
                until("its connections are refused", || std::future::ready(self.all[standby].database.has_refused(5).then_some(()))).await;
                self.all[standby].database.open();
            }
            Failure::StandbyDrained => {
                let (url, api) = (self.all[standby].front.http(), &self.all[leader].api);
                let find = async || {
                    let (_, brokers) = api.get("/api/v1/brokers").await;
                    brokers.as_array().into_iter().flatten().find(|broker| broker["url"] == *url && broker["role"] == "standby").cloned()
                };
                let found = until("it executes runs", || async { find().await.filter(|broker| broker["executes"] == true) }).await;
                let path = format!("/api/v1/brokers/{}/drain", found["id"].as_str().expect("an id"));
                // It may be connecting again after an earlier failure.
                until("it is drained", || async { (api.post(&path, &json!({})).await.0 == 202).then_some(()) }).await;
                until("it executes no runs", || async { find().await.filter(|broker| broker["executes"] == false) }).await;
                assert!(self.all[standby].broker.process.terminate().success());
                self.all[standby].broker.restart("");
            }
            Failure::ServerCrashes => {
                self.server.stop("immediate");
                until("the server is missed", || async { (!self.all[leader].is_ready().await).then_some(()) }).await;
                self.server.begin();
            }
            Failure::ServerHangs => {
                self.server.pause();
                until("the server is missed", || async { (self.all[leader].api.get("/readyz").await.0 == 503).then_some(()) }).await;
                self.server.resume();
            }
        }
        self.leader().await;
    }

    /// The server is gone, and what it has confirmed is at its replica.
    async fn fail_over(&mut self) {
        self.server.stop("immediate");
        self.replica.promote();
        for place in &self.all {
            place.database.redirect(self.replica.address());
        }
        self.leader().await;
    }
}

/// What is done, counted by those who do it.
#[derive(Default)]
struct Done {
    /// How many attempts of each task are at work now, and most at once.
    at_work: RefCell<HashMap<String, u32>>,
    most_at_once: Cell<u32>,
    tasks: RefCell<HashMap<String, u32>>,
    pushes: Cell<usize>,
}

/// An attempt of a task at work.
struct AtWork(Rc<Done>, String);

impl AtWork {
    fn begin(done: &Rc<Done>, task: &TaskContext) -> Self {
        let key = task.identity().to_string();
        let mut at_work = done.at_work.borrow_mut();
        let count = at_work.entry(key.clone()).or_default();
        *count += 1;
        done.most_at_once.set(done.most_at_once.get().max(*count));
        Self(Rc::clone(done), key)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        *self.0.at_work.borrow_mut().get_mut(&self.1).expect("it is at work") -= 1;
    }
}

async fn workers(brokers: &str, done: &Rc<Done>) -> Crew {
    let works = {
        let done = Rc::clone(done);
        move |task: TaskContext| {
            let done = Rc::clone(&done);
            async move {
                let at_work = AtWork::begin(&done, &task);
                // Some take longer than a broker takes to die, and a few longer than their lease.
                let chance = u64::from(at_work.1.as_bytes()[31]);
                let ms = if chance.is_multiple_of(16) { 5_000 } else { chance * 37 % 400 };
                tokio::time::sleep(Duration::from_millis(ms)).await;
                *done.tasks.borrow_mut().entry(at_work.1.clone()).or_default() += 1;
                TaskResult::Ok(())
            }
        }
    };
    let worker = || Worker::new(brokers).slots(5).task("h", works.clone());
    crew([worker(), worker()]).await
}

/// The addresses of all brokers, and the one that answered last.
struct Fronts {
    all: Vec<Api>,
    last: Cell<usize>,
}

impl Fronts {
    fn of(places: &Places) -> Self {
        Self { all: places.all.iter().map(|place| Api::new(&place.front.http())).collect(), last: Cell::new(0) }
    }

    /// A call by way of one broker after the other, until it is accepted or refused for good.
    async fn call(&self, call: impl AsyncFn(&Api) -> Answer) -> Answer {
        let start = Instant::now();
        loop {
            // A broker that hangs must not keep this one from the next; but on a busy machine a broker that works may be slow.
            let patience = Duration::from_secs(3).max(start.elapsed() / 4);
            match tokio::time::timeout(patience, call(&self.all[self.last.get()])).await {
                Ok((status, body)) if ![0, 500, 502, 503].contains(&status) => return (status, body),
                answer => assert!(start.elapsed() < Duration::from_secs(180), "waited three minutes for an answer: {answer:?}"),
            }
            self.last.set((self.last.get() + 1) % self.all.len());
            pause(start).await;
        }
    }
}

/// Pushes one page after the other into a run: each until it is acknowledged.
async fn push(fronts: Fronts, run: String, done: Rc<Done>) {
    loop {
        let page = requests([done.pushes.get()]);
        let (status, answer) = fronts.call(async |api| api.post(&format!("/requestqueue/{run}"), &page).await).await;
        assert_eq!(status, 200, "{answer}");
        done.pushes.set(done.pushes.get() + 1);
    }
}

/// Triggers a job thirty times; its runs.
async fn trigger(fronts: &Fronts, job: &str, round: usize) -> Vec<String> {
    let trigger = |n: u32| json!({ "idempotencyKey": format!("{round}-{n}") });
    let triggers: Vec<Value> = (0..30).map(trigger).collect();
    let path = format!("/api/v1/jobs/{job}/trigger/batch");
    let (status, runs) = fronts.call(async |api| api.post(&path, &json!(triggers)).await).await;
    assert_eq!(status, 202, "{runs}");
    runs.as_array().expect("a list").iter().map(|run| run["identity"].as_str().expect("an id").to_owned()).collect()
}

/// The failures in a random order.
fn shuffled() -> Vec<Failure> {
    let mut dice = uuid::Uuid::new_v4().as_u128();
    let mut left = ALL.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.swap_remove((dice % left.len() as u128) as usize));
        dice /= 11;
    }
    order
}

#[test]
fn whatever_fails_nothing_that_was_acknowledged_is_lost_or_doubled() {
    let order = shuffled();
    println!("{order:?}");
    journey_within(Duration::from_secs(1_200), async {
        let site = Site::serve(PAGES);
        let mut places = Places::start();
        let (addresses, fronts) = (places.addresses(), Fronts::of(&places));
        let leader = places.leader().await;
        let first = places.all[leader].api.clone();

        let homes = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let only = places.all[OF_SECOND_AGENT].front.http();
        let agents =
            [(&addresses, &homes[0]), (&only, &homes[1])].map(|(brokers, home)| agent(brokers, home.path(), &["--heartbeat", "1"]));
        let mut crawl = Crawl::start(&site.url, homes[2].path(), &["--broker", &addresses, "--threads", "4"]);
        let done = Rc::<Done>::default();
        let _workers = workers(&addresses, &done).await;
        let task = json!({ "handler": "h", "lease": 3_000, "lostAttempts": 50, "noWorker": "wait" });
        let by_hand = job(&first, "by-hand", task.clone(), json!({})).await;
        let misfire = json!({ "overlap": "allow", "misfire": { "policy": "all", "limit": 1000 } });
        let planned = json!({ "schedule": { "triggers": [{ "every": 500 }] }, "policies": misfire });
        let planned = job(&first, "planned", task, planned).await;
        let receiver = Receiver::start(std::iter::repeat_n(Reply::After(Duration::from_millis(300)), 5_000));
        let callback =
            json!({ "name": "callbacks", "jobType": "callback", "callback": { "url": receiver.url }, "policies": { "overlap": "allow" } });
        let (status, callbacks) = first.post("/api/v1/jobs", &callback).await;
        assert_eq!(status, 201, "{callbacks}");
        let callbacks = callbacks["id"].as_str().expect("an id").to_owned();
        // On a busy machine its worker, which does not poll, is offline before the run begins.
        let properties = json!({ "BlockSize": "10", "NodeGroup": "nowhere", "NoWorker": "wait" });
        let (run, _) = first.run("it.Pushed", &properties).await;
        let pushes = actix_rt::spawn(push(Fronts::of(&places), run.clone(), Rc::clone(&done)));

        let (mut made, mut called) = (Vec::new(), Vec::new());
        for (round, failure) in order.into_iter().enumerate() {
            made.extend(trigger(&fronts, &by_hand, round).await);
            called.extend(trigger(&fronts, &callbacks, round).await);
            let (tasks, pages) = (done.tasks.borrow().len(), done.pushes.get());
            places.fail(failure, &done).await;
            until("tasks and pushes go on", || {
                let goes_on = done.tasks.borrow().len() > tasks && done.pushes.get() > pages;
                std::future::ready(goes_on.then_some(()))
            })
            .await;
            assert!(!pushes.is_finished(), "all pushes were accepted");
        }
        places.fail_over().await;

        crawl.succeeds().await;
        assert_eq!(urls(&crawl.lines()), site.all().into_iter().collect::<Vec<_>>(), "each page once");
        pushes.abort();
        let again = requests(0..done.pushes.get());
        let (status, answer) = fronts.call(async |api| api.post(&format!("/requestqueue/{run}"), &again).await).await;
        assert_eq!((status, &answer["accepted"]), (200, &json!(0)), "each page that was acknowledged is there: {answer}");
        for run in made.iter().chain(&called) {
            let Ok(run) = tokio::time::timeout(Duration::from_secs(55), over(&fronts.all[0], run)).await else {
                let paths = [format!("/api/v1/runs/{run}"), format!("/api/v1/runs/{run}/why"), "/api/v1/brokers".to_owned()];
                for path in paths {
                    println!("{path}: {:?}", fronts.all[0].get(&path).await);
                }
                panic!("run {run} has not ended");
            };
            assert_eq!(run["state"], "success", "{run}");
        }
        assert_eq!(done.most_at_once.get(), 1, "a task was at work twice at once");
        assert!(made.iter().all(|run| done.tasks.borrow().contains_key(run)), "each was carried out");
        let got: HashSet<String> = receiver.got().iter().map(|got| got.headers["webloom-run"].clone()).collect();
        assert_eq!(got, called.iter().cloned().collect(), "each was sent");
        for (job, runs) in [(&by_hand, &made), (&callbacks, &called)] {
            let list = format!("/api/v1/runs?jobId={job}&limit=1000");
            let (_, list) = fronts.call(async |api| api.get(&list).await).await;
            assert_eq!(list["items"].as_array().map(Vec::len), Some(runs.len()), "none is doubled");
        }
        let disable = format!("/api/v1/jobs/{planned}/disable");
        let (status, answer) = fronts.call(async |api| api.post(&disable, &json!({})).await).await;
        assert_eq!(status, 200, "{answer}");
        drop::<[Process; 2]>(agents);
        places.all.clear();
        verify(&places.replica.url("webloom", ""));
        site.stop().await;
        receiver.stop().await;
    });
}
