//! The house rules that a program can check. Each is a function from a file to what is wrong with it, and each is shown
//! a planted fault, so that a rule that has gone blind is noticed.

#[path = "tidy/asks.rs"]
mod asks;
#[path = "tidy/migrations.rs"]
mod migrations;

use std::path::{Path, PathBuf};

/// Room, and the rooms that it may import besides itself. `cli` puts the programs together and may use all.
const ARROWS: [(&str, &[&str]); 20] = [
    ("domain", &[]),
    ("protocol", &["domain"]),
    ("config", &["domain", "protocol"]),
    ("fault", &[]),
    ("names", &["domain"]),
    ("open_files", &[]),
    ("private", &[]),
    ("tls", &[]),
    ("package", &["protocol"]),
    ("sockets", &["protocol"]),
    ("executors", &["domain"]),
    ("store", &["domain", "fault", "open_files", "private", "tls"]),
    ("telemetry", &["domain", "protocol", "tls"]),
    ("actors", &["domain", "protocol", "config", "names", "store", "package", "fault", "telemetry", "tls"]),
    ("service", &["domain", "protocol", "config", "store", "package", "actors", "fault"]),
    ("edge", &["domain", "protocol", "config", "service", "actors", "fault"]),
    ("agent", &["domain", "protocol", "config", "names", "open_files", "package", "private", "sockets", "executors", "tls"]),
    ("sdk", &["domain", "protocol", "config", "sockets", "executors", "tls"]),
    ("crawl", &["domain", "protocol", "config", "private", "sdk"]),
    ("broker", &["domain", "protocol", "config", "names", "store", "actors", "service", "edge", "fault", "private", "telemetry", "tls"]),
];

/// A crate, and the only folders that may name it.
const FENCES: [(&str, &[&str]); 9] = [
    ("actix_web_actors", &["src/edge/ws/"]),
    ("diesel", &["src/store/"]),
    ("diesel_migrations", &["src/store/"]),
    ("libsqlite3_sys", &["src/store/"]),
    ("prost", &["src/telemetry/"]),
    ("reqwest", &["src/agent/", "src/cli/client.rs"]),
    ("actix_web", &["src/edge/", "src/broker/", "src/cli/", "src/crawl/site.rs"]),
    ("actix", &["src/actors/", "src/service/", "src/edge/", "src/store/", "src/broker/", "src/cli/"]),
    ("clap", &["src/cli/", "src/config/", "src/crawl/options.rs"]),
];

/// What the rooms that only decide never touch.
const PURE: [&str; 2] = ["src/domain/", "src/protocol/"];
const IMPURE: [&str; 11] = [
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::thread",
    "std::env",
    "tokio::",
    "actix",
    "awc::",
    "Instant::now",
];

/// Where the clock is read, which a test may set.
const CLOCK: &str = "src/domain/time.rs";

/// Lines of a file.
const LINES: usize = 500;
/// Files over the limit, each with its reason.
const LONG: [(&str, &str); 0] = [];

struct File {
    path: String,
    text: String,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// `store` for `src/store/schema.rs` and for `src/store.rs`.
    fn room(&self) -> &str {
        let rest = self.path.strip_prefix("src/").unwrap_or("");
        rest.split('/').next().unwrap_or("").trim_end_matches(".rs")
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.ends_with("simulation.rs") || self.path.contains("/tests/")
    }

    /// The program without comments, texts and tests; lines stay where they are.
    fn code(&self) -> String {
        without_tests(&without_texts(&self.text))
    }
}

