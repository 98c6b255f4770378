//! An actor waits only for what stands below it: who waits upwards or sideways may be waited for in turn. The ranks are those of
//! docs/architecture.md.

use super::{File, line_of, sources};
use std::collections::BTreeMap;

/// The actors by rank. Below them all is the store, which anyone may wait for.
const RANKS: [&[&str]; 4] = [
    &["service"],
    &["job"],
    &["run_shell", "run", "task", "application", "callback"],
    &["registry", "placement", "scheduler", "run_owners", "node", "worker", "alerts", "janitor", "recorder"],
];
/// What the context asks of runs for others.
const OF_RUNS: [&str; 3] = ["at_work", "run_at_work", "stop_run"];
fn rank(actor: &str) -> Option<usize> {
    RANKS.iter().position(|actors| actors.contains(&actor))
}

/// `job` for `src/actors/job/message.rs`, `service` for `src/service/jobs.rs`.
fn actor(file: &File) -> Option<&str> {
    if file.path.starts_with("src/service/") {
        return Some("service");
    }
    file.path.strip_prefix("src/actors/")?.split_once('/').map(|(actor, _)| actor)
}

/// The ranks of the actors that answer a question of this name.
type Questions = BTreeMap<String, Vec<usize>>;

fn questions(files: &[File]) -> Questions {
    let mut found: Questions = OF_RUNS.iter().map(|name| ((*name).to_owned(), vec![2])).collect();
    for file in files.iter().filter(|file| file.path.ends_with("/message.rs")) {
        let Some(rank) = actor(file).and_then(rank) else { continue };
        for function in file.code().split("pub fn ").skip(1) {
            let head = function.split('{').next().unwrap_or_default();
            if head.contains("-> Answer<") {
                let name = head.split(['(', '<']).next().unwrap_or_default();
                found.entry(name.to_owned()).or_default().push(rank);
            }
        }
    }
    found
}

/// The method that is called right before this place: `stop` before the end of `run.stop(why, by)`.
fn called_before(code: &str) -> Option<&str> {
    let code = code.trim_end().strip_suffix(')')?;
    let mut depth = 1;
    let open = code.rfind(|c| {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    })?;
    code[..open].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()
}

fn asks(file: &File, questions: &Questions) -> Vec<String> {
    let Some(own) = actor(file).and_then(rank).filter(|_| !file.is_test()) else {
        return Vec::new();
    };
    let code = file.code();
    let waits = code.match_indices(".wait()").map(|(at, _)| (at, called_before(&code[..at])));
    let of_runs = OF_RUNS.iter().flat_map(|name| {
        let call = format!(".{name}(");
        code.match_indices(&call).map(|(at, _)| (at, Some(*name))).collect::<Vec<_>>()
    });
    let mut found = Vec::new();
    for (at, name) in waits.chain(of_runs) {
        let place = format!("{}:{}", file.path, line_of(&code, at));
        match name.and_then(|name| questions.get(name)) {
            // The service is no actor: it may wait for all.
            Some(ranks) if own == 0 || ranks.iter().all(|rank| *rank > own) => {}
            Some(_) => {
                found.push(format!("{place}: waits for {}, which is not below: send a message, or use `then`", name.unwrap_or_default()))
            }
            None if own == 0 => {}
            None => found.push(format!("{place}: it does not show whom this waits for")),
        }
    }
    found
}

#[test]
fn an_actor_waits_only_for_what_is_below_it() {
    let files = sources();
    let questions = questions(&files);
    for (name, ranks) in [("trigger", vec![1]), ("start_run", vec![3]), ("stop", vec![2]), ("list_workers", vec![3])] {
        let mut found = questions.get(name).cloned().unwrap_or_default();
        found.sort_unstable();
        assert!(found.starts_with(&ranks), "{name}: {found:?}");
    }
    for (path, text, faults) in [
        ("src/actors/job/fires.rs", "let made = context.registry().open_job(id).wait().await?.trigger(order).wait().await;", 1),
        ("src/actors/task/effects.rs", "job.ask_next(run, at)\n    .wait()\n    .await", 1),
        ("src/actors/node/mod.rs", "context.stop_run(a, (b)).await", 1),
        ("src/actors/worker/mod.rs", "let a = x.y; a.wait().await", 1),
        ("src/actors/job/fires.rs", "at_work.stop(why(a, b), by).wait().await; context.stop_run(a).await; registry.start_run(a).wait()", 0),
        ("src/actors/job/fires.rs", "job.trigger(order).then(|made| told(made))", 0),
        ("src/service/jobs.rs", "job.trigger(order).wait().await; a.wait().await", 0),
    ] {
        assert_eq!(asks(&File::new(path, text), &questions).len(), faults, "{path}: {text}");
    }
    let found: Vec<String> = files.iter().flat_map(|file| asks(file, &questions)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
