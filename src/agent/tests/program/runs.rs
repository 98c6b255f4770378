//! Programs that succeed, fail, end late, or never end.

use super::*;
use crate::protocol::application::{ProgramErrorKind, ProgramLimits};
use std::time::{Duration, Instant};

#[actix_rt::test]
async fn a_package_runs_with_its_arguments_environment_and_files() {
    let scene = Scene::new();
    let script = "#!/bin/sh\necho \"$1|$OWN|$WEBLOOM_RUN_ID|$WEBLOOM_JOB_ID|$WEBLOOM_INSTANCE/$WEBLOOM_INSTANCES|$WEBLOOM_ATTEMPT|\
                  $WEBLOOM_TRACE_ID|$WEBLOOM_FIRE_TIME|$WEBLOOM_TOKEN|$TRACEPARENT\"\ncat conf/own.txt conf/theirs.txt; wc -c </dev/stdin >&2; pwd";
    let package = zip(&[("bin/run", 0o755, script.as_bytes()), ("conf/theirs.txt", 0o644, b"theirs\n"), ("conf/own.txt", 0o644, b"not\n")]);
    let site = site(package.clone());
    let agent = Running::start(scene.config());
    let mut order = packed("bin/run", &site, Some(sha256(&package).to_uppercase()));
    order.arguments = vec!["$(a) b".to_owned()];
    order.environment = [("OWN", "of its own"), ("WEBLOOM_ATTEMPT", "9")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    order.files = [("conf/own.txt".to_owned(), "own\n".to_owned())].into();
    scene.start(&order).await;
    let exit = scene.reached(&order, ProgramState::Exited).await.exit.expect("how it ended");
    let (run, job) = (order.program.identity, order.job_id);
    let trace = "0123456789abcdef0123456789abcdef";
    let lines = scene.lines(&order, "stdout");
    assert_eq!(lines[0], format!("$(a) b|of its own|{run}|{job}|1/3|1|{trace}|1970-01-01T00:00:00.000Z||00-{trace}-000000000000000a-01"));
    assert_eq!(lines[1..3], ["own", "theirs"]);
    assert!(lines[3].starts_with(&scene.data.path().canonicalize().expect("there").display().to_string()), "{}", lines[3]);
    assert_eq!(scene.lines(&order, "stderr"), ["0"]);
    assert_eq!((exit.code, exit.signal, exit.ended_by, exit.lines), (Some(0), None, None, 5));
    assert!(exit.peak_memory.is_some_and(|bytes| bytes > 100_000) && exit.user_ms.is_some() && exit.system_ms.is_some());
    let states: Vec<_> = scene.reports(&order).iter().map(|report| report.state).collect();
    assert_eq!(states, [ProgramState::Accepted, ProgramState::Running, ProgramState::Exited]);
    assert!(scene.reports(&order)[1].pid.is_some());
    scene.is_clean(&order).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn code_and_signal_are_told() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    for (script, code, signal) in [("exit 7", Some(7), None), ("kill -KILL $$", None, Some(9)), ("kill -s RTMIN $$", None, None)] {
        let order = sh(script);
        scene.start(&order).await;
        let exit = scene.reached(&order, ProgramState::Exited).await.exit.expect("how it ended");
        assert_eq!((exit.code, exit.signal, exit.ended_by), (code, signal, None), "{script}");
        scene.is_clean(&order).await;
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn one_is_asked_then_killed_and_delays_no_other() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let stubborn = sh("trap '' TERM; echo ready; while :; do sleep 100; done");
    let polite = sh("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    for order in [&stubborn, &polite] {
        scene.start(order).await;
        scene.line(order, "ready").await;
    }
    scene.exit(&stubborn, 60_000).await;
    scene.exit(&polite, 60_000).await;
    let exit = scene.reached(&polite, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!((exit.code, exit.ended_by.as_deref()), (Some(3), Some("exit")));
    scene.line(&polite, "bye").await;
    assert!(marked(&stubborn.program) > 0, "it has its grace");
    scene.exit(&stubborn, 60_000).await;
    scene.exit(&stubborn, 50).await;
    let exit = scene.reached(&stubborn, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!((exit.code, exit.signal, exit.ended_by.as_deref()), (None, Some(9), Some("exit")));
    scene.exit(&stubborn, 50).await;
    scene.is_clean(&stubborn).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn all_that_it_started_dies_with_it() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    // A child; one that left its session and its parent; and one that also cleared its environment.
    let forks = "sleep 1000 & (setsid sleep 1001 &) ; (setsid env -i sleep 1002 & echo $! >away) ; sleep 0.05; cat away; echo ready;";
    for (rest, by) in [("exit 4", None), ("wait; sleep 1000", Some("exit"))] {
        let order = sh(&format!("{forks} {rest}"));
        scene.start(&order).await;
        scene.line(&order, "ready").await;
        let away: i32 = scene.lines(&order, "stdout")[0].parse().expect("a pid");
        if by.is_some() {
            assert!(launch::proc::Process::now(away).is_some() && marked(&order.program) >= 3);
            scene.exit(&order, 20_000).await;
        }
        let exit = scene.reached(&order, ProgramState::Exited).await.exit.expect("how it ended");
        assert_eq!(exit.ended_by.as_deref(), by);
        assert!(launch::proc::Process::now(away).is_none(), "one got away");
        scene.is_clean(&order).await;
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn a_flood_is_taken_whole_and_never_fills_the_disk() {
    const LINES: usize = 400_000;
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.inner.backlog_bytes = 1 << 20;
    config.programs.inner.window_lines = 3_000;
    let agent = Running::start(config);
    let mut flood = sh(&format!("yes 'a line of some length, as programs write them' | head -n {LINES}; echo end >&2"));
    flood.timeout = None;
    scene.broker.seen().is_silent = true;
    scene.start(&flood).await;
    until("the window is full", || scene.lines(&flood, "stdout").len() == 3_000).await;
    let folder = scene.data.path().join("programs");
    let bytes = || -> u64 {
        let output = folder.read_dir().into_iter().flatten().flatten().map(|e| e.path().join("output"));
        output.flat_map(|path| path.read_dir().into_iter().flatten().flatten()).map(|e| e.metadata().map_or(0, |m| m.len())).sum()
    };
    until("its launcher stops reading", || bytes() > 1 << 20).await;
    let beats = scene.broker.seen().heartbeats.len();
    until("some time has passed", || scene.broker.seen().heartbeats.len() > beats + 5).await;
    assert!(bytes() < 2 << 20, "{}", bytes());
    assert_eq!(scene.lines(&flood, "stdout").len(), 3_000, "no more than the window");
    scene.broker.seen().is_silent = false;
    scene.say(&ToNode::OutputTaken { program: flood.program, next: 3_000 }).await;
    let exit = scene.reached(&flood, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!((exit.code, exit.lines), (Some(0), LINES as u64 + 1));
    assert_eq!(scene.lines(&flood, "stdout").len(), LINES);
    assert_eq!(scene.lines(&flood, "stderr"), ["end"]);
    scene.is_clean(&flood).await;
    scene.end(agent).await;
}

/// The actor of the run was rebuilt while they were on their way: it names the first line that it lacks.
#[actix_rt::test]
async fn lines_that_the_broker_lacks_are_sent_again() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let order = sh("seq 3; sleep 600");
    scene.broker.seen().is_silent = true;
    scene.start(&order).await;
    until("they are sent", || scene.lines(&order, "stdout").len() == 3).await;
    scene.broker.seen().outputs.clear();
    scene.say(&ToNode::OutputTaken { program: order.program, next: 0 }).await;
    until("they are sent again", || scene.lines(&order, "stdout").len() == 3).await;
    scene.broker.seen().is_silent = false;
    scene.exit(&order, 0).await;
    scene.reached(&order, ProgramState::Exited).await;
    scene.is_clean(&order).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn lines_of_any_kind_arrive() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let order = sh(r"head -c 20000 /dev/zero | tr '\0' x; printf '\nnul \0 bad \377 cr\r\n\nno end'");
    scene.start(&order).await;
    scene.reached(&order, ProgramState::Exited).await;
    let lines = scene.lines(&order, "stdout");
    assert_eq!(lines.iter().map(String::len).take(3).collect::<Vec<_>>(), [8_192, 8_192, 3_616]);
    assert_eq!(lines[3..], ["nul \u{2400} bad \u{fffd} cr", "", "no end"]);
    scene.end(agent).await;
}

#[actix_rt::test]
async fn what_is_not_there_is_refused() {
    let scene = Scene::new();
    let site = site(zip(&[("a.txt", 0o644, b"no program"), ("bad", 0o755, b"#!/no/such/interpreter\n")]));
    let agent = Running::start(scene.config());
    let (missing, format) = (ProgramErrorKind::NotFound, ProgramErrorKind::Spawn);
    for (order, kind) in [
        (order("webloom-no-such-program", &[]), missing),
        (order("/no/such/program", &[]), missing),
        (order("/etc", &[]), missing),
        (order("../../../bin/sh", &[]), missing),
        (order("", &[]), missing),
        (packed("bin/none", &site, None), missing),
        (packed("a.txt", &site, None), format),
        (packed("bad", &site, None), format),
        (order("sh", &["a\0b"]), format),
    ] {
        scene.start(&order).await;
        let report = scene.reached(&order, ProgramState::Refused).await;
        assert_eq!(report.error.as_ref().map(|e| e.kind), Some(kind), "{} {:?}", order.application, report.error);
        scene.is_clean(&order).await;
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn limits_hold_and_the_agents_are_above_the_orders() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.limits = ProgramLimits { memory: Some(256 << 20), open_files: Some(50), ..ProgramLimits::default() };
    let agent = Running::start(config);
    let hungry = |memory| ProgramOrder {
        limits: ProgramLimits { memory, open_files: Some(40), ..ProgramLimits::default() },
        ..order(
            "python3",
            &[
                "-c",
                "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE)[1], r.getrlimit(r.RLIMIT_CORE)[1]); x = bytearray(150 << 20); print(len(x) >> 20)",
            ],
        )
    };
    for (memory, lines) in [(Some(100 << 20), &["40 0"][..]), (Some(1 << 40), &["40 0", "150"])] {
        let order = hungry(memory);
        scene.start(&order).await;
        let exit = scene.reached(&order, ProgramState::Exited).await.exit.expect("how it ended");
        assert_eq!(scene.lines(&order, "stdout"), lines);
        assert_eq!(exit.code, Some(i32::from(lines.len() == 1)), "{:?}", scene.lines(&order, "stderr"));
        assert!(lines.len() == 1 || exit.peak_memory.is_some_and(|bytes| bytes > 150 << 20), "{exit:?}");
    }
    let mut busy = sh("while :; do :; done");
    busy.limits.cpu_seconds = Some(1);
    scene.start(&busy).await;
    let exit = scene.reached(&busy, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!(exit.signal, Some(24), "SIGXCPU: {exit:?}");
    assert!(exit.user_ms.is_some_and(|ms| ms > 500));
    scene.is_clean(&busy).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn its_time_is_limited() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let mut order = sh("trap '' TERM; while :; do sleep 1000; done");
    (order.timeout, order.grace) = (Some(150), 150);
    let began = Instant::now();
    scene.start(&order).await;
    let exit = scene.reached(&order, ProgramState::Exited).await.exit.expect("how it ended");
    assert!(began.elapsed() >= Duration::from_millis(300) && exit.wall_ms >= 300, "{exit:?}");
    assert_eq!((exit.signal, exit.ended_by.as_deref()), (Some(9), Some("timeout")));
    scene.is_clean(&order).await;
    scene.end(agent).await;
}