/// Blanks comments, string and character literals.
fn without_texts(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |n| n + 2)
        } else if let Some(hashes) = raw_text(rest, at.checked_sub(1).map(|before| bytes[before])) {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = rest.find('"').unwrap_or(0) + 1;
            rest[open..].find(&close).map_or(rest.len(), |n| open + n + close.len())
        } else if rest.starts_with('"') {
            quoted(rest, '"')
        } else if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') && rest.starts_with('\'') {
            quoted(rest, '\'')
        } else {
            0
        };
        if end == 0 {
            let char = rest.chars().next().expect("not at the end");
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            at += char.len_utf8();
        } else {
            out.extend(rest[..end].bytes().map(|b| if b == b'\n' { b } else { b' ' }));
            at += end;
        }
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// The number of `#` if a raw string begins here.
fn raw_text(rest: &str, before: Option<u8>) -> Option<usize> {
    if before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let rest = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// Bytes of a literal in these quotes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = true; // steps over the opening quote
    for (at, char) in rest.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Blanks what stands under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let mut depth = 0;
        let mut end = out.len();
        for (at, char) in out[start..].char_indices() {
            match char {
                '{' => depth += 1,
                '}' if depth == 1 => {
                    end = start + at + 1;
                    break;
                }
                '}' => depth -= 1,
                ';' if depth == 0 => {
                    end = start + at + 1;
                    break;
                }
                _ => {}
            }
        }
        let blank: String = out[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Places of a word, whole.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let ends = !word.ends_with(is_word) || !code[at + word.len()..].starts_with(is_word);
        ends && (!word.starts_with(is_word) || !code[..at].ends_with(is_word))
    })
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// The rooms named by a path that begins behind `crate::` or its like: one, or those in braces.
fn rooms_behind(rest: &str) -> Vec<&str> {
    let Some(inner) = rest.strip_prefix('{') else { return vec![rest.split(|c| !is_word(c)).next().unwrap_or("")] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, char) in inner.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(inner[start..at].trim().split(|c| !is_word(c)).next().unwrap_or(""));
                start = at + 1;
                if char == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

fn arrows(file: &File) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| *room == file.room()) else { return Vec::new() };
    if file.is_test() {
        return Vec::new();
    }
    let code = file.code();
    // Modules between the crate's root and this file: so many `super` lead to the root.
    let inside = file.path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod").split('/').count();
    let to_root = "super::".repeat(inside);
    let mut found = Vec::new();
    for prefix in ["crate::", "webloom::", &to_root] {
        for at in words(&code, prefix) {
            if prefix == to_root && code[..at].ends_with("super::") {
                continue;
            }
            for room in rooms_behind(&code[at + prefix.len()..]) {
                let known = ARROWS.iter().any(|(name, _)| *name == room) || room == "cli";
                let sets_clock = file.path == CLOCK && room == "fault";
                if known && room != file.room() && !allowed.contains(&room) && !sets_clock {
                    found.push(format!("{}:{}: {} must not import {room}", file.path, line_of(&code, at), file.room()));
                }
            }
        }
    }
    found
}

fn fences(file: &File) -> Vec<String> {
    let code = file.code();
    let mut found = Vec::new();
    for (name, homes) in FENCES {
        if file.is_test() || !file.path.starts_with("src/") || homes.iter().any(|home| file.path.starts_with(home)) {
            continue;
        }
        let path = format!("{name}::");
        for at in words(&code, &path) {
            found.push(format!("{}:{}: {name} is only for {}", file.path, line_of(&code, at), homes.join(", ")));
        }
    }
    if PURE.iter().any(|home| file.path.starts_with(home)) && !file.is_test() {
        for name in IMPURE.into_iter().filter(|name| file.path != CLOCK || *name != "Instant::now") {
            found.extend(code.match_indices(name).map(|(at, _)| format!("{}:{}: {name} in a pure room", file.path, line_of(&code, at))));
        }
    }
    found
}

fn clock(file: &File) -> Vec<String> {
    if file.path == "src/domain/time.rs" || !file.path.starts_with("src/") || file.is_test() {
        return Vec::new();
    }
    let code = file.code();
    let mut names = vec!["SystemTime::now", "Utc::now", "Local::now", "SystemTime::UNIX_EPOCH", "UNIX_EPOCH"];
    if PURE.iter().any(|home| file.path.starts_with(home)) {
        names.push("Timestamp::now");
    }
    let say = |name: &str, at| format!("{}:{}: {name}: time comes in, or from domain/time.rs", file.path, line_of(&code, at));
    names.iter().flat_map(|name| words(&code, name).map(|at| say(name, at)).collect::<Vec<_>>()).collect()
}

fn length(file: &File, long: &[(&str, &str)]) -> Vec<String> {
    let lines = file.text.lines().count();
    match (lines > LINES, long.iter().any(|(path, reason)| *path == file.path && !reason.is_empty())) {
        (true, false) => vec![format!("{}: {lines} lines; over {LINES} wants a reason in tests/tidy.rs", file.path)],
        (false, true) => vec![format!("{}: {lines} lines need no reason any more", file.path)],
        _ => Vec::new(),
    }
}

