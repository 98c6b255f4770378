//! Promise 1 and 2: everything is killed again and again, and in the end every page was delivered.

use crate::support::api::Api;
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, Process, agent};
use crate::support::site::Site;
use crate::support::{journey, pause, until};
use serde_json::json;
use std::time::{Duration, Instant};

/// A small generator, so that a failure can be repeated with its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

const PAGES: usize = 3_000;
const KILLS: usize = 40;

#[test]
fn nothing_is_lost_however_often_everything_is_killed() {
    let seed = std::env::var("WEBLOOM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    journey(async move {
        let mut dice = Dice(seed);
        let site = Site::serve(PAGES);
        let folder = tempfile::tempdir().expect("a folder");
        let times = ["--grace", "200", "--node-heartbeat", "200", "--node-offline", "1500", "--worker-offline", "1500"];
        let mut broker = Broker::start(&times, "");
        let homes = [folder.path().join("a"), folder.path().join("b")];
        let start_agent = |i: usize, url: &str| -> Process {
            std::fs::create_dir_all(&homes[i]).expect("a folder");
            agent(url, &homes[i], &["--max-process-count", "3"])
        };
        let mut agents = [start_agent(0, &broker.url), start_agent(1, &broker.url)];
        let mut crawl = Crawl::start(&site.url, folder.path(), &["--broker", &broker.url.clone(), "--threads", "8"]);
        let mut kills = [0; 4];
        let mut before = 0;
        while kills.iter().sum::<usize>() < KILLS {
            // It goes on until some more pages are there, or it ends.
            let wanted = before + 1 + dice.roll(PAGES as u64 / KILLS as u64) as usize;
            let crawl = &mut crawl;
            let there = until(&format!("page {wanted} (seed {seed}, kills {kills:?})"), || {
                let (ended, there) = (crawl.ended(), crawl.count());
                async move { (ended.is_some() || there >= wanted).then_some((ended.is_some(), there)) }
            })
            .await;
            if there.0 {
                break;
            }
            before = there.1;
            let victim = dice.roll(4) as usize;
            kills[victim] += 1;
            match victim {
                0 => broker.kill_and_restart(),
                1 | 2 => {
                    agents[victim - 1].kill();
                    agents[victim - 1] = start_agent(victim - 1, &broker.url);
                }
                _ => {
                    crawl.process.kill();
                    crawl.resume();
                }
            }
        }
        let api = Api::new(&broker.url);
        let start = Instant::now();
        let status = loop {
            if let Some(status) = crawl.ended() {
                break status;
            }
            pause(start).await;
            if start.elapsed() > Duration::from_secs(60) {
                let (_, runs) = api.get("/api/v1/runs").await;
                let (_, actors) = api.get("/api/v1/actors").await;
                let (_, nodes) = api.get("/api/v1/nodes").await;
                let lines = crawl.count();
                panic!("it does not end: seed {seed}, kills {kills:?}, {lines} lines\n{runs}\n{actors}\n{nodes}");
            }
        };
        assert!(status.success(), "seed {seed}, kills {kills:?}");
        assert!(kills.iter().sum::<usize>() >= KILLS / 2, "too few kills to mean anything: {kills:?}");
        let lines = crawl.lines();
        let (found, wanted): (Vec<String>, Vec<String>) = (urls(&lines), site.all().into_iter().collect());
        let missing: Vec<_> = wanted.iter().filter(|url| found.binary_search(url).is_err()).collect();
        assert!(missing.is_empty(), "missing {missing:?}, seed {seed}, kills {kills:?}");
        assert_eq!(found.len(), wanted.len(), "each page once, seed {seed}, kills {kills:?}");
        let bad: Vec<_> = lines.iter().filter(|line| line["status"] != 200).collect();
        assert!(bad.is_empty(), "{bad:?}");
        let (_, runs) = api.get("/api/v1/runs").await;
        let run = &runs["items"][0];
        let counts = ["left", "success", "error", "total"].map(|k| run[k].clone());
        assert_eq!(counts, [json!(0), json!(PAGES), json!(0), json!(PAGES)], "seed {seed}, kills {kills:?}: {run}");
        site.stop().await;
    });
}
