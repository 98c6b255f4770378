//! Agents that stop: stopped, drained, ordered to leave.

use super::*;
use crate::config::programs::AtStop;
use crate::protocol::application::ProgramErrorKind;
use std::time::Duration;

const WAITS: &str = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done";

#[actix_rt::test]
async fn a_stopped_agent_ends_its_programs_or_keeps_them() {
    let scene = Scene::new();
    let mut config = scene.config();
    let agent = Running::start(config.clone());
    let ended = sh(WAITS);
    scene.start(&ended).await;
    scene.line(&ended, "ready").await;
    agent.stop().await.expect("a clean end");
    let report = scene.reached(&ended, ProgramState::Exited).await;
    assert_eq!(report.exit.and_then(|exit| exit.ended_by).as_deref(), Some("agent"));
    assert_eq!((scene.lines(&ended, "stdout"), marked(&ended.program)), (vec!["ready".to_owned(), "bye".to_owned()], 0));

    config.programs.at_stop = AtStop::Keep;
    config.waits.drain = Duration::from_millis(50);
    let kept = sh(WAITS);
    let sessions = scene.broker.seen().sessions.len();
    let agent = Killable::start(config.clone());
    scene.broker.session(sessions).await;
    scene.start(&kept).await;
    scene.line(&kept, "ready").await;
    agent.kill().await;
    let agent = Running::start(config.clone());
    scene.broker.session(sessions + 1).await;
    agent.stop().await.expect("a clean end");
    assert!(marked(&kept.program) > 0);
    config.programs.at_stop = AtStop::End;
    let agent = Running::start(config);
    scene.broker.session(sessions + 2).await;
    scene.exit(&kept, 20_000).await;
    scene.reached(&kept, ProgramState::Exited).await;
    scene.is_clean(&kept).await;
    scene.end(agent).await;
}

#[actix_rt::test]
async fn a_drained_agent_finishes_what_it_has_and_takes_nothing_new() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let (old, new) = (sh(WAITS), sh("echo no"));
    scene.start(&old).await;
    scene.line(&old, "ready").await;
    scene.say(&ToNode::Drain { reason: Some("a test".to_owned()) }).await;
    scene.start(&new).await;
    let refused = scene.reached(&new, ProgramState::Refused).await;
    assert_eq!(refused.error.map(|e| e.kind), Some(ProgramErrorKind::Busy));
    assert!(!agent.ended.is_finished() && marked(&old.program) > 0);
    scene.exit(&old, 20_000).await;
    scene.reached(&old, ProgramState::Exited).await;
    until("it ends", || agent.ended.is_finished()).await;
    agent.ended.await.expect("no panic").expect("a clean end");
    assert_eq!(scene.broker.seen().sessions.len(), 1, "it does not come back");
    no_process(&old.program).await;
    scene.broker.server.stop(false).await;
}

#[actix_rt::test]
async fn an_agent_that_is_told_to_leave_ends_all_and_goes() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.at_stop = AtStop::Keep;
    let agent = Killable::start(config);
    let mut stubborn = sh("trap '' TERM; echo ready; while :; do sleep 1000; done");
    stubborn.grace = 100;
    scene.start(&stubborn).await;
    scene.line(&stubborn, "ready").await;
    scene.say(&ToNode::Leave { reason: "it was removed".to_owned() }).await;
    agent.ended().await.expect("a clean end");
    let report = scene.reached(&stubborn, ProgramState::Exited).await;
    assert_eq!(report.exit.and_then(|exit| exit.signal), Some(9));
    assert_eq!(scene.broker.seen().sessions.len(), 1, "it does not come back");
    no_process(&stubborn.program).await;
    scene.broker.server.stop(false).await;
}

#[actix_rt::test]
async fn a_program_ends_even_if_its_launcher_cannot_be_told() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let (polite, mut stubborn) = (sh(WAITS), sh("trap '' TERM; echo ready; while :; do sleep 1000; done"));
    stubborn.grace = 100;
    for order in [&polite, &stubborn] {
        scene.start(order).await;
        scene.line(order, "ready").await;
    }
    for folder in scene.data.path().join("programs").read_dir().expect("there").flatten() {
        // No file can get this name, as on a full disk.
        std::fs::create_dir(folder.path().join(launch::END)).expect("made");
    }
    scene.exit(&polite, 20_000).await;
    let exit = scene.reached(&polite, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!((exit.code, scene.lines(&polite, "stdout")), (Some(3), vec!["ready".to_owned(), "bye".to_owned()]));
    scene.exit(&stubborn, 100).await;
    scene.reached(&stubborn, ProgramState::Lost).await;
    scene.is_clean(&stubborn).await;
    scene.end(agent).await;
}
