//! Brokers of two versions on one PostgreSQL database. The first message of each side on the link between the leader and a broker that executes runs says
//! what this side knows. A relay before the leader hides what an earlier version does not know.

use crate::postgres::verify;
use crate::run_owners::over;
use crate::support::brokers::Brokers;
use crate::support::receiver::{Receiver, Reply};
use crate::support::{free_port, journey, until};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{Read, Result, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Members of the messages `join` and `welcome` that an earlier version does not send, and names of the same length that no version knows.
const HIDDEN: [(&[u8], &[u8]); 3] =
    [(b"\"blockRuns\":true", b"\"xxxxxxxxx\":true"), (b"\"answers\":true", b"\"xxxxxxx\":true"), (b"\"counts\":true", b"\"xxxxxx\":true")];

/// What was hidden: the place in [`HIDDEN`], and whether it was in `join`.
type Hidden = Arc<Mutex<HashSet<(usize, bool)>>>;

/// A relay before a broker.
struct Relay {
    port: u16,
    hidden: Hidden,
}

impl Relay {
    fn start(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let hidden = Hidden::default();
        let notes = Arc::clone(&hidden);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // Its broker may have been killed.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&broker)) else { continue };
                let [back, forth] = [(&server, &client), (&client, &server)]
                    .map(|(from, to)| (from.try_clone().expect("cloned"), to.try_clone().expect("cloned"), Arc::clone(&notes)));
                std::thread::spawn(move || pass(back.0, back.1, &back.2));
                std::thread::spawn(move || pass(forth.0, forth.1, &forth.2));
            }
        });
        Self { port, hidden }
    }
}

/// Passes on what comes, until one of both ends. The connection of a link begins with a head of HTTP; then the first frame is changed.
fn pass(mut from: TcpStream, mut to: TcpStream, hidden: &Hidden) {
    let _ = pass_first(&mut from, &mut to, hidden).and_then(|()| copy(&mut from, &mut to).map(drop));
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn pass_first(from: &mut TcpStream, to: &mut TcpStream, hidden: &Hidden) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(byte(from)?);
    }
    to.write_all(&head)?;
    let head = head.to_ascii_lowercase();
    let is_link = contains(&head, b"webloom-link:") || head.starts_with(b"http/1.1 101");
    if !is_link {
        return Ok(());
    }
    // RFC 6455, section 5.2.
    let mut frame = vec![byte(from)?, byte(from)?];
    let length = match frame[1] & 127 {
        126 => {
            frame.extend([byte(from)?, byte(from)?]);
            usize::from(u16::from_be_bytes([frame[2], frame[3]]))
        }
        short => {
            assert!(short < 126, "the first message is short");
            usize::from(short)
        }
    };
    let mut mask = [0; 4];
    if frame[1] & 128 != 0 {
        from.read_exact(&mut mask)?;
        frame.extend(mask);
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    let masked = |text: &mut [u8]| text.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    masked(&mut text);
    for (place, (name, other)) in HIDDEN.iter().enumerate() {
        if let Some(at) = text.windows(name.len()).position(|part| part == *name) {
            text[at..at + name.len()].copy_from_slice(other);
            hidden.lock().expect("unpoisoned").insert((place, frame[1] & 128 != 0));
        }
    }
    masked(&mut text);
    to.write_all(&[frame, text].concat())
}

fn byte(from: &mut TcpStream) -> Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte).map(|()| byte[0])
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn brokers_of_two_versions_share_what_the_earlier_one_knows() {
    journey(async {
        let address = format!("127.0.0.1:{}", free_port());
        let relay = Relay::start(address.clone());
        let front = format!("http://127.0.0.1:{}", relay.port);
        let mut brokers = Brokers::none(&[], &[], None);
        brokers.add_at(&address, &["--advertise", &front]);
        brokers.add();
        // The brokers know the leader by this address.
        let leader = brokers.api(0);
        brokers.all[0].0.url = front;
        brokers.execute(2).await;
        let expected = HashSet::from([(0, true), (1, true), (0, false), (2, false)]);
        until("hidden members", || async { (*relay.hidden.lock().expect("unpoisoned") == expected).then_some(()) }).await;

        // Callbacks are executed by both.
        let receiver = Receiver::start(std::iter::repeat_n(Reply::Held(200), 4));
        let input =
            json!({ "name": "both", "jobType": "callback", "callback": { "url": receiver.url }, "policies": { "overlap": "allow" } });
        let (status, job) = leader.post("/api/v1/jobs", &input).await;
        assert_eq!(status, 201, "{job}");
        let mut runs = Vec::new();
        for _ in 0..4 {
            runs.push(leader.trigger(job["id"].as_str().expect("an id")).await);
        }
        receiver.wait_for(4).await;
        brokers.have_runs(0, &[2, 2]).await;
        // Crawls are executed by the leader.
        let blocks = [leader.run("X", &json!({})).await.0, leader.run("Y", &json!({})).await.0];
        brokers.have_runs(0, &[4, 2]).await;
        // The leader does not ask the other broker for its actors.
        let (_, actors) = leader.get("/api/v1/actors").await;
        assert!(actors.as_array().expect("a list").iter().all(|actor| actor["brokerId"] == Value::Null), "{actors}");

        receiver.release();
        for run in &runs {
            assert_eq!(over(&leader, run).await["state"], "success");
        }
        for run in &blocks {
            assert_eq!(leader.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        }
        // The leader counts the ends of all runs, each once.
        until("the ends of all runs", || async {
            let page = leader.metrics().await;
            page.lines().any(|line| line == "webloom_runs_ended_total{state=\"success\"} 4").then_some(())
        })
        .await;
        let (_, series) = leader.get("/api/v1/series").await;
        let ended = series["values"]["runs.success"].as_array().expect("values").iter().filter_map(Value::as_f64).sum::<f64>();
        assert!((ended - 4.0).abs() < 0.1, "{series}");

        // It takes the runs of the other broker back, as ever.
        let receiver = Receiver::start(std::iter::repeat_n(Reply::Held(200), 4));
        let input =
            json!({ "name": "lost", "jobType": "callback", "callback": { "url": receiver.url }, "policies": { "overlap": "allow" } });
        let (_, job) = leader.post("/api/v1/jobs", &input).await;
        let runs = [leader.trigger(job["id"].as_str().expect("an id")).await, leader.trigger(job["id"].as_str().expect("an id")).await];
        receiver.wait_for(2).await;
        brokers.have_runs(0, &[1, 1]).await;
        brokers.kill(1);
        receiver.wait_for(3).await;
        receiver.release();
        for run in &runs {
            assert_eq!(over(&leader, run).await["state"], "success");
        }
        verify(&brokers.url);
    });
}
