//! docs/protocol.md says what the code does: its examples are read by the types, its numbers are computed again.

#![expect(clippy::unwrap_used, reason = "a test ends where its input is not what it must be")]

use webloom::for_tests::api::RunOutput;
use webloom::for_tests::fingerprint::{Fingerprint, canonical, normalized};
use webloom::for_tests::ids::{BlockId, Identity, NodeId};
use webloom::for_tests::node::{BlockReport, FromNode, HeartbeatCall, ToNode};
use webloom::for_tests::problem::Problem;
use webloom::for_tests::push::{Pushed, read_ack, read_push};
use webloom::for_tests::worker::{FromWorker, ToWorker};
use webloom::for_tests::{delivery, frame, pack, push, sign};

const PAGE: &str = include_str!("../docs/protocol.md");

/// The fenced blocks of a kind, each with the text before it.
fn fences<'a>(text: &'a str, kind: &str) -> Vec<(&'a str, &'a str)> {
    let open = format!("\n```{kind}\n");
    let starts: Vec<_> = text.match_indices(&open).map(|(at, _)| at).collect();
    let body = |at: usize| text[at + open.len()..].split("\n```").next().unwrap();
    starts.into_iter().map(|at| (&text[..at], body(at))).collect()
}

/// The text between two headings.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("{heading}\n")).unwrap_or_else(|| panic!("no section `{heading}`"));
    let level = heading.split(' ').next().unwrap();
    rest.split(&format!("\n{level} ")).next().unwrap()
}

/// The bytes of the dump in a section.
fn dumped(heading: &str) -> Vec<u8> {
    let all = fences(section(PAGE, heading), "text");
    let (_, dump) = all.iter().find(|(_, block)| block.starts_with("0000  ")).expect("a dump");
    dump.lines()
        .flat_map(|line| line[6..].split("  ").next().unwrap().split(' ').map(|pair| u8::from_str_radix(pair, 16).unwrap()))
        .collect()
}