fn unwraps(file: &File) -> Vec<String> {
    if !file.path.starts_with("src/") && !file.path.starts_with("examples/") || file.is_test() {
        return Vec::new();
    }
    let code = file.code();
    let places = [".unwrap()", ".unwrap_err()", "#[allow(", "#![allow("].map(|text| code.match_indices(text).collect::<Vec<_>>());
    places.iter().flatten().map(|(at, text)| format!("{}:{}: {text}", file.path, line_of(&code, *at))).collect()
}

fn log_lines(file: &File) -> Vec<String> {
    let code = file.code();
    let mut found = Vec::new();
    for name in ["error!(", "warn!(", "info!(", "debug!(", "trace!("] {
        for at in words(&code, name) {
            // Blanking keeps places, so the literal stands in the text where the code has blanks.
            let mut rest = file.text[at + name.len()..].trim_start();
            if let Some((target, after)) = rest.strip_prefix("target:").and_then(|r| r.split_once(',')) {
                rest = if target.contains(')') { rest } else { after.trim_start() };
            }
            if !rest.starts_with('"') {
                continue;
            }
            let message = &rest[1..quoted(rest, '"') - 1];
            let mut letters = message.chars();
            let capital = letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
            if capital || message.ends_with('.') {
                found.push(format!("{}:{}: a log line is lower case, without a full stop: {message}", file.path, line_of(&code, at)));
            }
        }
    }
    found
}

/// `paths` are files below `migrations/`.
fn migrations(paths: &[String]) -> Vec<String> {
    let mut folders: Vec<_> = paths.iter().filter_map(|path| path.rsplit_once('/').map(|(folder, _)| folder)).collect();
    folders.sort_unstable();
    folders.dedup();
    let has = |folder: &str, name: &str| paths.contains(&format!("{folder}/{name}"));
    let lacking = |folder: &&str| {
        ["up.sql", "down.sql"].into_iter().filter(|name| !has(folder, name)).map(|n| format!("{folder}: no {n}")).collect::<Vec<_>>()
    };
    folders.iter().flat_map(lacking).collect()
}

fn seed_rows(page: &str) -> Vec<String> {
    let rows = (1..=126).map(|n| n.to_string()).chain((1..=13).map(|n| format!("X{n}"))).chain((1..=15).map(|n| format!("T{n}")));
    let mut found = Vec::new();
    for row in rows {
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with(&format!("| {row} |"))).collect();
        match lines[..] {
            [line] if line.split('|').filter(|cell| !cell.trim().is_empty()).count() >= 3 => {}
            [_] => found.push(format!("docs/seeds.md: row {row} does not say where it lives")),
            _ => found.push(format!("docs/seeds.md: {} rows {row}", lines.len())),
        }
        // A path that is named must be there.
        for path in lines.iter().flat_map(|line| line.split('`')).filter(|word| word.starts_with("src/") || word.starts_with("tests/")) {
            if !root().join(path).exists() {
                found.push(format!("docs/seeds.md: row {row}: {path} is not there"));
            }
        }
    }
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("a file").path()) {
        if path.is_dir() { walk(&path, out) } else { out.push(path) }
    }
}

