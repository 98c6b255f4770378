//! What sites cost a broker: its memory for a queue of many sites, and how soon it goes on with them after `kill -9`.

use super::support::http::Http;
use super::support::process;
use super::support::run::{Run, trigger_with};
use super::support::worker::Worker;
use super::{Failure, mb, round};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests of a push.
const PUSH: u64 = 10_000;
/// How long a broker may take to restore the run.
const MOST_S: u64 = 600;

/// Pushes `per_site` requests for each site; kills the broker, and waits for the first block of the next one.
pub fn many_sites(dir: &Path, sites: u64, per_site: u64, rounds: bool) -> Result<Value, Failure> {
    let database = dir.join("b.db");
    let (broker, address) = process::broker(&database)?;
    let mut http = Http::connect(address)?;
    let mut worker = Worker::watch(address).map_err(|e| e.to_string())?;
    let identity = trigger_with(&mut http, json!({ "MaxPending": (sites * per_site + 1).to_string() }))?;
    let run = Run::new(address, identity.clone(), 0, 1, 0, 0);
    // One small push, so that the warm-up of the broker is not counted.
    push(&mut http, &identity, [(u64::MAX, 0)].into_iter())?;
    let before = process::memory(broker.pid(), "VmRSS");
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let (run_ref, next_ref, identity_ref) = (&run, &next, identity.as_str());
    let total = sites * per_site;
    // The requests of a site stand together, or each site is met again after all others.
    let nth = move |n: u64| if rounds { (n % sites, n / sites) } else { (n / per_site, n % per_site) };
    std::thread::scope(|threads| -> Result<(), Failure> {
        let attending = threads.spawn(|| worker.attend(run_ref));
        let pushing = [(); 2].map(|()| {
            threads.spawn(move || -> Result<(), String> {
                let mut http = Http::connect(address).map_err(|e| e.to_string())?;
                loop {
                    let first = next_ref.fetch_add(PUSH, Ordering::Relaxed);
                    if first >= total {
                        return Ok(());
                    }
                    push(&mut http, identity_ref, (first..total.min(first + PUSH)).map(nth)).map_err(|e| e.to_string())?;
                }
            })
        });
        let pushed: Vec<_> = pushing.into_iter().map(|thread| thread.join().map_err(|_| "a producer panicked".to_owned())).collect();
        run.over.store(true, Ordering::Release);
        attending.join().map_err(|_| "a worker panicked")?.map_err(|e| e.to_string())?;
        pushed.into_iter().try_for_each(|outcome| outcome?.map_err(Failure::from))
    })?;
    let pushing = begun.elapsed();
    let (after, peak) = (process::memory(broker.pid(), "VmRSS"), process::memory(broker.pid(), "VmHWM"));

    // As a power cut would end it.
    drop(broker);
    let begun = Instant::now();
    let (broker, address) = process::broker(&database)?;
    let listening = begun.elapsed();
    let at_rest = process::memory(broker.pid(), "VmRSS");
    let mut http = Http::connect(address)?;
    // The state of the run would be counted in the store as long as its actor is not there.
    let restored = wait(begun, || {
        let (status, _) = http.json(&format!("GET /requestqueue/{identity}?wait=0"), "")?;
        Ok((status == 204).then(|| begun.elapsed()))
    })?;
    let (_, state) = http.json(&format!("GET /api/v1/runs/{identity}"), "")?;
    if state["seen"] != total + 1 {
        return Err(format!("the run has lost requests: {state}").into());
    }
    let restarted = (process::memory(broker.pid(), "VmRSS"), process::memory(broker.pid(), "VmHWM"));
    let node = webloom::for_tests::ids::NodeId::random().to_string();
    let beat = json!({ "nodeId": node, "os": "linux", "cpuCount": 1, "group": "default", "totalMemory": 1_000 }).to_string();
    let handed_out = wait(begun, || {
        let (status, _) = http.json("POST /node/heartbeat", &beat)?;
        Ok((status == 200).then(|| begun.elapsed()))
    })?;
    let of_each = |bytes: u64, from: u64, count: u64| round((bytes as f64 - from as f64) / count as f64);
    Ok(json!({
        "bench": "polite", "part": "memory", "sites": sites, "per_site": per_site, "rounds": rounds, "requests": total,
        "push_s": round(pushing.as_secs_f64()), "requests_per_s": (total as f64 / pushing.as_secs_f64()).round(),
        "before_mb": mb(before), "after_mb": mb(after), "peak_mb": mb(peak),
        "growth_bytes_per_site": of_each(after, before, sites), "growth_bytes_per_request": of_each(after, before, total),
        "disk_bytes_per_request": super::size(dir) / total,
        "restart_listening_s": round(listening.as_secs_f64()), "restart_restored_s": round(restored.as_secs_f64()),
        "restart_handed_out_s": round(handed_out.as_secs_f64()),
        "restarted_mb": mb(restarted.0), "restarted_peak_mb": mb(restarted.1),
        "restarted_bytes_per_site": of_each(restarted.0, at_rest, sites),
        "restarted_bytes_per_request": of_each(restarted.0, at_rest, total),
    }))
}

fn wait(begun: Instant, mut ask: impl FnMut() -> Result<Option<Duration>, Failure>) -> Result<Duration, Failure> {
    loop {
        if let Some(took) = ask()? {
            return Ok(took);
        }
        if begun.elapsed() > Duration::from_secs(MOST_S) {
            return Err("the run did not come back".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Pushes requests, each a site and a page of it.
fn push(http: &mut Http, identity: &str, requests: impl Iterator<Item = (u64, u64)>) -> Result<(), Failure> {
    let mut body = String::from("[");
    for (site, page) in requests {
        let comma = if body.len() > 1 { "," } else { "" };
        write!(body, "{comma}{{\"url\":\"http://www.site-{site}.example/section/page-{page}.html\",\"depth\":1}}")?;
    }
    body.push(']');
    loop {
        match http.json(&format!("POST /requestqueue/{identity}"), &body)? {
            (200, _) => return Ok(()),
            (429 | 503, _) => std::thread::sleep(Duration::from_millis(5)),
            (status, answer) => return Err(format!("a push was answered {status}: {answer}").into()),
        }
    }
}
