//! Agents that die and restart, connections that break, orders that are repeated.

use super::super::site::Gate;
use super::*;
use crate::protocol::application::ProgramErrorKind;
use std::sync::Arc;
use std::time::Duration;

#[actix_rt::test]
async fn an_agent_that_was_killed_finds_its_programs_again() {
    let scene = Scene::new();
    let config = scene.config();
    let first = Killable::start(config.clone());
    let go_on = scene.data.path().join("go-on");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go_on.display());
    let ends_later = sh(&format!("echo one; {wait}; echo two; exit 5"));
    let ends_meanwhile = sh(&format!("echo one; {wait}; echo $$ >{0}; echo two; exit 6", scene.data.path().join("over").display()));
    let is_told = sh("trap 'exit 8' TERM; echo one; while :; do sleep 0.01; done");
    for order in [&ends_later, &ends_meanwhile, &is_told] {
        scene.start(order).await;
        scene.line(order, "one").await;
    }
    scene.broker.seen().is_silent = true;
    first.kill().await;
    assert!([&ends_later, &ends_meanwhile, &is_told].iter().all(|order| marked(&order.program) > 0), "they live on");
    std::fs::write(&go_on, "").expect("written");
    no_process(&ends_meanwhile.program).await;
    scene.broker.seen().programs.clear();
    scene.broker.seen().is_silent = false;
    let second = Killable::start(config);
    scene.broker.session(1).await;
    // The broker may not know how the first agent handled it.
    scene.start(&ends_meanwhile).await;
    scene.start(&is_told).await;
    for (order, code) in [(&ends_later, 5), (&ends_meanwhile, 6)] {
        let exit = scene.reached(order, ProgramState::Exited).await.exit.expect("how it ended");
        assert_eq!((exit.code, exit.lines), (Some(code), 2));
        assert_eq!(scene.lines(order, "stdout"), ["one", "two"]);
    }
    scene.reached(&is_told, ProgramState::Running).await;
    scene.exit(&is_told, 20_000).await;
    let exit = scene.reached(&is_told, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!((exit.code, exit.ended_by.as_deref()), (Some(8), Some("exit")));
    assert_eq!(scene.lines(&is_told, "stdout"), ["one"], "it ran once");
    scene.is_clean(&is_told).await;
    second.kill().await;
    scene.broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_program_whose_launcher_was_killed_is_lost_with_all_that_it_started() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let order = sh("(setsid sleep 1000 &); echo ready; sleep 1000");
    scene.start(&order).await;
    scene.line(&order, "ready").await;
    let folder = scene.data.path().join("programs").read_dir().expect("there").next().expect("one").expect("readable").path();
    let started: launch::Started = launch::read(&folder, launch::STATE).expect("readable").expect("it runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(started.launcher.pid), nix::sys::signal::Signal::SIGKILL).expect("killed");
    let report = scene.reached(&order, ProgramState::Lost).await;
    assert_eq!(report.error.map(|e| e.kind), Some(ProgramErrorKind::Lost));
    assert_eq!(scene.lines(&order, "stdout"), ["ready"]);
    scene.is_clean(&order).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn what_was_perhaps_started_is_not_started_again() {
    let scene = Scene::new();
    let mut config = scene.config();
    let witness = scene.data.path().join("witness");
    let hung = scene.data.path().join("hung");
    // A launcher that hangs before it does anything.
    let hangs = ["sh".to_owned(), "-c".to_owned(), format!("echo $$ >{}; exec sleep 1000", hung.display())];
    let launcher = std::mem::replace(&mut config.programs.inner.launcher, hangs.to_vec());
    let first = Killable::start(config.clone());
    let order = sh(&format!("echo ran >>{}", witness.display()));
    scene.start(&order).await;
    scene.reached(&order, ProgramState::Accepted).await;
    let pid = || std::fs::read_to_string(&hung).ok().and_then(|text| text.trim().parse::<i32>().ok());
    until("it is launched", || pid().is_some()).await;
    first.kill().await;
    config.programs.inner.launcher = launcher;
    let second = Killable::start(config);
    scene.broker.session(1).await;
    scene.start(&order).await;
    scene.reached(&order, ProgramState::Lost).await;
    assert!(!witness.exists());
    scene.is_clean(&order).await;
    second.kill().await;
    let pid = nix::unistd::Pid::from_raw(pid().expect("it hangs"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    scene.broker.server.stop(false).await;
}

#[actix_rt::test]
async fn an_order_said_again_is_answered_and_an_unknown_one_is_lost() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let order = sh("echo once; sleep 0.2");
    scene.broker.session(0).await;
    scene.broker.seen().is_silent = true;
    for _ in 0..3 {
        scene.start(&order).await;
    }
    scene.reached(&order, ProgramState::Exited).await;
    let said = scene.reports(&order).len();
    scene.start(&order).await;
    until("it is said again", || scene.reports(&order).len() > said).await;
    scene.exit(&order, 0).await;
    until("and once more", || scene.reports(&order).len() > said + 1).await;
    assert!(scene.reports(&order)[said..].iter().all(|report| report.state == ProgramState::Exited));
    assert_eq!(scene.lines(&order, "stdout"), ["once"]);
    let unknown = sh("");
    scene.exit(&unknown, 0).await;
    scene.reached(&unknown, ProgramState::Lost).await;
    // After a broken connection, reports without an acknowledgement are sent again.
    scene.broker.seen().is_silent = false;
    let said = scene.reports(&order).len();
    scene.broker.session(0).await.do_send(Say::Hang);
    until("it is said in the next session", || scene.reports(&order).len() > said).await;
    scene.is_clean(&order).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn what_an_earlier_agent_accepted_does_not_start_if_programs_are_no_longer_allowed() {
    let scene = Scene::new();
    let mut config = scene.config();
    let gate = Arc::new(Gate::default());
    let (held, package) = (gate.clone(), zip(&[("run", 0o755, b"#!/bin/sh\n")]));
    let site = Site::new(move |_| {
        held.wait(Duration::from_secs(20));
        answer(200, "", &package)
    });
    let first = Killable::start(config.clone());
    let order = packed("run", &site, None);
    scene.start(&order).await;
    scene.reached(&order, ProgramState::Accepted).await;
    until("the package is asked for", || !site.hits().is_empty()).await;
    first.kill().await;
    gate.open();
    config.programs.are_allowed = false;
    let second = Killable::start(config);
    scene.broker.session(1).await;
    let error = scene.reached(&order, ProgramState::Refused).await.error.expect("why");
    assert_eq!((error.kind, site.hits().len()), (ProgramErrorKind::Forbidden, 1), "{}", error.message);
    scene.is_clean(&order).await;
    second.kill().await;
    scene.broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_program_is_in_a_session_without_the_terminal_of_the_agent() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let order = sh("cut -d' ' -f6 /proc/$$/stat");
    scene.start(&order).await;
    scene.reached(&order, ProgramState::Exited).await;
    let own = nix::unistd::getsid(None).expect("a session").to_string();
    assert_ne!(scene.lines(&order, "stdout"), [own]);
    scene.end(agent).await;
}