#[test]
fn every_message_is_one() {
    let mut seen = 0;
    for (heading, is_worker) in [("## 4. A worker", true), ("## 6. A node", false)] {
        for (before, block) in fences(section(PAGE, heading), "text") {
            let from_broker = before.trim_end().ends_with("From the broker:");
            for line in block.lines().filter(|line| line.starts_with("{\"t\"")) {
                let wrong = match (is_worker, from_broker) {
                    (true, true) => frame::read::<ToWorker>(line.as_bytes()).err(),
                    (true, false) => frame::read::<FromWorker>(line.as_bytes()).err(),
                    (false, true) => frame::read::<ToNode>(line.as_bytes()).err(),
                    (false, false) => frame::read::<FromNode>(line.as_bytes()).err(),
                };
                assert_eq!(wrong, None, "{line}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 33, "messages on the page");
}

#[test]
fn every_body_is_one() {
    let json = |heading: &str, n: usize| fences(section(PAGE, heading), "json")[n].1.as_bytes().to_vec();
    let one = [b"[".as_slice(), &json("## 3. Requests and their ids", 0), b"]"].concat();
    assert_eq!(read_push(one.into()).expect("a push").requests.len(), 1);
    serde_json::from_slice::<Pushed>(&json("### Push", 0)).expect("the answer to a push");
    let block: delivery::Block = serde_json::from_slice(&json("### Poll", 0)).expect("a finished block");
    assert_eq!(block.results.len(), 1);
    let (blocks, batch) = read_ack(json("### Acknowledge", 0).into()).expect("an acknowledgement");
    assert_eq!((blocks.len(), batch.requests.len()), (1, 1));
    let report: BlockReport = push::read_json(&json("### Report", 0)).expect("a report");
    assert_eq!(report.results.len(), 2);
    let nodes = PAGE.split("## 6. A node").nth(1).unwrap();
    let call = fences(section(nodes, "### By plain HTTP"), "json")[0].1;
    serde_json::from_str::<HeartbeatCall>(call).expect("a heartbeat");
    serde_json::from_slice::<webloom::for_tests::api::JobInput>(&json("## 8. REST", 0)).expect("a job");
    let run: RunOutput = serde_json::from_slice(&json("## 8. REST", 1)).expect("a run");
    assert_eq!(run.counters.left, run.counters.total - run.counters.success - run.counters.error);
    serde_json::from_slice::<Problem>(&json("## 9. Errors", 0)).expect("a problem");
}

#[test]
fn every_request_id_is_right() {
    let rows =
        section(PAGE, "## 3. Requests and their ids").lines().filter(|line| line.starts_with("| GET `") || line.starts_with("| POST `"));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let quoted: Vec<_> = cells[1].split('`').collect();
        let (method, url, body) = (quoted[0].trim(), quoted[1], quoted.get(3).copied().unwrap_or(""));
        let url = normalized(canonical(url.parse().expect("a url")).as_str()).into_owned();
        assert_eq!(format!("`{url}`"), cells[2]);
        assert_eq!(format!("`{}`", Fingerprint::of(method, url.as_str(), body.as_bytes())), cells[3], "{row}");
        seen += 1;
    }
    assert_eq!(seen, 6);
    assert!(PAGE.contains(&format!("| key `page-7` | | `{}` |", Fingerprint::of_key("page-7"))));
}

#[test]
fn the_sign_and_the_block_id_are_right() {
    let node: NodeId = "6f9619ff8b86d011b42d00c04fc964ff".parse().unwrap();
    assert!(PAGE.contains(&sign::sign("1234", node)));
    let run: Identity = "0f8fad5bd9cb469fa16570867728950e".parse().unwrap();
    assert!(PAGE.contains(&format!("block 7 of run `{run}` is `{}`", BlockId::new(run, 7))));
}

#[test]
fn the_dumps_are_what_they_say() {
    let requests = b"[{\"requestId\":\"ce676c8080fd53fc3ea8d0c7\",\"url\":\"http://example.com/\"}]";

    let message = dumped("### A binary message");
    let (text, bulk) = frame::split(&message).expect("a binary message");
    let ToNode::Block(block) = frame::read(text).expect("a message") else { panic!("no block") };
    assert!(block.requests.is_none());
    assert_eq!(zstd::bulk::decompress(bulk, 1_000).unwrap(), requests);

    let whole = dumped("### A pack");
    assert_eq!(whole.len(), 331);
    let index = pack::read_index(&whole).expect("an index");
    let printed = fences(section(PAGE, "### A pack"), "json")[0].1;
    assert_eq!(serde_json::to_string(&index).unwrap(), printed);
    let (_, opened) = pack::open(&whole, 1_000).expect("a pack");
    assert_eq!((&opened[0].body[..], opened[0].head.headers.len()), (&b"<p>hi</p>"[..], 1));

    let body = dumped("### A delivery");
    let mut rest = &body[..];
    let (head, compressed, inner) = delivery::read(&mut rest).expect("a delivery");
    assert!(rest.is_empty());
    assert_eq!(zstd::bulk::decompress(compressed, head.requests_raw as usize).unwrap(), requests);
    assert_eq!(inner, whole);
}

#[test]
fn the_limits_are_the_code_s() {
    let limits = section(PAGE, "## 11. Limits");
    assert_eq!(
        (webloom::for_tests::MAX_FRAME, webloom::for_tests::MAX_PUSH, webloom::for_tests::MAX_REPORT),
        (32 << 20, 32 << 20, 512 << 20)
    );
    for number in [push::MOST_REQUESTS, push::MOST_URL, push::MOST_KEY, webloom::for_tests::MOST_DELIVERED] {
        let text = format!("{},{:03}", number / 1_000, number % 1_000);
        assert!(limits.contains(&text), "{text}");
    }
}

/// The words of all conflicts that the program can answer with, read from its source.
#[test]
fn every_conflict_is_on_the_page() {
    let mut words = std::collections::BTreeSet::new();
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                for (at, call) in text.match_indices("Problem::conflict(") {
                    let argument = text[at + call.len()..].trim_start();
                    // A test of the type uses the word `x`.
                    words.extend(
                        argument.strip_prefix('"').and_then(|rest| rest.split('"').next()).filter(|word| *word != "x").map(str::to_owned),
                    );
                }
            }
        }
    }
    assert!(words.len() > 10, "{words:?}");
    let table = section(PAGE, "## 9. Errors");
    for word in words {
        assert!(table.contains(&format!("`{word}`")), "`/problems/{word}` is not in the table of errors");
    }
}