fn below(folder: &str) -> Vec<String> {
    let mut paths = Vec::new();
    walk(&root().join(folder), &mut paths);
    let mut names: Vec<_> =
        paths.iter().map(|path| path.strip_prefix(root()).expect("a file of ours").to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn sources() -> Vec<File> {
    let names = ["src", "tests", "benches", "examples"].into_iter().flat_map(below).filter(|name| name.ends_with(".rs"));
    names.map(|name| File { text: std::fs::read_to_string(root().join(&name)).expect("a text"), path: name }).collect()
}

fn none_of(rule: impl Fn(&File) -> Vec<String>) {
    let files = sources();
    assert!(files.len() > 20, "the sources were not found");
    let found: Vec<_> = files.iter().flat_map(rule).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn imports_point_one_way() {
    for (path, text) in [
        ("src/edge/http/jobs.rs", "use crate::store::Handle;"),
        ("src/edge/http/jobs.rs", "fn f() { crate::store::open() }"),
        ("src/agent/mod.rs", "use crate::{domain::ids, actors::{run, node}};"),
        ("src/domain/run.rs", "use crate::protocol::Problem;"),
        ("src/sdk/mod.rs", "use super::store::x;"),
        ("src/edge/http/jobs.rs", "use super::super::super::store::x;"),
        ("src/store/mod.rs", "use crate::actors;"),
        ("src/crawl/mod.rs", "use crate::cli;"),
    ] {
        assert_eq!(arrows(&File::new(path, text)).len(), 1, "{path}: {text}");
    }
    for (path, text) in [
        (
            "src/edge/http/jobs.rs",
            "// use crate::store;\nuse crate::{domain::ids::{JobId, NodeId}, actors::job};\nlet x = \"crate::store::x\";",
        ),
        ("src/edge/http/jobs.rs", "use super::super::store::x;"),
        ("src/domain/run.rs", "#[cfg(test)]\nmod tests { use crate::store::x; fn f() { if true {} } }\n"),
        ("src/cli/mod.rs", "use crate::store;"),
    ] {
        assert_eq!(arrows(&File::new(path, text)), [""; 0], "{path}: {text}");
    }
    none_of(arrows);
}

#[test]
fn crates_stay_in_their_rooms() {
    for (path, text) in [
        ("src/edge/http/jobs.rs", "use actix_web_actors::ws;"),
        ("src/actors/run/mod.rs", "use diesel::prelude::*;"),
        ("src/sdk/mod.rs", "fn f() { reqwest::get(1) }"),
        ("src/domain/run.rs", "use std::fs;"),
        ("src/protocol/frame.rs", "tokio::spawn(x);"),
    ] {
        assert_eq!(fences(&File::new(path, text)).len(), 1, "{path}: {text}");
    }
    assert!(fences(&File::new("src/edge/ws/session.rs", "use actix_web_actors::ws; use actix::Actor;")).is_empty());
    none_of(fences);
}

#[test]
fn the_clock_has_one_reader() {
    assert_eq!(clock(&File::new("src/actors/run/mod.rs", "let t = std::time::SystemTime::now();")).len(), 1);
    assert_eq!(clock(&File::new("src/domain/run.rs", "let t = Timestamp::now();")).len(), 1);
    assert!(clock(&File::new("src/actors/run/mod.rs", "let t = Timestamp::now();")).is_empty());
    none_of(clock);
}

#[test]
fn files_are_short() {
    let long = "x\n".repeat(LINES + 1);
    assert_eq!(length(&File::new("src/a.rs", &long), &[]).len(), 1);
    assert_eq!(length(&File::new("src/a.rs", &long), &[("src/a.rs", "why")]).len(), 0);
    assert_eq!(length(&File::new("src/a.rs", "x"), &[("src/a.rs", "why")]).len(), 1, "a reason without need");
    none_of(|file| length(file, &LONG));
}

#[test]
fn nothing_unwraps_outside_tests() {
    assert_eq!(unwraps(&File::new("src/a.rs", "x.unwrap();\n#[allow(unused)]")).len(), 2);
    let fine = "x.unwrap_or(1); // .unwrap()\n#[cfg(test)]\nmod tests {\n fn f() { x.unwrap() }\n}\n";
    assert!(unwraps(&File::new("src/a.rs", fine)).is_empty());
    assert_eq!(unwraps(&File::new("src/a.rs", &format!("{fine}x.unwrap()"))).len(), 1, "behind the tests");
    none_of(unwraps);
}

#[test]
fn log_lines_are_plain() {
    for bad in [r#"log::info!("Started x={x}")"#, r#"warn!("it broke.")"#, "error!(\n  target: \"a\", \"Broken\")"] {
        assert_eq!(log_lines(&File::new("src/a.rs", bad)).len(), 1, "{bad}");
    }
    for good in [r#"info!("started x={x}")"#, r#"info!("{x} is there")"#, r#"info!("SQLite {v}")"#, r#"my_info!("Started")"#] {
        assert_eq!(log_lines(&File::new("src/a.rs", good)), [""; 0], "{good}");
    }
    none_of(|file| if file.path.starts_with("src/") { log_lines(file) } else { Vec::new() });
}

#[test]
fn migrations_go_both_ways() {
    assert_eq!(migrations(&["migrations/sqlite/1_a/up.sql".into()]), ["migrations/sqlite/1_a: no down.sql"]);
    let found = migrations(&below("migrations"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_row_of_the_seeds_has_a_place() {
    assert!(seed_rows("| 1 | broker | |").iter().any(|f| f.contains("row 1 does not say")));
    assert!(seed_rows("| 1 | broker | `src/nowhere.rs` |").iter().any(|f| f.contains("src/nowhere.rs is not there")));
    assert_eq!(seed_rows("").len(), 126 + 13 + 15);
    let found = seed_rows(&std::fs::read_to_string(root().join("docs/seeds.md")).unwrap());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
